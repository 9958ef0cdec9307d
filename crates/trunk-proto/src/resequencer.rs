//! Restores the order of a peer's frames that came over several links.
//!
//! Links are first-in first-out, so that a number is proven lost once every live link has passed
//! it (RFC 1990, section 4.1). Then it is waited for only as long as a repair takes.

use crate::address::Packed;
use crate::{MILLISECOND, Nanos};
use alloc::collections::{BTreeMap, VecDeque};

/// Where no proof comes, a frame waits so long for those before it.
const FALLBACK: Nanos = 20 * MILLISECOND;
/// And so long where a link has gone silent: until it is taken out and what was on it sent again.
const FALLBACK_SILENT: Nanos = 100 * MILLISECOND;
/// Numbers further ahead than this are no frames of ours.
pub(crate) const WINDOW: u64 = 1 << 20;
/// Times at which links had passed a number, remembered.
const MARKS: usize = 64;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is the next one: deliver it now.
    Next,
    Held,
    /// It was here before, or came too late.
    Duplicate,
    /// Its number cannot be.
    OutOfWindow,
}

#[derive(Debug)]
struct HeldFrame {
    since: Nanos,
    frame: Packed,
}

/// The frames of one peer that wait for others.
#[derive(Debug)]
pub(crate) struct Resequencer {
    /// The number to be delivered next.
    next: u64,
    held: BTreeMap<u64, HeldFrame>,
    bytes: usize,
    /// All numbers below the first have been passed by every live link since the second.
    marks: VecDeque<(u64, Nanos)>,
    /// Frames held at once, at most.
    limit: usize,
    /// Numbers given up.
    pub(crate) skipped: u64,
}

