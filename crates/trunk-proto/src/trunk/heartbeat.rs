//! Creates and sends control messages: heartbeats, hellos and goodbyes. `inbound` handles those of
//! peers.

use super::{Transmit, Trunk};
use crate::control::{
    ENCRYPTED, Heartbeat, Hello, Message, PLAIN, PathReport, Sender, SpanReport, Traits,
};
use crate::seal::TAG_BYTES;
use crate::{Kind, MILLISECOND, Mac, Nanos, SHIM_BYTES, Shim, address::Address};

/// The largest number of control frames that wait to be sent.
pub(super) const OUT: usize = 4096;

impl Trunk {
    /// Sends a heartbeat to a peer on one link.
    pub(super) fn send_heartbeat(&mut self, now: Nanos, index: usize, link: usize) {
        let peers_heard = self.peers_on(link);
        let total = self
            .links
            .iter()
            .fold(0, |sum: u32, link| sum.wrapping_add(link.span_total));
        let traits = self.traits(link);
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let interval = peer.interval(now, self.fast);
        let (echo_stamp, echo_came) = peer.echo[link];
        let granted = peer.granted;
        let paths = peer.paths_mut().map(|(link, path)| PathReport {
            link: path.peer_link,
            heard: path.monitor.is_up(),
            received: path.receiver.acknowledge(now) as u32,
            grant: granted[link] as u64,
        });
        let paths = paths.collect();
        peer.resequencer.checkpoint(now);
        let Some(path) = &mut peer.paths[link] else {
            return;
        };
        path.receiver.checkpoint(now);
        let heartbeat = Heartbeat {
            traits,
            interval: (interval / MILLISECOND) as u16,
            stamp: now,
            echo_stamp,
            echo_held: now.saturating_sub(echo_came).min(u64::from(u32::MAX)) as u32,
            grants_made: now,
            paths,
            span: SpanReport {
                span: self.span,
                peers: peers_heard,
                arrive: path.receiver.span_last,
                path_total: self.links[link].span_total,
                arrive_total: total,
            },
            key: self.secret.map(|_| peer.keys.newest()),
        };
        self.send_message(index, link, |sender| Message::Heartbeat(sender, heartbeat));
    }

    /// Number of peers heard on a link: `cnt` of RI2N+.
    fn peers_on(&self, link: usize) -> u32 {
        let heard = |peer: &&crate::peer::Peer| {
            peer.paths[link]
                .as_ref()
                .is_some_and(|path| path.monitor.is_up())
        };
        self.peers.iter().flatten().filter(heard).count() as u32
    }

    fn traits(&self, link: usize) -> Traits {
        let config = &self.links[link].config;
        Traits {
            rate: config.rate as u64,
            mtu: config.mtu,
        }
    }

    /// Sends a message to a peer on one link.
    pub(super) fn send_message(
        &mut self,
        index: usize,
        link: usize,
        make: impl FnOnce(Sender) -> Message,
    ) {
        let Some(peer) = &self.peers[index] else {
            return;
        };
        let Some(path) = &peer.paths[link] else {
            return;
        };
        let (address, number, link_number) = (path.address, peer.next, path.sender.next);
        let echo = peer.candidate.unwrap_or(peer.session);
        let limited = |now: Nanos| peer.limited.is(now);
        let sender = self.sender(link, echo);
        let message = make(sender);
        let limited = match &message {
            Message::Heartbeat(_, heartbeat) => limited(heartbeat.stamp),
            _ => false,
        };
        self.counter = self.counter.wrapping_add(1);
        self.send_frame(link, address, &message, (number, link_number, limited));
    }

    /// Broadcasts a hello on every link.
    pub(super) fn send_hellos(&mut self) {
        for link in 0..self.links.len() {
            let version = if self.secret.is_some() {
                ENCRYPTED
            } else {
                PLAIN
            };
            let traits = self.traits(link);
            let hello = Message::Hello(self.sender(link, 0), Hello { traits, version });
            self.counter = self.counter.wrapping_add(1);
            self.send_frame(link, Mac::BROADCAST, &hello, (0, 0, false));
        }
    }

    pub(super) fn send_goodbye(&mut self, index: usize) {
        let Some(peer) = &self.peers[index] else {
            return;
        };
        let links: alloc::vec::Vec<usize> = peer.paths().map(|(link, _)| link).collect();
        links
            .into_iter()
            .for_each(|link| self.send_message(index, link, Message::Goodbye));
    }

    fn sender(&self, link: usize, echo: u32) -> Sender {
        Sender {
            node: self.config.node,
            session: self.config.session,
            echo,
            counter: self.counter.wrapping_add(1),
            link: link as u8,
        }
    }

    fn send_frame(
        &mut self,
        link: usize,
        destination: Mac,
        message: &Message,
        (number, link_number, limited): (u64, u64, bool),
    ) {
        if self.out.len() >= OUT || !self.links[link].carrier {
            return;
        }
        let mut body = message.encode();
        let tag = if self.config.key.is_some() {
            TAG_BYTES
        } else {
            0
        };
        let header = Shim {
            kind: Kind::Control,
            address: Address::Unicast,
            limited,
            resent: false,
            session: self.config.session as u8,
            protocol: (body.len() + tag) as u16,
            number: number as u32,
            link_number: link_number as u32,
        };
        let header: [u8; SHIM_BYTES] = header.encode();
        self.sealer
            .seal(&header, self.links[link].config.address, &mut body);
        self.out.push_back(Transmit {
            link,
            destination,
            header,
            body: body.into(),
        });
    }
}
