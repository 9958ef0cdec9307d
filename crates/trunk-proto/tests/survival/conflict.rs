//! Two hosts with one address. The conflict is reported, and leaves nothing behind when it ends.

use crate::network::{MILLISECOND, Network, SECOND};
use crate::{TOPOLOGIES, settle};
use farcall_trunk_proto::{ConflictKind, Event};

fn conflicts(network: &Network, host: usize) -> Vec<ConflictKind> {
    let events = network.hosts[host].events.iter();
    let found = events.filter_map(|(_, event)| match event {
        Event::AddressConflict(conflict) => Some(conflict.kind),
        _ => None,
    });
    found.collect()
}

#[test]
fn four_seconds_with_another_hosts_address_end_no_peering() {
    // With one link and with two; the other host has only the link's address, or is a clone.
    for (seed, (topology, clone)) in [(0, false), (0, true), (1, false), (1, true)]
        .into_iter()
        .enumerate()
    {
        let (_, links, _) = TOPOLOGIES[topology];
        let case = format!("{} links, clone: {clone}", topology + 1);
        let mut network = settle(Network::keyless(60 + seed as u64, links));
        network.stream(1, 0, 5e6);
        network.run(300 * MILLISECOND);
        let impostor = network.add_impostor(1, 0, clone);
        network.run(4 * SECOND);
        let status = network.hosts[0].trunk.status();
        assert!(!status.conflicts.is_empty(), "{case}: {status:?}");
        network.unplug(impostor);
        // Also after the other host is forgotten.
        for pause in [200 * MILLISECOND, 6 * SECOND] {
            network.run(pause);
            network.reset_counts();
            network.run(SECOND);
            let received = network.hosts[0].received[1];
            assert!(
                received > 3530,
                "{case}: {received} frames, {:#?}",
                network.hosts[0].trunk.status()
            );
        }
        let kind = match clone {
            true => ConflictKind::PeerNode,
            false => ConflictKind::PeerLink,
        };
        assert!(conflicts(&network, 0).contains(&kind), "{case}");
        let told = network.hosts[0].events.len();
        assert!(told < 30, "{case}: {told} events");
        // The host whose address it is hears the other's hellos.
        let own = conflicts(&network, 1);
        assert!(own.contains(&ConflictKind::OwnLink), "{case}: {own:?}");
        assert_eq!(own.contains(&ConflictKind::OwnNode), clone, "{case}");
        // A minute later the conflict is over.
        network.stop_streams();
        network.run(70 * SECOND);
        let status = network.hosts[0].trunk.status();
        assert!(status.conflicts.is_empty(), "{case}: {status:?}");
    }
}

#[test]
fn a_host_that_gets_no_answer_is_found_by_its_hellos() {
    for (clone, kind) in [
        (false, ConflictKind::PeerLink),
        (true, ConflictKind::PeerNode),
    ] {
        let mut network = settle(Network::keyless(66, TOPOLOGIES[0].1));
        let impostor = network.add_impostor(1, 0, clone);
        network.hosts[impostor].ports[0].faults.deaf_in = true;
        network.run(4 * SECOND);
        assert_eq!(conflicts(&network, 0), [kind]);
    }
}

#[test]
fn a_host_that_takes_over_the_address_of_one_that_is_gone_is_no_conflict() {
    for clone in [false, true] {
        let mut network = settle(Network::keyless(67, TOPOLOGIES[0].1));
        network.unplug(1);
        network.run(SECOND);
        network.add_impostor(1, 0, clone);
        network.run(4 * SECOND);
        assert_eq!(conflicts(&network, 0), [], "clone: {clone}");
    }
}

#[test]
fn a_loop_in_the_network_is_no_conflict() {
    let mut network = settle(Network::keyless(65, TOPOLOGIES[1].1));
    network.stream(1, 0, 5e6);
    network.run(300 * MILLISECOND);
    // Frames that host 1 sends on one link come back to it on both.
    for _ in 0..100 {
        network.run(MILLISECOND);
        let port = &network.hosts[1].ports[0];
        let (source, data, control) = (
            port.address,
            port.sniffed.clone(),
            port.sniffed_control.clone(),
        );
        for link in 0..2 {
            network.inject(1, link, source, &data);
            network.inject(1, link, source, &control);
        }
    }
    for host in 0..2 {
        assert_eq!(conflicts(&network, host), []);
    }
}
