//! Tracks the frames that arrive from a peer on one link: which are missing, and the rate of
//! arrival. `peer` reports the gaps, and the resequencer orders the frames. A number that is too
//! far ahead is refused. A gap is not acknowledged before the request to repair it can arrive.

use crate::capacity::Tick;
use crate::delay::Delay;
use crate::{MILLISECOND, Nanos, extend};

/// Link numbers further ahead than this cannot belong to this session.
const WINDOW: u64 = 1 << 16;

/// The receiving half of a path: one link from one peer.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// The next expected number on the link.
    expected: u64,
    /// The peer has sent all numbers of its sequence below this on another link, or on this one
    /// before the frames that have arrived.
    pub(crate) passed: u64,
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Packets in the current span of the published policies.
    pub(crate) span_frames: u32,
    /// Packets in the last complete span.
    pub(crate) span_last: u32,
    /// Wire bytes a second, smoothed over some ticks.
    pub(crate) rate: f64,
    /// The measurements of the last tick.
    pub(crate) tick: Tick,
    pub(crate) delay: Delay,
    /// Share of frames lost, smoothed over some ticks with frames.
    pub(crate) loss: f64,
    counted: u64,
    lost_counted: u64,
    frames_counted: u64,
    /// The number up to which the peer knows what arrived.
    pub(crate) acknowledged: u64,
    /// A time at which this node sent a heartbeat on the link, and the number expected then.
    checkpoint: Option<(Nanos, u64)>,
    /// A recent gap, which must not be acknowledged until this time. An acknowledgement could
    /// overtake the request to send the frames again.
    open_gap: (u64, Nanos),
}

/// How long a gap stays open.
const OPEN: Nanos = 10 * MILLISECOND;

/// A range of numbers that did not arrive: the first number and the count.
pub(crate) type Gap = (u64, u64);

impl Receiver {
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Restarts at the numbers that the peer reports.
    pub(crate) fn restart(&mut self, link_number: u32, passed: u64) {
        self.expected = u64::from(link_number);
        self.acknowledged = self.expected;
        self.passed = passed;
        self.checkpoint = None;
    }

    /// Records what is expected before a heartbeat leaves, as the resequencer does.
    pub(crate) fn checkpoint(&mut self, now: Nanos) {
        self.checkpoint.get_or_insert((now, self.expected));
    }

    /// Records a data frame. Returns the gap before it, if there is one, or an error if the number
    /// is impossible.
    pub(crate) fn frame(&mut self, link_number: u32, wire_bytes: usize) -> Result<Option<Gap>, ()> {
        let number = extend(link_number, self.expected);
        if number.abs_diff(self.expected) > WINDOW {
            return Err(());
        }
        self.frames += 1;
        self.span_frames = self.span_frames.wrapping_add(1);
        self.bytes += wire_bytes as u64;
        let gap = self.advance(number);
        self.expected = self.expected.max(number + 1);
        Ok(gap)
    }

    /// Records the next number that a heartbeat announces, which answers one of this node of the
    /// time `echo`. If it differs greatly from the expected number, or is less than what had
    /// arrived at that time, the peer's number replaces the expected one.
    pub(crate) fn next_is(&mut self, link_number: u32, passed: u64, echo: Nanos) -> Option<Gap> {
        let number = extend(link_number, self.expected);
        let closed = self.checkpoint.take_if(|(at, _)| *at <= echo);
        let denied = closed.is_some_and(|(_, taken)| number < taken);
        if denied || number.abs_diff(self.expected) > WINDOW {
            self.restart(link_number, passed);
            return None;
        }
        self.passed = passed;
        self.advance(number)
    }

    fn advance(&mut self, number: u64) -> Option<Gap> {
        let missing = number.saturating_sub(self.expected);
        let gap = (missing > 0).then_some((self.expected, missing));
        self.lost += missing;
        self.expected = self.expected.max(number);
        gap
    }

    /// Measures the rate over a tick of `elapsed` nanoseconds.
    pub(crate) fn measure(&mut self, elapsed: Nanos) {
        let bytes = self.bytes - self.counted;
        self.counted = self.bytes;
        let lost = self.lost - self.lost_counted;
        let frames = self.frames - self.frames_counted;
        (self.lost_counted, self.frames_counted) = (self.lost, self.frames);
        self.tick = Tick {
            arrived: bytes as f64 * 1e9 / elapsed.max(1) as f64,
            queue: self.delay.take(),
            lost,
            frames,
        };
        if lost + frames > 0 {
            self.loss += (lost as f64 / (lost + frames) as f64 - self.loss) / 8.0;
        }
        self.rate += (self.tick.arrived - self.rate) / 4.0;
        if self.rate < 1.0 {
            self.rate = 0.0;
        }
    }

    /// Returns the number up to which everything has arrived or is given up, for the report to the
    /// peer.
    pub(crate) fn acknowledge(&mut self, now: Nanos) -> u64 {
        self.acknowledged = self.expected;
        match self.open_gap {
            (first, until) if now < until => first,
            _ => self.expected,
        }
    }

    /// Opens a gap that is about to be reported.
    pub(crate) fn open_gap(&mut self, (first, _): Gap, now: Nanos) {
        let first = if now < self.open_gap.1 {
            first.min(self.open_gap.0)
        } else {
            first
        };
        self.open_gap = (first, now + OPEN);
    }

    /// Frames that arrived since the last report to the peer.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.expected.saturating_sub(self.acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_once() {
        let mut receiver = Receiver::default();
        receiver.restart(u32::MAX, 0);
        assert_eq!(receiver.frame(u32::MAX, 84), Ok(None));
        assert_eq!(receiver.frame(2, 84), Ok(Some((1 << 32, 2))));
        assert_eq!(receiver.frame(0, 84), Ok(None));
        assert_eq!(receiver.next_is(5, 9, 0), Some(((1 << 32) + 3, 2)));
        assert_eq!(receiver.next_is(5, 9, 0), None);
        assert_eq!(receiver.lost, 4);
        assert_eq!(receiver.frame(1 << 30, 84), Err(()));
    }

    #[test]
    fn the_number_that_the_peer_announces_is_used() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.next_is(1 << 30, 7, 0), None);
        assert_eq!((receiver.expected(), receiver.passed), (1 << 30, 7));
    }

    #[test]
    fn numbers_that_the_peer_has_not_sent_are_taken_back() {
        let mut receiver = Receiver::default();
        receiver.restart(100, 0);
        assert_eq!(receiver.frame(40_000, 84), Ok(Some((100, 39_900))));
        receiver.checkpoint(10);
        // This heartbeat left the peer before it had heard this node again.
        assert_eq!(receiver.next_is(101, 7, 9), None);
        assert_eq!(receiver.expected(), 40_001);
        assert_eq!(receiver.next_is(102, 7, 10), None);
        assert_eq!(receiver.expected(), 102);
    }
}
