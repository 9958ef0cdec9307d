//! Restores the order of a peer's frames that arrive over several links.
//!
//! Each link delivers in order, so a number is proven lost as soon as every live link has passed it
//! (RFC 1990, section 4.1). After this proof the resequencer waits only as long as a repair takes.
//!
//! Heartbeats carry the peer's next number and have the last word. A frame far ahead waits until a
//! heartbeat confirms its number. If a heartbeat denies numbers that were taken, the order
//! continues at the number of the heartbeat. So no forged or misdirected frame ends a peering.

use crate::address::Packed;
use crate::{MILLISECOND, Nanos};
use alloc::collections::{BTreeMap, VecDeque};

/// Without a proof, how long a frame waits for those before it.
const FALLBACK: Nanos = 20 * MILLISECOND;
/// The same wait if a link is silent: until it is taken out and its frames are sent again.
const FALLBACK_SILENT: Nanos = 100 * MILLISECOND;
/// Numbers further ahead than this cannot belong to this session.
pub(crate) const WINDOW: u64 = 1 << 20;
/// A hole of more numbers than this is given up only after a heartbeat has confirmed the frame
/// behind it.
const TRUSTED: u64 = 256;
/// A frame behind such a hole is refused if no heartbeat confirms its number for this long.
const CONFIRMATION: Nanos = 200 * MILLISECOND;
/// The largest number of recorded times at which links had passed a number.
const MARKS: usize = 64;

/// The result of taking a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is the next one: the caller delivers it now.
    Next,
    Held,
    /// It arrived before, or too late.
    Duplicate,
    /// Its number is impossible.
    OutOfWindow,
}

/// Bytes of a frame that is held. One without a body counts too, so that frames are held if and
/// only if bytes are: the caller looks at the bytes.
fn cost(frame: &Packed) -> usize {
    frame.body.len().max(1)
}

#[derive(Debug)]
struct HeldFrame {
    since: Nanos,
    frame: Packed,
}

/// The frames of one peer that wait for earlier ones.
#[derive(Debug)]
pub(crate) struct Resequencer {
    /// The next number to deliver.
    next: u64,
    held: BTreeMap<u64, HeldFrame>,
    bytes: usize,
    /// Pairs of a number and a time: every live link had passed all numbers below the number at
    /// that time.
    marks: VecDeque<(u64, Nanos)>,
    /// The largest number of frames held at once.
    limit: usize,
    /// The largest next number that a heartbeat has announced.
    announced: u64,
    /// A time at which this node sent a heartbeat, and the next number to deliver at that time.
    checkpoint: Option<(Nanos, u64)>,
    /// Count of numbers given up.
    pub(crate) skipped: u64,
    /// Count of frames whose numbers heartbeats denied or did not confirm.
    pub(crate) refused: u64,
    /// How often a heartbeat set the order back, or far ahead.
    pub(crate) resynchronised: u64,
}

