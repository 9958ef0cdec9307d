//! Handles frames from the links, and delivers them to the virtual interface. `outbound` handles
//! the other direction. Frames of a peer are delivered in order and at most once. A frame from an
//! unknown address and a control message that is not authentic are counted and dropped.

use super::{Deliver, Policy, Trunk};
use crate::address::Packed;
use crate::control::{Heartbeat, Message, Nack};
use crate::monitor::SLOW;
use crate::peer::{Peer, Urgency};
use crate::receiver::Gap;
use crate::resequencer::Taken;
use crate::{
    Event, Kind, MILLISECOND, Mac, Nanos, Reason, SECOND, SHIM_BYTES, Shim, extend, wire_bytes,
};
use bytes::Bytes;

/// After this many frames the peer gets an acknowledgement, so that it can release them.
const ACKNOWLEDGE: u64 = 256;

/// When and where a control message arrived.
#[derive(Clone, Copy)]
struct Arrival {
    now: Nanos,
    /// When it reached this machine.
    arrived: Nanos,
    link: usize,
}

impl Trunk {
    /// Handles a frame of [`crate::ETHERTYPE`] from `source` on a link, without its Ethernet
    /// header. It reached this machine at `arrived`.
    pub fn handle_frame(
        &mut self,
        now: Nanos,
        link: usize,
        source: Mac,
        payload: &Bytes,
        arrived: Nanos,
    ) {
        let Some(own) = self.links.get(link).filter(|own| own.carrier) else {
            return;
        };
        let foreign = source != own.config.address;
        let shim = match Shim::decode(payload) {
            Ok(shim) => shim,
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        match shim.kind {
            Kind::Data | Kind::Sealed { .. } => {
                if foreign {
                    self.handle_data(now, link, source, &shim, payload);
                }
            }
            Kind::Control => {
                let came = Arrival { now, arrived, link };
                self.handle_control(came, source, &shim, payload);
            }
        }
    }

    fn handle_data(&mut self, now: Nanos, link: usize, source: Mac, shim: &Shim, payload: &Bytes) {
        let index = self.sender_of(link, source, shim.session);
        let found = index.and_then(|index| Some((index, self.peers[index].as_mut()?)));
        let Some((index, peer)) = found else {
            self.counters.unknown_source += 1;
            return;
        };
        let Some(path) = &mut peer.paths[link] else {
            return;
        };
        let (header, body) = (&payload[..SHIM_BYTES], payload.slice(SHIM_BYTES..));
        let place = (usize::from(path.peer_link), shim.link_number);
        let opened = match (shim.kind, self.secret.is_some()) {
            (Kind::Data, false) => Some(body),
            (Kind::Sealed { odd }, true) => {
                let opened = peer.keys.open(now, odd, place, header, &body);
                opened.ok().map(Bytes::from)
            }
            _ => None,
        };
        let Some(body) = opened else {
            self.counters.unauthentic += 1;
            return;
        };
        let number = extend(shim.number, peer.resequencer.next());
        let Ok(gap) = path
            .receiver
            .frame(shim.link_number, wire_bytes(payload.len()))
        else {
            self.counters.bad_number += 1;
            return;
        };
        path.monitor.heard = now;
        peer.heard = now;
        if !shim.resent && !peer.resequencer.is_doubtful(number) {
            path.receiver.passed = path.receiver.passed.max(number + 1);
        }
        let told = path.receiver.unacknowledged() < ACKNOWLEDGE;
        if !told {
            // At most one such request waits at a time.
            path.receiver.acknowledged = path.receiver.expected();
            peer.ask(Urgency::Once);
            self.urgent = true;
        }
        if let Some(gap) = gap {
            peer.note_gap(now, link, gap);
            self.urgent = true;
        }
        if peer.peer_limited != shim.limited {
            peer.peer_limited = shim.limited;
            self.regrant = true;
        }
        if !peer.is_active(now) {
            self.next_tick = self.next_tick.min(now + self.fast);
        }
        peer.touch(now);
        let frame = Packed {
            address: shim.address,
            protocol: shim.protocol,
            body,
        };
        self.collect(now, index, number, frame);
    }

    /// The peer that sends data frames with this session from an address. More than one peer has
    /// the address while two hosts conflict.
    fn sender_of(&self, link: usize, source: Mac, session: u8) -> Option<usize> {
        let peers = self.by_address.get(&(link, source))?;
        let sends = |index: &usize| {
            self.peers[*index].as_ref().is_some_and(|peer| {
                let path = peer.paths[link].as_ref();
                let up = path.is_some_and(|path| path.monitor.is_up());
                up && peer.established && session == peer.session as u8
            })
        };
        peers.iter().copied().find(sends)
    }

    fn collect(&mut self, now: Nanos, index: usize, number: u64, frame: Packed) {
        let own = self.config.node;
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if !self.config.order {
            if let Some((header, body)) = frame.unpack(own, peer.node) {
                self.deliveries.push_back(Deliver { header, body });
            }
            return;
        }
        let before = peer.resequencer.held_bytes();
        match peer.resequencer.push(number, now, &frame) {
            Taken::Next => {
                if let Some((header, body)) = frame.unpack(own, peer.node) {
                    self.deliveries.push_back(Deliver { header, body });
                }
            }
            Taken::Held => {}
            Taken::Duplicate => self.counters.duplicates += 1,
            Taken::OutOfWindow => self.counters.bad_number += 1,
        }
        self.held_bytes += peer.resequencer.held_bytes() - before;
        if peer.resequencer.held_bytes() > 0 {
            peer.pass(now);
            self.release(now, index);
        }
    }

    /// Delivers the frames that no longer need to wait.
    pub(super) fn release(&mut self, now: Nanos, index: usize) {
        let own = self.config.node;
        let repair = self.config.repair;
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let hold = if repair { peer.hold() } else { 0 };
        let silent = repair && peer.is_quiet(now);
        // If the frames held exceed the memory of all peers, this peer's frames stop waiting.
        let hold_for = |total: usize| total <= self.config.limits.held_bytes;
        loop {
            let before = peer.resequencer.held_bytes();
            let patient = hold_for(self.held_bytes);
            let at = if patient { now } else { Nanos::MAX };
            let frame = peer.resequencer.pop(at, hold, silent);
            self.held_bytes -= before - peer.resequencer.held_bytes();
            let Some(frame) = frame else { break };
            if let Some((header, body)) = frame.unpack(own, peer.node) {
                self.deliveries.push_back(Deliver { header, body });
            }
        }
        self.report_denied(now, index, false);
    }

    /// Reports refused numbers of a peer, at most once a second.
    fn report_denied(&mut self, now: Nanos, index: usize, resynchronised: bool) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let refused = peer.resequencer.refused - peer.refused_reported;
        if (refused > 0 || resynchronised) && now >= peer.next_report {
            peer.refused_reported += refused;
            peer.next_report = now + SECOND;
            let peer = peer.node;
            self.event(Event::NumbersDenied { peer, refused });
        }
    }

