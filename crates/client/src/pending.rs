//! Calls under way: how a caller waits for them, asks about them and gives them up.
//!
//! A call ends exactly once, and its outcome is taken once. A call may consist of several attempts,
//! one after the other; `remote` and `grid` decide whether it continues.

use crate::call_status::CallStatus;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::remote::{self, After, Attempt, Begun, Continues, Request};
use crate::trace::CallSpan;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Time between two looks whether to give up a wait for another thread, which moves the call.
const MOMENT: Duration = Duration::from_millis(100);

/// A call under way. If it is dropped before its end, the client gives it up and the server ends
/// it.
///
/// If the server of a placed call is lost and the function is declared repeatable, the call
/// continues at another server. If a server is replaced by another one before it began with the
/// call, the call continues there. Like every call, it makes progress only while a thread waits for
/// it.
pub struct Pending {
    state: Mutex<State>,
    /// A thread has moved the call.
    moved: Condvar,
}

struct State {
    /// How the call goes on. The thread that moves it has it meanwhile, without the lock: on that
    /// thread, [`crate::Options::on_interrupt`] and [`crate::Output`] may ask about the call.
    call: Option<Box<dyn Continues>>,
    mover: Option<ThreadId>,
    /// The current attempt, or the last one.
    attempt: Arc<Attempt>,
    /// The call has ended, or was given up. Holds its outcome until it is taken; the outcome of a
    /// call that was given up stays with its attempt.
    over: bool,
    end: Option<Result<Outcome, Error>>,
    /// The span of the call, until the call is over.
    span: Option<CallSpan>,
}

impl From<Begun> for Pending {
    fn from(begun: Begun) -> Pending {
        let state = State {
            call: Some(begun.call),
            mover: None,
            attempt: begun.attempt,
            over: false,
            end: None,
            span: None,
        };
        Pending {
            state: Mutex::new(state),
            moved: Condvar::new(),
        }
    }
}

/// A call while this thread moves it. If that panics, the others do not wait for it.
struct Move<'p> {
    pending: &'p Pending,
    call: Option<Box<dyn Continues>>,
}

impl Move<'_> {
    /// Gives the call back, and lets the other threads look at it when they get the lock.
    fn end(&mut self) -> MutexGuard<'_, State> {
        let mut state = self.pending.lock();
        state.call = self.call.take();
        state.mover = None;
        self.pending.moved.notify_all();
        state
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        if self.call.is_some() {
            drop(self.end());
        }
    }
}

impl Pending {
    /// The same call with its span.
    pub(crate) fn with_span(self, span: CallSpan) -> Pending {
        self.lock().span = Some(span);
        self
    }

