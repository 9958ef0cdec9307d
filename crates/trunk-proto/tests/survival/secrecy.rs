//! Trunks with a key, seen by an attacker on the wire. Nothing forged, changed or replayed is
//! delivered, the bytes of frames cannot be read, and keys change without a loss.

use crate::network::{FORGED, MILLISECOND, Network, Options, SECOND};
use crate::{TOPOLOGIES, settle};
use bytes::Bytes;
use farcall_random::SplitMix64;
use farcall_trunk_proto::{Event, Kind, LinkConfig, Mac, Misfit, Shim};
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

/// A pair of hosts with two links and a key, of which host 1 sends to host 0.
fn pair(seed: u64) -> Network {
    let mut network = settle(Network::with(seed, TOPOLOGIES[1].1, Options::MAX_MIN));
    network.stream(1, 0, 1e6);
    network.run(300 * MILLISECOND);
    assert!(network.hosts[0].trunk.status().peers[0].encrypted);
    network
}

/// Frames that an attacker who reads the wire can make of the newest one: any bytes with the right
/// header, changed bits, other numbers, other kinds, cut and longer frames.
fn forge(random: &mut SplitMix64, genuine: &Bytes) -> Bytes {
    let shim = Shim::decode(genuine).unwrap();
    let near = |random: &mut SplitMix64| (random.below(64) as u32).wrapping_sub(8);
    let kinds = [
        Kind::Data,
        Kind::Sealed { odd: false },
        Kind::Sealed { odd: true },
    ];
    let mut frame = genuine.to_vec();
    let header = Shim {
        kind: kinds[random.below(3) as usize],
        number: shim.number.wrapping_add(near(random)),
        link_number: shim.link_number.wrapping_add(near(random)),
        ..shim
    };
    match random.below(4) {
        0 => frame[..12].copy_from_slice(&header.encode()),
        1 => {
            frame[..12].copy_from_slice(&header.encode());
            frame.truncate(12 + random.below(80) as usize);
            frame[12..]
                .iter_mut()
                .for_each(|byte| *byte = random.below(256) as u8);
        }
        2 => {
            let bit = random.below(8 * frame.len() as u64) as usize;
            // The version is not changed, so that the frame is looked at.
            frame[bit.max(2) / 8] ^= 128 >> (bit.max(2) % 8);
        }
        _ => frame.truncate(12 + random.below(frame.len() as u64 - 12) as usize),
    }
    frame.into()
}

#[test]
fn of_a_million_forged_frames_none_is_delivered() {
    let mut network = pair(71);
    let mut random = SplitMix64::new(71);
    let mut forged = 0_u64;
    let before = network.hosts[0].trunk.status();
    while forged < 1_000_000 {
        network.run(MILLISECOND);
        for link in 0..2 {
            let port = &network.hosts[1].ports[link];
            let (source, genuine) = (port.address, port.sniffed.clone());
            for _ in 0..500 {
                let frame = forge(&mut random, &genuine);
                network.inject(0, link, source, &frame);
                forged += 1;
            }
        }
    }
    network.stop_streams();
    network.run(100 * MILLISECOND);
    let host = &network.hosts[0];
    let status = host.trunk.status();
    assert_eq!(host.forged, 0);
    // Every frame of the stream has arrived, in order, and no other: the network checks that.
    assert_eq!(host.received[1], network.hosts[1].sent[0]);
    let refused = status.counters.unauthentic - before.counters.unauthentic;
    assert!(refused > 990_000, "{:?}", status.counters);
    let (old, new) = (&before.peers[0], &status.peers[0]);
    assert_eq!((new.given_up, new.refused), (old.given_up, old.refused));
}

#[test]
fn replayed_frames_are_not_delivered() {
    let mut network = pair(72);
    let mut recorded = Vec::new();
    for step in 0..3000 {
        network.run(MILLISECOND / 2);
        for link in 0..2 {
            let port = &network.hosts[1].ports[link];
            let addresses = [0, 1].map(|link| network.hosts[1].ports[link].address);
            recorded.push(port.sniffed.clone());
            // The newest frame again, and an old one, on this link and on the other.
            let old = recorded[step / 3].clone();
            for frame in [port.sniffed.clone(), old] {
                for (link, address) in addresses.into_iter().enumerate() {
                    network.inject(0, link, address, &frame);
                }
            }
        }
    }
    // The network checks that no frame arrives twice. A frame that was lost in no way is not lost
    // because an attacker was faster with a copy of it.
    let status = network.hosts[0].trunk.status();
    let peer = &status.peers[0];
    assert_eq!((peer.given_up, peer.refused), (0, 0));
    // The window stops copies, before their numbers count for anything.
    let (stopped, copies) = (status.counters.unauthentic, status.counters.duplicates);
    assert!(stopped > 20_000 && copies == 0, "{:?}", status.counters);
}

