//! Runs whole trunks on an emulated network, in virtual time and from seeds. The tests check that
//! rates are full and fair, that frames arrive in order and at most once, and that silent failures
//! are found and repaired.

mod conflict;
mod forgery;
mod hub;
mod network;
mod secrecy;

use farcall_random::SplitMix64;
use farcall_trunk_proto::{Event, LinkConfig, Mac, Policy};
use network::{Faults, MILLISECOND, Network, SECOND, jain};

type Topology = (&'static str, &'static [&'static [usize]], &'static [f64]);

/// The paper's topologies: the server first, then the clients, and the clients' ideal shares.
const TOPOLOGIES: &[Topology] = &[
    ("a", &[&[0], &[0]], &[1.0]),
    ("b", &[&[0, 1], &[0, 1]], &[2.0]),
    ("c", &[&[0, 1], &[0, 1], &[0, 1]], &[1.0, 1.0]),
    ("d", &[&[0, 1], &[0], &[0, 1]], &[1.0, 1.0]),
    ("e", &[&[0, 1], &[0, 1], &[0, 1], &[0, 1]], &[2.0 / 3.0; 3]),
    ("f", &[&[0, 1], &[0], &[0, 1], &[0, 1]], &[2.0 / 3.0; 3]),
    ("g", &[&[0, 1], &[0], &[0, 1], &[1]], &[2.0 / 3.0; 3]),
    ("h", &[&[0, 1], &[0], &[0, 1], &[0]], &[0.5, 1.0, 0.5]),
];

/// A network whose nodes have found each other.
fn settled(seed: u64, policy: Policy, topology: &[&[usize]]) -> Network {
    settle(Network::new(seed, policy, topology))
}

fn settle(mut network: Network) -> Network {
    network.run(400 * MILLISECOND);
    for host in &network.hosts {
        let found = host.trunk.status().peers;
        assert!(
            found
                .iter()
                .all(|peer| peer.links.iter().any(|link| link.state == "up"))
        );
    }
    network
}

fn saturate(network: &mut Network, clients: usize) {
    (1..=clients).for_each(|client| network.stream(client, 0, 30e6));
}

#[test]
fn max_min_is_full_and_fair_from_the_start() {
    for (name, topology, ideal) in TOPOLOGIES {
        let mut network = settled(1, Policy::MaxMin, topology);
        saturate(&mut network, ideal.len());
        network.reset_counts();
        network.run(SECOND);
        let shares = network.shares(SECOND);
        let full = shares.iter().sum::<f64>() / ideal.iter().sum::<f64>();
        let fair = jain(&shares, ideal);
        assert!(
            full > 0.97 && full < 1.01,
            "({name}): sum {full:.3} of ideal, {shares:.3?}"
        );
        assert!(fair > 0.99, "({name}): Jain {fair:.4}, {shares:.3?}");
        let overflows: u64 = network
            .hosts
            .iter()
            .flat_map(|h| &h.ports)
            .map(|port| port.overflows)
            .sum();
        assert_eq!(overflows, 0, "({name})");
    }
}

#[test]
fn every_policy_carries_traffic_in_order() {
    for policy in [Policy::RoundRobin, Policy::LinkCount, Policy::Traffic] {
        for (name, topology, ideal) in TOPOLOGIES {
            let mut network = settled(2, policy, topology);
            saturate(&mut network, ideal.len());
            network.run(SECOND);
            let shares = network.shares(SECOND);
            assert!(
                shares.iter().all(|share| *share > 0.1),
                "{policy:?} ({name}): {shares:.3?}"
            );
        }
    }
}

#[test]
fn published_weights_are_those_of_the_paper() {
    // (d) with RI2N+: the server hears two clients on link 0 and one on link 1.
    let mut network = settled(3, Policy::LinkCount, TOPOLOGIES[3].1);
    saturate(&mut network, 2);
    network.run(SECOND);
    let weights: Vec<_> = network.hosts[2]
        .trunk
        .status()
        .peers
        .iter()
        .find(|peer| peer.node == network.hosts[0].node)
        .map(|peer| peer.links.iter().map(|link| link.weight.unwrap()).collect())
        .unwrap();
    assert_eq!(weights, [1.0, 2.0]);
    // RI2N++ moves away from the link that it shares.
    let mut network = settled(3, Policy::Traffic, TOPOLOGIES[3].1);
    saturate(&mut network, 2);
    network.run(4 * SECOND);
    let status = network.hosts[2].trunk.status();
    let server = status
        .peers
        .iter()
        .find(|peer| peer.node == network.hosts[0].node)
        .unwrap();
    assert!(
        server.links[1].weight > server.links[0].weight,
        "{:?}",
        server.links
    );
}

#[test]
fn a_quiet_neighbour_does_not_reduce_the_rate() {
    let mut network = settled(4, Policy::MaxMin, TOPOLOGIES[3].1);
    network.sparse_stream(1, 0, SECOND / 10);
    network.stream(2, 0, 30e6);
    network.reset_counts();
    network.run(SECOND);
    let shares = network.shares(SECOND);
    assert!(shares[1] > 1.94, "{shares:.3?}");
    assert_eq!(network.hosts[0].received[1], 10);
}

#[test]
fn shares_follow_a_change_of_topology_at_once() {
    // (e) to (f): the first client loses link 1.
    let mut network = settled(5, Policy::MaxMin, TOPOLOGIES[4].1);
    saturate(&mut network, 3);
    network.run(SECOND);
    network.hosts[1].trunk.handle_carrier(network.now, 1, false);
    network.hosts[3].trunk.handle_carrier(network.now, 1, false);
    network.run(100 * MILLISECOND);
    network.reset_counts();
    network.run(200 * MILLISECOND);
    let shares = network.shares(200 * MILLISECOND);
    for (share, ideal) in shares.iter().zip([0.5, 1.0, 0.5]) {
        assert!((share - ideal).abs() < 0.05 * ideal, "{shares:.3?}");
    }
}

#[test]
fn rates_that_no_interface_reports_are_learned() {
    // (c): the server's link 1 carries half of the rate that it announces.
    let mut network = settled(11, Policy::MaxMin, TOPOLOGIES[2].1);
    network.hosts[0].ports[1].rate /= 2.0;
    saturate(&mut network, 2);
    network.run(SECOND);
    network.reset_counts();
    network.run(SECOND);
    let shares = network.shares(SECOND);
    let full = shares.iter().sum::<f64>() / 1.5;
    assert!(
        full > 0.95 && jain(&shares, &[0.75; 2]) > 0.97,
        "{shares:.3?}"
    );
}

#[test]
fn a_narrow_path_of_one_peer_does_not_limit_the_link() {
    // (c): the path between the second client and link 1 carries only half of the rate.
    let mut network = settled(14, Policy::MaxMin, TOPOLOGIES[2].1);
    network.hosts[2].ports[1].rate /= 2.0;
    saturate(&mut network, 2);
    network.run(SECOND);
    network.reset_counts();
    network.run(2 * SECOND);
    let shares = network.shares(2 * SECOND);
    assert!(shares.iter().all(|share| *share > 0.95), "{shares:.3?}");
}

#[test]
fn topologies_are_full_and_fair_if_interfaces_report_100_times_the_rate() {
    for (name, topology, ideal) in TOPOLOGIES {
        let claimed = 100.0 * network::FAST_ETHERNET;
        let mut network = settle(Network::claiming(12, Policy::MaxMin, topology, claimed));
        saturate(&mut network, ideal.len());
        for (seconds, enough) in [(1, 0.90), (2, 0.97)] {
            network.reset_counts();
            network.run(seconds * SECOND);
            let shares = network.shares(seconds * SECOND);
            let full = shares.iter().sum::<f64>() / ideal.iter().sum::<f64>();
            let fair = jain(&shares, ideal);
            assert!(
                full > enough && fair > 0.97,
                "({name}), {seconds} s: {full:.3} {fair:.4} {shares:.3?}"
            );
        }
    }
}

#[test]
fn random_losses_do_not_change_the_rate() {
    for (loss, links) in [(5_000, 1), (30_000, 2)] {
        let mut network = settled(13, Policy::MaxMin, TOPOLOGIES[1].1);
        for port in &mut network.hosts[1].ports[..links] {
            port.faults.loss = loss;
        }
        saturate(&mut network, 1);
        network.reset_counts();
        network.run(3 * SECOND);
        let share = network.shares(3 * SECOND)[0] / 2.0;
        // Lost frames are sent again, which takes time on the wire.
        let most = 1.0 - loss as f64 / 1e6;
        assert!(
            share > 0.97 * most,
            "{loss} in a million on {links} links: {share:.3}"
        );
    }
}

#[test]
fn losses_are_repaired() {
    let mut network = settled(6, Policy::MaxMin, TOPOLOGIES[1].1);
    network.hosts[0].ports[1].faults.loss = 5_000;
    network.stream(1, 0, 20e6);
    network.run(2 * SECOND);
    network.stop_streams();
    network.run(100 * MILLISECOND);
    let server = network.hosts[0].trunk.status();
    let lost: u64 = server.peers[0].links.iter().map(|link| link.lost).sum();
    assert!(lost > 50, "{lost} lost");
    assert!(server.peers[0].given_up * 50 <= lost, "{server:?}");
}

#[test]
fn silent_failures_are_found_and_healed() {
    for (seed, (deaf_in, deaf_out)) in [(7, (true, false)), (8, (false, true)), (9, (true, true))] {
        let mut network = settled(seed, Policy::MaxMin, TOPOLOGIES[1].1);
        network.stream(1, 0, 20e6);
        network.run(SECOND);
        network.reset_counts();
        let before = network.hosts[0].received[1];
        network.hosts[1].ports[1].faults = Faults {
            deaf_in,
            deaf_out,
            ..Faults::default()
        };
        network.run(300 * MILLISECOND);
        let server = &network.hosts[0];
        let pause = server.longest_pause;
        assert!(
            pause < 60 * MILLISECOND,
            "{deaf_in} {deaf_out}: {} ms",
            pause / MILLISECOND
        );
        let down = |event: &Event| matches!(event, Event::LinkDown { link: 1, .. });
        assert!(
            server.events.iter().any(|(_, event)| down(event)),
            "{:?}",
            server.events
        );
        assert!(server.received[1] - before > 2000);
        assert_eq!(server.trunk.status().peers[0].given_up, 0);
        network.hosts[1].ports[1].faults = Faults::default();
        let repaired = network.now;
        network.run(200 * MILLISECOND);
        let up = |event: &Event| matches!(event, Event::LinkUp { link: 1, .. });
        let mut events = network.hosts[1].events.iter();
        assert!(events.any(|(at, event)| *at >= repaired && up(event)));
    }
}

/// A node that gets no processor time for a while finds frames of all links at once, and handles
/// those of one link first.
#[test]
fn a_starved_node_takes_no_link_for_dead() {
    let mut network = settled(11, Policy::MaxMin, TOPOLOGIES[1].1);
    network.stream(1, 0, 5e6);
    let before: Vec<usize> = network.hosts.iter().map(|host| host.events.len()).collect();
    for pause in (0..60).map(|round| 15 + 7 * (round % 20)) {
        let host = usize::from(pause % 2 == 0);
        network.run(100 * MILLISECOND);
        network.starve(host, pause * MILLISECOND);
        network.run(pause * MILLISECOND);
    }
    for (host, before) in network.hosts.iter().zip(before) {
        let down = |event: &&(u64, Event)| matches!(event.1, Event::LinkDown { .. });
        let failures: Vec<_> = host.events[before..].iter().filter(down).collect();
        assert!(failures.is_empty(), "{failures:?}");
    }
}

/// Other work takes 5 of every 25 ms from both nodes, at the same time or not.
#[test]
fn nodes_that_are_often_late_lose_no_rate() {
    for apart in [0, 2, 5, 12] {
        let mut network = settled(15, Policy::MaxMin, TOPOLOGIES[1].1);
        saturate(&mut network, 1);
        let seconds = |network: &mut Network, seconds: u64| {
            for _ in 0..40 * seconds {
                network.starve(0, 5 * MILLISECOND);
                network.run(apart * MILLISECOND);
                network.starve(1, 5 * MILLISECOND);
                network.run((25 - apart) * MILLISECOND);
            }
        };
        seconds(&mut network, 1);
        network.reset_counts();
        seconds(&mut network, 3);
        let shares = network.shares(3 * SECOND);
        assert!(shares[0] > 1.97, "{apart} ms apart: {shares:.3?}");
    }
}

/// Seconds from the failure of one of two links until its receiver takes it out, if it does so
/// within six seconds. The sender sends this many bytes a second.
fn detection(mut network: Network, rate: f64, phase: u64) -> Option<f64> {
    network.stream(1, 0, rate);
    network.run(SECOND + phase * 100 * MILLISECOND);
    network.hosts[1].ports[1].faults.deaf_out = true;
    let failed = network.now;
    network.run(6 * SECOND);
    let down = |event: &Event| matches!(event, Event::LinkDown { link: 1, .. });
    let mut events = network.hosts[0].events.iter();
    let found = events.find(|(at, event)| *at >= failed && down(event));
    found.map(|(at, _)| (at - failed) as f64 / 1e9)
}

#[test]
fn counts_find_failures_of_busy_links_within_a_span_and_heartbeats_at_once() {
    let (_, topology, _) = TOPOLOGIES[1];
    // Of both links together: all, a tenth, a hundredth.
    for (rate, found_by_counts) in [(24e6, true), (2.4e6, true), (0.24e6, false)] {
        let find = |counting: bool| -> Vec<Option<f64>> {
            let network = |phase| match counting {
                true => settle(Network::counting(7 + phase, topology)),
                false => settled(7 + phase, Policy::RoundRobin, topology),
            };
            let phases = [0, 5, 10, 15];
            phases
                .map(|phase| detection(network(phase), rate, phase))
                .to_vec()
        };
        let (counts, heartbeats) = (find(true), find(false));
        println!("{rate:e} B/s: counts {counts:.3?}, heartbeats {heartbeats:.3?}");
        assert!(
            heartbeats
                .iter()
                .all(|found| found.is_some_and(|s| s < 0.06))
        );
        match found_by_counts {
            true => assert!(counts.iter().all(|found| found.is_some_and(|s| s < 4.2))),
            false => assert!(counts.iter().all(Option::is_none)),
        }
    }
}

#[test]
fn frames_survive_bad_links_at_most_once_and_in_order() {
    // The network asserts order and uniqueness of every frame.
    for seed in 0..12 {
        let mut random = SplitMix64::new(seed);
        let (_, topology, ideal) = TOPOLOGIES[1 + random.below(7) as usize];
        let policy = match random.below(4) {
            0 => Policy::Traffic,
            1 => Policy::RoundRobin,
            _ => Policy::MaxMin,
        };
        let mut network = settled(seed, policy, topology);
        for host in &mut network.hosts {
            for port in &mut host.ports {
                port.faults = Faults {
                    loss: random.below(30_000),
                    duplication: random.below(30_000),
                    reordering: random.below(30_000),
                    delay: random.below(3) * MILLISECOND,
                    ..Faults::default()
                };
            }
        }
        saturate(&mut network, ideal.len());
        (1..=ideal.len()).for_each(|client| network.sparse_stream(0, client, MILLISECOND));
        network.run(SECOND);
        for client in 1..=ideal.len() {
            assert!(
                network.hosts[0].received[client] > 100,
                "seed {seed}, client {client}"
            );
            assert!(
                network.hosts[client].received[0] > 500,
                "seed {seed}, client {client}"
            );
        }
        for peer in network
            .hosts
            .iter()
            .flat_map(|host| host.trunk.status().peers)
        {
            assert!(peer.held_frames <= 4096 && peer.queued_bytes <= 4 << 20);
        }
    }
}

/// A server on every switch, and clients on some: 63 clients and 8 switches at most for seed 0.
fn random_topology(seed: u64) -> Vec<Vec<usize>> {
    let mut random = SplitMix64::new(100 + seed);
    let switches = 1 + random.below(if seed == 0 { 8 } else { 4 }) as usize;
    let clients = 1 + random.below(if seed == 0 { 63 } else { 8 }) as usize;
    let mut topology = vec![(0..switches).collect()];
    for _ in 0..clients {
        let first = random.below(switches as u64) as usize;
        let links = (0..switches).filter(|s| *s == first || random.below(3) == 0);
        topology.push(links.collect());
    }
    topology
}

#[test]
fn published_policies_carry_traffic_in_order_on_random_networks() {
    for policy in [Policy::RoundRobin, Policy::LinkCount, Policy::Traffic] {
        // 64 nodes with up to 8 links, and smaller ones.
        let full = (1..64).map(|client: usize| vec![client % 8, (client / 8) % 8]);
        let mut largest = vec![(0..8).collect::<Vec<usize>>()];
        largest.extend(full.map(|mut links| {
            links.sort_unstable();
            links.dedup();
            links
        }));
        for topology in [largest, random_topology(1), random_topology(2)] {
            let borrowed: Vec<&[usize]> = topology.iter().map(Vec::as_slice).collect();
            let mut network = settled(20, policy, &borrowed);
            let clients = topology.len() - 1;
            (1..=clients).for_each(|client| network.stream(client, 0, 2e6));
            network.run(300 * MILLISECOND);
            let received = &network.hosts[0].received[1..];
            assert!(
                received.iter().all(|frames| *frames > 20),
                "{policy:?}: {received:?}"
            );
        }
    }
}

#[test]
fn random_networks_find_each_other_and_are_fair() {
    for seed in 0..6 {
        let topology = random_topology(seed);
        let (switches, clients) = (topology[0].len(), topology.len() - 1);
        let borrowed: Vec<&[usize]> = topology.iter().map(Vec::as_slice).collect();
        let mut network = settled(seed, Policy::MaxMin, &borrowed);
        saturate(&mut network, clients);
        network.run(200 * MILLISECOND);
        network.reset_counts();
        network.run(200 * MILLISECOND);
        let claims: Vec<farcall_trunk_proto::grants::Claim> = topology[1..]
            .iter()
            .map(|links| {
                let mut caps = [0.0; 8];
                links.iter().for_each(|link| caps[*link] = 1.0);
                farcall_trunk_proto::grants::Claim {
                    demand: f64::INFINITY,
                    caps,
                }
            })
            .collect();
        let ideal = farcall_trunk_proto::grants::water_fill(&vec![1.0; switches], &claims);
        let shares = network.shares(200 * MILLISECOND);
        assert!(
            jain(&shares, &ideal) > 0.98,
            "seed {seed}: {shares:.3?} for {ideal:.3?}"
        );
        let full = shares.iter().sum::<f64>() / ideal.iter().sum::<f64>();
        assert!(
            full > 0.93,
            "seed {seed}: {full:.3}: {shares:.3?} for {ideal:.3?}"
        );
    }
}

#[test]
fn groups_reach_every_peer() {
    let mut network = settled(10, Policy::MaxMin, TOPOLOGIES[7].1);
    for number in 0..50 {
        network.offer(0, 1, Mac::BROADCAST, 100);
        network.run((number % 3) * MILLISECOND);
    }
    network.run(50 * MILLISECOND);
    for client in 1..4 {
        assert_eq!(network.hosts[client].received[0], 50);
    }
}

/// A path gives way to one of links with equal numbers. Frames that were on it and not yet
/// acknowledged go over the other, and those after them too.
#[test]
fn a_path_that_gives_way_to_a_better_one_strands_no_frames() {
    for seed in 0..5 {
        let mut network = settled(seed, Policy::MaxMin, &[&[0], &[1, 0]]);
        network.stream(0, 1, 1e6);
        network.run(SECOND / 2 + seed * MILLISECOND);
        network.replug(1, 0, 0);
        network.run(2 * SECOND);
        let links = network.hosts[0].trunk.status().peers[0].links.clone();
        assert_eq!(links[0].address, network.hosts[1].ports[0].address);
        network.reset_counts();
        network.run(SECOND);
        assert!(network.hosts[1].received[0] > 600, "seed {seed}");
    }
}

#[test]
fn a_link_with_another_address_is_used_again() {
    let mut network = settled(1, Policy::MaxMin, TOPOLOGIES[1].1);
    let address = Mac([2, 9, 9, 9, 9, 9]);
    let mut config = LinkConfig {
        name: "again".to_owned(),
        address,
        rate: network::FAST_ETHERNET / 2.0,
        mtu: 1400,
    };
    let host = &mut network.hosts[0];
    host.ports[1].address = address;
    host.trunk.handle_link(1, config.clone()).unwrap();
    network.run(4 * SECOND);
    let status = network.hosts[1].trunk.status();
    let link = &status.peers[0].links[1];
    assert_eq!((link.address, link.state), (address, "up"));
    assert_eq!(status.mtu, 1400 - 28);
    let own = &network.hosts[0].trunk.status().links[1];
    assert_eq!(own.line_rate, config.rate);
    // What the trunk cannot use changes nothing.
    config.mtu = 500;
    let trunk = &mut network.hosts[0].trunk;
    assert!(trunk.handle_link(1, config).is_err());
    assert_eq!(trunk.mtu(), 1400 - 28);
}

/// What this node sends to a peer is no sign of the peer's life.
#[test]
fn a_peer_that_is_silent_is_gone_although_frames_for_it_come() {
    let mut network = settled(2, Policy::MaxMin, TOPOLOGIES[1].1);
    network.sparse_stream(0, 1, 100 * MILLISECOND);
    network.run(SECOND);
    network.unplug(1);
    network.run(4 * SECOND);
    assert_eq!(network.hosts[0].trunk.status().peers.len(), 1);
    network.run(2 * SECOND);
    assert!(network.hosts[0].trunk.status().peers.is_empty());
    let lost = |event: &Event| matches!(event, Event::PeerLost { goodbye: false, .. });
    let mut events = network.hosts[0].events.iter();
    assert!(events.any(|(_, event)| lost(event)));
}

#[test]
fn the_only_link_is_used_again_with_another_address_although_frames_for_it_come() {
    let mut network = settled(3, Policy::MaxMin, TOPOLOGIES[0].1);
    network.sparse_stream(0, 1, 100 * MILLISECOND);
    network.run(SECOND);
    let address = Mac([2, 9, 9, 9, 9, 9]);
    let config = LinkConfig {
        name: "again".to_owned(),
        address,
        rate: network::FAST_ETHERNET,
        mtu: 1500,
    };
    let host = &mut network.hosts[1];
    host.ports[0].address = address;
    host.trunk.handle_link(0, config).unwrap();
    network.run(10 * SECOND);
    network.reset_counts();
    network.run(SECOND);
    let received = network.hosts[1].received[0];
    assert!(received >= 9, "{received} frames of 10");
}
