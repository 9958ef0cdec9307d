//! Decides whether a link to a peer is alive, from the frames heard on it and on the peer's other
//! links. It does not take a link out of use: `trunk` does. A link counts as silent only if the
//! peer was heard on another link, by its own clock, so that a busy processor does not look like a
//! failure.

use crate::{MILLISECOND, Nanos, SECOND};

/// Time between heartbeats to a peer with traffic.
pub(crate) const FAST: Nanos = 10 * MILLISECOND;
/// Time between heartbeats to an idle peer.
pub(crate) const SLOW: Nanos = SECOND;
/// Consecutive heartbeats that are required before a link is used again.
const CLEAN: u32 = 3;

/// By how much the least delay of a heartbeat grows with each heartbeat.
const DRIFT: i64 = 1000;
/// A link is silent only after so many heartbeats on another link. A sender that got no processor
/// time for a while sends one at once, and that on the other links just after it.
const BEATS: usize = 4;
/// With each heartbeat, a link's lateness shrinks by this part: by half in 7 s.
const FORGET: Nanos = 1024;
/// On links that are often late, the longest silence that counts as a failure.
const MOST: Nanos = 120 * MILLISECOND;

/// State of a link to a peer, as this end hears it.
///
/// ```text
/// Down --heartbeat--> Joining --3 in a row--> Up --silence, carrier, peer report--> Down
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum State {
    Down,
    Joining(u32),
    Up,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// When this node last heard a peer on a link, by both clocks.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    pub(crate) state: State,
    /// When anything was last heard, by this node's clock.
    pub(crate) heard: Nanos,
    /// The sender's clock in the newest heartbeat.
    pub(crate) stamp: Nanos,
    /// When that heartbeat arrived.
    pub(crate) stamp_heard: Nanos,
    /// The time after which the sender sends the next heartbeat, at its current pace.
    pub(crate) interval: Nanos,
    /// The sender's clock in the newest heartbeats that lie about an interval apart, newest first.
    beats: [Nanos; BEATS],
    /// The least difference of both clocks at the arrival of a heartbeat. It follows clocks that
    /// drift apart.
    least: Option<i64>,
    /// How late heartbeats have come recently: because of queues, or because the kernel of either
    /// node was busy.
    late: Nanos,
    pub(crate) failures: u64,
}

