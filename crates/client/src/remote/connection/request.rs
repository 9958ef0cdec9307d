//! Requests under way: who waits for them, and how they end. `state` moves the bytes. Any thread
//! that waits can move the bytes of the whole connection. A request that is dropped before its end
//! is given up, and its arrays are not touched afterwards.

use super::state::State;
use super::{Connection, NAP, asks_again, interrupted_at_times, is_overdue};
use crate::call_status::CallStatus;
use crate::description::Description;
use crate::error::Error;
use crate::output::Printed;
use crate::progress::Progress;
use crate::remote::callbacks::{self, Callbacks};
use crate::remote::files::Files;
use crate::remote::requests::functions;
use crate::timeout::Timeout;
use farcall_rpc_proto::client::Answer;
use farcall_rpc_proto::{CallId, CallName, FailureKind, Times};
use farcall_spin::Waiter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A request under way. If it is dropped before its end, it is given up.
pub(crate) struct Request {
    pub(super) connection: Arc<Connection>,
    pub(super) id: CallId,
    timeout: Timeout,
    /// Work that a running call asks of its caller. `None` for other requests.
    pub(super) reply: Option<Reply>,
    /// Why a callback failed.
    failed: Mutex<Option<Error>>,
    /// The thread that runs a callback of the call.
    worker: Mutex<Option<ThreadId>>,
    /// The request has ended, so that nobody needs to give it up.
    over: bool,
    /// How long to spin at least.
    patience: Duration,
}

/// Work that a running call asks of its caller.
pub(crate) struct Reply {
    /// The callbacks of the call.
    pub(crate) callbacks: Option<Box<Callbacks>>,
    /// Output of the function, if the caller wants it.
    pub(crate) printed: Option<Arc<Printed>>,
    /// The function, for error messages.
    pub(crate) function: Arc<Description>,
}

impl Reply {
    pub(super) fn is_needed(&self) -> bool {
        self.callbacks.is_some() || self.printed.is_some()
    }

    /// The files of the call, if it has any.
    pub(super) fn files(&self) -> Option<&Files> {
        let callbacks = self.callbacks.as_ref()?;
        Some(&callbacks.files).filter(|files| !files.is_empty())
    }
}

/// A thread that waits at the socket. If [`crate::Options::on_interrupt`] panics there, the other
/// threads do not wait for it.
struct Seated<'c>(&'c Connection);

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.seat.leave();
        state.seat.hand_over();
    }
}

impl Request {
    pub(super) fn new(connection: Arc<Connection>, id: CallId) -> Request {
        let timeout = Timeout::from_now(connection.options.timeout);
        Request {
            connection,
            id,
            timeout,
            reply: None,
            failed: Mutex::new(None),
            worker: Mutex::new(None),
            over: false,
            patience: Duration::ZERO,
        }
    }

    /// Its number on the connection.
    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// The same request, whose answer is an array that the server makes for it. If the request is
    /// given up, the array is dropped.
    pub(crate) fn for_an_array(self) -> Request {
        self.connection.lock().makes_array(self.id);
        self
    }

    /// The same request, whose answer comes when the server has recorded it on its disk.
    pub(crate) fn after_a_disk(mut self) -> Request {
        self.patience = self.connection.records.patience();
        self
    }

    /// From now on, the caller waits for this request, which was made early. Returns `false` if it
    /// has failed.
    pub(crate) fn claim(&mut self) -> bool {
        self.timeout = Timeout::from_now(self.connection.options.timeout);
        let mut state = self.connection.lock();
        if !state.seat.is_taken() {
            state.progress(&self.connection.socket, None);
        }
        state.claim(self.id)
    }

    /// Waits for the answer, which `read` takes apart.
    pub(crate) fn answer<T>(self, read: impl FnOnce(Answer) -> Option<T>) -> Result<T, Error> {
        let connection = self.connection.clone();
        read(self.finish()?).ok_or_else(|| connection.unexpected())
    }

    /// Waits for the end of a call.
    pub(crate) fn times(self) -> Result<Times, Error> {
        self.answer(answered!(Done))
    }

    /// Whether the request has ended. Moves data that can be moved at once, and does the work that
    /// the running function has asked for.
    pub(crate) fn is_done(&self) -> bool {
        let mut state = self.connection.lock();
        if !state.seat.is_taken() {
            state.progress(&self.connection.socket, Some(self.id));
            state.lose_if_silent(&self.connection.socket);
        }
        if self.has_work(&state) {
            drop(state);
            self.work();
            state = self.connection.lock();
        }
        state.has_ended(self.id)
    }

