//! The active calls of sessions, by number, and the outcomes of calls that have ended. `session`
//! and `gridrpc` have the functions that C programs call. The number of sessions that are open or
//! remembered is bounded.

use crate::Status;
use crate::error::Problem;
use crate::function::{Function, Times};
use crate::texts::Texts;
use farcall_client::{CallStatus, Pending, wait_any};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most sessions that no wait has reported and that are not cancelled.
const MOST_OPEN: usize = 1 << 16;
/// The most sessions that are remembered after a wait has reported them.
const MOST_PAST: usize = 1 << 16;
/// Most calls end in the order in which they began. A wait for more sessions than these waits for
/// these alone most of the time, since a look at thousands of others costs much more.
const FIRST: usize = 64;

/// The result of a call.
pub(crate) type End = Result<Times, Problem>;

/// A call that is under way, or that has ended and that no wait has reported.
pub(crate) struct Session {
    pub(crate) id: u64,
    /// The tag of its owner, which differs from those of other owners.
    tag: usize,
    /// The handle of its function.
    handle: usize,
    /// The function, until the end of the call is known: it keeps the connection open.
    function: Mutex<Option<Arc<Function>>>,
    /// The call, until its end is known: it holds copies of arguments.
    pending: Mutex<Option<Arc<Pending>>>,
    /// The texts of the call. They come after the call, which uses their memory.
    texts: Mutex<Texts>,
    end: Mutex<Option<End>>,
    /// Its caller has cancelled it, so that no wait needs to report it.
    is_cancelled: AtomicBool,
}

/// The sessions of one interface.
pub(crate) struct Sessions {
    state: Mutex<State>,
    /// The numbers of sessions go from 1 to this, and then start again.
    most: u64,
}

#[derive(Default)]
struct State {
    last: u64,
    open: BTreeMap<u64, Arc<Session>>,
    /// Open sessions that a wait for any has found ended, by tag. The next such waits report them
    /// without a look at all others.
    ended: BTreeSet<(usize, u64)>,
    past: BTreeMap<u64, Past>,
    /// The keys of `past`, oldest first.
    order: VecDeque<u64>,
}

struct Past {
    end: End,
    handle: usize,
}

/// A session that a caller names.
pub(crate) enum Found {
    Open(Arc<Session>),
    Past(End),
}

impl Session {
    /// Whether the call has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.settle().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Option<Arc<Pending>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn function(&self) -> MutexGuard<'_, Option<Arc<Function>>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call; `None` if its end is known.
    fn under_way(&self) -> Option<Arc<Pending>> {
        self.pending().clone()
    }

    /// Whether this thread writes the last output of the call at the moment, and has the lock of
    /// its end. The call has not ended for the program's function that gets the output.
    fn moves_here(&self) -> bool {
        self.under_way().is_some_and(|pending| pending.moves_here())
    }

    /// The result of the call, if it has ended.
    pub(crate) fn settle(&self) -> Option<End> {
        if self.moves_here() {
            return None;
        }
        let mut end = self.lock();
        let mut function = None;
        if end.is_none() {
            let outcome = self.under_way()?.take()?;
            *end = Some(match outcome {
                Ok(outcome) => {
                    let texts = self.texts.lock();
                    texts.unwrap_or_else(PoisonError::into_inner).deliver();
                    if let Some(function) = &*self.function() {
                        function.keep(&outcome);
                    }
                    Ok(Times::from(outcome.times))
                }
                Err(error) => Err(self.describe(Problem::from(error))),
            });
            self.pending().take();
            function = self.function().take();
        }
        let known = end.clone();
        drop(end);
        // It can be the last one that keeps the connection open, which needs no lock to close.
        drop(function);
        known
    }

    /// The problem of a call whose end is not known yet, with its name.
    fn describe(&self, problem: Problem) -> Problem {
        let function = self.function();
        let name = function.as_ref().map(|it| it.client.qualified_name());
        let name = name.unwrap_or("a function");
        problem.of(&format!("session {} of {name}", self.id))
    }

    /// Moves what can move without waiting, and returns the result of the call, if it has ended. A
    /// call whose time limit has passed ends here too.
    pub(crate) fn probe(&self) -> Option<End> {
        self.settle().or_else(|| {
            self.under_way()?.is_done();
            self.expire();
            self.settle()
        })
    }

