//! One worker, as the server sees it: its state, its calls, its user and its object. `workers` has
//! all of them, and the shell has the process. A worker runs calls of one user only, so that
//! nothing in its memory reaches another one.

use crate::flaw::{Flaw, has};
use crate::gpus::Resources;
use crate::keys::{CallKey, ConnectionKey};
use farcall_rpc_proto::{CallId, HandleId, Nanos, User};
use std::collections::VecDeque;
use std::rc::Rc;

/// A call that runs longer than this is no longer short.
const SOON: Nanos = 50_000;
/// How long calls wait behind one that should be short.
const PATIENCE: Nanos = 200_000;
/// Most calls that a worker may have at once. One more place is for messages about memory.
const MOST_POSTED: usize = 15;
/// Longest encoded call that may be posted behind others, in bytes.
pub(crate) const AHEAD_BYTES: usize = 2048;
/// Most memory objects of such a call besides its buffer. The messages about those of all calls of
/// a worker fit into its socket, where the shell must never wait for room.
pub(crate) const AHEAD_MEMORY: usize = 12;
/// Most bytes of the scalars and texts of a call.
pub(crate) const TEXT_BYTES: usize = 1 << 20;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Binding its library.
    Starting,
    Idle,
    /// It will run this call after the journal has recorded that it does.
    Booked {
        call: CallKey,
    },
    /// It runs its first call, until the deadline at most. A short call has probably ended by
    /// `soon`.
    Running {
        since: Nanos,
        deadline: Option<Nanos>,
        soon: Option<Nanos>,
    },
}

/// The library behind each function of an interface file, as a worker found it.
pub(crate) type Found = Rc<[Option<String>]>;

/// The version of the library that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Current,
    /// A new one, which the server uses if this worker can bind it. It started at this time.
    Trial(Nanos),
    /// One that has been replaced. The worker gets no more calls, except of its object.
    Old,
}

/// What a call needs from a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'n> {
    /// Index of the library.
    pub(crate) library: usize,
    pub(crate) user: &'n User,
    pub(crate) resources: Resources,
}

/// The object that a worker holds.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    /// Connection and request of the object, while a client holds it.
    pub(crate) owner: Option<(ConnectionKey, CallId)>,
    /// Its id, if it is persistent.
    pub(crate) persistent: Option<HandleId>,
    /// The call whose turn it is. It waits for processor elements, or runs.
    pub(crate) turn: Option<CallKey>,
    /// Calls that wait behind it.
    pub(crate) behind: VecDeque<CallKey>,
}

/// A call that a worker has.
#[derive(Debug)]
struct Posted {
    /// `None` after it was taken back.
    call: Option<CallKey>,
    /// Number of the function.
    function: u64,
}

/// A worker: one process, or several that compute together.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Index of the library it is bound to.
    pub(crate) library: usize,
    /// The user whose calls it runs, from the first one on. What they leave in its memory reaches
    /// nobody else.
    pub(crate) user: Option<User>,
    pub(crate) state: State,
    /// When it started, became idle, or last ran something.
    rested: Nanos,
    /// Its object, if it has one. It then runs methods of this object only.
    pub(crate) object: Option<ObjectState>,
    /// Whether the server has told it to end, or it has closed its connection.
    pub(crate) is_ended: bool,
    /// What it found behind its functions.
    libraries: Option<Found>,
    pub(crate) version: Version,
    /// Number of the function that it ran last.
    pub(crate) function: Option<u64>,
    /// Number of workers that were killed while they started in its place.
    pub(crate) tries: u32,
    pub(crate) resources: Resources,
    /// Its calls, the running one first.
    posted: VecDeque<Posted>,
    /// Whether no other call may be posted behind the running one.
    alone: bool,
    /// Time limit of each call.
    time_limit: Option<Nanos>,
    /// When it began to wait for the answer of a callback.
    waiting: Option<Nanos>,
}

/// Options of a posted call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting {
    pub(crate) function: u64,
    pub(crate) alone: bool,
    pub(crate) is_brief: bool,
    pub(crate) time_limit: Option<Nanos>,
}

impl Worker {
    pub(crate) fn new(library: usize, resources: Resources, now: Nanos) -> Worker {
        Worker {
            library,
            user: None,
            state: State::Starting,
            rested: now,
            object: None,
            is_ended: false,
            libraries: None,
            version: Version::Current,
            function: None,
            tries: 0,
            resources,
            posted: VecDeque::new(),
            alone: true,
            time_limit: None,
            waiting: None,
        }
    }

    /// Records what it found behind its functions.
    pub(crate) fn found(&mut self, libraries: Found) {
        self.libraries = Some(libraries);
    }

    /// The library behind a function.
    pub(crate) fn library_of(&self, function: usize) -> Option<String> {
        self.libraries.as_ref()?.get(function)?.clone()
    }

