//! Signs of life between daemons, and which daemons have been silent for too long. A daemon sends a
//! sign of life each second. It only counts the time in which it ran itself: while it was stopped,
//! or the whole machine was paused, it could not hear anybody, and perhaps nobody could speak.

use crate::Nanos;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Interval of the signs of life.
const BEAT: Nanos = 1_000_000_000;
/// The longest time between two calls in which a daemon counts as running.
const AWAKE: Nanos = 2 * BEAT;
/// What a longer time counts as.
const PAUSE: Nanos = BEAT / 2;

/// What is due now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Whether a sign of life must be sent to all other daemons.
    pub is_due: bool,
    /// The peers that are lost, because they were silent for too long.
    pub silent: Vec<u64>,
    /// For how long this daemon did not run, if that was long.
    pub pause: Option<Nanos>,
}

/// The signs of life of a daemon and its peers, whose numbers the caller chooses. Call
/// [`Heartbeat::handle_timeout`] at [`Heartbeat::next_deadline`] or before, after everything that
/// has arrived was heard.
#[derive(Debug)]
pub struct Heartbeat {
    /// A peer that is silent for longer than this is lost.
    limit: Nanos,
    /// The time of the last call.
    now: Nanos,
    /// How long this daemon has run.
    awake: Nanos,
    due: Nanos,
    /// For each peer, how long this daemon had run when it last heard from it.
    heard: BTreeMap<u64, Nanos>,
}

impl Heartbeat {
    /// Creates the state of a daemon without peers. A peer that is silent for longer than `limit`
    /// is lost.
    pub fn new(limit: Nanos, now: Nanos) -> Heartbeat {
        Heartbeat {
            limit,
            now,
            awake: 0,
            due: now,
            heard: BTreeMap::new(),
        }
    }

    /// Begins to watch a peer.
    pub fn watch(&mut self, peer: u64) {
        self.heard.insert(peer, self.awake);
    }

    /// Handles anything that has arrived from a peer. One that is not watched is ignored.
    pub fn hear(&mut self, peer: u64) {
        if let Some(heard) = self.heard.get_mut(&peer) {
            *heard = self.awake;
        }
    }

    /// Stops watching a peer.
    pub fn forget(&mut self, peer: u64) {
        self.heard.remove(&peer);
    }

    /// Handles the time. Peers that are lost are no longer watched.
    pub fn handle_timeout(&mut self, now: Nanos) -> Pulse {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        let pause = (passed > AWAKE).then_some(passed);
        self.awake = self.awake.saturating_add(match pause {
            Some(_) => PAUSE,
            None => passed,
        });
        let is_due = now >= self.due;
        if is_due {
            self.due = now.saturating_add(BEAT);
        }
        let (awake, limit) = (self.awake, self.limit);
        let is_silent = |(_, heard): &(&u64, &Nanos)| awake.saturating_sub(**heard) > limit;
        let silent = self.heard.iter().filter(is_silent);
        let silent: Vec<u64> = silent.map(|(peer, _)| *peer).collect();
        for peer in &silent {
            self.heard.remove(peer);
        }
        Pulse {
            is_due,
            silent,
            pause,
        }
    }