    /// Cancels the call, if it has not ended. Nothing uses its arrays afterwards.
    pub(crate) fn cancel(&self) {
        self.give_up(|| Problem::new(Status::FarcallCancelled, "cancelled".to_owned()));
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn give_up(&self, why: impl FnOnce() -> Problem) {
        if self.is_over() || self.moves_here() {
            return;
        }
        let mut end = self.lock();
        let mut function = None;
        if end.is_none()
            && let Some(pending) = self.under_way()
        {
            *end = Some(Err(self.describe(why())));
            pending.cancel();
            self.pending().take();
            function = self.function().take();
            *self.texts.lock().unwrap_or_else(PoisonError::into_inner) = Texts::default();
        }
        drop(end);
        drop(function);
    }

    /// Cancels the call if its time limit has passed.
    fn expire(&self) {
        let deadline = self.under_way().and_then(|pending| pending.deadline());
        if deadline.is_some_and(|end| end <= Instant::now()) {
            let text = "no answer within the time-out of its server; the call was given up";
            self.give_up(|| Problem::new(Status::FarcallTimeout, text.to_owned()));
        }
    }
}

/// Waits until one of the sessions has ended; `false` if the time ends first. A callback, or a
/// function that gets output, cannot wait for its own call, which waits for it.
fn wait_for_one(sessions: &[Arc<Session>], deadline: Option<Instant>) -> Result<bool, Problem> {
    let waits_here = |pending: Arc<Pending>| pending.calls_back_here() || pending.moves_here();
    let is_own = |session: &Arc<Session>| session.under_way().is_some_and(waits_here);
    let others = sessions.iter().any(|session| !is_own(session));
    loop {
        if sessions.iter().any(|session| session.is_over()) {
            return Ok(true);
        }
        if !others {
            let text = "a callback waits for its own call, which waits for the callback: return";
            return Err(Problem::argument(text.to_owned()));
        }
        let pending = sessions.iter().map(|session| session.under_way());
        let Some(pending) = pending.collect::<Option<Vec<Arc<Pending>>>>() else {
            // Another thread has just seen the end of one.
            continue;
        };
        let own = pending.iter().filter_map(|pending| pending.deadline());
        let until = own.chain(deadline).min();
        // One whose last output this thread writes does not end before that.
        let pending = pending.iter().map(|pending| &**pending);
        let pending: Vec<&Pending> = pending.filter(|pending| !pending.moves_here()).collect();
        if !wait_any(&pending, until)? {
            sessions.iter().for_each(|session| session.expire());
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(sessions.iter().any(|session| session.is_over()));
            }
        }
    }
}

/// Waits for one of the first sessions for a while, in which a look at all `count` of them would
/// take little time. Returns whether one of these has ended; the others then have their turn.
fn wait_for_first(first: &[Arc<Session>], count: usize, deadline: Option<Instant>) -> bool {
    let turn = Duration::from_micros(2 * count as u64).min(Duration::from_millis(50));
    let until = deadline.into_iter().chain(Instant::now().checked_add(turn));
    // An error comes again in the wait for all of them.
    count > first.len() && wait_for_one(first, until.min()).is_ok_and(|ended| ended)
}

