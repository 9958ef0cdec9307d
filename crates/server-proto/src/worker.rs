//! A worker, as far as the server decides about it.

use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use farcall_rpc_proto::{CallId, HandleId, Nanos, User};
use std::collections::VecDeque;

/// A brief call that has not ended after this time is not brief.
const SOON: Nanos = 50_000;
/// For so long calls wait behind one that should be brief.
const PATIENCE: Nanos = 200_000;
/// Calls that a worker may have at once; one place is left for word about memory.
const MOST_POSTED: usize = 15;
/// Bytes of an encoded call that may be posted behind others.
pub(crate) const AHEAD_BYTES: usize = 2048;
/// Bytes of the scalars and texts of a call.
pub(crate) const TEXT_BYTES: usize = 1 << 20;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Binding its library.
    Starting,
    Idle,
    /// Is to run this call once it is recorded that it does.
    Booked {
        call: CallKey,
    },
    /// Runs the call that was posted first, until the deadline at most. A brief one is probably
    /// over `soon`.
    Running {
        since: Nanos,
        deadline: Option<Nanos>,
        soon: Option<Nanos>,
    },
}

/// What a call needs of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'n> {
    /// Index of the library.
    pub(crate) library: usize,
    pub(crate) user: &'n User,
    pub(crate) processes: u32,
}

/// What a worker knows of the object that it holds.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    /// Connection and request of the object, while somebody wants it.
    pub(crate) owner: Option<(ConnectionKey, CallId)>,
    /// Its name, where it stays.
    pub(crate) persistent: Option<HandleId>,
    /// The call whose turn it is: it waits for processor elements, or runs.
    pub(crate) turn: Option<CallKey>,
    /// Calls behind it.
    pub(crate) behind: VecDeque<CallKey>,
}

/// A call that a worker has.
#[derive(Debug)]
struct Posted {
    /// None once it was taken back.
    call: Option<CallKey>,
    /// Number of the function.
    function: u64,
}

/// A worker process, or several that compute together.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Index of the library it is bound to.
    pub(crate) library: usize,
    /// Whose calls it runs, from the first one on: what they leave in its memory is nobody else's.
    pub(crate) user: Option<User>,
    pub(crate) state: State,
    /// Since when it is idle, or has run something.
    rested: Nanos,
    /// The object that it holds, whose methods alone it runs.
    pub(crate) object: Option<ObjectState>,
    /// Whether the server has told it to end.
    pub(crate) is_ended: bool,
    /// Number of the function it ran last.
    pub(crate) function: Option<u64>,
    processes: u32,
    /// What it has, the one that it runs first.
    posted: VecDeque<Posted>,
    /// No other call may be posted behind the one that it runs.
    alone: bool,
    /// For each call.
    time_limit: Option<Nanos>,
    /// Since when it waits for the answer of a callback.
    waiting: Option<Nanos>,
}

/// How a call is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting {
    pub(crate) function: u64,
    pub(crate) alone: bool,
    pub(crate) is_brief: bool,
    pub(crate) time_limit: Option<Nanos>,
}

impl Worker {
    pub(crate) fn new(library: usize, processes: u32, now: Nanos) -> Worker {
        Worker {
            library,
            user: None,
            state: State::Starting,
            rested: now,
            object: None,
            is_ended: false,
            function: None,
            processes,
            posted: VecDeque::new(),
            alone: true,
            time_limit: None,
            waiting: None,
        }
    }

