//! The sending end of one pair.

use crate::{Config, Freeze, Header, Kind, Nanos, SenderContext};
use alloc::collections::VecDeque;

/// A packet to be put on the network now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Number of its first message.
    pub sequence: u64,
    /// Messages in it.
    pub count: u16,
    /// Where its bytes begin: bytes queued before it since the channel was made.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u32,
    /// To be repeated by the answer.
    pub transmission: u64,
    /// Epoch in which it is sent.
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    count: u16,
    bytes: u32,
    /// The transmission that last carried it; 0 where there was none in this epoch.
    transmission: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    Running,
    Frozen(Freeze),
}

/// Sequence numbers of the messages that one element sends to another on one channel.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    epoch: u32,
    motion: Motion,
    /// Number and offset of the first message that is not acknowledged.
    base: u64,
    base_offset: u64,
    /// Packets from `base` on.
    queue: VecDeque<Queued>,
    /// The packet of `queue` to be sent next.
    cursor: usize,
    /// Its number and offset.
    next: u64,
    next_offset: u64,
    transmission: u64,
    answered: u64,
    /// Nothing is sent before this time (after a Nack).
    not_before: Option<Nanos>,
    pause: Nanos,
    /// When an unanswered packet is given up for lost.
    deadline: Option<Nanos>,
    resend: Nanos,
}

impl Sender {
    /// The sender of a fresh pair in an epoch.
    pub fn new(config: Config, epoch: u32) -> Sender {
        let context = SenderContext {
            sequence: 0,
            offset: 0,
        };
        Sender::restore(config, epoch, context)
    }

    /// The sender of a saved pair, in a new epoch. What was queued has to be queued again.
    pub fn restore(config: Config, epoch: u32, context: SenderContext) -> Sender {
        Sender {
            config,
            epoch,
            motion: Motion::Running,
            base: context.sequence,
            base_offset: context.offset,
            queue: VecDeque::new(),
            cursor: 0,
            next: context.sequence,
            next_offset: context.offset,
            transmission: 0,
            answered: 0,
            not_before: None,
            pause: config.pause,
            deadline: None,
            resend: config.resend,
        }
    }

    /// What must be kept of a pair at rest, besides the messages from there on.
    pub fn save(&self) -> SenderContext {
        SenderContext {
            sequence: self.base,
            offset: self.base_offset,
        }
    }