impl Resequencer {
    pub(crate) fn new(limit: usize) -> Resequencer {
        Resequencer {
            next: 0,
            held: BTreeMap::new(),
            bytes: 0,
            marks: VecDeque::new(),
            limit,
            skipped: 0,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn held_frames(&self) -> usize {
        self.held.len()
    }

    /// Starts anew at a number. What is held is given up.
    pub(crate) fn restart(&mut self, next: u64) {
        self.next = next;
        self.held.clear();
        self.bytes = 0;
        self.marks.clear();
    }

    /// Takes a frame. After [`Taken::Next`] the caller delivers it itself, so that the frame of a
    /// quiet stream is never stored.
    pub(crate) fn push(&mut self, number: u64, now: Nanos, frame: &Packed) -> Taken {
        if number == self.next {
            self.next += 1;
            return Taken::Next;
        }
        if number < self.next || self.held.contains_key(&number) {
            return Taken::Duplicate;
        }
        if number - self.next > WINDOW {
            return Taken::OutOfWindow;
        }
        self.bytes += frame.body.len();
        self.held.insert(
            number,
            HeldFrame {
                since: now,
                frame: frame.clone(),
            },
        );
        Taken::Held
    }

    /// Every live link has passed all numbers below `passed`.
    pub(crate) fn pass(&mut self, passed: u64, now: Nanos) {
        while self
            .marks
            .front()
            .is_some_and(|(mark, _)| *mark <= self.next)
        {
            self.marks.pop_front();
        }
        if passed <= self.next || self.marks.back().is_some_and(|(mark, _)| *mark >= passed) {
            return;
        }
        if self.marks.len() == MARKS {
            // The later time holds for both: a hole waits a little longer.
            self.marks.pop_back();
        }
        self.marks.push_back((passed, now));
    }

    /// The next frame that may be delivered: in order, or after a hole that is given up, either
    /// `hold` after it was proven lost, or by time alone.
    pub(crate) fn pop(&mut self, now: Nanos, hold: Nanos, silent: bool) -> Option<Packed> {
        let (&number, _) = self.held.first_key_value()?;
        let full = self.held.len() > self.limit;
        if number > self.next && !full && now < self.give_up(hold, silent)? {
            return None;
        }
        let (_, held) = self.held.pop_first()?;
        self.bytes -= held.frame.body.len();
        self.skipped += number - self.next;
        self.next = number + 1;
        Some(held.frame)
    }

    /// When the hole before the first frame held is given up; none where nothing is held.
    pub(crate) fn give_up(&self, hold: Nanos, silent: bool) -> Option<Nanos> {
        let (_, first) = self.held.first_key_value()?;
        let fallback = first.since + if silent { FALLBACK_SILENT } else { FALLBACK };
        // The first missing number decides: those after it are given up at the same time only
        // where they are proven lost too, and the next frame held stands behind all of them.
        let number = *self.held.first_key_value()?.0;
        let proven = self
            .marks
            .iter()
            .find(|(mark, _)| *mark >= number)
            .map(|(_, at)| at + hold);
        Some(proven.unwrap_or(fallback).min(fallback))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use alloc::vec::Vec;
    use bytes::Bytes;

    const HOLD: Nanos = 5 * MILLISECOND;

    fn frame(number: u64) -> Packed {
        let body = Bytes::copy_from_slice(&number.to_be_bytes());
        Packed {
            address: Address::Unicast,
            protocol: 0,
            body,
        }
    }

    fn drain(resequencer: &mut Resequencer, now: Nanos) -> Vec<u64> {
        let next = || resequencer.pop(now, HOLD, false);
        core::iter::from_fn(next)
            .map(|frame| u64::from_be_bytes(*frame.body.first_chunk().unwrap()))
            .collect()
    }

    #[test]
    fn order_is_restored() {
        let mut resequencer = Resequencer::new(100);
        assert_eq!(resequencer.push(0, 0, &frame(0)), Taken::Next);
        for number in [3, 2, 4] {
            assert_eq!(resequencer.push(number, 0, &frame(number)), Taken::Held);
        }
        assert_eq!(resequencer.push(3, 0, &frame(3)), Taken::Duplicate);
        assert_eq!(drain(&mut resequencer, 0), []);
        assert_eq!(resequencer.push(1, 0, &frame(1)), Taken::Next);
        assert_eq!(drain(&mut resequencer, 0), [2, 3, 4]);
        assert_eq!(resequencer.push(4, 0, &frame(4)), Taken::Duplicate);
        assert_eq!(resequencer.held_bytes(), 0);
    }

    #[test]
    fn a_proven_loss_is_given_up_after_the_time_of_a_repair() {
        let mut resequencer = Resequencer::new(100);
        resequencer.push(1, 0, &frame(1));
        resequencer.pass(2, MILLISECOND);
        resequencer.pass(3, 2 * MILLISECOND);
        assert_eq!(resequencer.give_up(HOLD, false), Some(6 * MILLISECOND));
        assert_eq!(drain(&mut resequencer, 6 * MILLISECOND - 1), []);
        assert_eq!(drain(&mut resequencer, 6 * MILLISECOND), [1]);
        assert_eq!(resequencer.skipped, 1);
    }

    #[test]
    fn holes_proven_together_are_given_up_together() {
        let mut resequencer = Resequencer::new(100);
        for number in [1, 3, 5] {
            resequencer.push(number, 0, &frame(number));
        }
        resequencer.pass(6, 0);
        assert_eq!(drain(&mut resequencer, HOLD), [1, 3, 5]);
    }

    #[test]
    fn without_proof_time_decides_and_longer_on_silence() {
        let mut resequencer = Resequencer::new(100);
        resequencer.push(1, 0, &frame(1));
        assert_eq!(resequencer.give_up(HOLD, false), Some(FALLBACK));
        assert_eq!(resequencer.give_up(HOLD, true), Some(FALLBACK_SILENT));
    }

    #[test]
    fn the_buffer_is_bounded() {
        let mut resequencer = Resequencer::new(3);
        for number in 1..=4 {
            resequencer.push(number, 0, &frame(number));
        }
        assert_eq!(drain(&mut resequencer, 0), [1, 2, 3, 4]);
        assert_eq!(
            resequencer.push(WINDOW + 6, 0, &frame(0)),
            Taken::OutOfWindow
        );
    }
}
