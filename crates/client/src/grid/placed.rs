//! Placed calls: a call behind a metaserver, which moves to another server if its server is lost.
//!
//! This module keeps the arguments of the call until it ends, and begins it again elsewhere only if
//! that is safe. `farcall-directory` decides whether it is.

use crate::argument::{Argument, Held};
use crate::call::Prepared;
use crate::data::Source;
use crate::error::Error;
use crate::grid::data::Found;
use crate::grid::directory::Grid;
use crate::grid::function::Function;
use crate::offer::TimeParts;
use crate::outcome::{Outcome, Placement};
use crate::pending::Pending;
use crate::remote::{Attempt, Begun, Continues, Handle, OwnArrays, Server, wanted};
use farcall_directory::client::{ChosenServer, Course, Next, Trouble};
use farcall_directory::message::{Choose, Need, Observe, Transfer};
use farcall_idl::Mode;
use farcall_rpc_proto::{FailureKind, HandleId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An argument of a running call.
enum HeldArgument {
    Plain(Held),
    /// Named data, and the servers that hold them.
    Data(Found),
    /// An array that the server of the call reads.
    Source(Box<Source>),
}

/// A placed call: its arguments, and its state.
pub(crate) struct Call {
    function: Function,
    arguments: Vec<HeldArgument>,
    /// Copies of other users' data, and sources, that were read for this call.
    copies: Mutex<OwnArrays>,
    state: Mutex<State>,
}

struct State {
    course: Course,
    prepared: Prepared,
    /// The call has ended. Holds its outcome until it is taken.
    over: bool,
    end: Option<Result<Outcome, Error>>,
}

/// The outcome of a try to make the call over several connections.
enum Streamed {
    Over(Outcome),
    /// The call must be made over one connection: several gain nothing, or an error (the value)
    /// moved it elsewhere.
    Not(Option<Error>),
}

fn outcome_at(outcome: Outcome, place: Option<&ChosenServer>) -> Outcome {
    let placement = place.map(|place| Placement {
        server: place.server,
        predicted_s: place.terms.map_or(f64::NAN, |terms| terms.seconds()),
        terms: place.terms.map(TimeParts::from),
    });
    Outcome {
        placement,
        ..outcome
    }
}

fn hold(argument: &mut Argument<'_>, function: &Function) -> Result<HeldArgument, Error> {
    match argument {
        Argument::Named(name) => Ok(HeldArgument::Data(function.grid().find_data(name)?.0)),
        Argument::Handle(_) => {
            let text = format!(
                "{}: a stored array is at one server: call the function of that server",
                function.description().qualified
            );
            Err(Error::failed(FailureKind::BadArgument, text))
        }
        Argument::Source(source) => Ok(HeldArgument::Source(source.clone())),
        other => Ok(HeldArgument::Plain(Held::of(other))),
    }
}

impl Call {
    pub(super) fn new(
        function: &Function,
        wanted: Choose,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Call, Error> {
        let held = arguments.iter_mut().map(|one| hold(one, function));
        let held: Vec<HeldArgument> = held.collect::<Result<_, _>>()?;
        let needs = held.iter().filter_map(|held| match held {
            HeldArgument::Data(found) => Some(found.need()),
            HeldArgument::Plain(_) | HeldArgument::Source(_) => None,
        });
        let needs: Vec<Need> = needs.collect();
        let wanted = Choose {
            data: (!needs.is_empty()).then_some(needs),
            ..wanted
        };
        let interface = &function.description().interface;
        let mut params = interface.params.iter();
        let overwrites = params.any(|param| param.mode == Mode::InOut && !param.dims.is_empty());
        Ok(Call {
            function: function.clone(),
            arguments: held,
            copies: Mutex::default(),
            state: Mutex::new(State {
                course: Course::new(wanted, interface.repeatable, overwrites),
                prepared,
                over: false,
                end: None,
            }),
        })
    }

    fn grid(&self) -> &Grid {
        self.function.grid()
    }

    /// Begins the call at the server chosen for it. `before` is the error of an earlier server.
    pub(super) fn start(self, before: Option<Error>) -> Result<Begun, Error> {
        let attempt = self.begin(&mut self.lock(), before)?;
        let call = Box::new(self);
        Ok(Begun { attempt, call })
    }

    /// Makes the call and waits for its end. Large arrays may travel over several connections.
    pub(super) fn finish(self) -> Result<Outcome, Error> {
        match self.in_streams()? {
            Streamed::Over(outcome) => Ok(outcome),
            Streamed::Not(before) => Pending::from(self.start(before)?).wait(),
        }
    }

    /// Makes the call over several connections to one server, if that may be faster.
    fn in_streams(&self) -> Result<Streamed, Error> {
        let mut state = self.lock();
        let place = self.grid().choose(state.course.wanted())?;
        let server = self.grid().server(place.server, &place.address);
        let number = place.server;
        state.course.goes_to(place);
        let streamed = server.and_then(|server| {
            let function = self.function.at(&server)?;
            let mut arguments = self.arguments((number, &server))?;
            function.call_in_streams(&mut state.prepared, &mut arguments)
        });
        match streamed {
            Ok(Some(outcome)) => {
                self.tell(&state, &outcome, false);
                Ok(Streamed::Over(outcome_at(outcome, state.course.place())))
            }
            Ok(None) => Ok(Streamed::Not(None)),
            // Nobody knows how far the call had come when its server was lost.
            Err(error) => match state.course.after(trouble(&error), Some(true)) {
                Next::Elsewhere => {
                    self.give_away(&mut state, &error);
                    Ok(Streamed::Not(Some(error)))
                }
                Next::End => Err(error),
                Next::Lost(why) => Err(self.lost(&mut state, error, why)),
            },
        }
    }

    /// The arguments, with named data at the server of the call.
    fn arguments<'a>(&self, to: (u64, &Server)) -> Result<Vec<Argument<'a>>, Error> {
        let held = self.arguments.iter().enumerate();
        let arguments = held.map(|(index, held)| match held {
            HeldArgument::Data(found) => Ok(Argument::Handle(self.bring(found, to)?)),
            HeldArgument::Source(source) => {
                let form = wanted(&self.function.description().interface, index);
                let (handle, is_own) = to.1.read_source(source, form, false)?;
                Ok(Argument::Handle(self.take(handle, is_own)))
            }
            // SAFETY: the caller holds the arrays until the call ends, and at most one attempt uses
            // them at a time.
            HeldArgument::Plain(held) => Ok(unsafe { held.argument() }),
        });
        arguments.collect()
    }

    fn lost(&self, state: &mut State, error: Error, why: &'static str) -> Error {
        let place = state.course.place().cloned();
        self.give_away(state, &error);
        Error::Lost {
            function: self.function.description().qualified.clone(),
            server: place.map(|place| place.address).unwrap_or_default(),
            why,
            source: Box::new(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places the call, at one server after the other, until one of them begins with it. `before`
    /// is the error that moves it.
    fn begin(&self, state: &mut State, mut before: Option<Error>) -> Result<Arc<Attempt>, Error> {
        loop {
            let chosen = state.course.place().cloned().map(Ok);
            let chosen = chosen.unwrap_or_else(|| self.grid().choose(state.course.wanted()));
            let place = match chosen {
                Ok(place) => place,
                Err(error) => return Err(self.exhausted(error, before)),
            };
            state.course.goes_to(place.clone());
            let server = self.grid().server(place.server, &place.address);
            let prepared = &mut state.prepared;
            let begun = server.and_then(|server| self.begin_at(place.server, &server, prepared));
            match begun {
                Ok(attempt) => return Ok(attempt),
                Err(error) => match state.course.after(trouble_at_start(&error), None) {
                    Next::Elsewhere => {
                        self.give_away(state, &error);
                        before = Some(error);
                    }
                    Next::End | Next::Lost(_) => return Err(error),
                },
            }
        }
    }

    fn begin_at(
        &self,
        number: u64,
        server: &Server,
        prepared: &mut Prepared,
    ) -> Result<Arc<Attempt>, Error> {
        let function = self.function.at(server)?;
        let mut arguments = self.arguments((number, server))?;
        // SAFETY: the caller holds the arrays, and the earlier attempt has ended.
        let attempt = unsafe { function.begin(prepared, &mut arguments) }?;
        Ok(Arc::new(attempt))
    }

    /// Brings named data to the server of the call.
    fn bring(&self, found: &Found, to: (u64, &Server)) -> Result<HandleId, Error> {
        let (handle, is_own) = self.grid().bring(found, to)?;
        Ok(self.take(handle, is_own))
    }

    /// Takes an array for the call. One of its own is dropped after the call.
    fn take(&self, handle: Handle, is_own: bool) -> HandleId {
        let id = handle.id();
        if is_own {
            let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            copies.push(handle);
        }
        id
    }

    /// Excludes the server for this call, and tells the other threads and the directory.
    fn give_away(&self, state: &mut State, error: &Error) {
        if let Some((place, observed)) = state.course.give_away(trouble(error)) {
            self.grid().observe(&place, &observed);
        }
    }

    fn exhausted(&self, error: Error, before: Option<Error>) -> Error {
        let Some(before) = before else { return error };
        let text = format!("{error}; the last one tried said: {before}");
        Error::failed(FailureKind::NoServer, text)
    }

    /// Reports how long the transfers of the call took.
    fn tell(&self, state: &State, outcome: &Outcome, shares: bool) {
        let Some(place) = state.course.place() else {
            return;
        };
        let wanted = state.course.wanted();
        let (up, down) = (wanted.up, wanted.down);
        let times = &outcome.times;
        let rest_s = times.total - outcome.wait - times.exec;
        // If client and server share memory, the client makes both copies.
        let [up_s, down_s] = match shares {
            true => [up, down].map(|bytes| rest_s * bytes as f64 / (up + down).max(1) as f64),
            false => [times.send, rest_s - times.send],
        };
        let transfer = |bytes: u64, seconds: f64| {
            let counts = bytes >= farcall_schedule::forecast::Path::SHORT_BYTES && seconds > 0.0;
            counts.then_some(Transfer { bytes, seconds })
        };
        let observed = Observe {
            server: place.server,
            placement: 0,
            up: transfer(up, up_s),
            down: transfer(down, down_s),
            lost: false,
        };
        self.grid().observe(place, &observed);
    }
}

impl Continues for Call {
    fn next(&self, ended: &Attempt) -> Option<Arc<Attempt>> {
        let mut state = self.lock();
        if state.over {
            return None;
        }
        let result = ended.take()?;
        let next = match &result {
            Ok(outcome) => {
                self.tell(&state, outcome, ended.shares);
                Next::End
            }
            Err(error) => {
                let returning = ended.request.was_returning();
                state.course.after(trouble(error), Some(returning))
            }
        };
        let end = match (next, result) {
            (Next::Elsewhere, Err(error)) => {
                self.give_away(&mut state, &error);
                match self.begin(&mut state, Some(error)) {
                    Ok(attempt) => return Some(attempt),
                    Err(error) => Err(error),
                }
            }
            (Next::Lost(why), Err(error)) => Err(self.lost(&mut state, error, why)),
            (_, result) => result.map(|outcome| outcome_at(outcome, state.course.place())),
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

/// How an error kept a call from being begun: a server that does not answer in time may be frozen,
/// and another one can begin with the call.
fn trouble_at_start(error: &Error) -> Trouble {
    match error {
        Error::Timeout { .. } => Trouble::NotBegun,
        other => trouble(other),
    }
}

/// How an error kept a call from its results.
fn trouble(error: &Error) -> Trouble {
    match error {
        Error::Connect { .. } | Error::Refused { .. } | Error::Interface { .. } => {
            Trouble::NotBegun
        }
        Error::Protocol { .. } if error.was_let_go() => Trouble::NotBegun,
        Error::Disconnected { .. } | Error::Protocol { .. } => Trouble::Lost,
        Error::Failed(failure) => Trouble::Failed(failure.kind),
        _ => Trouble::Own,
    }
}
