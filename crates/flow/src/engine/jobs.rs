//! The driver for several programs at once. Each has a driver of its own, which counts its ranks
//! from 0 and starts at its own time; this one translates the numbers of ranks and the tokens.

use super::driver::{Action, Driver, Sending};
use super::report::{Blocked, Deadlock};
use super::workload::Job;
use crate::placement::Placement;

/// Bits of a token that belong to the driver of a job. Those above are the number of the job.
const TOKEN_BITS: u32 = 48;
const _: () = assert!(Placement::MOST_JOBS < 1 << (64 - TOKEN_BITS));
/// The token of the start of a job.
const START: u64 = (1 << TOKEN_BITS) - 1;

struct Running {
    driver: Driver,
    /// Its first rank.
    first: u32,
    start: f64,
    /// When its last message arrived, or its last computation ended.
    end: f64,
}

pub(crate) struct Jobs {
    jobs: Vec<Running>,
    /// Actions of one job, before they are translated.
    own: Vec<Action>,
}

impl Jobs {
    pub(super) fn new(jobs: Vec<Job>, sending: Sending) -> Self {
        let mut next = 0;
        let running = jobs.into_iter().map(|job| {
            let first = next;
            next += job.workload.ranks();
            Running {
                driver: Driver::new(job.workload, sending),
                first,
                start: job.start,
                end: 0.0,
            }
        });
        Self {
            jobs: running.collect(),
            own: Vec::new(),
        }
    }

    /// When the last message of each job arrived, or its last computation ended.
    pub(super) fn ends(&self) -> Vec<f64> {
        self.jobs.iter().map(|job| job.end).collect()
    }

    fn of_rank(&self, rank: u32) -> usize {
        self.jobs.partition_point(|job| job.first <= rank) - 1
    }

    /// Seconds that a message of a rank travels besides the latency of the platform.
    pub(super) fn latency(&self, rank: u32) -> f64 {
        let job = &self.jobs[self.of_rank(rank)];
        job.driver.latency(rank - job.first)
    }

    /// Lets a job act, and translates its actions.
    fn act(
        &mut self,
        at: usize,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut Driver, &mut Vec<Action>),
    ) {
        let job = &mut self.jobs[at];
        act(&mut job.driver, &mut self.own);
        let first = job.first;
        out.extend(self.own.drain(..).map(|action| match action {
            Action::Send {
                rank,
                to,
                bytes,
                token,
            } => Action::Send {
                rank: rank + first,
                to: to + first,
                bytes,
                token,
            },
            Action::Compute { rank, cpu, seconds } => Action::Compute {
                rank: rank + first,
                cpu,
                seconds,
            },
            Action::Wake {
                delay,
                between,
                token,
            } => Action::Wake {
                delay,
                between: between.map(|(rank, to)| (rank + first, to + first)),
                token: (at as u64) << TOKEN_BITS | token,
            },
        }));
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.jobs.len() {
            match self.jobs[at].start {
                start if start > 0.0 => out.push(Action::Wake {
                    delay: start,
                    between: None,
                    token: (at as u64) << TOKEN_BITS | START,
                }),
                _ => self.act(at, out, Driver::begin),
            }
        }
    }

    pub(super) fn left(&mut self, now: f64, rank: u32, token: u32, out: &mut Vec<Action>) {
        let at = self.of_rank(rank);
        let rank = rank - self.jobs[at].first;
        self.act(at, out, |job, own| job.left(now, rank, token, own));
    }

    pub(super) fn arrived(
        &mut self,
        now: f64,
        rank: u32,
        to: u32,
        token: u32,
        out: &mut Vec<Action>,
    ) {
        let at = self.of_rank(rank);
        let job = &mut self.jobs[at];
        job.end = now;
        let (rank, to) = (rank - job.first, to - job.first);
        self.act(at, out, |job, own| job.arrived(now, rank, to, token, own));
    }

    pub(super) fn wake(&mut self, now: f64, token: u64, out: &mut Vec<Action>) {
        let at = (token >> TOKEN_BITS) as usize;
        self.jobs[at].end = now;
        match token & START {
            START => self.act(at, out, Driver::begin),
            token => self.act(at, out, |job, own| job.wake(now, token, own)),
        }
    }

    /// Lets all jobs decide what starts.
    pub(super) fn settle(&mut self, now: f64, out: &mut Vec<Action>) {
        for at in 0..self.jobs.len() {
            self.act(at, out, |job, own| {
                let _ = job.next_action(now, 0, own);
            });
        }
    }

    pub(super) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        let found = self
            .jobs
            .iter()
            .find_map(|job| Some((job.first, job.driver.deadlock(time)?)));
        let (first, deadlock) = found?;
        let blocked = |b: Blocked| Blocked {
            rank: b.rank + first,
            source: b.source.map(|source| source + first),
            ..b
        };
        let unreceived = deadlock.unreceived.into_iter();
        Some(Deadlock {
            blocked: deadlock.blocked.into_iter().map(blocked).collect(),
            unreceived: unreceived
                .map(|(from, to, tag, n)| (from + first, to + first, tag, n))
                .collect(),
            ..deadlock
        })
    }
}
