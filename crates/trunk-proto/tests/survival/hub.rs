//! One node with many peers, in virtual time. The peers reach only this node, so that the test
//! needs one table of peers and not one for each of them. Frames take a millisecond.

use crate::network::{MILLISECOND, SECOND};
use bytes::Bytes;
use farcall_trunk_proto::{Config, Limits, LinkConfig, Mac, Nanos, Policy, Transmit, Trunk};

const LINKS: usize = 2;

struct Hub {
    now: Nanos,
    /// The node, then its peers.
    trunks: Vec<Trunk>,
    /// Frames that arrive at the next step: the receiver, the link, the source and the payload.
    in_flight: Vec<(usize, usize, Mac, Bytes)>,
    /// Frames that the links carried.
    carried: u64,
    /// Frames that each node delivered.
    delivered: Vec<u64>,
}

fn mac(node: usize, link: usize) -> Mac {
    Mac([2, 0, 0, link as u8, (node >> 8) as u8, node as u8])
}

/// The address of a node's virtual interface.
fn address(node: usize) -> Mac {
    mac(node, 0xff)
}

impl Hub {
    fn new(peers: usize) -> Hub {
        let trunk = |node| {
            let link = |link| LinkConfig {
                name: format!("link{link}"),
                address: mac(node, link),
                rate: 125e6,
                mtu: 1500,
            };
            let config = Config {
                node: address(node),
                links: (0..LINKS).map(link).collect(),
                policy: Policy::MaxMin,
                repair: true,
                order: true,
                counts_only: false,
                span: 200 * MILLISECOND,
                key: None,
                session: 1 + node as u32,
                seed: [node as u8; 32],
                limits: Limits::default(),
            };
            Trunk::new(config, SECOND).unwrap()
        };
        Hub {
            now: SECOND,
            trunks: (0..=peers).map(trunk).collect(),
            in_flight: Vec::new(),
            carried: 0,
            delivered: vec![0; peers + 1],
        }
    }

    fn run(&mut self, duration: Nanos) {
        let end = self.now + duration;
        while self.now < end {
            self.now += MILLISECOND;
            for (node, link, source, payload) in std::mem::take(&mut self.in_flight) {
                self.trunks[node].handle_frame(self.now, link, source, &payload, self.now);
            }
            (0..self.trunks.len()).for_each(|node| self.drive(node));
        }
    }

    fn drive(&mut self, node: usize) {
        let trunk = &mut self.trunks[node];
        if trunk.poll_timeout(self.now) <= self.now {
            trunk.handle_timeout(self.now);
        }
        while let Some(Transmit {
            link,
            destination,
            header,
            body,
        }) = trunk.poll_transmit(self.now)
        {
            let payload: Bytes = [&header[..], &body].concat().into();
            let receivers = match (node, destination) {
                (0, Mac::BROADCAST) => 1..self.delivered.len(),
                (0, Mac([.., high, low])) => {
                    let peer = usize::from(high) << 8 | usize::from(low);
                    peer..peer + 1
                }
                _ => 0..1,
            };
            self.carried += receivers.len() as u64;
            let source = mac(node, link);
            let arrivals = receivers.map(|receiver| (receiver, link, source, payload.clone()));
            self.in_flight.extend(arrivals);
        }
        while trunk.poll_deliver().is_some() {
            self.delivered[node] += 1;
        }
        while trunk.poll_event().is_some() {}
    }

    /// Number of links to peers that are up.
    fn links_up(&self) -> usize {
        let status = self.trunks[0].status();
        let links = status.peers.iter().flat_map(|peer| &peer.links);
        links.filter(|link| link.state == "up").count()
    }

    fn send(&mut self, from: usize, to: usize) {
        let mut frame = [address(to).0, address(from).0].concat();
        frame.extend([0x88, 0xb6]);
        frame.resize(200, 0);
        self.trunks[from].handle_outgoing(self.now, &frame.into());
    }
}

#[test]
fn thousands_of_peers_are_found_and_served() {
    const PEERS: usize = 2100;
    let mut hub = Hub::new(PEERS);
    hub.run(3 * SECOND);
    let status = hub.trunks[0].status();
    assert_eq!(status.peers.len(), PEERS, "{:?}", status.counters);
    assert_eq!(hub.links_up(), PEERS * LINKS);
    for peer in 1..=PEERS {
        hub.send(peer, 0);
        hub.send(0, peer);
    }
    // Heartbeats to busy peers leave time for the frames of these peers.
    hub.carried = 0;
    hub.run(SECOND);
    assert!(hub.carried < 200_000, "{}", hub.carried);
    assert!(hub.delivered[1..].iter().all(|frames| *frames == 1));
    assert_eq!(hub.delivered[0], PEERS as u64);
    // Idle peers cost a heartbeat and a hello a second on each link in each direction.
    hub.run(2 * SECOND);
    hub.carried = 0;
    hub.run(2 * SECOND);
    let heartbeats = hub.carried as f64 / (2 * 2 * LINKS * PEERS) as f64;
    assert!((1.9..2.1).contains(&heartbeats), "{heartbeats}");
    assert_eq!(hub.links_up(), PEERS * LINKS);
}