    /// Whether it can take a call. One that was told to end may still finish what it had.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.is_ended
    }

    /// Whether it can run such calls, now or when it is idle.
    pub(crate) fn serves(&self, need: &Need<'_>) -> bool {
        let Need {
            library,
            user,
            processes,
        } = *need;
        let for_user = self.user.as_ref().is_none_or(|bound| bound == user);
        let fits = (self.library, self.processes) == (library, processes);
        fits && (for_user || has(Flaw::SharesWorkers)) && self.object.is_none()
    }

    /// For how long nobody has needed it.
    pub(crate) fn idle_for(&self, now: Nanos) -> Option<Nanos> {
        self.is_idle().then(|| now.saturating_sub(self.rested))
    }

    /// When it will probably be idle again, if that is worth waiting for.
    pub(crate) fn idle_soon(&self) -> Option<Nanos> {
        match self.state {
            State::Running { soon, .. } => soon,
            _ => None,
        }
    }

    /// For how long it has run its call.
    pub(crate) fn running_for(&self, now: Nanos) -> Nanos {
        match self.state {
            State::Running { since, .. } => now.saturating_sub(since),
            _ => 0,
        }
    }

    /// It is handed a call, behind others where it [takes more](Worker::takes_more).
    pub(crate) fn post(&mut self, call: CallKey, posting: Posting, now: Nanos) {
        let Posting {
            function,
            alone,
            is_brief,
            time_limit,
        } = posting;
        let call = Some(call);
        self.posted.push_back(Posted { call, function });
        if matches!(self.state, State::Running { .. }) {
            return;
        }
        self.alone = alone;
        self.function = Some(function);
        self.time_limit = time_limit;
        self.state = State::Running {
            since: now,
            deadline: time_limit.map(|limit| now + limit),
            soon: is_brief.then(|| now + SOON),
        };
    }

    /// It has nothing to compute.
    pub(crate) fn rest(&mut self, now: Nanos) {
        self.state = State::Idle;
        self.rested = now;
    }

    /// It calls its caller back, and waits for the answer from now on.
    pub(crate) fn waits(&mut self, now: Nanos) {
        self.waiting = Some(now);
    }

    /// It has the answer of its callback. The time it has waited does not count.
    pub(crate) fn answered(&mut self, now: Nanos) {
        if let (Some(since), State::Running { deadline, .. }) =
            (self.waiting.take(), &mut self.state)
        {
            *deadline = deadline.map(|deadline| deadline + now.saturating_sub(since));
        }
    }

    /// Since when it waits for the answer of a callback.
    pub(crate) fn waits_since(&self) -> Option<Nanos> {
        self.waiting
    }

    /// When the call it runs is to be ended, by the limit on the library or on callbacks.
    pub(crate) fn deadline(&self, callbacks: Option<Nanos>) -> Option<Nanos> {
        if self.is_ended {
            return None;
        }
        match (self.state, self.waiting) {
            (State::Running { .. }, Some(since)) => {
                let callbacks = callbacks.filter(|_| !has(Flaw::AwaitsForever));
                callbacks.map(|limit| since + limit)
            }
            (State::Running { deadline, .. }, None) => deadline,
            _ => None,
        }
    }

    /// Whether it runs brief calls alone, so that another one may be posted behind them. `exec` is
    /// what that takes.
    pub(crate) fn takes_more(&self, now: Nanos, exec: Nanos) -> bool {
        let State::Running {
            soon: Some(soon), ..
        } = self.state
        else {
            return false;
        };
        let ahead = exec.saturating_mul(self.posted.len() as u64);
        let has_room = self.posted.len() < MOST_POSTED;
        !self.alone && soon > now && has_room && ahead < SOON && !self.is_ended
    }

    /// Whether it runs a call that is probably over soon.
    pub(crate) fn is_brief_now(&self) -> bool {
        !self.alone && self.idle_soon().is_some()
    }

    /// The call that it runs or is to run.
    pub(crate) fn call(&self) -> Option<CallKey> {
        match self.state {
            State::Running { .. } => self.posted.front().and_then(|posted| posted.call),
            State::Booked { call } => Some(call),
            _ => None,
        }
    }

    /// The call posted last that was not withdrawn.
    pub(crate) fn last_call(&self) -> Option<CallKey> {
        self.posted.iter().rev().find_map(|posted| posted.call)
    }

    /// Calls that were posted behind the one that it runs.
    pub(crate) fn calls_behind(&self) -> impl Iterator<Item = CallKey> {
        self.posted.iter().skip(1).filter_map(|posted| posted.call)
    }

    /// When those behind are not to wait any longer for the call that it runs, if there are any.
    pub(crate) fn patience(&self) -> Option<Nanos> {
        self.calls_behind().next()?;
        match self.state {
            State::Running { since, .. } => Some(since + PATIENCE),
            _ => None,
        }
    }

    /// A call was taken back. Returns whether it had the call.
    pub(crate) fn gives_back(&mut self, call: CallKey) -> bool {
        let mut posted = self.posted.iter_mut();
        let found = posted.find(|posted| posted.call == Some(call));
        found.is_some_and(|posted| posted.call.take().is_some())
    }

    /// It is done with the call whose turn it was, or has passed over one that was taken back; the
    /// next one has its turn.
    pub(crate) fn goes_on(&mut self, now: Nanos) {
        self.posted.pop_front();
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
            _ => self.rest(now),
        }
    }
}
