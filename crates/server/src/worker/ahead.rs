//! Calls that are posted to a worker ahead of their turn, because each takes little time.

use super::control::{Outcome, SLOT_TEXT_BYTES, SLOTS};
use super::{SOON, State, Worker};
use std::time::{Duration, Instant};

/// For so long calls wait behind one that should be brief.
const PATIENCE: Duration = Duration::from_micros(200);

/// A call that a worker has.
pub(super) struct Posted {
    /// None once it was withdrawn.
    pub(super) job: Option<usize>,
    /// Number of the function.
    pub(super) function: u64,
}

/// What became of a call that is not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The worker will never see it.
    Done,
    /// It is finished.
    Finished,
    /// The worker runs it.
    Runs,
}

impl Worker {
    /// Bytes of an encoded call that may be posted ahead.
    pub(crate) const AHEAD_BYTES: usize = SLOT_TEXT_BYTES;

    /// Whether it runs brief calls alone, so that another one may be posted behind them. `exec` is
    /// what that takes.
    pub(crate) fn takes_more(&self, now: Instant, exec: Duration) -> bool {
        let State::Running {
            soon: Some(soon), ..
        } = self.state
        else {
            return false;
        };
        let ahead = exec.saturating_mul(self.posted.len() as u32);
        !self.alone
            && soon > now
            && self.control.pending() < SLOTS
            && ahead < SOON
            && !self.is_ended()
    }

    /// Whether it runs a call that is probably over soon.
    pub(crate) fn is_brief_now(&self) -> bool {
        !self.alone && self.idle_soon().is_some()
    }

    /// The job that it runs or is to run.
    pub(crate) fn job(&self) -> Option<usize> {
        match self.state {
            State::Running { .. } => self.posted.front().and_then(|posted| posted.job),
            State::Booked { job } => Some(job),
            _ => None,
        }
    }

    /// The job posted last that was not withdrawn.
    pub(crate) fn last_job(&self) -> Option<usize> {
        self.posted.iter().rev().find_map(|posted| posted.job)
    }

    /// Jobs that were posted behind the one that it runs.
    pub(crate) fn jobs_behind(&self) -> impl Iterator<Item = usize> {
        self.posted.iter().skip(1).filter_map(|posted| posted.job)
    }

    /// When those behind are not to wait any longer for the call that it runs, if there are any.
    pub(crate) fn patience(&self) -> Option<Instant> {
        self.jobs_behind().next()?;
        match self.state {
            State::Running { since, .. } => Some(since + PATIENCE),
            _ => None,
        }
    }

    /// Takes a call back, if the worker has not begun with it.
    pub(crate) fn withdraw(&mut self, job: usize) -> Withdrawal {
        let mut posted = self.posted.iter();
        let Some(index) = posted.position(|posted| posted.job == Some(job)) else {
            return Withdrawal::Finished;
        };
        if self.control.withdraw(index) {
            self.posted[index].job = None;
            return Withdrawal::Done;
        }
        match index < self.control.finished() {
            true => Withdrawal::Finished,
            false => Withdrawal::Runs,
        }
    }

    /// Whether it has begun with the call whose turn it is.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.state, State::Running { .. }) && self.control.is_taken()
    }

    /// Whether the job that it runs has an outcome by now.
    pub(crate) fn has_outcome(&mut self) -> bool {
        while matches!(self.state, State::Running { .. }) && self.control.finished() > 0 {
            if self.job().is_some() {
                return true;
            }
            // It was withdrawn.
            self.take_outcome();
        }
        false
    }

    /// The outcome of the job that it ran; the next one has its turn.
    pub(crate) fn take_outcome(&mut self) -> Outcome {
        let outcome = self.control.take_outcome();
        self.posted.pop_front();
        let now = Instant::now();
        match (&mut self.state, self.posted.front()) {
            (
                State::Running {
                    since,
                    deadline,
                    soon,
                },
                Some(next),
            ) => {
                self.function = Some(next.function);
                *since = now;
                *deadline = self.time_limit.map(|limit| now + limit);
                *soon = Some(now + SOON);
            }
            _ => self.rest(),
        }
        outcome
    }
}
