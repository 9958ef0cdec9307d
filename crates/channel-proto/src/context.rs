//! The saved context of a pair.

/// What is kept of a sender: where its unacknowledged messages begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderContext {
    /// Number of the first message that is not acknowledged.
    pub sequence: u64,
    /// Bytes queued before it since the channel was made.
    pub offset: u64,
}

/// What is kept of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverContext {
    /// Number of the message that comes next.
    pub expected: u64,
}

/// Both ends of a pair, for an observer of the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairContext {
    /// Messages in the send FIFO, from the first unacknowledged one on.
    pub sent: u64,
    /// Number of that first message.
    pub sequence: u64,
    /// Number that the receiver expects.
    pub expected: u64,
}

impl PairContext {
    /// Messages of the send FIFO that the receiver does not have yet: after normalising, every
    /// message stands on one side only.
    pub fn undelivered(&self) -> u64 {
        let received = self.expected.saturating_sub(self.sequence);
        self.sent.saturating_sub(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_on_both_sides_counts_once() {
        let pair = PairContext {
            sent: 5,
            sequence: 10,
            expected: 13,
        };
        assert_eq!(pair.undelivered(), 2);
    }
}
