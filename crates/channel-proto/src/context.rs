//! The saved context of a pair: the sequence numbers from which it continues. It holds no messages.

/// The saved state of a sender: where its unacknowledged messages begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderContext {
    /// Number of the first message that is not acknowledged.
    pub sequence: u64,
    /// Bytes queued before it since the channel was created.
    pub offset: u64,
}

/// The saved state of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverContext {
    /// Number of the next message.
    pub expected: u64,
}

/// Both ends of a pair, for an observer of the whole gang job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairContext {
    /// Number of messages in the send FIFO, from the first unacknowledged one.
    pub sent: u64,
    /// Number of that first message.
    pub sequence: u64,
    /// Number that the receiver expects.
    pub expected: u64,
}

impl PairContext {
    /// Messages of the send FIFO that the receiver does not have yet. After normalising, every
    /// message is on one side only.
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