    /// The state, when no other thread moves the call.
    fn settled(&self) -> MutexGuard<'_, State> {
        let here = thread::current().id();
        let mut state = self.lock();
        while state.mover.is_some_and(|mover| mover != here) {
            let waited = self.moved.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Whether this thread moves the call at the moment, to its end or to another server, and was
    /// interrupted, or writes the last output. It can neither wait for the call nor give it up.
    pub fn moves_here(&self) -> bool {
        self.lock().mover == Some(thread::current().id())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current attempt, or the last one.
    pub(crate) fn current(&self) -> Arc<Attempt> {
        self.settled().attempt.clone()
    }

    /// The same for a wait of at most `timeout`, which is over at `end`.
    fn current_by(&self, end: Option<Instant>, timeout: Duration) -> Result<Arc<Attempt>, Error> {
        let here = thread::current().id();
        let mut state = self.lock();
        while state.mover.is_some_and(|mover| mover != here) {
            let attempt = state.attempt.clone();
            let left = end.map_or(MOMENT, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(attempt.request.timed_out(timeout));
            }
            let waited = self.moved.wait_timeout(state, left.min(MOMENT));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // This runs without the lock: the caller's function may ask about the call.
            attempt.request.interrupted()?;
            state = self.lock();
        }
        Ok(state.attempt.clone())
    }

    /// Whether the call continues with another attempt after one has ended.
    fn goes_on(&self, ended: &Arc<Attempt>) -> bool {
        let mut state = self.settled();
        if !Arc::ptr_eq(&state.attempt, ended) || state.mover.is_some() {
            // It was moved already, or this thread is about to move it.
            return true;
        }
        if state.over {
            return false;
        }
        state.mover = Some(thread::current().id());
        let mut moving = Move {
            call: state.call.take(),
            pending: self,
        };
        drop(state);
        // This may write the last output of the function, and the caller's function for it may ask
        // about the call.
        let result = ended.take();
        let has_result = result.is_some();
        let call = moving.call.as_mut();
        let after = call
            .zip(result)
            .map(|(call, result)| call.after(ended, result));
        let mut state = moving.end();
        if !has_result {
            return false;
        }
        match after {
            Some(After::Again(mut attempt)) => {
                // The time-out is that of the call, and nobody else has the attempt yet.
                if let Some(attempt) = Arc::get_mut(&mut attempt) {
                    attempt.request.within(ended.request.timeout());
                }
                if state.over {
                    attempt.request.cancel();
                }
                state.attempt = attempt;
            }
            Some(After::End(end)) => {
                state.over = true;
                state.end = Some(match state.span.take() {
                    Some(span) => span.end(end),
                    None => end,
                });
            }
            None => {}
        }
        !state.over
    }

    /// Whether the call has ended. Moves data that can be moved without waiting, and runs a
    /// callback that has arrived. A caller that asks repeatedly reaches the end of the call without
    /// waiting.
    pub fn is_done(&self) -> bool {
        let attempt = self.current();
        attempt.request.is_done() && !self.goes_on(&attempt)
    }

    /// Whether the call is known to have ended. Moves no data, but begins the call again at another
    /// server if its server was lost.
    pub fn has_ended(&self) -> bool {
        let attempt = self.current();
        attempt.request.has_ended() && !self.goes_on(&attempt)
    }

    /// How many bytes of the arrays have travelled; `None` after the end of the call.
    pub fn progress(&self) -> Option<Progress> {
        let progress = self.current().request.progress();
        progress.or_else(|| self.moves_here().then(Progress::default))
    }

    /// How the call fares: how far it has come, why it waits, and when it will start and end. This
    /// asks its server.
    pub fn status(&self) -> Result<CallStatus, Error> {
        self.current().request.status()
    }

    /// The address of the server that has the call, or had it last.
    pub fn server(&self) -> String {
        self.current().request.server()
    }

    /// A thread cannot wait for a call that it is about to move.
    fn check_wait(&self) -> Result<(), Error> {
        match self.moves_here() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Waits for the end of the call, for at most `timeout` from now. After a timeout error the
    /// call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(timeout);
        loop {
            self.check_wait()?;
            let attempt = self.current_by(end, timeout)?;
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            let waited = attempt.request.wait_for(left);
            waited.map_err(|error| match error {
                Error::Timeout { address, .. } => Error::Timeout {
                    address,
                    after: timeout,
                },
                other => other,
            })?;
            // Another thread that has waited for it may move it now.
            self.current_by(end, timeout)?;
            if !self.goes_on(&attempt) {
                return Ok(());
            }
        }
    }

    /// Waits for the end of the call and leaves its outcome to be taken. Gives the call up at its
    /// [deadline](Pending::deadline).
    pub fn wait_out(&self) -> Result<(), Error> {
        self.last().map(drop)
    }

    /// Waits for the end of the last attempt. Gives the call up after the timeout.
    fn last(&self) -> Result<Arc<Attempt>, Error> {
        loop {
            self.check_wait()?;
            let attempt = self.current();
            if let Err(error) = attempt.request.wait_out() {
                self.cancel();
                return Err(error);
            }
            if !self.goes_on(&attempt) {
                return Ok(attempt);
            }
        }
    }

    /// Waits for the end of the call.
    pub fn wait(self) -> Result<Outcome, Error> {
        let ended = self.last()?;
        let end = self.lock().end.take();
        end.unwrap_or_else(|| ended.wait_shared())
    }

    /// Whether the current thread runs a callback of this call, which cannot wait for the call.
    pub fn calls_back_here(&self) -> bool {
        let attempt = self.lock().attempt.clone();
        attempt.request.works_here()
    }

    /// When the time-out of this call passes: that of its function, which
    /// [`crate::Function::with_timeout`] sets, or else that of [`crate::Options::timeout`]. A wait
    /// for several calls does not give them up then.
    pub fn deadline(&self) -> Option<Instant> {
        // All attempts have the same.
        self.lock().attempt.request.timeout().end()
    }

    /// Takes the outcome of the call if it has ended, once. The arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        let attempt = self.current();
        if attempt.request.has_ended() && self.goes_on(&attempt) {
            return None;
        }
        // The lock ends first: the attempt may write the last output.
        let end = self.lock().end.take();
        end.or_else(|| attempt.take())
    }

    /// Whether a call that has lost its server, which had begun with it, may have changed arrays of
    /// the caller: results had begun to arrive, or the function worked in place in shared memory.
    pub fn has_changed(&self) -> bool {
        self.current().has_changed(true)
    }

    /// Gives the call up. The client no longer touches its arrays, the server ends it, and every
    /// wait for it returns.
    pub fn cancel(&self) {
        let mut state = self.settled();
        state.over = true;
        state.span = None;
        state.attempt.request.cancel();
    }
}

/// Waits until one of the calls has ended, at any server. Returns `false` if `deadline` passes
/// first, or if `calls` is empty. A thread that moves one of the calls cannot wait for any of them.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    calls.iter().try_for_each(|call| call.check_wait())?;
    loop {
        let mut attempts: Vec<(&Pending, Arc<Attempt>)> = Vec::with_capacity(calls.len());
        for call in calls {
            attempts.extend(settled_by(call, deadline)?.map(|attempt| (*call, attempt)));
        }
        let requests = attempts.iter().map(|(_, attempt)| &attempt.request);
        let requests: Vec<&Request> = requests.collect();
        if !remote::wait_for_any(&requests, deadline)? {
            return Ok(false);
        }
        let mut is_over = false;
        for (call, attempt) in &attempts {
            // Another thread that has waited for it may move it now.
            if attempt.request.has_ended() && settled_by(call, deadline)?.is_some() {
                // Every call that can continue elsewhere does so.
                is_over |= !call.goes_on(attempt);
            }
        }
        if is_over {
            return Ok(true);
        }
    }
}

/// The current attempt of a call; `None` if another thread still moves the call at the deadline.
fn settled_by(call: &Pending, deadline: Option<Instant>) -> Result<Option<Arc<Attempt>>, Error> {
    match call.current_by(deadline, Duration::ZERO) {
        Err(Error::Timeout { .. }) => Ok(None),
        attempt => attempt.map(Some),
    }
}