    /// When [`Heartbeat::handle_timeout`] must be called next.
    pub fn next_deadline(&self) -> Nanos {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const MS: Nanos = 1_000_000;
    const SECOND: Nanos = 1_000 * MS;
    const LIMIT: Nanos = 3 * SECOND;

    /// A root daemon (0) and the daemons below it. A sign of life arrives after a millisecond.
    struct Tree {
        now: Nanos,
        daemons: Vec<Heartbeat>,
        /// Until when each does not run.
        sleeps: Vec<Nanos>,
        /// Signs of life on their way: when they arrive, from whom, and to whom.
        sent: Vec<(Nanos, usize, usize)>,
        /// When, by whom and of whom a loss was noticed.
        lost: Vec<(Nanos, usize, u64)>,
    }

    impl Tree {
        fn new(size: usize) -> Tree {
            let mut daemons: Vec<Heartbeat> = (0..size).map(|_| Heartbeat::new(LIMIT, 0)).collect();
            for below in 1..size {
                daemons[0].watch(below as u64);
                daemons[below].watch(0);
            }
            Tree {
                now: 0,
                daemons,
                sleeps: vec![0; size],
                sent: Vec::new(),
                lost: Vec::new(),
            }
        }

        /// Runs for some time. Each daemon that is awake runs each millisecond, in an order that
        /// changes.
        fn run(&mut self, time: Nanos) {
            let (end, size) = (self.now + time, self.daemons.len());
            while self.now < end {
                self.now += MS;
                let shift = (self.now / MS) as usize;
                for place in 0..size {
                    self.run_one((place + shift) % size);
                }
            }
        }

        fn run_one(&mut self, own: usize) {
            let now = self.now;
            if now < self.sleeps[own] {
                return;
            }
            for (_, from, _) in self.sent.extract_if(.., |it| it.0 <= now && it.2 == own) {
                self.daemons[own].hear(from as u64);
            }
            let pulse = self.daemons[own].handle_timeout(now);
            let lost = pulse.silent.iter().map(|peer| (now, own, *peer));
            self.lost.extend(lost);
            let peers = match own {
                _ if !pulse.is_due => 0..0,
                0 => 1..self.daemons.len(),
                _ => 0..1,
            };
            self.sent.extend(peers.map(|to| (now + MS, own, to)));
        }

        fn pause(&mut self, daemons: &[usize], time: Nanos) {
            for daemon in daemons {
                self.sleeps[*daemon] = self.now + time;
            }
            self.run(time);
        }
    }

    #[test]
    fn a_silent_daemon_is_lost_after_the_limit() {
        let mut tree = Tree::new(3);
        tree.run(5 * SECOND);
        assert_eq!(tree.lost, []);
        let start = tree.now;
        tree.pause(&[2], 10 * SECOND);
        let [(at, 0, 2)] = tree.lost[..] else {
            panic!("{:?}", tree.lost);
        };
        let silence = at - start;
        assert!(
            (LIMIT - SECOND..=LIMIT + MS).contains(&silence),
            "{silence}"
        );
    }

    /// A machine with all daemons is paused, for a moment or for days. They go on in any order.
    #[test]
    fn daemons_that_were_paused_together_do_not_lose_each_other() {
        for phase in 0..20 {
            for time in [2 * SECOND, 3 * SECOND, 10 * SECOND, 100 * SECOND] {
                let mut tree = Tree::new(3);
                tree.run(5 * SECOND + phase * 53 * MS);
                // Let the clock jump instead of running idle.
                tree.now += time;
                tree.run(5 * SECOND);
                assert_eq!(tree.lost, [], "paused for {time} at {phase}");
            }
        }
    }

    /// One that wakes up half a second after the others is still there.
    #[test]
    fn daemons_may_wake_up_one_after_the_other() {
        for last in 0..3 {
            let mut tree = Tree::new(3);
            tree.run(5 * SECOND);
            tree.now += 60 * SECOND;
            tree.pause(&[last], SECOND / 2);
            tree.run(5 * SECOND);
            assert_eq!(tree.lost, [], "{last} was the last");
        }
    }

    /// One that was paused alone does not blame the others, which have given it up.
    #[test]
    fn a_paused_daemon_blames_nobody() {
        let mut tree = Tree::new(3);
        tree.run(5 * SECOND);
        tree.pause(&[0], 20 * SECOND);
        tree.run(5 * SECOND);
        let by: Vec<_> = tree.lost.iter().map(|(_, by, of)| (*by, *of)).collect();
        assert!(by.contains(&(1, 0)) && by.contains(&(2, 0)) && by.len() == 2);
    }

    /// A daemon that gets so little processor time that it seems to be paused again and again still
    /// finds out that a peer is gone.
    #[test]
    fn a_slow_daemon_notices_a_loss_too() {
        let mut slow = Heartbeat::new(LIMIT, 0);
        slow.watch(7);
        let looks = (1..).map(|look| slow.handle_timeout(look * 5 * SECOND));
        let found = looks.take(10).position(|pulse| pulse.silent == [7]);
        assert_eq!(found, Some(6));
        assert_eq!(slow.handle_timeout(100 * SECOND).silent, []);
    }

    #[test]
    fn a_long_pause_is_told_once() {
        let mut one = Heartbeat::new(LIMIT, 0);
        assert_eq!(one.handle_timeout(SECOND).pause, None);
        assert_eq!(one.handle_timeout(8 * SECOND).pause, Some(7 * SECOND));
        assert_eq!(one.handle_timeout(8 * SECOND).pause, None);
        assert_eq!(one.next_deadline(), 9 * SECOND);
    }
}
