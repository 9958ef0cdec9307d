//! The context of a gang job on one node: the contents of its FIFOs, and what its processes wait
//! for. The node's daemon saves and restores it at a gang switch.

use crate::error::Corrupt;
use crate::polling::Polling;
use crate::ring::{RECORD_HEADER, Record, indices, set_indices};
use crate::segment::Segment;

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ReceiveAny,
    Receive(usize),
    Send(usize),
    Exchange { source: usize, target: usize },
}

/// What a process reports that it waits for, on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing: it runs.
    No,
    /// A message from any rank.
    ReceiveAny,
    /// A message from this rank.
    Receive(u16),
    /// Space in the FIFO of this rank.
    Send(u16),
    /// Both: a message from the first rank, and space in the FIFO of the second.
    Exchange(u16, u16),
}

impl Waiting {
    pub(crate) fn encode(wait: Wait) -> u64 {
        let (kind, source, target) = match wait {
            Wait::ReceiveAny => (1, 0, 0),
            Wait::Receive(source) => (2, source, 0),
            Wait::Send(target) => (3, 0, target),
            Wait::Exchange { source, target } => (4, source, target),
        };
        kind | (source as u64) << 16 | (target as u64) << 32
    }

    fn decode(word: u64) -> Waiting {
        let (source, target) = ((word >> 16) as u16, (word >> 32) as u16);
        match word & 0xffff {
            1 => Waiting::ReceiveAny,
            2 => Waiting::Receive(source),
            3 => Waiting::Send(target),
            4 => Waiting::Exchange(source, target),
            _ => Waiting::No,
        }
    }
}

/// One process on one channel, as an observer sees it when the gang job is at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementView {
    /// The rank of the process.
    pub rank: u16,
    /// The channel; those of the collective operations follow the program's.
    pub channel: u8,
    /// What the process waits for.
    pub waiting: Waiting,
    /// Messages that have arrived but are not consumed: the sender, and how many.
    pub inbound: Vec<(u16, u32)>,
    /// Messages for ranks of other nodes in the send FIFO: the receiver, and how many.
    pub outbound: Vec<(u16, u32)>,
    /// Bytes in its receive FIFO; at least as many as it can hold if it has no space for another
    /// message, however short.
    pub received_bytes: u32,
    /// Bytes in its send FIFO.
    pub sent_bytes: u32,
    /// What the process says of itself if it never sleeps.
    pub polling: Polling,
}

/// A copy of everything that a process's channels hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElementContext {
    rings: Vec<RingContext>,
    credits: Vec<[(u64, u64); 2]>,
    /// The bytes of all rings, one after the other.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct RingContext {
    ring: (usize, usize),
    head: u64,
    tail: u64,
}

impl Segment {
    /// Returns the views of all processes of this node on all channels.
    ///
    /// # Errors
    /// Returns [`Corrupt`] if the contents of a ring are impossible.
    pub fn view(&self) -> Result<Vec<ElementView>, Corrupt> {
        let locals = self.shape().locals.len();
        let all = (0..self.layout.all_channels())
            .flat_map(|channel| (0..locals).map(move |place| (channel, place)));
        all.map(|(channel, place)| self.view_element(channel, place))
            .collect()
    }

    /// A number that changes with every message that enters or leaves a FIFO of this node.
    pub fn progress(&self) -> u64 {
        let locals = self.shape().locals.len();
        let all = (0..self.layout.all_channels())
            .flat_map(|channel| (0..locals).map(move |place| (channel, place)));
        let words = all.flat_map(|(channel, place)| {
            let element = self.element(channel, place);
            [element.inbound.raw(), element.outbound.raw()]
        });
        words.fold(0, |sum: u64, (put, taken)| {
            sum.wrapping_add(put).wrapping_add(taken)
        })
    }

    fn view_element(&self, channel: usize, place: usize) -> Result<ElementView, Corrupt> {
        let element = self.element(channel, place);
        let word = element.waits_for();
        let fifo = self.shape().receive;
        let received_bytes = match element.inbound.standing() {
            (records, bytes) if records < fifo.messages => bytes,
            (_, bytes) => bytes.max(fifo.bytes),
        };
        let counted = |rings: &mut dyn Iterator<Item = (u16, (usize, usize))>| {
            let counts = rings.map(|(rank, ring)| Ok((rank, self.count(ring)?)));
            let counts: Result<Vec<(u16, u32)>, Corrupt> = counts.collect();
            counts.map(|counts| counts.into_iter().filter(|(_, count)| *count > 0).collect())
        };
        let size = self.shape().size;
        let layout = &self.layout;
        let mut sources =
            (0..size).map(|source| (source, layout.inbound(channel, place, source.into())));
        let remotes = (0..size).filter(|rank| layout.place[usize::from(*rank)] == u16::MAX);
        let mut targets = remotes.enumerate().map(|(index, target)| {
            let ring = layout.outbound(channel, place, index);
            (target, ring)
        });
        Ok(ElementView {
            rank: self.shape().locals[place],
            channel: channel as u8,
            waiting: Waiting::decode(word),
            inbound: counted(&mut sources)?,
            outbound: counted(&mut targets)?,
            received_bytes,
            sent_bytes: element.outbound.standing().1,
            polling: element.said.read(size),
        })
    }

