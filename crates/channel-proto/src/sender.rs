//! The sending end of one pair: decides when packets are sent, sent again and freed. The caller has
//! the messages in its send FIFO. A message is freed only by an answer of the present epoch. A
//! saved pair has each message on one side only.

use crate::{Config, Freeze, Header, Kind, Nanos, SenderContext};
use alloc::collections::VecDeque;

/// A packet to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Number of its first message.
    pub sequence: u64,
    /// Number of its messages.
    pub count: u16,
    /// Offset of its bytes: the bytes queued before it since the channel was created.
    pub offset: u64,
    /// Number of its bytes.
    pub bytes: u32,
    /// Number of the transmission, which the answer repeats.
    pub transmission: u64,
    /// Epoch in which it is sent.
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    count: u16,
    bytes: u32,
    /// The transmission that last carried it; 0 if there was none in this epoch.
    transmission: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    Running,
    Frozen(Freeze),
}

/// The sequence numbers of the messages that one process sends to another on one channel.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    epoch: u32,
    motion: Motion,
    /// Number and offset of the first message that is not acknowledged.
    base: u64,
    base_offset: u64,
    /// Packets from `base`.
    queue: VecDeque<Queued>,
    /// Index in `queue` of the next packet to send.
    cursor: usize,
    /// Number and offset of that packet.
    next: u64,
    next_offset: u64,
    transmission: u64,
    answered: u64,
    /// Time before which nothing is sent, after a Nack.
    not_before: Option<Nanos>,
    pause: Nanos,
    /// When an unanswered packet counts as lost.
    deadline: Option<Nanos>,
    resend: Nanos,
}

impl Sender {
    /// Creates the sender of a new pair in an epoch.
    pub fn new(config: Config, epoch: u32) -> Sender {
        let context = SenderContext {
            sequence: 0,
            offset: 0,
        };
        Sender::restore(config, epoch, context)
    }

    /// Restores the sender of a saved pair, in a new epoch. The caller must queue the messages
    /// again.
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

    /// Returns what must be saved of a pair at rest, in addition to the unacknowledged messages.
    pub fn save(&self) -> SenderContext {
        SenderContext {
            sequence: self.base,
            offset: self.base_offset,
        }
    }

