//! Decides which link the next frame for a peer takes, and when (policy `max-min`). The receiver
//! decides how much a sender may send; this module keeps to these grants and to the rates of the
//! links. A sender that was quiet can catch up. What it can save is bounded, so that a switch's
//! buffer does not overflow.

use crate::ring::Ring;
use crate::{MICROSECOND, MILLISECOND, Nanos};

/// The most credit that a quiet sender saves, as time at the granted rate, and in bytes: a quarter
/// of the smallest switch buffer, 128 KB.
pub(crate) const CREDIT_SHARED: Nanos = 4 * MILLISECOND;
const CREDIT_SHARED_BYTES: f64 = 32.0 * 1024.0;
/// The same where the whole rate of a link of this node is granted: what is then sent at once waits
/// at that link, and no switch has to store it. Other work may keep this process from running for
/// 5 ms. The bound in bytes is half of what a network interface queues by default.
pub(crate) const CREDIT_WHOLE: Nanos = 6 * MILLISECOND;
const CREDIT_WHOLE_BYTES: f64 = 768.0 * 1024.0;
/// The least share of a link's rate that counts as the whole.
const WHOLE: f64 = 0.9;
/// The least credit, in time: a sleeping process needs this long to wake.
const CREDIT_LEAST: Nanos = 700 * MICROSECOND;
/// How long a peer counts as limited by a grant after it waited for one.
const LIMITED: Nanos = 15 * MILLISECOND;

/// The sending half of a path: one link to one peer.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// Bytes a second that the peer grants.
    pub(crate) grant: f64,
    /// The time that it may catch up after it was quiet.
    credit: Nanos,
    /// When the next frame may be sent at that rate.
    eligible: Nanos,
    /// The next frame number on the link.
    pub(crate) next: u64,
    pub(crate) ring: Ring,
    /// Whether the peer hears this node on the link.
    pub(crate) heard: bool,
    pub(crate) frames: u64,
    pub(crate) resent: u64,
    /// Packets sent since the weights last changed.
    pub(crate) span_frames: u32,
    /// Wire bytes sent.
    pub(crate) bytes: u64,
    counted: u64,
    pub(crate) rate: f64,
}

impl Sender {
    /// Counts a frame of `wire_bytes` against the grant, and returns the frame's number.
    pub(crate) fn send(&mut self, now: Nanos, wire_bytes: usize) -> u64 {
        if self.grant > 0.0 {
            let cost = (wire_bytes as f64 * 1e9 / self.grant).min(1e10) as Nanos;
            self.eligible = self.eligible_at(now) + cost;
        }
        self.frames += 1;
        self.span_frames = self.span_frames.wrapping_add(1);
        self.bytes += wire_bytes as u64;
        let number = self.next;
        self.next += 1;
        number
    }

    /// When the next frame may be sent, including the saved credit.
    fn eligible_at(&self, now: Nanos) -> Nanos {
        self.eligible.max(now.saturating_sub(self.credit))
    }

    /// Takes a new grant on a link of the rate `line`. Only a part of the debt at the old rate is
    /// kept. Otherwise a peer whose grant was tiny would wait long after the grant grew.
    pub(crate) fn set_grant(&mut self, now: Nanos, grant: f64, line: f64) {
        if grant > self.grant {
            let debt = self.eligible.saturating_sub(now) as f64;
            self.eligible = self
                .eligible
                .min(now + (debt * (self.grant / grant)) as Nanos);
        }
        self.grant = grant;
        self.credit = match grant >= WHOLE * line {
            true => credit_of_whole(line),
            false => credit(grant, CREDIT_SHARED, CREDIT_SHARED_BYTES),
        };
    }

    pub(crate) fn measure(&mut self, elapsed: Nanos) {
        let bytes = self.bytes - self.counted;
        self.counted = self.bytes;
        let rate = bytes as f64 * 1e9 / elapsed.max(1) as f64;
        self.rate += (rate - self.rate) / 4.0;
        if self.rate < 1.0 {
            self.rate = 0.0;
        }
    }
}

/// The time that a quiet sender may catch up at this rate.
fn credit(rate: f64, most: Nanos, bytes: f64) -> Nanos {
    let time = (bytes * 1e9 / rate.max(1.0)).min(most as f64) as Nanos;
    time.max(CREDIT_LEAST)
}

fn credit_of_whole(line: f64) -> Nanos {
    credit(line, CREDIT_WHOLE, CREDIT_WHOLE_BYTES)
}

/// The pace of one of this node's links, for all peers together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bytes a second on the wire.
    rate: f64,
    credit: Nanos,
    eligible: Nanos,
    /// Whether the socket accepts no more frames at present.
    pub(crate) blocked: bool,
}

impl Pace {
    pub(crate) fn new(rate: f64) -> Pace {
        Pace {
            rate,
            credit: credit_of_whole(rate),
            eligible: 0,
            blocked: false,
        }
    }

    pub(crate) fn send(&mut self, now: Nanos, wire_bytes: usize) {
        let from = self.eligible.max(now.saturating_sub(self.credit));
        self.eligible = from + (wire_bytes as f64 * 1e9 / self.rate) as Nanos;
    }