#[test]
fn a_replayed_message_of_an_old_session_ends_no_peering() {
    let mut network = settle(Network::with(79, TOPOLOGIES[0].1, Options::MAX_MIN));
    let port = &network.hosts[1].ports[0];
    let (source, old) = (port.address, port.sniffed_control.clone());
    assert_ne!(old, port.sniffed_hello);
    // The node has sent newer messages before it starts again.
    network.run(2 * SECOND);
    network.unplug(1);
    network.run(SECOND);
    network.add_impostor(1, 0, true);
    network.run(4 * SECOND);
    let before = network.hosts[0].trunk.status();
    assert_eq!(before.peers[0].links[0].state, "up");
    network.inject(0, 0, source, &old);
    let after = network.hosts[0].trunk.status();
    let refused = after.counters.unauthentic - before.counters.unauthentic;
    assert_eq!((refused, after.peers), (1, before.peers));
}

#[test]
fn a_replayed_heartbeat_does_not_bring_an_old_mtu_back() {
    let mut network = settle(Network::with(81, TOPOLOGIES[0].1, Options::MAX_MIN));
    let port = &network.hosts[1].ports[0];
    let (source, old) = (port.address, port.sniffed_control.clone());
    let before = network.hosts[0].trunk.mtu();
    let narrow = LinkConfig {
        name: "narrow".to_owned(),
        address: source,
        rate: Options::MAX_MIN.rate,
        mtu: 1400,
    };
    network.hosts[1].trunk.handle_link(0, narrow).unwrap();
    network.run(2 * SECOND);
    assert_eq!(network.hosts[0].trunk.mtu(), before - 100);
    network.inject(0, 0, source, &old);
    assert_eq!(network.hosts[0].trunk.mtu(), before - 100);
}

#[test]
fn a_bystander_reads_nothing() {
    let mut network = settle(Network::with(73, TOPOLOGIES[0].1, Options::MAX_MIN));
    let secret = b"a secret that is long enough to be found";
    let mut frame = [network.hosts[0].node.0, network.hosts[1].node.0].concat();
    frame.extend(FORGED.to_be_bytes());
    frame.extend(secret);
    network.hosts[1]
        .trunk
        .handle_outgoing(network.now, &frame.clone().into());
    network.run(50 * MILLISECOND);
    assert_eq!(network.hosts[0].forged, 1);
    let seen = &network.hosts[1].ports[0].sniffed;
    assert!(!seen.windows(8).any(|part| part == &secret[..8]));
    // The same frame looks different each time.
    let first = seen[12..].to_vec();
    network.hosts[1]
        .trunk
        .handle_outgoing(network.now, &frame.into());
    network.run(50 * MILLISECOND);
    assert_ne!(first, network.hosts[1].ports[0].sniffed[12..]);
}

#[test]
fn keys_change_without_a_loss() {
    let mut network = settle(Network::with(74, TOPOLOGIES[1].1, Options::MAX_MIN));
    network.sparse_stream(1, 0, 5 * MILLISECOND);
    network.sparse_stream(0, 1, 5 * MILLISECOND);
    network.run(SECOND);
    let kind = |network: &Network, host: usize| {
        let sniffed = &network.hosts[host].ports[0].sniffed;
        Shim::decode(sniffed).unwrap().kind
    };
    for odd in [true, false, true] {
        for host in 0..2 {
            assert_eq!(kind(&network, host), Kind::Sealed { odd }, "host {host}");
        }
        network.run(121 * SECOND);
    }
    network.stop_streams();
    network.run(SECOND);
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = network.hosts[from].sent[to];
        assert_eq!(network.hosts[to].received[from], sent);
        assert_eq!(network.hosts[to].trunk.status().counters.unauthentic, 0);
    }
}

#[test]
fn a_lossy_link_ends_no_handshake() {
    for seed in 0..8 {
        let mut network = Network::with(80 + seed, TOPOLOGIES[0].1, Options::MAX_MIN);
        network.hosts[1].ports[0].faults.loss = 300_000;
        network.stream(1, 0, 1e6);
        network.run(2 * SECOND);
        network.reset_counts();
        network.run(SECOND);
        let received = network.hosts[0].received[1];
        assert!(received > 200, "seed {seed}: {received}");
    }
}