    /// Whether another packet can be queued.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.config.window
    }

    /// Bytes from the first unacknowledged message to the end of the queue.
    pub fn queued_bytes(&self) -> u64 {
        let sizes = self.queue.iter().map(|packet| u64::from(packet.bytes));
        sizes.sum()
    }

    /// Queues the next `count` messages, `bytes` bytes in all, as one packet. They stay in the
    /// caller's FIFO until an answer frees them. Call it only if [`Sender::has_room`] returns true.
    pub fn handle_queued(&mut self, count: u16, bytes: u32) {
        debug_assert!(self.has_room() && count > 0);
        self.queue.push_back(Queued {
            count,
            bytes,
            transmission: 0,
        });
    }

    /// Handles an answer, and returns how many bytes of the send FIFO it frees. Answers of another
    /// epoch, after the end of an epoch, or to an unknown transmission are ignored.
    pub fn handle_answer(&mut self, header: &Header, now: Nanos) -> u64 {
        let of_mine = header.epoch == self.epoch && header.transmission <= self.transmission;
        // The context may have been saved already, so an answer that arrives now is stale.
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
        // Everything is answered but messages are missing: an Ack overtook the Nack.
        if self.is_stationary() && self.cursor == self.queue.len() {
            self.rewind();
        }
        self.deadline = (!self.is_stationary()).then(|| now + self.resend);
        freed
    }

    /// Removes every sent packet below `sequence`. A number inside a packet comes from a receiver
    /// that got the messages in other packets, before a context was restored.
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

    /// After a Nack, sends again from the base, unless that has happened since the transmission
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

    /// Returns the next packet to send, if one is due. A frozen sender sends nothing, except lost
    /// packets under [`Freeze::Drain`].
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

    /// When [`Sender::handle_timeout`] must be called.
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

    /// Handles a timeout: unanswered packets count as lost. If the channel drains, this returns one
    /// packet to send again, whose answer settles all of them.
    pub fn handle_timeout(&mut self, now: Nanos) -> Option<Transmit> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        self.deadline = None;
        self.resend = (self.resend * 2).min(self.config.resend_max);
        if self.motion == Motion::Frozen(Freeze::Epoch) {
            return None;
        }
        self.rewind();
        if self.queue.is_empty() {
            // Everything has arrived; the unanswered transmission was a copy.
            self.answered = self.transmission;
            return None;
        }
        match self.motion {
            Motion::Running => {
                // After a pause the packets are sent and get a deadline. A drain that begins in the
                // pause needs one, too.
                let paused = self.not_before.filter(|time| now < *time);
                self.deadline = paused.map(|time| time + self.resend);
                None
            }
            Motion::Frozen(_) => self.send(now),
        }
    }

    /// Stops sending.
    pub fn freeze(&mut self, how: Freeze) {
        self.motion = Motion::Frozen(how);
    }

    /// Whether no packet of this pair is in the network: the last transmission was answered.
    pub fn is_stationary(&self) -> bool {
        self.answered == self.transmission
    }

    /// Whether the pair can be saved.
    pub fn is_at_rest(&self) -> bool {
        match self.motion {
            Motion::Running => false,
            Motion::Frozen(Freeze::Drain) => self.is_stationary(),
            Motion::Frozen(Freeze::Epoch) => true,
        }
    }

    /// Continues in a new epoch and sends all unacknowledged messages again.
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

    /// Removes the messages that a receiver that expects `expected` already has. This is the normal
    /// form of a saved context: every message is on one side only. Returns the bytes freed.
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

    /// An Ack that arrives after the context was saved would free messages that the restored
    /// context still has.
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
    fn epochs_wrap_around() {
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

    /// Only the answer to a copy is missing, and nothing is left that could be sent again.
    #[test]
    fn a_pair_without_messages_comes_to_rest_after_a_lost_answer() {
        let mut sender = Sender::new(Config::default(), 0);
        sender.handle_queued(1, 8);
        sender.poll_transmit(0).expect("sent");
        let time = sender.poll_timeout().expect("an answer is due");
        assert!(sender.handle_timeout(time).is_none());
        sender.poll_transmit(time).expect("sent again");
        assert_eq!(sender.handle_answer(&answer(Kind::Ack, 1, 1), time), 8);
        assert!(!sender.is_stationary());
        let time = sender.poll_timeout().expect("the other answer is due");
        assert!(sender.handle_timeout(time).is_none());
        assert_eq!(sender.poll_timeout(), None);
        sender.freeze(Freeze::Drain);
        assert!(sender.is_at_rest());
    }

    /// The second answer is lost, and the drain begins before the pause after the first one ends.
    #[test]
    fn a_drain_that_begins_in_a_pause_asks_again() {
        let config = Config {
            pause: 5_000_000,
            ..Config::default()
        };
        let mut sender = Sender::new(config, 0);
        sender.handle_queued(1, 8);
        sender.handle_queued(1, 8);
        sender.poll_transmit(0).expect("sent");
        sender.poll_transmit(0).expect("sent");
        assert_eq!(sender.handle_answer(&answer(Kind::Full, 0, 1), 1), 0);
        let time = sender.poll_timeout().expect("an answer is due");
        assert!(time < 5_000_000 && sender.handle_timeout(time).is_none());
        sender.freeze(Freeze::Drain);
        assert!(!sender.is_at_rest());
        let time = sender.poll_timeout().expect("it asks again");
        let again = sender.handle_timeout(time).expect("sent again");
        assert_eq!((again.sequence, again.transmission), (0, 3));
        assert_eq!(sender.handle_answer(&answer(Kind::Full, 0, 3), time), 0);
        assert!(sender.is_at_rest());
    }

    /// The messages of a packet that fitted stay; the others are sent again, together with them.
    #[test]
    fn a_packet_that_fitted_in_part_is_sent_again_whole() {
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