    fn handle_control(&mut self, came: Arrival, source: Mac, shim: &Shim, payload: &Bytes) {
        let Arrival { now, link, .. } = came;
        let length = usize::from(shim.protocol);
        let Some((header, body)) = payload.split_at_checked(SHIM_BYTES) else {
            return;
        };
        let Some(sealed) = body.get(..length) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(bytes) = self.sealer.open(header, source, sealed) else {
            self.counters.unauthentic += 1;
            self.explain(now, link, sealed);
            return;
        };
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(_) => {
                self.counters.malformed += 1;
                self.explain(now, link, sealed);
                return;
            }
        };
        let sender = *message.sender();
        if self.is_conflict(now, link, source, &sender) {
            return;
        }
        if let Message::Hello(sender, hello) = &message {
            if self.fits(now, link, sender.node, hello.version) {
                self.hear_hello(now, link, source, sender, hello.traits);
            }
            return;
        }
        let Some(&index) = self.by_node.get(&sender.node) else {
            self.counters.unknown_source += 1;
            return;
        };
        if let Message::Heartbeat(sender, heartbeat) = &message {
            self.add_path(index, link, source, sender.link, heartbeat.traits);
        }
        let peers = self.by_address.get(&(link, source));
        if !peers.is_some_and(|peers| peers.contains(&index)) {
            self.counters.unknown_source += 1;
            return;
        }
        if !self.admit(now, index, link, &sender) || !self.is_fresh(index, link, sender.counter) {
            return;
        }
        self.compare_owners(now, index, link, source);
        match message {
            Message::Hello(..) => {}
            Message::Heartbeat(_, heartbeat) => {
                self.handle_heartbeat(came, index, shim, &heartbeat);
            }
            Message::Nack(_, nack) => self.handle_nack(index, &nack),
            Message::Handshake(_, handshake) => {
                self.handle_handshake(now, index, link, &handshake);
            }
            Message::Goodbye(_) => self.remove_peer(index, true),
        }
    }

    /// Whether a message is newer than all earlier ones on the link.
    fn is_fresh(&mut self, index: usize, link: usize, counter: u32) -> bool {
        let Some(peer) = &mut self.peers[index] else {
            return false;
        };
        let fresh = peer.is_fresh(link, counter);
        self.counters.unauthentic += u64::from(!fresh);
        fresh
    }

    fn handle_heartbeat(
        &mut self,
        came: Arrival,
        index: usize,
        shim: &Shim,
        heartbeat: &Heartbeat,
    ) {
        let Some((came_up, gap)) = self.take_numbers(came, index, shim, heartbeat) else {
            return;
        };
        let Arrival { now, link, .. } = came;
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let Some(path) = &mut peer.paths[link] else {
            return;
        };
        let new_span = heartbeat.span.span != path.span.span;
        path.span = heartbeat.span;
        if let Some(gap) = gap {
            peer.note_gap(now, link, gap);
            self.urgent = true;
        }
        if new_span {
            self.weigh(index);
        }
        if let Some(key) = heartbeat.key {
            self.compare_keys(now, index, key);
        }
        self.take_reports(now, index, heartbeat);
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if peer.peer_limited != shim.limited {
            peer.peer_limited = shim.limited;
            self.regrant = true;
        }
        if came_up {
            self.regrant = true;
            self.ask(index, Urgency::EveryLink);
        }
        self.refresh(now, index, Reason::Unheard);
        if let Some(peer) = &mut self.peers[index] {
            peer.pass(now);
        }
        self.release(now, index);
        // What has arrived on the other links may not have been handled yet.
        self.heard.push(index);
        self.wake = now;
        if self.peers[index]
            .as_ref()
            .is_some_and(|peer| peer.is_active(now))
        {
            self.next_tick = self.next_tick.min(now + self.fast);
        } else {
            self.next_tick = self.next_tick.min(now + SLOW);
        }
    }

    /// Takes the times and the next numbers of a heartbeat. Returns whether it brought the link up,
    /// and the gap before it.
    fn take_numbers(
        &mut self,
        Arrival { now, arrived, link }: Arrival,
        index: usize,
        shim: &Shim,
        heartbeat: &Heartbeat,
    ) -> Option<(bool, Option<Gap>)> {
        let peer = self.peers[index].as_mut()?;
        peer.measure_round_trip(now, heartbeat);
        peer.echo[link] = (heartbeat.stamp, now);
        peer.heard = now;
        let interval = Nanos::from(heartbeat.interval) * MILLISECOND;
        let was_slow = peer.paths().all(|(_, path)| path.monitor.interval >= SLOW);
        if was_slow && interval < SLOW {
            peer.fast_since = heartbeat.stamp;
        }
        let quiet = peer.paths().all(|(_, path)| !path.monitor.is_up());
        if quiet && peer.resequencer.held_bytes() == 0 {
            peer.resequencer.restart(u64::from(shim.number));
        }
        let number = extend(shim.number, peer.resequencer.next());
        let before = peer.resequencer.held_bytes();
        let order = self.config.order;
        let resynchronised = order && peer.announce(number, heartbeat.echo_stamp);
        self.held_bytes -= before - peer.resequencer.held_bytes();
        let path = peer.paths[link].as_mut()?;
        path.traits = heartbeat.traits;
        path.receiver.delay.sample(arrived, heartbeat.stamp);
        let came_up = path.monitor.heartbeat(now, heartbeat.stamp, interval);
        let mut gap = None;
        if came_up || !path.monitor.is_up() {
            path.receiver.restart(shim.link_number, number);
        } else {
            let echo = heartbeat.echo_stamp;
            gap = path.receiver.next_is(shim.link_number, number, echo);
        }
        self.report_denied(now, index, resynchronised);
        Some((came_up, gap))
    }

    /// Takes the peer's report about each link: whether it hears this node, what arrived, and what
    /// it grants.
    fn take_reports(&mut self, now: Nanos, index: usize, heartbeat: &Heartbeat) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if heartbeat.grants_made < peer.grants_made {
            return;
        }
        peer.grants_made = heartbeat.grants_made;
        for report in &heartbeat.paths {
            let link = usize::from(report.link);
            let Some(Some(path)) = peer.paths.get_mut(link) else {
                continue;
            };
            path.sender.heard = report.heard;
            let received = extend(report.received, path.sender.next);
            if received <= path.sender.next {
                path.sender.ring.acknowledge(received);
            }
            let line = self.links[link].config.rate;
            path.sender.set_grant(now, report.grant as f64, line);
        }
        self.wake = now;
    }

    fn weigh(&mut self, index: usize) {
        let policy = self.config.policy;
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        match policy {
            Policy::LinkCount => peer.weigh_by_links(),
            // All links of a peer report the same span: read the counts after the last report.
            Policy::Traffic if same_span(peer) => peer.weigh_by_traffic(),
            _ => {}
        }
    }

    fn handle_nack(&mut self, index: usize, nack: &Nack) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let had_frames = peer.has_frames();
        let Some(path) = &mut peer.paths[usize::from(nack.link)] else {
            return;
        };
        for &(first, count) in &nack.ranges {
            let first = extend(first, path.sender.next);
            let frames = path.sender.ring.take(first, u64::from(count));
            path.sender.resent += frames.len() as u64;
            peer.resend.extend(frames);
        }
        if !had_frames && peer.has_frames() {
            self.backlog.push_back(index);
        }
    }
}

fn same_span(peer: &Peer) -> bool {
    let mut spans = peer.usable().map(|(_, path)| path.span.span);
    let first = spans.next();
    spans.all(|span| Some(span) == first)
}
