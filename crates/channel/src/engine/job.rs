//! The pairs of one gang job that begin or end on this node, and the transport of their messages.
//! `channel-proto` decides when a packet is sent again; this module moves records between rings and
//! packets. It checks everything that it reads from the rings: a faulty process makes its own gang
//! job fail and no other.

use super::Peer;
use super::socket::Packet;
use crate::error::Corrupt;
use crate::layout::{Fifo, REMOTE};
use crate::ring::{Consumer, Producer, RECORD_HEADER, Record};
use crate::segment::{Credit, Segment};
use farcall_channel_proto::{
    Address, Config, Freeze, Header, Kind, PairContext, Receiver, Sender, Transmit,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// The largest number of message bytes in one packet.
const PACKET_BYTES: u64 = 32 << 10;

pub(super) struct JobPairs {
    segment: Arc<Segment>,
    /// The outgoing pairs, by channel, place of the local process, and place of the remote rank.
    outgoing: Vec<Outgoing>,
    /// The incoming pairs, in the same order.
    incoming: Vec<Incoming>,
    is_frozen: bool,
    /// Whether the daemon was told, since the last freeze, that the gang job is at rest.
    has_told: bool,
    /// Whether the segment was found corrupt. Never reset.
    is_corrupt: bool,
    fault: bool,
}

/// The messages from a local process to a rank on another node.
struct Outgoing {
    address: Address,
    to: SocketAddr,
    place: usize,
    ring: Consumer,
    sender: Sender,
    /// Whether the source may send to this rank. The library refuses it otherwise, so any record in
    /// such a ring was written by a faulty or malicious process.
    is_allowed: bool,
    /// The number and bytes of the records in each queued packet, to give back their credit.
    packets: std::collections::VecDeque<(u16, u32)>,
}

/// The messages from a rank on another node to a local process.
struct Incoming {
    from: SocketAddr,
    place: usize,
    ring: Producer,
    receiver: Receiver,
}

impl JobPairs {
    pub(super) fn new(segment: Arc<Segment>, peers: &[Peer], epoch: u32) -> JobPairs {
        let layout = &segment.layout;
        let shape = segment.shape();
        let remotes = || {
            let ranks = (0..shape.size).zip(peers);
            let ranks = ranks.filter(|(rank, _)| layout.place[usize::from(*rank)] == REMOTE);
            ranks.filter_map(|(rank, peer)| peer.map(|peer| (rank, peer)))
        };
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        for channel in 0..layout.all_channels() {
            for (place, local) in shape.locals.iter().enumerate() {
                for (index, (remote, peer)) in remotes().enumerate() {
                    let ring = layout.outbound(channel, place, index);
                    // SAFETY: the job keeps the segment, and it has the engine's only ends.
                    let ring = unsafe { segment.consumer(ring) };
                    let partition = |rank: u16| shape.partitions[usize::from(rank)];
                    outgoing.push(Outgoing {
                        is_allowed: partition(*local) == partition(remote),
                        address: Address {
                            job: shape.job,
                            channel: channel as u8,
                            source: *local,
                            destination: remote,
                        },
                        to: peer,
                        place,
                        ring,
                        sender: Sender::new(Config::default(), epoch),
                        packets: std::collections::VecDeque::new(),
                    });
                    let ring = layout.inbound(channel, place, remote.into());
                    incoming.push(Incoming {
                        from: peer,
                        place,
                        // SAFETY: as above.
                        ring: unsafe { segment.producer(ring) },
                        receiver: Receiver::new(epoch),
                    });
                }
            }
        }
        JobPairs {
            segment,
            outgoing,
            incoming,
            is_frozen: false,
            has_told: true,
            is_corrupt: false,
            fault: false,
        }
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The index of the pair of a local and a remote rank in both lists.
    fn index(&self, channel: u8, local: u16, remote: u16) -> Option<usize> {
        let layout = &self.segment.layout;
        let place = *layout.place.get(usize::from(local))?;
        let other = *layout.remote.get(usize::from(remote))?;
        if place == REMOTE || other == REMOTE || usize::from(channel) >= layout.all_channels() {
            return None;
        }
        let element = usize::from(channel) * layout.shape.locals.len() + usize::from(place);
        Some(element * layout.remotes + usize::from(other))
    }

    /// Handles a packet for this gang job. Returns the answer, or `None` if the packet belongs to
    /// no pair.
    pub(super) fn handle(
        &mut self,
        header: &Header,
        body: &[u8],
        from: SocketAddr,
        now: u64,
    ) -> Option<Option<Header>> {
        let Address {
            channel,
            source,
            destination,
            ..
        } = header.address;
        if header.kind == Kind::Data {
            let index = self.index(channel, destination, source)?;
            if self.incoming.get(index)?.from != from || self.is_corrupt {
                return None;
            }
            return Some(self.receive(index, header, body));
        }
        let index = self.index(channel, source, destination)?;
        let pair = self.outgoing.get_mut(index)?;
        if pair.to != from || self.is_corrupt {
            return None;
        }
        let freed = pair.sender.handle_answer(header, now);
        self.free(index, freed);
        Some(None)
    }

    fn receive(&mut self, index: usize, header: &Header, body: &[u8]) -> Option<Header> {
        let shape = self.segment.shape();
        let channel = usize::from(header.address.channel);
        let Incoming {
            place,
            ring,
            receiver,
            ..
        } = &mut self.incoming[index];
        let element = self.segment.element(channel, *place);
        let mut range = None;
        let mut corrupt = false;
        let verdict = receiver.handle_data(header, |skip| {
            let Some(records) = records(body, header.count, skip) else {
                return 0;
            };
            let fitting = take_room(ring, &element.inbound, shape.receive, records);
            let (count, span) = fitting.unwrap_or_else(|Corrupt| {
                corrupt = true;
                (0, 0)
            });
            range = Some(&records[..span]).filter(|records| !records.is_empty());
            count
        });
        if let Some(records) = range {
            ring.write_records(records);
            ring.publish();
            element.bell.0.ring();
        }
        if corrupt {
            self.fail();
            return None;
        }
        verdict.answer
    }

    /// Gives acknowledged space back to a process.
    fn free(&mut self, index: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let pair = &mut self.outgoing[index];
        let mut left = bytes;
        let mut records = 0;
        while left > 0
            && let Some((count, size)) = pair.packets.pop_front()
        {
            left -= u64::from(size);
            records += u64::from(count);
        }
        pair.ring.release_bytes(bytes);
        let channel = usize::from(pair.address.channel);
        let element = self.segment.element(channel, pair.place);
        element.outbound.give_back(records, bytes);
        element.bell.0.ring();
    }

    /// Queues the records that processes have written, and appends the packets that are due to
    /// `out`. The packets point into the segment.
    pub(super) fn transmit(&mut self, now: u64, out: &mut Vec<Packet>) {
        if self.is_corrupt || self.is_frozen && self.is_at_rest() {
            return;
        }
        let mut corrupt = false;
        for pair in self.outgoing.iter_mut().filter(|pair| pair.is_allowed) {
            if !self.is_frozen {
                corrupt |= pair.queue().is_err();
            }
            if let Some(transmit) = pair.sender.handle_timeout(now) {
                out.push(pair.packet(&transmit));
            }
            while let Some(transmit) = pair.sender.poll_transmit(now) {
                out.push(pair.packet(&transmit));
            }
        }
        if corrupt {
            self.fail();
        }
    }

    /// Whether processes have written records that are not queued but could be.
    pub(super) fn has_more(&mut self) -> bool {
        let is_open = !self.is_frozen && !self.is_corrupt;
        is_open
            && self.outgoing.iter_mut().any(|pair| {
                pair.is_allowed
                    && pair.sender.has_room()
                    && pair.ring.peek().is_ok_and(|record| record.is_some())
            })
    }

    pub(super) fn set_asleep(&self) {
        self.segment.set_engine_asleep(true);
    }

    /// When [`JobPairs::transmit`] has something to do. It does nothing for a corrupt segment, so
    /// that the engine must not wake for it.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let timeouts = self.outgoing.iter().filter(|_| !self.is_corrupt);
        timeouts.filter_map(|pair| pair.sender.poll_timeout()).min()
    }

    pub(super) fn freeze(&mut self, how: Freeze) -> bool {
        self.is_frozen = true;
        for pair in &mut self.outgoing {
            pair.sender.freeze(how);
        }
        if how == Freeze::Epoch {
            self.close();
        }
        let at_rest = self.is_at_rest();
        self.has_told = at_rest;
        at_rest
    }

    pub(super) fn close(&mut self) {
        for pair in &mut self.incoming {
            pair.receiver.close();
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.is_corrupt || self.outgoing.iter().all(|pair| pair.sender.is_at_rest())
    }

    pub(super) fn thaw(&mut self, epoch: u32) {
        self.is_frozen = false;
        self.has_told = true;
        for pair in &mut self.outgoing {
            pair.sender.thaw(epoch);
        }
        for pair in &mut self.incoming {
            pair.receiver.thaw(epoch);
        }
    }

    /// Returns true once if the daemon must be told that the gang job is at rest or corrupt.
    pub(super) fn take_news(&mut self) -> bool {
        let rests = self.is_frozen && !self.has_told && self.is_at_rest();
        self.has_told |= rests;
        rests || self.fault
    }

    pub(super) fn take_fault(&mut self) -> bool {
        std::mem::take(&mut self.fault)
    }

    fn fail(&mut self) {
        self.fault |= !self.is_corrupt;
        self.is_corrupt = true;
    }

    pub(super) fn contexts(&self) -> Vec<(u8, u16, u16, PairContext)> {
        let outgoing = self.outgoing.iter().map(|pair| {
            let context = PairContext {
                sent: pair
                    .packets
                    .iter()
                    .map(|(count, _)| u64::from(*count))
                    .sum(),
                sequence: pair.sender.save().sequence,
                expected: 0,
            };
            let Address {
                channel,
                source,
                destination,
                ..
            } = pair.address;
            (channel, source, destination, context)
        });
        let addresses = self.outgoing.iter().map(|pair| pair.address);
        let incoming = self.incoming.iter().zip(addresses).map(|(pair, address)| {
            let context = PairContext {
                sent: 0,
                sequence: 0,
                expected: pair.receiver.expected(),
            };
            (
                address.channel,
                address.destination,
                address.source,
                context,
            )
        });
        outgoing.chain(incoming).collect()
    }
}

impl Outgoing {
    /// Divides the records into packets; a packet holds whole records.
    fn queue(&mut self) -> Result<(), Corrupt> {
        while self.sender.has_room() {
            let (mut count, mut bytes) = (0u16, 0);
            while let Some(record) = self.ring.peek()? {
                let span = Record::span(record.bytes);
                if count > 0 && (bytes + span > PACKET_BYTES || count == u16::MAX) {
                    break;
                }
                if span > PACKET_BYTES {
                    return Err(Corrupt);
                }
                self.ring.skip(record);
                count += 1;
                bytes += span;
            }
            if count == 0 {
                return Ok(());
            }
            self.sender.handle_queued(count, bytes as u32);
            self.packets.push_back((count, bytes as u32));
        }
        Ok(())
    }

    fn packet(&self, transmit: &Transmit) -> Packet {
        let offset = transmit.offset - self.sender.save().offset;
        let header = Header {
            kind: Kind::Data,
            address: self.address,
            epoch: transmit.epoch,
            count: transmit.count,
            sequence: transmit.sequence,
            transmission: transmit.transmission,
            bytes: transmit.bytes,
        };
        Packet {
            to: self.to,
            head: header.encode(),
            body: self.ring.unreleased_parts(offset, transmit.bytes as usize),
        }
    }
}

/// Takes credit for as many of the first records as fit now. Returns their number and bytes.
fn take_room(
    ring: &mut Producer,
    credit: &Credit,
    fifo: Fifo,
    records: &[u8],
) -> Result<(u16, usize), Corrupt> {
    let (mut count, mut bytes) = (0, 0);
    while let Some(header) = records[bytes..].first_chunk() {
        let span = Record::span(Record::decode(*header).bytes);
        if !ring.has_space(bytes as u64 + span)? {
            break;
        }
        // The engine reads the count each time: it has many pairs, and a read costs less than a
        // packet.
        if !credit.reserve(&mut credit.taken(), fifo, 1, span) {
            let is_first = count == 0 && ring.is_empty()?;
            if !is_first || !credit.force(1, span) {
                break;
            }
        }
        count += 1;
        bytes += span as usize;
    }
    Ok((count, bytes))
}

/// Returns the records of a packet after the first `skip`, if its body holds exactly `count`.
fn records(body: &[u8], count: u16, skip: u16) -> Option<&[u8]> {
    let (mut place, mut start) = (0usize, 0);
    for index in 0..count {
        if index == skip {
            start = place;
        }
        let header = body.get(place..place + RECORD_HEADER as usize)?;
        let record = Record::decode(header.try_into().ok()?);
        place = place.checked_add(Record::span(record.bytes) as usize)?;
    }
    (place == body.len()).then(|| &body[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;
    use crate::layout::Shape;
    use crate::ring::set_indices;

    #[test]
    fn the_engine_does_not_wake_for_a_corrupt_segment() {
        let shape = Shape {
            job: 7,
            size: 2,
            locals: vec![0],
            channels: 1,
            partitions: vec![0, 0],
            send: Shape::SEND,
            receive: Shape::RECEIVE,
            spin: false,
            is_restored: false,
        };
        let segment = Arc::new(Segment::create(shape).unwrap());
        let mut channel = Channel::attach(segment.clone(), None, 0).unwrap();
        let peers = [None, Some("127.0.0.1:9".parse().unwrap())];
        let mut pairs = JobPairs::new(segment.clone(), &peers, 1);
        channel.send(1, b"unanswered").unwrap();
        let mut out = Vec::new();
        pairs.transmit(0, &mut out);
        assert_eq!(out.len(), 1);
        // When it would be sent again.
        let due = pairs.poll_timeout().unwrap();
        let ring = segment.layout.outbound(0, 0, 0);
        set_indices(segment.control(ring), 0, 3);
        pairs.transmit(due - 1, &mut out);
        assert!(pairs.take_fault());
        assert_eq!(pairs.poll_timeout(), None);
    }
}