    /// True where another packet may be queued.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.config.window
    }

    /// True where nothing is queued or under way.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes from the first unacknowledged message to the end of what was queued.
    pub fn queued_bytes(&self) -> u64 {
        let sizes = self.queue.iter().map(|packet| u64::from(packet.bytes));
        sizes.sum()
    }

    /// Queues the next `count` messages, of `bytes` bytes together, as one packet. They stay in the
    /// caller's FIFO until an answer frees them. Call it only while [`Sender::has_room`].
    pub fn handle_queued(&mut self, count: u16, bytes: u32) {
        debug_assert!(self.has_room() && count > 0);
        self.queue.push_back(Queued {
            count,
            bytes,
            transmission: 0,
        });
    }

    /// Takes an answer, and returns how many bytes of the send FIFO are free now. Answers of
    /// another epoch, of one that is over, or of a transmission that never was, are ignored.
    pub fn handle_answer(&mut self, header: &Header, now: Nanos) -> u64 {
        let of_mine = header.epoch == self.epoch && header.transmission <= self.transmission;
        // The context may have been saved: what comes now is as stale as what is under way.
        let is_stale = self.motion == Motion::Frozen(Freeze::Epoch);
        if !of_mine || is_stale || header.kind == Kind::Data {
            return 0;
        }
        if header.transmission > self.answered {
            self.answered = header.transmission;
            self.resend = self.config.resend;
        }
        let freed = self.acknowledge(header.sequence);
        if header.kind == Kind::Ack {
            self.pause = self.config.pause;
        } else {
            self.go_back(header, now);
        }
        // All is answered and something is missing still: its Nack was overtaken by an Ack.
        if self.is_stationary() && self.cursor == self.queue.len() {
            self.rewind();
        }
        self.deadline = (!self.is_stationary()).then(|| now + self.resend);
        freed
    }

    /// Removes every packet that lies below `sequence` and was sent. A number inside a packet comes
    /// from a receiver that knew the messages in other packets, before a context was restored.
    fn acknowledge(&mut self, sequence: u64) -> u64 {
        let (mut count, mut bytes) = (0, 0);
        for packet in &self.queue {
            let end = self.base + u64::from(packet.count);
            if packet.transmission == 0 || end > sequence {
                break;
            }
            self.base = end;
            bytes += u64::from(packet.bytes);
            count += 1;
        }
        self.queue.drain(..count);
        self.base_offset += bytes;
        if self.cursor < count {
            self.rewind();
        } else {
            self.cursor -= count;
        }
        bytes
    }

    /// After a Nack: sends again from the base, unless that has been done since the transmission
    /// that the Nack answers.
    fn go_back(&mut self, nack: &Header, now: Nanos) {
        let Some(first) = self.queue.front() else {
            return;
        };
        let end = self.base + u64::from(first.count);
        let is_of_first = (self.base..end).contains(&nack.sequence);
        if !is_of_first || self.cursor == 0 || first.transmission > nack.transmission {
            return;
        }
        self.rewind();
        if nack.kind != Kind::Gap {
            self.not_before = Some(now + self.pause);
            self.pause = (self.pause * 2).min(self.config.pause_max);
        }
    }

    fn rewind(&mut self) {
        self.cursor = 0;
        self.next = self.base;
        self.next_offset = self.base_offset;
    }

    /// The next packet to send, if one is due. A frozen sender sends nothing, save under
    /// [`Freeze::Drain`] what was lost without an answer.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        if self.motion != Motion::Running || self.not_before.is_some_and(|time| now < time) {
            return None;
        }
        self.not_before = None;
        self.send(now)
    }

    fn send(&mut self, now: Nanos) -> Option<Transmit> {
        let packet = self.queue.get_mut(self.cursor)?;
        self.transmission += 1;
        packet.transmission = self.transmission;
        let transmit = Transmit {
            sequence: self.next,
            count: packet.count,
            offset: self.next_offset,
            bytes: packet.bytes,
            transmission: self.transmission,
            epoch: self.epoch,
        };
        self.cursor += 1;
        self.next += u64::from(packet.count);
        self.next_offset += u64::from(packet.bytes);
        self.deadline.get_or_insert(now + self.resend);
        Some(transmit)
    }

    /// When [`Sender::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let paused = self
            .not_before
            .filter(|_| self.motion == Motion::Running && self.cursor < self.queue.len());
        let lost = self
            .deadline
            .filter(|_| self.motion != Motion::Frozen(Freeze::Epoch));
        match (paused, lost) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Time has passed: gives up for lost what is still unanswered. While the channel drains, that
    /// is sent again here and now, one packet to ask what became of all.
    pub fn handle_timeout(&mut self, now: Nanos) -> Option<Transmit> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        self.deadline = None;
        self.resend = (self.resend * 2).min(self.config.resend_max);
        match self.motion {
            Motion::Frozen(Freeze::Epoch) => None,
            Motion::Running => {
                self.rewind();
                None
            }
            Motion::Frozen(Freeze::Drain) => {
                self.rewind();
                let sent = self.send(now);
                if sent.is_none() {
                    // Everything has arrived: what is unanswered was a copy of it.
                    self.answered = self.transmission;
                }
                sent
            }
        }
    }

    /// Stops sending.
    pub fn freeze(&mut self, how: Freeze) {
        self.motion = Motion::Frozen(how);
    }

    /// True when nothing of this pair is in the network: the last transmission was answered.
    pub fn is_stationary(&self) -> bool {
        self.answered == self.transmission
    }

    /// True when the pair may be saved.
    pub fn is_at_rest(&self) -> bool {
        match self.motion {
            Motion::Running => false,
            Motion::Frozen(Freeze::Drain) => self.is_stationary(),
            Motion::Frozen(Freeze::Epoch) => true,
        }
    }

    /// Goes on in a new epoch: everything unacknowledged is sent again.
    pub fn thaw(&mut self, epoch: u32) {
        self.motion = Motion::Running;
        self.epoch = epoch;
        self.rewind();
        for packet in &mut self.queue {
            packet.transmission = 0;
        }
        self.transmission = 0;
        self.answered = 0;
        self.not_before = None;
        self.deadline = None;
        self.pause = self.config.pause;
        self.resend = self.config.resend;
    }

    /// Removes what a receiver that expects `expected` already has: the normal form of a saved
    /// context, in which every message stands on one side only. Returns the bytes freed.
    pub fn normalise(&mut self, expected: u64) -> u64 {
        let mut bytes = 0;
        while let Some(first) = self.queue.front().copied() {
            let end = self.base + u64::from(first.count);
            if end > expected {
                break;
            }
            self.queue.pop_front();
            self.base = end;
            bytes += u64::from(first.bytes);
        }
        self.base_offset += bytes;
        self.rewind();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn answer(kind: Kind, sequence: u64, transmission: u64) -> Header {
        Header {
            kind,
            address: Address {
                job: 1,
                channel: 0,
                source: 0,
                destination: 1,
            },
            epoch: 0,
            count: 0,
            sequence,
            transmission,
            bytes: 0,
        }
    }

    /// An Ack that comes after the context was saved would free what restoring brings back.
    #[test]
    fn an_answer_after_the_end_of_an_epoch_changes_nothing() {
        let mut sender = Sender::new(Config::default(), 0);
        sender.handle_queued(2, 16);
        assert!(sender.poll_transmit(0).is_some());
        sender.freeze(Freeze::Epoch);
        let saved = sender.save();
        assert_eq!(sender.handle_answer(&answer(Kind::Ack, 2, 1), 5), 0);
        assert_eq!(sender.save(), saved);
        sender.thaw(1);
        let again = sender.poll_transmit(10).expect("it is sent again");
        assert_eq!((again.sequence, again.count, again.epoch), (0, 2, 1));
    }

    #[test]
    fn epochs_go_round() {
        let mut sender = Sender::new(Config::default(), u32::MAX);
        sender.handle_queued(1, 8);
        sender.poll_transmit(0).expect("sent");
        sender.freeze(Freeze::Epoch);
        sender.thaw(0);
        let late = Header {
            epoch: u32::MAX,
            ..answer(Kind::Ack, 1, 1)
        };
        assert_eq!(sender.handle_answer(&late, 1), 0);
        assert_eq!(sender.poll_transmit(2).expect("sent again").epoch, 0);
        assert_eq!(sender.handle_answer(&answer(Kind::Ack, 1, 1), 3), 8);
    }

    /// What fitted of a packet stays there; the rest is sent again with it.
    #[test]
    fn a_packet_of_which_a_part_fitted_is_sent_again_whole() {
        let mut sender = Sender::new(Config::default(), 0);
        sender.handle_queued(3, 24);
        sender.poll_transmit(0).expect("sent");
        assert_eq!(sender.handle_answer(&answer(Kind::Full, 2, 1), 1), 0);
        assert!(sender.poll_transmit(1).is_none());
        let time = sender.poll_timeout().expect("after a pause");
        let again = sender.poll_transmit(time).expect("sent again");
        assert_eq!((again.sequence, again.count), (0, 3));
        assert_eq!(sender.handle_answer(&answer(Kind::Ack, 3, 2), time), 24);
    }
}