impl Monitor {
    pub(crate) fn new() -> Monitor {
        Monitor {
            state: State::Down,
            heard: 0,
            stamp: 0,
            stamp_heard: 0,
            interval: SLOW,
            beats: [0; BEATS],
            least: None,
            late: 0,
            failures: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Records a heartbeat. Returns true if it brought the link up.
    pub(crate) fn heartbeat(&mut self, now: Nanos, stamp: Nanos, interval: Nanos) -> bool {
        // A gap of more than a few heartbeats restarts the count.
        let gap = now.saturating_sub(self.stamp_heard) > 6 * self.interval.max(interval);
        self.heard = now;
        self.take_delay(now.wrapping_sub(stamp).cast_signed());
        self.stamp = self.stamp.max(stamp);
        if stamp >= self.beats[0].saturating_add(interval * 3 / 4) {
            self.beats.rotate_right(1);
            self.beats[0] = stamp;
        }
        self.stamp_heard = now;
        self.interval = interval;
        self.state = match self.state {
            State::Down => State::Joining(1),
            State::Joining(_) if gap => State::Joining(1),
            State::Joining(count) if count + 1 < CLEAN => State::Joining(count + 1),
            State::Joining(_) => State::Up,
            State::Up => return false,
        };
        self.is_up()
    }

    /// Learns from the difference of both clocks at the arrival of a heartbeat.
    fn take_delay(&mut self, difference: i64) {
        let least = self.least.map_or(difference, |least| {
            least.saturating_add(DRIFT).min(difference)
        });
        self.least = Some(least);
        let late = difference.wrapping_sub(least).cast_unsigned();
        self.late = late.max(self.late - self.late / FORGET);
    }

    /// Takes the link down. Returns true if it was up.
    pub(crate) fn fail(&mut self) -> bool {
        let was_up = self.is_up();
        self.failures += u64::from(was_up);
        self.state = State::Down;
        was_up
    }

    /// Whether the link is silent although the peer sends: by its own clock, the peer has sent on
    /// `sibling` well after its last message on this link. If the peer or this node gets no
    /// processor time, all links are silent alike, and this returns false.
    ///
    /// `since` is when the peer began to send at its current pace, by its own clock.
    pub(crate) fn is_silent(&self, sibling: &Monitor, since: Nanos) -> bool {
        let last = self.stamp.max(since);
        let late = self.late.max(sibling.late);
        let patience = late.saturating_add(FAST).saturating_mul(2).min(MOST);
        let limit = (sibling.interval * 9 / 2).max(patience);
        sibling.beats[BEATS - 1] > last
            && sibling.stamp.saturating_sub(last) >= limit
            && sibling.heard.saturating_sub(self.heard) >= limit * 3 / 4
    }

    /// Whether less arrived than on a healthy link. The rest may still arrive.
    pub(crate) fn is_quiet(&self, sibling: &Monitor) -> bool {
        sibling.heard.saturating_sub(self.heard) >= 2 * FAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn heard(at: &[Nanos]) -> Monitor {
        let mut monitor = Monitor::new();
        for at in at {
            monitor.heartbeat(at * MILLISECOND, at * MILLISECOND, FAST);
        }
        monitor
    }

    #[test]
    fn three_heartbeats_bring_a_link_up() {
        assert_eq!(heard(&[10, 20]).state, State::Joining(2));
        assert!(heard(&[10, 20, 30]).is_up());
        // The first heartbeat after a long silence starts a new count.
        assert_eq!(heard(&[10, 20, 9000]).state, State::Joining(1));
    }

    #[test]
    fn silence_counts_only_if_another_link_is_heard() {
        let dead = heard(&[10, 20, 30]);
        assert!(!dead.is_silent(&heard(&[10, 20, 30, 40, 50, 60]), 0));
        assert!(dead.is_silent(&heard(&[10, 20, 30, 40, 50, 60, 70, 80]), 0));
        // The peer was idle until 50.
        assert!(!dead.is_silent(&heard(&[10, 20, 30, 60, 70, 80]), 50 * MILLISECOND));
    }

    #[test]
    fn a_link_whose_heartbeats_often_come_late_has_more_time() {
        let late = |late: Nanos| {
            let mut monitor = heard(&[10, 20, 30]);
            // One comes late, and the next ones in time.
            monitor.heartbeat((40 + late) * MILLISECOND, 40 * MILLISECOND, FAST);
            for stamp in [100, 110, 120] {
                monitor.heartbeat(stamp * MILLISECOND, stamp * MILLISECOND, FAST);
            }
            monitor
        };
        let stamps: Vec<Nanos> = (1..=17).map(|stamp| stamp * 10).collect();
        let sibling = heard(&stamps);
        // It has been silent for 50 ms.
        assert!(late(0).is_silent(&sibling, 0));
        assert!(late(12).is_silent(&sibling, 0));
        assert!(!late(30).is_silent(&sibling, 0));
        // But a dead link is found in any case.
        let stamps: Vec<Nanos> = (1..=25).map(|stamp| stamp * 10).collect();
        assert!(late(55).is_silent(&heard(&stamps), 0));
    }

    #[test]
    fn a_heartbeat_may_have_any_time() {
        let far = [0, 1, i64::MIN.cast_unsigned(), i64::MAX.cast_unsigned()];
        for first in far {
            let mut monitor = Monitor::new();
            for difference in [first].into_iter().chain(far) {
                monitor.heartbeat(MILLISECOND, MILLISECOND.wrapping_sub(difference), FAST);
                assert!(!monitor.is_silent(&monitor.clone(), 0));
            }
        }
    }

    #[test]
    fn late_reading_does_not_look_like_a_failure() {
        // All heartbeats of one link are read 100 ms before those of the other.
        let mut early = heard(&[10, 20, 30]);
        let late = heard(&[10, 20, 30]);
        for stamp in [40, 50, 60, 70, 80, 90] {
            early.heartbeat(31 * MILLISECOND, stamp * MILLISECOND, FAST);
        }
        assert!(!late.is_silent(&early, 0));
    }
}