impl Resequencer {
    pub(crate) fn new(limit: usize) -> Resequencer {
        Resequencer {
            next: 0,
            held: BTreeMap::new(),
            bytes: 0,
            marks: VecDeque::new(),
            limit,
            announced: 0,
            checkpoint: None,
            skipped: 0,
            refused: 0,
            resynchronised: 0,
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

    /// Restarts at a number and discards the frames held.
    pub(crate) fn restart(&mut self, next: u64) {
        self.next = next;
        self.announced = next;
        self.checkpoint = None;
        self.held.clear();
        self.bytes = 0;
        self.marks.clear();
    }

    /// Records what was taken before a heartbeat leaves, unless an earlier record is still open.
    /// The peer's answer to the heartbeat closes it.
    pub(crate) fn checkpoint(&mut self, now: Nanos) {
        self.checkpoint.get_or_insert((now, self.next));
    }

    /// Takes the next number that a heartbeat announces. The peer sent it after it had received
    /// this node's heartbeat of the time `echo`. Everything from the peer that arrived before that
    /// time has a smaller number, whatever the delays of the links are. Returns true if the order
    /// continues at the announced number, because the numbers taken here are not the peer's.
    pub(crate) fn announce(&mut self, number: u64, echo: Nanos) -> bool {
        let before = self.held.len();
        let closed = self.checkpoint.take_if(|(at, _)| *at <= echo);
        let denied = closed.is_some_and(|(_, taken)| number < taken);
        let beyond = number.saturating_sub(self.next) > WINDOW;
        if denied || beyond {
            self.resynchronised += 1;
            self.next = number;
            self.announced = number;
            self.checkpoint = None;
            self.marks.clear();
        }
        self.announced = self.announced.max(number);
        let next = self.next;
        let bytes = &mut self.bytes;
        self.held.retain(|held, frame| {
            let sent = *held < number || frame.since >= echo;
            let keep = sent && *held >= next;
            *bytes -= if keep { 0 } else { cost(&frame.frame) };
            keep
        });
        let refused = before - self.held.len();
        if refused > 0 {
            self.marks.retain(|(mark, _)| *mark <= number);
        }
        self.refused += refused as u64;
        denied || beyond
    }

    /// Whether only a heartbeat can show that the peer has sent this number.
    pub(crate) fn is_doubtful(&self, number: u64) -> bool {
        number.saturating_sub(self.next) > TRUSTED && number >= self.announced
    }

    fn refuse(&mut self, number: u64) {
        if let Some(held) = self.held.remove(&number) {
            self.bytes -= cost(&held.frame);
            self.refused += 1;
        }
    }

    /// Takes a frame. After [`Taken::Next`] the caller delivers the frame itself. Thus a frame that
    /// arrives in order is never stored.
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
        self.bytes += cost(frame);
        self.held.insert(
            number,
            HeldFrame {
                since: now,
                frame: frame.clone(),
            },
        );
        Taken::Held
    }

    /// Records that every live link has passed all numbers below `passed`.
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
            // The later time is used for both; a hole waits slightly longer.
            self.marks.pop_back();
        }
        self.marks.push_back((passed, now));
    }

    /// Returns the next frame to deliver: the one in order, or the one after a hole that is given
    /// up. A hole is given up `hold` after it was proven lost, or after the fallback time.
    pub(crate) fn pop(&mut self, now: Nanos, hold: Nanos, silent: bool) -> Option<Packed> {
        let (mut number, mut first) = self.held.first_key_value()?;
        while self.is_doubtful(*number) {
            // If there is no room, the frame that is furthest ahead has the least credit.
            let refused = match self.held.len() > self.limit {
                true => *self.held.last_key_value()?.0,
                false if now >= first.since.saturating_add(CONFIRMATION) => *number,
                false => return None,
            };
            self.refuse(refused);
            (number, first) = self.held.first_key_value()?;
        }
        let number = *number;
        let full = self.held.len() > self.limit;
        if number > self.next && !full && now < self.give_up(hold, silent)? {
            return None;
        }
        let (_, held) = self.held.pop_first()?;
        self.bytes -= cost(&held.frame);
        self.skipped += number - self.next;
        self.next = number + 1;
        Some(held.frame)
    }

    /// When the hole before the first held frame is given up, or none if no frame is held.
    pub(crate) fn give_up(&self, hold: Nanos, silent: bool) -> Option<Nanos> {
        let (number, first) = self.held.first_key_value()?;
        if self.is_doubtful(*number) {
            return Some(first.since.saturating_add(CONFIRMATION));
        }
        let fallback = first.since + if silent { FALLBACK_SILENT } else { FALLBACK };
        // The first missing number decides. Later missing numbers are given up at the same time
        // only if they are proven lost too, and the next held frame is behind all of them.
        let proven = self
            .marks
            .iter()
            .find(|(mark, _)| mark >= number)
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
    fn a_proven_loss_is_given_up_after_the_repair_time() {
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
    fn without_proof_a_hole_is_given_up_after_a_fallback_time() {
        let mut resequencer = Resequencer::new(100);
        resequencer.push(1, 0, &frame(1));
        assert_eq!(resequencer.give_up(HOLD, false), Some(FALLBACK));
        assert_eq!(resequencer.give_up(HOLD, true), Some(FALLBACK_SILENT));
    }

    #[test]
    fn a_frame_far_ahead_waits_for_a_heartbeat() {
        for confirmed in [true, false] {
            let mut resequencer = Resequencer::new(100);
            let far = TRUSTED + 1;
            resequencer.push(far, MILLISECOND, &frame(far));
            resequencer.pass(far + 1, MILLISECOND);
            assert_eq!(drain(&mut resequencer, 100 * MILLISECOND), []);
            if confirmed {
                // The heartbeat answers one that was sent before the frame arrived.
                assert!(!resequencer.announce(far + 1, 0));
                assert_eq!(drain(&mut resequencer, 100 * MILLISECOND), [far]);
            }
            let given_up = resequencer.give_up(HOLD, false);
            assert_eq!(given_up, (!confirmed).then_some(201 * MILLISECOND));
            assert_eq!(drain(&mut resequencer, 201 * MILLISECOND), []);
            let (next, refused) = (resequencer.next(), resequencer.refused);
            let expected = if confirmed { (far + 1, 0) } else { (0, 1) };
            assert_eq!((next, refused), expected);
            assert_eq!(resequencer.held_bytes(), 0);
        }
    }

    #[test]
    fn heartbeats_deny_what_the_peer_has_not_sent() {
        let mut resequencer = Resequencer::new(100);
        for number in 0..6 {
            resequencer.push(number, 10, &frame(number));
        }
        resequencer.push(500_000, 10, &frame(500_000));
        resequencer.checkpoint(20);
        // A heartbeat that left the peer before it had heard this node again proves nothing.
        assert!(!resequencer.announce(2, 10));
        assert_eq!((resequencer.next(), resequencer.held_frames()), (6, 1));
        // This one does. What arrived after the checkpoint may be genuine.
        resequencer.push(9, 30, &frame(9));
        assert!(resequencer.announce(3, 20));
        assert_eq!((resequencer.next(), resequencer.held_frames()), (3, 1));
        assert_eq!(resequencer.refused, 1);
        assert_eq!(resequencer.push(3, 40, &frame(3)), Taken::Next);
        // A number beyond the window is the peer's own, and nothing here belongs to it.
        assert!(resequencer.announce(10 + 2 * WINDOW, 20));
        assert_eq!(resequencer.next(), 10 + 2 * WINDOW);
        assert_eq!(resequencer.held_bytes(), 0);
    }

    #[test]
    fn doubtful_frames_do_not_crowd_out_others() {
        let mut resequencer = Resequencer::new(3);
        for number in [1000, 2000, 3000, 4000, 2] {
            resequencer.push(number, 0, &frame(number));
        }
        assert_eq!(drain(&mut resequencer, 0), [2]);
        assert_eq!((resequencer.held_frames(), resequencer.refused), (3, 1));
        resequencer.push(5000, 0, &frame(5000));
        assert_eq!(drain(&mut resequencer, 0), []);
        assert_eq!((resequencer.held_frames(), resequencer.refused), (3, 2));
    }

    #[test]
    fn frames_without_a_body_count_as_held() {
        let mut resequencer = Resequencer::new(100);
        let empty = Packed {
            body: Bytes::new(),
            ..frame(1)
        };
        assert_eq!(resequencer.push(1, 0, &empty), Taken::Held);
        assert!(resequencer.held_bytes() > 0);
        assert_eq!(resequencer.pop(FALLBACK, HOLD, false), Some(empty));
        assert_eq!(resequencer.held_bytes(), 0);
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