    /// Whether the request is known to have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.lock().has_ended(self.id)
    }

    /// The address of its server.
    pub(crate) fn server(&self) -> String {
        self.connection.address.to_string()
    }

    /// How many bytes of the arrays have travelled; `None` after the end.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let mut progress = self.connection.lock().transfer_progress(self.id)?;
        if let Some(files) = self.reply.as_ref().and_then(Reply::files) {
            files.add_to(&mut progress);
        }
        Some(progress)
    }

    /// How the call fares, as the server tells it. A server does not know calls that the client
    /// keeps back.
    pub(crate) fn status(&self) -> Result<CallStatus, Error> {
        if self.has_ended() {
            return Ok(CallStatus::over());
        }
        if self.connection.lock().proto.is_unopened(self.id) {
            return Ok(CallStatus::kept_back());
        }
        functions::call_status(&self.connection, CallName::Open(self.id))
    }

    /// Waits until the request has ended, within its own timeout.
    pub(crate) fn wait_out(&self) -> Result<(), Error> {
        let after = self.timeout.after.unwrap_or_default();
        self.wait(self.timeout.end(), after)
    }

    /// Whether results had begun to arrive when the connection was lost.
    pub(crate) fn was_returning(&self) -> bool {
        self.connection.lock().was_returning(self.id)
    }

    /// Its time-out.
    pub(crate) fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// Gives it the time-out of the call of which it is a part.
    pub(crate) fn within(&mut self, timeout: Timeout) {
        self.timeout = timeout;
    }

    /// Gives the request up. Its memory is no longer touched, and every wait for it ends.
    pub(crate) fn cancel(&self) {
        // A forked child moves no bytes of its parent's calls, and a thread of the parent may have
        // held the lock when it was made.
        if !self.connection.is_ours() {
            return;
        }
        let mut state = self.connection.lock();
        state.abandon(self.id);
        state.send(&self.connection.socket);
        // The thread at the socket may wait for this request, and the server may stay silent.
        if state.seat.is_taken() {
            self.connection.waker.wake();
        }
    }

    /// Takes the times of a call that has ended, once.
    pub(crate) fn take_times(&self) -> Option<Result<Times, Error>> {
        Some(match self.take_answer()? {
            Ok(Answer::Done(times)) => self.place_files().map(|()| times),
            Ok(_) => Err(self.connection.unexpected()),
            Err(error) => Err(error),
        })
    }

    /// Takes the answer of a request that has ended, which `read` takes apart, once.
    pub(crate) fn take<T>(&self, read: fn(Answer) -> Option<T>) -> Option<Result<T, Error>> {
        let answer = self.take_answer()?;
        Some(answer.and_then(|answer| read(answer).ok_or_else(|| self.connection.unexpected())))
    }

    /// Takes the end of a request: success or error, once.
    pub(crate) fn take_end(&self) -> Option<Result<(), Error>> {
        Some(self.take_answer()?.map(drop))
    }

    /// Takes the answer of a request that has ended, once.
    fn take_answer(&self) -> Option<Result<Answer, Error>> {
        let mut state = self.connection.lock();
        if !state.has_ended(self.id) {
            return None;
        }
        let end = state.take_end(self.id);
        drop(state);
        if let Err(error) = self.settle() {
            return Some(Err(error));
        }
        Some(match end {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(loss)) => Err(self.connection.error(loss)),
            None => Err(Error::failed(
                FailureKind::Cancelled,
                "the caller cancelled the call",
            )),
        })
    }

    /// Waits until the request has ended, for at most `timeout` from now, and leaves the answer to
    /// be taken.
    pub(crate) fn wait_for(&self, timeout: Duration) -> Result<(), Error> {
        self.wait(Instant::now().checked_add(timeout), timeout)
    }

    /// Waits until the request has ended, at the socket or asleep, and leaves the answer to be
    /// taken.
    pub(super) fn wait(&self, deadline: Option<Instant>, timeout: Duration) -> Result<(), Error> {
        let connection = &*self.connection;
        let mut spinning = connection.spin.begin_for(self.patience);
        let mut asked = None;
        let mut state = connection.lock();
        loop {
            let is_open = !state.has_ended(self.id);
            let more = is_open
                && !state.seat.is_taken()
                && state.progress(&connection.socket, Some(self.id));
            let has_work = self.has_work(&state);
            if (more || has_work) && !state.has_ended(self.id) && is_overdue(deadline) {
                state.seat.hand_over();
                return Err(self.timed_out(timeout));
            }
            if has_work {
                state.seat.hand_over();
                drop(state);
                self.work();
                state = self.go_on(&mut asked)?;
                continue;
            }
            if state.has_ended(self.id) {
                state.seat.hand_over();
                return Ok(());
            }
            if more {
                drop(state);
                state = self.go_on(&mut asked)?;
                continue;
            }
            if state.seat.is_taken() {
                let waiter = Waiter::asleep();
                state.seat.add(self.id, waiter.clone());
                drop(state);
                let slept = self.sleep(deadline, timeout);
                state = connection.lock();
                state.seat.remove(self.id, &waiter);
                if slept.is_err() {
                    state.seat.hand_over();
                }
                slept?;
                continue;
            }
            if state.lose_if_silent(&connection.socket) {
                continue;
            }
            state.seat.take();
            let outlook = state.outlook();
            drop(state);
            let seated = Seated(connection);
            let waited = match !outlook.writing && spinning.look_again() {
                true => Ok(()),
                false => connection
                    .wait(outlook, deadline, timeout)
                    .and_then(|()| interrupted_at_times(connection, &mut asked)),
            };
            std::mem::forget(seated);
            state = connection.lock();
            state.seat.leave();
            if let Err(error) = waited {
                state.seat.hand_over();
                return Err(error);
            }
        }
    }

    /// Goes on with a wait that has found something to do, after other threads had their turn.
    fn go_on(&self, asked: &mut Option<Instant>) -> Result<MutexGuard<'_, State>, Error> {
        self.connection.let_others_in();
        if asks_again(asked) {
            // If this ends the wait, another thread waits at the socket.
            self.connection.lock().seat.hand_over();
            self.connection.interrupted()?;
        }
        Ok(self.connection.lock())
    }

    /// Fails if the caller wants to give up.
    pub(crate) fn interrupted(&self) -> Result<(), Error> {
        self.connection.interrupted()
    }

    /// The error of a wait for at most this time.
    pub(crate) fn timed_out(&self, after: Duration) -> Error {
        let address = self.connection.address.clone();
        Error::Timeout { address, after }
    }

    /// Whether the running function has asked its caller for work.
    pub(super) fn has_work(&self, state: &State) -> bool {
        self.reply.as_ref().is_some_and(|reply| {
            state.has_callback(self.id) || reply.printed.as_ref().is_some_and(|p| p.has_lines())
        })
    }

    /// Does the work that the running function has asked for, if there is any. If it panics, the
    /// call is given up: this thread has other calls to work for.
    pub(crate) fn do_work(&self) {
        if !self.has_work(&self.connection.lock()) {
            return;
        }
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            *self.worker() = None;
            let text = "a callback of the call panicked";
            self.give_up(Error::failed(FailureKind::Internal, text));
        }
    }

    /// Writes the function's output, runs its callback and answers it. If the callback fails, the
    /// call is given up and ends with that error.
    pub(super) fn work(&self) {
        let Some(reply) = &self.reply else { return };
        let callback = self.connection.lock().take_callback(self.id);
        *self.worker() = Some(std::thread::current().id());
        let answered = self.write(false).and_then(|()| {
            let run = |callbacks: &Callbacks| callback.map(|callback| callbacks.run(callback));
            reply.callbacks.as_deref().and_then(run).transpose()
        });
        *self.worker() = None;
        match answered {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let mut state = self.connection.lock();
                state.proto.answer(self.id, &answer);
                self.connection.send_soon(&mut state);
            }
            Err(error) => self.give_up(error),
        }
    }

    /// Cancels the call, which ends with this error.
    fn give_up(&self, error: Error) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = Some(error);
        drop(failed);
        self.cancel();
    }

    fn worker(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this thread runs a callback of the call at the moment.
    pub(crate) fn works_here(&self) -> bool {
        *self.worker() == Some(std::thread::current().id())
    }

    /// Writes the function's output.
    fn write(&self, is_over: bool) -> Result<(), Error> {
        let Some(reply) = &self.reply else {
            return Ok(());
        };
        let written = reply.printed.as_ref().map(|printed| printed.write(is_over));
        written
            .unwrap_or(Ok(()))
            .map_err(|error| callbacks::failed(&reply.function, "output", error))
    }

    /// Writes the last output, and reports why a callback failed.
    fn settle(&self) -> Result<(), Error> {
        if self.reply.is_none() {
            return Ok(());
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let error = failed.take();
        // The caller's function for the output runs without the lock.
        drop(failed);
        match error {
            Some(error) => Err(error),
            None => self.write(true),
        }
    }

    /// Sleeps until another thread wakes this one, or for a short time.
    fn sleep(&self, deadline: Option<Instant>, timeout: Duration) -> Result<(), Error> {
        let left = deadline.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(self.timed_out(timeout));
        }
        std::thread::park_timeout(left.min(NAP));
        self.connection.interrupted()
    }

    /// Waits for the answer.
    fn finish(mut self) -> Result<Answer, Error> {
        self.wait_out()?;
        self.over = true;
        let end = self.connection.lock().take_end(self.id);
        self.settle()?;
        match end {
            Some(Ok(answer)) => self.place_files().map(|()| answer),
            Some(Err(loss)) => Err(self.connection.error(loss)),
            None => Err(self.connection.unexpected()),
        }
    }

    /// Moves returned files into place after a successful call.
    fn place_files(&self) -> Result<(), Error> {
        let Some(reply) = &self.reply else {
            return Ok(());
        };
        let files = reply.files();
        files.map_or(Ok(()), |files| files.place(&reply.function.qualified))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.cancel();
    }
}
