//! Frames with numbers that the peer has not sent: forged, misdirected, or left over. Heartbeats
//! bring the order back within 200 ms, whatever has been taken before.

use crate::network::{FORGED, MILLISECOND, Network, SECOND};
use crate::{TOPOLOGIES, settle};
use bytes::Bytes;
use farcall_trunk_proto::{Event, Message, SHIM_BYTES, Shim};

/// Payload bytes a second of the stream that must go on, which needs both links, and the frames of
/// a second.
const RATE: f64 = 20e6;
const FRAMES: u64 = 14_286;
/// The time in which heartbeats set the order right.
const REPAIRED: u64 = 200 * MILLISECOND;

/// A pair of hosts with two links, of which host 1 sends to host 0. It has no key.
fn pair(seed: u64) -> Network {
    let mut network = settle(Network::keyless(seed, TOPOLOGIES[1].1));
    network.stream(1, 0, RATE);
    network.run(300 * MILLISECOND);
    network
}

/// A data frame as host 1 could send it on a link, with numbers that are this far ahead of its last
/// ones.
fn forge(network: &Network, link: usize, ahead: u32, link_ahead: u32) -> Bytes {
    let sniffed = &network.hosts[1].ports[link].sniffed;
    let genuine = Shim::decode(sniffed).unwrap();
    let forged = Shim {
        protocol: FORGED,
        number: genuine.number.wrapping_add(ahead),
        link_number: genuine.link_number.wrapping_add(link_ahead),
        ..genuine
    };
    [&forged.encode()[..], &[0; 60]].concat().into()
}

fn inject(network: &mut Network, link: usize, frames: &[Bytes]) {
    let source = network.hosts[1].ports[link].address;
    for frame in frames {
        network.inject(0, link, source, frame);
    }
}

/// All frames of the stream arrive again after the time of repair.
fn assert_repaired(network: &mut Network, frames: u64, case: &str) {
    network.run(REPAIRED);
    network.reset_counts();
    network.run(SECOND);
    let received = network.hosts[0].received[1];
    assert!(
        received.abs_diff(frames) < 30,
        "{case}: {received} frames of {frames}, {:#?}",
        network.hosts[0].trunk.status()
    );
    let pause = network.hosts[0].longest_pause / MILLISECOND;
    assert!(pause < 10, "{case}: a pause of {pause} ms");
}

fn is_reported(network: &Network) -> bool {
    let denied = |event: &Event| matches!(event, Event::NumbersDenied { .. });
    network.hosts[0]
        .events
        .iter()
        .any(|(_, event)| denied(event))
}

#[test]
fn six_forged_frames_and_one_far_ahead_do_not_end_a_peering() {
    let mut network = pair(31);
    let mut forged: Vec<Bytes> = (1..=6)
        .map(|ahead| forge(&network, 0, ahead, ahead))
        .collect();
    forged.push(forge(&network, 0, 500_000, 7));
    inject(&mut network, 0, &forged);
    assert_repaired(&mut network, FRAMES, "one link");
    let peer = &network.hosts[0].trunk.status().peers[0];
    assert!(peer.refused > 0, "{peer:?}");
    assert!(is_reported(&network));
    // The stream has lost hardly more frames than were forged.
    assert!(network.hosts[0].forged <= 6);
    assert!(peer.given_up < 100, "{peer:?}");
}

#[test]
fn forged_jumps_of_every_size_are_taken_back() {
    for (seed, far) in [1, 50, 256, 257, 5_000, 60_000, 500_000, 1 << 20, 1 << 30]
        .into_iter()
        .enumerate()
    {
        let mut network = pair(40 + seed as u64);
        for link in 0..2 {
            // On both links, so that each of them seems to have passed the numbers before.
            let frames = [forge(&network, link, far + link as u32, 1)];
            inject(&mut network, link, &frames);
        }
        assert_repaired(&mut network, FRAMES, &format!("{far} ahead"));
    }
}

#[test]
fn a_chain_of_forged_jumps_is_taken_back() {
    let mut network = pair(51);
    for step in 1..200 {
        for link in 0..2 {
            let frame = forge(&network, link, step * 250 + link as u32, step);
            inject(&mut network, link, &[frame]);
        }
        network.run(MILLISECOND / 4);
    }
    assert_repaired(&mut network, FRAMES, "chain");
    let peer = &network.hosts[0].trunk.status().peers[0];
    assert!(peer.refused + peer.resynchronised > 0, "{peer:?}");
    assert!(is_reported(&network));
}

#[test]
fn forged_numbers_of_a_link_are_taken_back() {
    let mut network = pair(52);
    let frames = [forge(&network, 0, 1, 60_000)];
    inject(&mut network, 0, &frames);
    network.run(REPAIRED);
    // The link's own losses are seen and repaired again.
    network.hosts[0].ports[0].faults.loss = 20_000;
    let before = network.hosts[0].trunk.status().peers[0].links[0].lost;
    network.run(SECOND);
    network.hosts[0].ports[0].faults.loss = 0;
    network.run(100 * MILLISECOND);
    let status = network.hosts[0].trunk.status();
    let lost = status.peers[0].links[0].lost - before;
    assert!((50..300).contains(&lost), "{lost} lost, {status:?}");
}

#[test]
fn a_forged_hello_ends_no_peering() {
    let mut network = settle(Network::keyless(54, TOPOLOGIES[0].1));
    let port = &network.hosts[1].ports[0];
    let (source, hello) = (port.address, port.sniffed_hello.clone());
    let (header, message) = hello.split_at(SHIM_BYTES);
    let Ok(Message::Hello(mut sender, announced)) = Message::decode(message) else {
        panic!("{message:?} is no hello");
    };
    // Of a session that the node never has.
    sender.session = sender.session.wrapping_add(1).max(1);
    let forged = Message::Hello(sender, announced).encode();
    network.inject(0, 0, source, &[header, &forged].concat().into());
    network.run(20 * SECOND);
    for host in &network.hosts {
        let peers = host.trunk.status().peers;
        let states = peers.iter().map(|peer| peer.links[0].state);
        assert_eq!(states.collect::<Vec<_>>(), ["up"], "{peers:?}");
        let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
        assert!(!host.events.iter().any(|(_, event)| lost(event)));
    }
}

#[test]
fn a_peer_that_starts_its_numbers_again_is_followed() {
    // Host 1 hears nothing until it forgets host 0, which has heard host 1 all the time.
    let mut network = settle(Network::keyless(53, TOPOLOGIES[0].1));
    network.stream(1, 0, RATE / 2.0);
    network.run(500 * MILLISECOND);
    network.stop_streams();
    network.hosts[1].ports[0].faults.deaf_in = true;
    let mut waited = 0;
    while !network.hosts[1].trunk.status().peers.is_empty() {
        network.run(10 * MILLISECOND);
        waited += 1;
        assert!(waited < 1000);
    }
    network.hosts[1].ports[0].faults.deaf_in = false;
    assert_eq!(
        network.hosts[0].trunk.status().peers[0].links[0].state,
        "up"
    );
    network.run(2 * SECOND);
    network.stream(1, 0, RATE / 2.0);
    assert_repaired(&mut network, FRAMES / 2, "new numbers");
}
