//! Runs the handshakes that make the keys of data frames, and says why a node cannot be a peer.
//! `keys` has the state of one peering. Only messages with the trunk's key get an answer.

use super::Trunk;
use crate::control::{ENCRYPTED, Handshake, Message, PLAIN};
use crate::event::{Event, Misfit};
use crate::handshake::Ends;
use crate::peer::Urgency;
use crate::seal::TAG_BYTES;
use crate::{Mac, Nanos, SECOND};
use alloc::vec::Vec;

/// The number of kinds of misfits.
pub(super) const MISFITS: usize = 5;
/// Each kind of misfit is reported at most once in this time.
const REPORT: Nanos = 60 * SECOND;

impl Trunk {
    /// Sends the request for keys that is due to a peer, on all links, if this node starts the
    /// handshakes of the peering.
    pub(super) fn exchange_keys(&mut self, now: Nanos, index: usize) {
        let own = (self.config.node, self.config.session);
        let (Some(secret), Some(peer)) = (self.secret, &mut self.peers[index]) else {
            return;
        };
        peer.keys.expire(now);
        if !peer.established || own.0 > peer.node {
            return;
        }
        let theirs = (peer.node, peer.session);
        let ends = |number| Ends {
            initiator: own,
            responder: theirs,
            number,
        };
        let request = peer.keys.request(now, &secret, ends, &mut self.entropy);
        let Some((number, noise)) = request else {
            return;
        };
        let links: Vec<usize> = peer.paths().map(|(link, _)| link).collect();
        for link in links {
            let request = Handshake {
                number,
                answer: false,
                noise,
            };
            self.send_message(index, link, |sender| Message::Handshake(sender, request));
        }
    }

    pub(super) fn handle_handshake(
        &mut self,
        now: Nanos,
        index: usize,
        link: usize,
        handshake: &Handshake,
    ) {
        let own = (self.config.node, self.config.session);
        let (Some(secret), Some(peer)) = (self.secret, &mut self.peers[index]) else {
            return;
        };
        let Handshake {
            number,
            answer,
            noise,
        } = *handshake;
        if answer != (own.0 < peer.node) {
            self.counters.unauthentic += 1;
            return;
        }
        if answer {
            if peer.keys.take_answer(now, number, &noise) {
                // Heartbeats show the peer that it can use the key.
                self.wake = now;
                self.ask(index, Urgency::EveryLink);
            }
            return;
        }
        let ends = Ends {
            initiator: (peer.node, peer.session),
            responder: own,
            number,
        };
        let noise = peer
            .keys
            .answer(now, &secret, &ends, &mut self.entropy, &noise);
        let Some(noise) = noise else {
            self.counters.unauthentic += 1;
            return;
        };
        let answer = Handshake {
            number,
            answer: true,
            noise,
        };
        self.send_message(index, link, |sender| Message::Handshake(sender, answer));
    }

    /// Takes the number of the peer's newest key.
    pub(super) fn compare_keys(&mut self, now: Nanos, index: usize, number: u32) {
        let own = self.config.node;
        if let Some(peer) = &mut self.peers[index] {
            let initiator = own < peer.node;
            if peer.keys.compare(now, number, initiator) {
                self.wake = now;
            }
        }
    }

    /// Whether a node with an authentic hello of this version can be a peer.
    pub(super) fn fits(&mut self, now: Nanos, link: usize, node: Mac, version: u8) -> bool {
        let own = match self.secret {
            Some(_) => ENCRYPTED,
            None => PLAIN,
        };
        if version != own {
            let misfit = match version < own {
                true => Misfit::Older,
                false => Misfit::Newer,
            };
            self.report_misfit(now, link, node, misfit);
        }
        version == own
    }

    /// Reports a hello that is not authentic, because the operator may have forgotten a key.
    pub(super) fn explain(&mut self, now: Nanos, link: usize, sealed: &[u8]) {
        let hello = |bytes: &[u8]| match Message::decode(bytes) {
            Ok(Message::Hello(sender, _)) => Some(sender.node),
            _ => None,
        };
        let untagged = sealed.len().saturating_sub(TAG_BYTES);
        let (plain, tagged) = (hello(sealed), hello(&sealed[..untagged]));
        let found = match (self.secret.is_some(), plain, tagged) {
            (true, Some(node), _) => Some((node, Misfit::NoKey)),
            (true, None, Some(node)) => Some((node, Misfit::OtherKey)),
            (false, _, Some(node)) => Some((node, Misfit::Key)),
            _ => None,
        };
        if let Some((node, misfit)) = found {
            self.report_misfit(now, link, node, misfit);
        }
    }

    fn report_misfit(&mut self, now: Nanos, link: usize, node: Mac, misfit: Misfit) {
        let next = &mut self.misfits[misfit as usize];
        if now >= *next && node != self.config.node {
            *next = now + REPORT;
            self.event(Event::Misfit { node, link, misfit });
        }
    }
}