impl Sessions {
    pub(crate) const fn new(most: u64) -> Sessions {
        let state = State {
            last: 0,
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            past: BTreeMap::new(),
            order: VecDeque::new(),
        };
        Sessions {
            state: Mutex::new(state),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if there are too many sessions for another one. Cancelled ones make room.
    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        if self.lock().open.len() >= MOST_OPEN {
            let mut sessions = self.open(None);
            sessions.retain(|session| session.is_cancelled.load(Ordering::Relaxed));
            for session in sessions {
                if let Some(end) = session.settle() {
                    self.collect(&session, &end);
                }
            }
        }
        match self.lock().open.len() {
            0..MOST_OPEN => Ok(()),
            _ => Err(Problem::argument(format!(
                "{MOST_OPEN} sessions are neither waited for nor cancelled"
            ))),
        }
    }

    /// Adds a call that is under way.
    pub(crate) fn add(
        &self,
        function: Arc<Function>,
        (pending, texts): (Pending, Texts),
        tag: usize,
        handle: usize,
    ) -> u64 {
        let mut state = self.lock();
        loop {
            state.last = state.last % self.most + 1;
            if !state.open.contains_key(&state.last) && !state.past.contains_key(&state.last) {
                break;
            }
        }
        let id = state.last;
        let session = Session {
            id,
            tag,
            handle,
            function: Mutex::new(Some(function)),
            pending: Mutex::new(Some(Arc::new(pending))),
            texts: Mutex::new(texts),
            end: Mutex::new(None),
            is_cancelled: AtomicBool::new(false),
        };
        state.open.insert(id, Arc::new(session));
        id
    }

    pub(crate) fn find(&self, id: u64) -> Option<Found> {
        let state = self.lock();
        let open = state.open.get(&id).cloned().map(Found::Open);
        open.or_else(|| {
            state
                .past
                .get(&id)
                .map(|past| Found::Past(past.end.clone()))
        })
    }

    /// The handle of the function of a session.
    pub(crate) fn handle(&self, id: u64) -> Option<usize> {
        let state = self.lock();
        let open = state.open.get(&id).map(|session| session.handle);
        open.or_else(|| state.past.get(&id).map(|past| past.handle))
    }

    /// The result of a session; `None` if it has not ended.
    pub(crate) fn end(&self, id: u64) -> Result<Option<End>, Problem> {
        match self.find(id) {
            Some(Found::Open(session)) => Ok(session.settle()),
            Some(Found::Past(end)) => Ok(Some(end)),
            None => Err(Problem::unknown_session(id)),
        }
    }

    /// How a call fares, as its server tells it.
    pub(crate) fn status(&self, id: u64) -> Result<CallStatus, Problem> {
        match self.find(id) {
            Some(Found::Open(session)) => match session.under_way() {
                Some(pending) => Ok(pending.status()?),
                None => Ok(CallStatus::over()),
            },
            Some(Found::Past(_)) => Ok(CallStatus::over()),
            None => Err(Problem::unknown_session(id)),
        }
    }

    /// The same, after moving what can move without waiting.
    pub(crate) fn probe(&self, id: u64) -> Result<Option<End>, Problem> {
        match self.find(id) {
            Some(Found::Open(session)) => Ok(session.probe()),
            Some(Found::Past(end)) => Ok(Some(end)),
            None => Err(Problem::unknown_session(id)),
        }
    }

    /// The sessions of one owner, or of all, that no wait has reported.
    pub(crate) fn open(&self, tag: Option<usize>) -> Vec<Arc<Session>> {
        let state = self.lock();
        let sessions = state.open.values();
        let owned = sessions.filter(|session| tag.is_none_or(|tag| tag == session.tag));
        owned.cloned().collect()
    }

    /// The oldest of them, and how many sessions all owners have.
    fn first_open(&self, tag: Option<usize>) -> (Vec<Arc<Session>>, usize) {
        let state = self.lock();
        let sessions = state.open.values();
        let owned = sessions.filter(|session| tag.is_none_or(|tag| tag == session.tag));
        (owned.take(FIRST).cloned().collect(), state.open.len())
    }

    /// Moves a session that has ended to the past ones; `false` if another thread has done so.
    fn collect(&self, session: &Session, end: &End) -> bool {
        let mut state = self.lock();
        if state.open.remove(&session.id).is_none() {
            return false;
        }
        state.ended.remove(&(session.tag, session.id));
        let end = end.clone();
        let handle = session.handle;
        state.past.insert(session.id, Past { end, handle });
        state.order.push_back(session.id);
        if state.order.len() > MOST_PAST
            && let Some(oldest) = state.order.pop_front()
        {
            state.past.remove(&oldest);
        }
        true
    }

    /// Waits for a session; `None` if the time ends first.
    pub(crate) fn wait(&self, id: u64, deadline: Option<Instant>) -> Result<Option<End>, Problem> {
        let ended = self.wait_or(&[id], deadline)?;
        Ok(ended.map(|(_, end)| end))
    }

    /// Waits until one of the sessions has ended, and returns it; `None` if the time ends first. An
    /// unknown session is an error.
    pub(crate) fn wait_or(
        &self,
        ids: &[u64],
        deadline: Option<Instant>,
    ) -> Result<Option<(u64, End)>, Problem> {
        let mut sessions = Vec::with_capacity(ids.len());
        let mut past = None;
        for &id in ids {
            match self.find(id) {
                Some(Found::Open(session)) => sessions.push(session),
                Some(Found::Past(end)) => past = past.or(Some((id, end))),
                None => return Err(Problem::unknown_session(id)),
            }
        }
        if past.is_some() {
            return Ok(past);
        }
        if sessions.is_empty() {
            return Err(Problem::argument("no session to wait for".to_owned()));
        }
        wait_for_one(&sessions, deadline)?;
        let over = |session: &Arc<Session>| Some((session.clone(), session.settle()?));
        Ok(sessions.iter().find_map(over).map(|(session, end)| {
            self.collect(&session, &end);
            (session.id, end)
        }))
    }

    /// Waits until one of the sessions that no wait has reported has ended. `Ok(Err(()))` if there
    /// is none, `Ok(Ok(None))` if the time ends first.
    pub(crate) fn wait_any(
        &self,
        tag: Option<usize>,
        deadline: Option<Instant>,
    ) -> Result<Any, Problem> {
        loop {
            while let Some(session) = self.ended(tag) {
                if let Some(end) = session.settle()
                    && self.collect(&session, &end)
                {
                    return Ok(Any::Over(session.id, end));
                }
            }
            let (first, count) = self.first_open(tag);
            let ended = first.first().and_then(|first| first.probe());
            let ended = ended.map(|_| &first[0]);
            let mut ended = ended.or_else(|| first.iter().find(|session| session.is_over()));
            if ended.is_none() && wait_for_first(&first, count, deadline) {
                ended = first.iter().find(|session| session.is_over());
            }
            if let Some(session) = ended {
                if let Some(end) = session.settle()
                    && self.collect(session, &end)
                {
                    return Ok(Any::Over(session.id, end));
                }
                continue;
            }
            let sessions = self.open(tag);
            if sessions.is_empty() {
                return Ok(Any::NoneLeft);
            }
            if !wait_for_one(&sessions, deadline)? {
                return Ok(Any::Running);
            }
            let over = sessions.iter().filter(|session| session.is_over());
            let over: Vec<_> = over.map(|session| (session.tag, session.id)).collect();
            let mut state = self.lock();
            let is_open = |(_, id): &(usize, u64)| state.open.contains_key(id);
            let over: Vec<_> = over.into_iter().filter(is_open).collect();
            state.ended.extend(over);
        }
    }

    /// A session of one owner, or of all, that an earlier wait has found ended.
    fn ended(&self, tag: Option<usize>) -> Option<Arc<Session>> {
        let state = &mut *self.lock();
        let next = match tag {
            Some(tag) => state.ended.range((tag, 0)..=(tag, u64::MAX)).next(),
            None => state.ended.first(),
        };
        let next = next.copied()?;
        state.ended.remove(&next);
        state.open.get(&next.1).cloned()
    }

    /// Waits until all of the sessions have ended. Returns the failed ones, and whether all ended
    /// in time.
    pub(crate) fn wait_and(
        &self,
        ids: &[u64],
        deadline: Option<Instant>,
    ) -> Result<(Vec<(u64, Problem)>, bool), Problem> {
        let mut failed = Vec::new();
        let mut sessions = Vec::with_capacity(ids.len());
        for &id in ids {
            match self.find(id) {
                Some(Found::Open(session)) => sessions.push(session),
                Some(Found::Past(Err(problem))) => failed.push((id, problem)),
                Some(Found::Past(Ok(_))) => {}
                None => return Err(Problem::unknown_session(id)),
            }
        }
        let all = self.wait_for_all(sessions, deadline, &mut failed)?;
        Ok((failed, all))
    }

    /// The same for all sessions that no wait has reported when this begins.
    pub(crate) fn wait_all(
        &self,
        tag: Option<usize>,
        deadline: Option<Instant>,
    ) -> Result<(Vec<(u64, Problem)>, bool), Problem> {
        let mut failed = Vec::new();
        let all = self.wait_for_all(self.open(tag), deadline, &mut failed)?;
        Ok((failed, all))
    }

    fn wait_for_all(
        &self,
        mut sessions: Vec<Arc<Session>>,
        deadline: Option<Instant>,
        failed: &mut Vec<(u64, Problem)>,
    ) -> Result<bool, Problem> {
        loop {
            self.collect_first(&mut sessions, failed);
            if sessions.is_empty() {
                return Ok(true);
            }
            let count = sessions.len();
            if wait_for_first(&sessions[..count.min(FIRST)], count, deadline) {
                continue;
            }
            let in_time = wait_for_one(&sessions, deadline)?;
            sessions.retain(|session| match session.settle() {
                Some(end) => {
                    self.collect(session, &end);
                    failed.extend(end.err().map(|problem| (session.id, problem)));
                    false
                }
                None => true,
            });
            if !in_time {
                return Ok(sessions.is_empty());
            }
        }
    }

    /// Collects the sessions at the front that have ended, and those among the first.
    fn collect_first(&self, sessions: &mut Vec<Arc<Session>>, failed: &mut Vec<(u64, Problem)>) {
        let mut take = |session: &Session, end: End| {
            self.collect(session, &end);
            failed.extend(end.err().map(|problem| (session.id, problem)));
        };
        let mut count = 0;
        while let Some(session) = sessions.get(count)
            && let Some(end) = session.probe()
        {
            take(session, end);
            count += 1;
        }
        sessions.drain(..count);
        let mut kept = 0;
        for _ in 0..sessions.len().min(FIRST) {
            match sessions[kept].settle() {
                Some(end) => take(&sessions.remove(kept), end),
                None => kept += 1,
            }
        }
    }

    /// Cancels a session; one that has ended keeps its result.
    pub(crate) fn cancel(&self, id: u64) -> Result<(), Problem> {
        match self.find(id) {
            Some(Found::Open(session)) => session.cancel(),
            Some(Found::Past(_)) => {}
            None => return Err(Problem::unknown_session(id)),
        }
        Ok(())
    }

    /// Forgets all sessions.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        let open = std::mem::take(&mut state.open);
        state.ended.clear();
        state.past.clear();
        state.order.clear();
        drop(state);
        drop(open);
    }

    pub(crate) fn cancel_all(&self, tag: Option<usize>) {
        self.open(tag).iter().for_each(|session| session.cancel());
    }
}

/// The result of a wait for any session.
pub(crate) enum Any {
    Over(u64, End),
    Running,
    NoneLeft,
}
