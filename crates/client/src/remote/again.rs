//! A call at one server that begins again at the server's successor. This happens only if the
//! server released the client before it began with the call and nothing of a result has arrived, so
//! the function cannot run twice. `grid` begins calls again at other servers.

use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::attempt::{Attempt, Begun, Continues};
use crate::remote::server::PATIENCE;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A call, and how it begins.
struct Again<B>(Mutex<State<B>>);

struct State<B> {
    begin: B,
    /// When the call was released first.
    since: Option<Instant>,
    over: bool,
    end: Option<Result<Outcome, Error>>,
}

impl Begun {
    /// A call that has begun, and how it begins again.
    pub(super) fn with<B>(attempt: Attempt, begin: B) -> Begun
    where
        B: FnMut() -> Result<Attempt, Error> + Send + 'static,
    {
        let state = State {
            begin,
            since: None,
            over: false,
            end: None,
        };
        Begun {
            attempt: Arc::new(attempt),
            call: Box::new(Again(Mutex::new(state))),
        }
    }
}

impl<B> Again<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: FnMut() -> Result<Attempt, Error> + Send> Continues for Again<B> {
    fn next(&self, ended: &Attempt) -> Option<Arc<Attempt>> {
        let mut state = self.lock();
        if state.over {
            return None;
        }
        let result = ended.take()?;
        let is_unbegun = |error: &Error| error.was_let_go() && !ended.request.was_returning();
        let since = *state.since.get_or_insert_with(Instant::now);
        let end = match result {
            Err(error) if is_unbegun(&error) && since.elapsed() < PATIENCE => {
                match (state.begin)() {
                    Ok(attempt) => return Some(Arc::new(attempt)),
                    Err(error) => Err(error),
                }
            }
            result => result,
        };
        state.over = true;
        state.end = Some(end);
        None
    }

    fn take_end(&self) -> Option<Result<Outcome, Error>> {
        self.lock().end.take()
    }

    fn give_up(&self) {
        self.lock().over = true;
    }
}
