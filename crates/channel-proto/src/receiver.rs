//! The receiving end of one pair: decides which messages of a packet are new, and what to answer.
//! The caller has the receive FIFO. Each message is accepted once and in order, and a packet of a
//! past epoch is dropped.

use crate::{Header, Kind, ReceiverContext};

/// What the caller must do with a packet of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Number of new messages to put into the receive FIFO, after the first `skip`.
    pub deliver: u16,
    /// Number of messages at the beginning of the packet that arrived before.
    pub skip: u16,
    /// The answer to send; none for a packet of a past epoch.
    pub answer: Option<Header>,
}

const DROP: Verdict = Verdict {
    deliver: 0,
    skip: 0,
    answer: None,
};

/// The receiver of a pair: it tracks which message comes next.
#[derive(Debug)]
pub struct Receiver {
    epoch: u32,
    expected: u64,
    /// True from the end of an epoch until the next one begins.
    is_closed: bool,
}

impl Receiver {
    /// Creates the receiver of a new pair in an epoch.
    pub fn new(epoch: u32) -> Receiver {
        Receiver::restore(epoch, ReceiverContext { expected: 0 })
    }

    /// Restores the receiver of a saved pair, in a new epoch.
    pub fn restore(epoch: u32, context: ReceiverContext) -> Receiver {
        Receiver {
            epoch,
            expected: context.expected,
            is_closed: false,
        }
    }

    /// Returns what must be saved of a pair at rest, in addition to the messages received.
    pub fn save(&self) -> ReceiverContext {
        ReceiverContext {
            expected: self.expected,
        }
    }

    /// Number of the next message.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Stops accepting messages in this epoch. A receiver whose senders drain must be closed only
    /// after all of them are stationary.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Continues in a new epoch.
    pub fn thaw(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.is_closed = false;
    }

    /// Judges a packet. `fits` receives the number of messages to skip, and returns how many of the
    /// others fit into the receive FIFO. The caller must put as many there as the verdict says.
    pub fn handle_data(&mut self, header: &Header, fits: impl FnOnce(u16) -> u16) -> Verdict {
        if header.kind != Kind::Data {
            return DROP;
        }
        let ahead = header.epoch.wrapping_sub(self.epoch) as i32;
        if ahead < 0 || (ahead == 0 && self.is_closed) {
            return DROP;
        }
        let end = header.sequence.saturating_add(u64::from(header.count));
        let (kind, deliver, skip) = if ahead > 0 {
            (Kind::Early, 0, 0)
        } else if header.sequence > self.expected {
            (Kind::Gap, 0, 0)
        } else if end <= self.expected {
            (Kind::Ack, 0, 0)
        } else {
            let skip = (self.expected - header.sequence) as u16;
            let new = header.count - skip;
            match fits(skip).min(new) {
                0 => (Kind::Full, 0, 0),
                deliver if deliver < new => (Kind::Full, deliver, skip),
                deliver => (Kind::Ack, deliver, skip),
            }
        };
        self.expected += u64::from(deliver);
        let sequence = match kind {
            Kind::Early => header.sequence.min(self.expected),
            _ => self.expected,
        };
        let answer = Header {
            kind,
            sequence,
            count: 0,
            bytes: 0,
            ..*header
        };
        Verdict {
            deliver,
            skip,
            answer: Some(answer),
        }
    }
}