    /// When the link can take the next frame.
    fn free_at(&self) -> Nanos {
        if self.blocked {
            Nanos::MAX
        } else {
            self.eligible
        }
    }
}

/// The decision about a peer's next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Send it on this link, now.
    Send(usize),
    /// Wait until this time; true if a grant is the reason.
    Wait(Nanos, bool),
}

/// Chooses among `paths`, the usable links, the link whose grant has waited longest.
pub(crate) fn pick<'a>(
    now: Nanos,
    paths: impl Iterator<Item = (usize, &'a Sender)>,
    paces: &[Pace],
) -> Pick {
    let mut best: Option<(Nanos, usize)> = None;
    let mut wake = Nanos::MAX;
    let mut limited = false;
    for (link, sender) in paths {
        let free = paces[link].free_at();
        if sender.grant <= 0.0 {
            limited |= free <= now;
            continue;
        }
        let eligible = sender.eligible_at(now);
        if eligible <= now && free <= now {
            if best.is_none_or(|(least, _)| eligible < least) {
                best = Some((eligible, link));
            }
        } else {
            limited |= free <= now;
            wake = wake.min(eligible.max(free));
        }
    }
    match best {
        Some((_, link)) => Pick::Send(link),
        None => Pick::Wait(wake, limited),
    }
}

/// Whether a peer's frames wait for its grants, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limited(Nanos);

impl Limited {
    /// Records that the peer waits now. Returns true if it did not wait before.
    pub(crate) fn wait(&mut self, now: Nanos) -> bool {
        let before = self.is(now);
        self.0 = now + LIMITED;
        !before
    }

    pub(crate) fn is(self, now: Nanos) -> bool {
        now < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 12.5e6;

    fn sender(grant: f64) -> Sender {
        let mut sender = Sender {
            heard: true,
            ..Sender::default()
        };
        sender.set_grant(0, grant, LINE);
        sender
    }

    /// Frames on each link in a second of an endless backlog, looked at every half millisecond.
    fn frames(grants: [f64; 2]) -> [u64; 2] {
        frames_beside(grants, 0)
    }

    /// The same if other work keeps this process from running for `late` of every 25 ms.
    fn frames_beside(grants: [f64; 2], late: Nanos) -> [u64; 2] {
        let mut senders = grants.map(sender);
        let mut paces = [Pace::new(LINE); 2];
        let mut before = [0; 2];
        for step in 0..2050 {
            let now = (step + 20) * 500 * MICROSECOND;
            // At first there is credit.
            if step == 50 {
                before = senders.each_ref().map(|sender| sender.frames);
            }
            if now % (25 * MILLISECOND) < late {
                continue;
            }
            while let Pick::Send(link) = pick(now, senders.iter().enumerate(), &paces) {
                senders[link].send(now, 1538);
                paces[link].send(now, 1538);
            }
        }
        [0, 1].map(|link| senders[link].frames - before[link])
    }

    fn assert_near(frames: u64, expected: u64) {
        assert!(
            frames.abs_diff(expected) <= 24,
            "{frames} frames, expected {expected}"
        );
    }

    #[test]
    fn grants_are_used_up_and_kept() {
        let [a, b] = frames([12.5e6, 4.0e6]);
        assert_near(a, 8127);
        assert_near(b, 2600);
        let [a, b] = frames([12.5e6, 0.0]);
        assert_near(a, 8127);
        assert_eq!(b, 0);
    }

    #[test]
    fn a_link_is_not_overrun() {
        let [a, b] = frames([25e6, 25e6]);
        assert_near(a, 8127);
        assert_near(b, 8127);
    }

    /// Only where it has the whole link: other peers could be late at the same time, and all of
    /// them would then fill the buffer of a switch.
    #[test]
    fn a_sender_that_was_late_catches_up() {
        let [a, b] = frames_beside([12.5e6, 4.0e6], 5 * MILLISECOND);
        assert_near(a, 8127);
        assert_near(b, 2470);
    }

    #[test]
    fn only_waits_for_grants_count() {
        let mut slow = sender(1e3);
        slow.send(0, 1538);
        let pace = Pace::new(LINE);
        let picked = pick(CREDIT_WHOLE, [(0, &slow)].into_iter(), &[pace]);
        assert!(matches!(picked, Pick::Wait(_, true)), "{picked:?}");
        let mut busy = Pace::new(LINE);
        (0..100).for_each(|_| busy.send(CREDIT_WHOLE, 1538));
        let picked = pick(CREDIT_WHOLE, [(0, &sender(1e9))].into_iter(), &[busy]);
        assert!(matches!(picked, Pick::Wait(_, false)), "{picked:?}");
    }

    #[test]
    fn a_larger_grant_shortens_the_wait() {
        let mut sender = sender(1e3);
        sender.send(0, 1538);
        sender.set_grant(0, 1e6, LINE);
        assert!(sender.eligible_at(0) < 2 * MILLISECOND);
    }

    #[test]
    fn being_limited_lasts_a_while() {
        let mut limited = Limited::default();
        assert!(limited.wait(5));
        assert!(!limited.wait(6));
        assert!(limited.is(6) && !limited.is(6 + LIMITED));
    }
}
