//! Frames that arrive from a peer on one link: what is missing, and how much came.

use crate::capacity::Tick;
use crate::delay::Delay;
use crate::{MILLISECOND, Nanos, extend};

/// Numbers on a link further ahead than this are no frames of ours.
const WINDOW: u64 = 1 << 16;

/// The receiving half of a link to a peer.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// The next number on the link.
    expected: u64,
    /// All numbers of the peer's sequence below this were sent on this link before what has
    /// arrived, or on another.
    pub(crate) passed: u64,
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Packets in the present span of the published policies.
    pub(crate) span_frames: u32,
    /// And in the last whole one.
    pub(crate) span_last: u32,
    /// Wire bytes a second, smoothed over some ticks.
    pub(crate) rate: f64,
    /// What the last tick showed.
    pub(crate) tick: Tick,
    pub(crate) delay: Delay,
    /// Share of frames lost, smoothed over some ticks with frames.
    pub(crate) loss: f64,
    counted: u64,
    lost_counted: u64,
    frames_counted: u64,
    /// Number up to which the peer knows what arrived.
    pub(crate) acknowledged: u64,
    /// A gap found not long ago, which must not be acknowledged until then: what says so may
    /// overtake the request to send again.
    open_gap: (u64, Nanos),
}

/// A gap stays open so long.
const OPEN: Nanos = 10 * MILLISECOND;

/// Numbers that did not come: the first and how many.
pub(crate) type Gap = (u64, u64);

impl Receiver {
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// Starts anew where the peer says it is.
    pub(crate) fn restart(&mut self, link_number: u32, passed: u64) {
        self.expected = u64::from(link_number);
        self.acknowledged = self.expected;
        self.passed = passed;
    }

    /// A data frame. The gap before it, none where there is none; an error where its number
    /// cannot be.
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

    /// A control message says which number comes next. Where that is far from what is known, the
    /// peer is right.
    pub(crate) fn next_is(&mut self, link_number: u32, passed: u64) -> Option<Gap> {
        let number = extend(link_number, self.expected);
        if number.abs_diff(self.expected) > WINDOW {
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

    /// Measures the rate over a tick of so many nanoseconds.
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

    /// Number up to which everything has arrived, or is given up, to be told to the peer.
    pub(crate) fn acknowledge(&mut self, now: Nanos) -> u64 {
        self.acknowledged = self.expected;
        match self.open_gap {
            (first, until) if now < until => first,
            _ => self.expected,
        }
    }

    /// A gap is about to be reported.
    pub(crate) fn open_gap(&mut self, (first, _): Gap, now: Nanos) {
        let first = if now < self.open_gap.1 {
            first.min(self.open_gap.0)
        } else {
            first
        };
        self.open_gap = (first, now + OPEN);
    }

    /// Frames that came since the peer was last told.
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
        assert_eq!(receiver.next_is(5, 9), Some(((1 << 32) + 3, 2)));
        assert_eq!(receiver.next_is(5, 9), None);
        assert_eq!(receiver.lost, 4);
        assert_eq!(receiver.frame(1 << 30, 84), Err(()));
    }

    #[test]
    fn the_peer_knows_better_where_it_is() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.next_is(1 << 30, 7), None);
        assert_eq!((receiver.expected(), receiver.passed), (1 << 30, 7));
    }
}