    /// Counts the messages in a ring, including one that is only partly there.
    fn count(&self, ring: (usize, usize)) -> Result<u32, Corrupt> {
        let (mut head, tail) = self.indices(ring)?;
        let (mut messages, mut is_open) = (0, false);
        while head != tail {
            let mut header = [0; RECORD_HEADER as usize];
            self.copy_out(ring, head, &mut header);
            let record = Record::decode(header);
            let span = Record::span(record.bytes);
            if span > tail.wrapping_sub(head) {
                return Err(Corrupt);
            }
            head += span;
            is_open = record.rest > 0;
            messages += u32::from(!is_open);
        }
        Ok(messages + u32::from(is_open))
    }

    pub(crate) fn indices(&self, ring: (usize, usize)) -> Result<(u64, u64), Corrupt> {
        let (head, tail) = indices(self.control(ring));
        let is_sound = (head | tail) & 7 == 0
            && tail.wrapping_sub(head) <= self.layout.ring_bytes as u64
            && head <= tail;
        is_sound.then_some((head, tail)).ok_or(Corrupt)
    }

    /// Copies the whole context of this node's processes into `saved`, whose memory is reused. Call
    /// it only when the gang job is at rest.
    pub fn save(&self, saved: &mut SavedContext) -> Result<(), Corrupt> {
        let locals = self.shape().locals.len();
        saved.elements.resize_with(locals, ElementContext::default);
        for (place, context) in saved.elements.iter_mut().enumerate() {
            context.rings.clear();
            context.credits.clear();
            context.bytes.clear();
            for channel in 0..self.layout.all_channels() {
                self.save_element(channel, place, context)?;
            }
        }
        Ok(())
    }

    fn save_element(
        &self,
        channel: usize,
        place: usize,
        context: &mut ElementContext,
    ) -> Result<(), Corrupt> {
        let element = self.element(channel, place);
        let credits = [element.inbound.raw(), element.outbound.raw()];
        context.credits.push(credits);
        let size = usize::from(self.shape().size);
        let inbound = (0..size).map(|source| self.layout.inbound(channel, place, source));
        let remotes = 0..self.layout.remotes;
        let outbound = remotes.map(|remote| self.layout.outbound(channel, place, remote));
        for ring in inbound.chain(outbound) {
            let (head, tail) = self.indices(ring)?;
            if head == tail {
                continue;
            }
            context.rings.push(RingContext { ring, head, tail });
            let start = context.bytes.len();
            context.bytes.resize(start + (tail - head) as usize, 0);
            self.copy_out(ring, head, &mut context.bytes[start..]);
        }
        Ok(())
    }

    /// Copies a saved context back. Call it only when the gang job is at rest.
    pub fn restore(&self, saved: &SavedContext) {
        for (place, context) in saved.elements.iter().enumerate() {
            for (channel, [inbound, outbound]) in context.credits.iter().enumerate() {
                let element = self.element(channel, place);
                element.inbound.set_raw(*inbound);
                element.outbound.set_raw(*outbound);
            }
            let mut bytes = &context.bytes[..];
            for RingContext { ring, head, tail } in context.rings.iter().copied() {
                let (now, rest) = bytes.split_at((tail - head) as usize);
                self.copy_in(ring, head, now);
                set_indices(self.control(ring), head, tail);
                bytes = rest;
            }
        }
    }
}

/// A copy of everything that a gang job's channels hold on one node.
#[derive(Clone, Debug, Default)]
pub struct SavedContext {
    elements: Vec<ElementContext>,
}

impl SavedContext {
    /// Bytes of messages in it.
    pub fn bytes(&self) -> usize {
        self.elements
            .iter()
            .map(|context| context.bytes.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Channel, Fifo, Segment, Shape};
    use std::sync::Arc;

    #[test]
    fn a_fifo_is_full_of_short_messages() {
        let receive = Fifo {
            messages: 8,
            ..Shape::RECEIVE
        };
        let shape = Shape {
            job: 7,
            size: 2,
            locals: vec![0, 1],
            channels: 1,
            partitions: vec![0; 2],
            send: Shape::SEND,
            receive,
            spin: false,
            is_restored: false,
        };
        let segment = Arc::new(Segment::create(shape).unwrap());
        let mut sender = Channel::attach(segment.clone(), None, 0).unwrap();
        for sent in 0..8 {
            assert_eq!(segment.view().unwrap()[1].received_bytes, sent * 8);
            assert!(sender.try_send(1, &[]).unwrap());
        }
        assert!(!sender.try_send(1, &[]).unwrap());
        assert_eq!(segment.view().unwrap()[1].received_bytes, receive.bytes);
    }
}
