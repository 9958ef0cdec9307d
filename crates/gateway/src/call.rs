//! One call for a request: from its JSON to the JSON of its results, on a thread that may wait. If
//! the caller goes away or the time is over, the call ends at the server too.

use crate::arguments::{Arguments, carried, results};
use crate::failure::Failure;
use crate::users::Guest;
use axum::http::StatusCode;
use farcall_client::{Argument, Error, Function, Outcome, Pending, TraceContext};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A call that a request asks for.
pub(crate) struct Wanted {
    pub(crate) guest: Guest,
    /// Name of the function.
    pub(crate) name: String,
    /// The arguments.
    pub(crate) body: Vec<u8>,
    /// Whether arrays come back as base64.
    pub(crate) is_binary: bool,
    /// Most bytes of all arrays together.
    pub(crate) most_bytes: u64,
    /// Longest time of the call.
    pub(crate) limit: Duration,
    /// What has caused the request.
    pub(crate) trace: Option<TraceContext>,
}

/// The results as JSON, what else is known of the call, and who made it.
pub(crate) struct Done {
    pub(crate) text: Vec<u8>,
    pub(crate) outcome: Outcome,
    pub(crate) guest: Guest,
}

impl Wanted {
    /// Makes the call and waits for its end.
    pub(crate) fn run(self, slot: &Slot) -> Result<Done, Failure> {
        let function = self.guest.server.function(&self.name)?;
        let function = match self.trace {
            None => function,
            trace => function.with_trace(trace),
        };
        let interface = function.interface();
        if function.is_method() {
            let text = format!(
                "`{}` is a method of an object, which JSON cannot name",
                self.name
            );
            return Err(Failure::new(
                StatusCode::NOT_IMPLEMENTED,
                "NotCarried",
                text,
            ));
        }
        carried(interface)?;
        let arguments = Arguments::read(interface, &self.body)?;
        drop(self.body);
        let elements = arguments.elements(interface)?;
        let laid_out = function.lay_out(arguments.scalars.clone(), elements)?;
        let mut arrays = arguments.fit(interface, laid_out.layout(), self.most_bytes)?;
        let outcome = {
            let mut parts: BTreeMap<usize, &mut Vec<u8>> = arrays
                .iter_mut()
                .map(|(index, bytes)| (*index, bytes))
                .collect();
            let params = interface.params.iter().enumerate();
            let given = params.map(|(index, param)| match parts.remove(&index) {
                Some(bytes) if param.mode.is_returned() => Argument::Out(bytes),
                Some(bytes) => Argument::In(bytes),
                // Scalars come with the layout.
                None => Argument::Skip,
            });
            let mut given: Vec<Argument<'_>> = given.collect();
            // SAFETY: `arrays` outlives the call: it ends, or is given up, before `wait` returns.
            let pending = unsafe { function.start_laid_out(laid_out.clone(), &mut given) }?;
            wait(pending, slot, self.limit, &function)?
        };
        let text = results(interface, laid_out.layout(), &arrays, self.is_binary);
        Ok(Done {
            text,
            outcome,
            guest: self.guest,
        })
    }
}

/// Waits for the end of a call. When this returns, the call has ended or is given up.
fn wait(
    pending: Pending,
    slot: &Slot,
    limit: Duration,
    function: &Function,
) -> Result<Outcome, Failure> {
    let pending = Arc::new(pending);
    slot.put(&pending);
    let waited = pending.wait_timeout(limit);
    if waited.is_err() {
        pending.cancel();
    }
    match waited {
        Ok(()) => match pending.take() {
            Some(ended) => Ok(ended?),
            None => Err(Failure::busy("the call was given up")),
        },
        Err(Error::Timeout { .. }) => {
            let (name, seconds) = (function.qualified_name(), limit.as_secs_f64());
            let text =
                format!("{name} took longer than {seconds} s, the time limit of the gateway");
            Err(Failure::new(StatusCode::GATEWAY_TIMEOUT, "TimeLimit", text))
        }
        Err(error) => Err(error.into()),
    }
}

/// Where a call that has begun can be found by the one who waits for its answer.
#[derive(Default)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Waiting,
    Running(Arc<Pending>),
    GivenUp,
}

impl Slot {
    fn put(&self, pending: &Arc<Pending>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::GivenUp => pending.cancel(),
            _ => *state = State::Running(Arc::clone(pending)),
        }
    }

    fn give_up(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Running(pending) = std::mem::replace(&mut *state, State::GivenUp) {
            pending.cancel();
        }
    }
}

/// Gives a call up when it is dropped: nobody waits for its answer any more.
pub(crate) struct Waiter(pub(crate) Arc<Slot>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