#[test]
fn a_peer_that_forgets_the_other_gets_new_keys() {
    // One host hears nothing until it forgets the other, which has heard it all the time.
    for deaf in [0, 1] {
        let mut network = settle(Network::with(75, TOPOLOGIES[0].1, Options::MAX_MIN));
        network.stream(1, 0, 1e6);
        network.run(500 * MILLISECOND);
        network.stop_streams();
        network.hosts[deaf].ports[0].faults.deaf_in = true;
        let mut waited = 0;
        while !network.hosts[deaf].trunk.status().peers.is_empty() {
            network.run(50 * MILLISECOND);
            waited += 1;
            assert!(waited < 1000);
        }
        network.hosts[deaf].ports[0].faults.deaf_in = false;
        network.run(3 * SECOND);
        network.stream(1, 0, 1e6);
        network.stream(0, 1, 1e6);
        network.run(200 * MILLISECOND);
        network.reset_counts();
        network.run(SECOND);
        let received = [network.hosts[0].received[1], network.hosts[1].received[0]];
        assert!(
            received.iter().all(|frames| *frames > 690),
            "{deaf}: {received:?}"
        );
    }
}

/// Frames that host 0 sends to one station because a stranger sent this frame to it.
fn answers(network: &mut Network, source: Mac, frame: &Bytes) -> usize {
    let trunk = &mut network.hosts[0].trunk;
    trunk.handle_frame(network.now, 0, source, frame, network.now);
    let sent = std::iter::from_fn(|| trunk.poll_transmit(network.now));
    sent.filter(|frame| frame.destination == source).count()
}

#[test]
fn strangers_get_no_answer() {
    let mut network = settle(Network::with(76, TOPOLOGIES[0].1, Options::MAX_MIN));
    // Everything that a pair without a key sends, and one with another key.
    for key in [None, Some(&b"another key"[..])] {
        let options = Options {
            key,
            ..Options::MAX_MIN
        };
        let mut strangers = settle(Network::with(77, TOPOLOGIES[0].1, options));
        let before = network.hosts[0].trunk.status().counters.unauthentic;
        strangers.stream(1, 0, 1e6);
        let source = Mac([6; 6]);
        let mut sent = 0;
        for _ in 0..2000 {
            strangers.run(MILLISECOND);
            let port = &strangers.hosts[1].ports[0];
            let frames = [port.sniffed.clone(), port.sniffed_control.clone()];
            for frame in frames.iter().filter(|frame| !frame.is_empty()) {
                assert_eq!(answers(&mut network, source, frame), 0);
                sent += 1;
            }
        }
        let status = network.hosts[0].trunk.status();
        assert_eq!(status.peers.len(), 1);
        assert!(sent > 3000 && status.counters.unauthentic >= before + 2000);
    }
}

/// The misfits that host 0 has reported.
fn misfits(network: &Network) -> Vec<Misfit> {
    let events = network.hosts[0].events.iter();
    let misfits = events.filter_map(|(_, event)| match event {
        Event::Misfit { misfit, .. } => Some(*misfit),
        _ => None,
    });
    misfits.collect()
}

#[test]
fn a_node_of_the_first_release_with_the_key_is_told_apart() {
    let mut network = settle(Network::with(78, TOPOLOGIES[0].1, Options::MAX_MIN));
    let port = &network.hosts[1].ports[0];
    let (source, hello) = (port.address, port.sniffed_hello.clone());
    let (header, message) = hello.split_at(12);
    // Its hello has another type and no version, and the same kind of tag.
    let (message, _) = message.split_at(message.len() - 17);
    let message = [&[1], &message[1..]].concat();
    let mut shim = Shim::decode(header).unwrap();
    shim.protocol -= 1;
    let mut tag = Hmac::<Sha256>::new_from_slice(b"shared").unwrap();
    tag.update(&shim.encode());
    tag.update(&source.0);
    tag.update(&message);
    let tag = tag.finalize().into_bytes();
    let old = [&shim.encode()[..], &message, &tag[..16]].concat();
    network.inject(0, 0, source, &old.into());
    assert_eq!(misfits(&network), [Misfit::Older]);
}

#[test]
fn nodes_that_cannot_be_peers_are_explained() {
    let keys = [None, Some(&b"shared"[..]), Some(&b"another"[..])];
    let expected = [
        [None, Some(Misfit::Key), Some(Misfit::Key)],
        [Some(Misfit::NoKey), None, Some(Misfit::OtherKey)],
        [Some(Misfit::NoKey), Some(Misfit::OtherKey), None],
    ];
    for (own, expected) in keys.iter().zip(expected) {
        for (theirs, expected) in keys.iter().zip(expected) {
            let make = |key: &Option<&'static [u8]>, seed| {
                let options = Options {
                    key: *key,
                    ..Options::MAX_MIN
                };
                settle(Network::with(seed, TOPOLOGIES[0].1, options))
            };
            let (mut network, mut others) = (make(own, 78), make(theirs, 79));
            let source = others.hosts[1].ports[0].address;
            // The first hello of a node comes at once.
            others.run(2 * SECOND);
            let hello = others.hosts[1].ports[0].sniffed_hello.clone();
            network.inject(0, 0, source, &hello);
            let expected: Vec<Misfit> = expected.into_iter().collect();
            assert_eq!(misfits(&network), expected);
        }
    }
}