    /// Whether it can take a call. A worker that ends may still finish its calls.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.is_ended
    }

    /// Whether it can run such a call, now or when it is idle.
    pub(crate) fn serves(&self, need: &Need<'_>) -> bool {
        let Need {
            library,
            user,
            resources,
        } = *need;
        let for_user = self.user.as_ref().is_none_or(|bound| bound == user);
        let fits = (self.library, self.resources) == (library, resources);
        fits && self.version != Version::Old
            && (for_user || has(Flaw::SharesWorkers))
            && self.object.is_none()
    }

    /// Whether it may have older files than a worker that has started at `since` and is ready.
    pub(crate) fn is_older(&self, since: Nanos) -> bool {
        self.state != State::Starting || self.rested <= since
    }

    /// How long it has been unused.
    pub(crate) fn idle_for(&self, now: Nanos) -> Option<Nanos> {
        self.is_idle().then(|| now.saturating_sub(self.rested))
    }

    /// When it will probably be idle, if that is worth waiting for.
    pub(crate) fn idle_soon(&self) -> Option<Nanos> {
        match self.state {
            State::Running { soon, .. } => soon,
            _ => None,
        }
    }

    /// How long it has run its call.
    pub(crate) fn running_for(&self, now: Nanos) -> Nanos {
        match self.state {
            State::Running { since, .. } => now.saturating_sub(since),
            _ => 0,
        }
    }

    /// Adds a call, behind others if it [takes more](Worker::takes_more).
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

    /// Makes it idle.
    pub(crate) fn rest(&mut self, now: Nanos) {
        self.state = State::Idle;
        self.rested = now;
    }

    /// Records that it waits for the answer of a callback.
    pub(crate) fn waits(&mut self, now: Nanos) {
        self.waiting = Some(now);
    }

    /// Records that it got the answer. The time of the wait does not count.
    pub(crate) fn answered(&mut self, now: Nanos) {
        if let (Some(since), State::Running { deadline, .. }) =
            (self.waiting.take(), &mut self.state)
        {
            *deadline = deadline.map(|deadline| deadline + now.saturating_sub(since));
        }
    }

    /// When it began to wait for the answer of a callback.
    pub(crate) fn waits_since(&self) -> Option<Nanos> {
        self.waiting
    }

    /// When its call must end, by the time limit of calls or of callbacks.
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

    /// Whether it runs only short calls, so that another one may be posted behind them. `exec` is
    /// the predicted time of that one.
    pub(crate) fn takes_more(&self, now: Nanos, exec: Nanos) -> bool {
        let State::Running {
            soon: Some(soon), ..
        } = self.state
        else {
            return false;
        };
        let ahead = exec.saturating_mul(self.posted.len() as u64);
        let has_room = self.posted.len() < MOST_POSTED;
        let goes_on = !self.is_ended && self.version != Version::Old;
        !self.alone && soon > now && has_room && ahead < SOON && goes_on
    }

    /// Whether it runs a call that will probably end soon.
    pub(crate) fn is_brief_now(&self) -> bool {
        !self.alone && self.idle_soon().is_some()
    }

    /// The call that it runs or will run.
    pub(crate) fn call(&self) -> Option<CallKey> {
        match self.state {
            State::Running { .. } => self.posted.front().and_then(|posted| posted.call),
            State::Booked { call } => Some(call),
            _ => None,
        }
    }

    /// The last posted call that was not taken back.
    pub(crate) fn last_call(&self) -> Option<CallKey> {
        self.posted.iter().rev().find_map(|posted| posted.call)
    }

    /// Calls behind the running one.
    pub(crate) fn calls_behind(&self) -> impl Iterator<Item = CallKey> {
        self.posted.iter().skip(1).filter_map(|posted| posted.call)
    }

    /// Until when calls behind the running one wait for it, if there are any.
    pub(crate) fn patience(&self) -> Option<Nanos> {
        self.calls_behind().next()?;
        match self.state {
            State::Running { since, .. } => Some(since + PATIENCE),
            _ => None,
        }
    }

    /// Removes a call that was taken back. Returns whether the worker had it.
    pub(crate) fn gives_back(&mut self, call: CallKey) -> bool {
        let mut posted = self.posted.iter_mut();
        let found = posted.find(|posted| posted.call == Some(call));
        found.is_some_and(|posted| posted.call.take().is_some())
    }

    /// Removes a call that the shell has not given to it.
    pub(crate) fn never_gets(&mut self, call: CallKey, now: Nanos) {
        self.posted.retain(|posted| posted.call != Some(call));
        if self.posted.is_empty() {
            self.rest(now);
        }
    }

    /// Moves on to its next call, after the first has ended or was skipped.
    pub(crate) fn goes_on(&mut self, now: Nanos) {
        self.posted.pop_front();
        self.waiting = None;
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
