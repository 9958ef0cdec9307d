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

/// State of a link to a peer, as this end hears it.
///
/// ```text
/// Down --heartbeat--> Joining --3 in a row--> Up --silence, carrier, peer report--> Down
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    Joining(u32),
    Up,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Down => "down",
            State::Joining(_) => "joining",
            State::Up => "up",
        }
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
        self.stamp = self.stamp.max(stamp);
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
        let limit = sibling.interval * 9 / 2;
        sibling.stamp.saturating_sub(self.stamp.max(since)) >= limit
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
