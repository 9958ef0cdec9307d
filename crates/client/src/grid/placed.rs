//! One call of many servers: it is placed, and placed again where its server is lost.

use super::Place;
use super::data::Found;
use crate::argument::Argument;
use crate::callback::Callback;
use crate::function::Function;
use crate::pending::{Attempt, Pending};
use crate::{Error, Handle, Outcome, Placement, Server};
use farcall_directory::message::{Choose, MOST_EXCLUDED, Need, Observe, Transfer};
use farcall_idl::{Mode, Scalar};
use farcall_rpc_proto::{Failure, FailureKind, HandleId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An argument of a call that is under way, whose memory its caller leaves alone until its end.
enum Held {
    Scalar(Scalar),
    In(*const u8, usize),
    Out(*mut u8, usize),
    Skip,
    Function(Callback),
    /// Data with a name, and where they are.
    Data(Found),
}

/// A call that a metaserver, or the client by itself, has placed.
pub(crate) struct Placed {
    meta: Server,
    /// With the metaserver as its server.
    function: Function,
    arguments: Vec<Held>,
    /// Copies of others' data that were made for the call alone.
    copies: Mutex<Vec<Handle>>,
    state: Mutex<State>,
}

// SAFETY: whoever starts a call promises that its arrays stay until its end and are left alone.
unsafe impl Send for Placed {}
// SAFETY: the memory is only given on to a new attempt, with the lock held, after the last has
// ended.
unsafe impl Sync for Placed {}

struct State {
    wanted: Choose,
    place: Option<Place>,
    /// Nothing more happens to the call; its end, until it is told.
    over: bool,
    end: Option<Result<Outcome, Error>>,
}

/// What follows a failure.
enum Next {
    /// The call failed.
    End,
    /// It was not begun with, or may be run again.
    Elsewhere,
    /// It may have run, and may not be run again: why.
    Lost(&'static str),
}

/// Begins a call at the server that is chosen for it.
///
/// # Safety
/// As [`Function::start`].
pub(crate) unsafe fn start(
    function: &Function,
    wanted: Choose,
    arguments: &mut [Argument<'_>],
) -> Result<Pending, Error> {
    Placed::new(function, wanted, arguments)?.start(None)
}

/// Makes a call with large arrays at the server that is chosen for it, over several connections to
/// that server where they pay.
pub(crate) fn call(
    function: &Function,
    wanted: Choose,
    arguments: &mut [Argument<'_>],
) -> Result<Outcome, Error> {
    let placed = Placed::new(function, wanted, arguments)?;
    let before = match placed.in_streams()? {
        Streamed::Over(outcome) => return Ok(outcome),
        Streamed::Not(before) => before,
    };
    placed.start(before)?.wait()
}

/// What became of a call over several connections.
enum Streamed {
    Over(Outcome),
    /// It is to be made on one, for there is nothing to be gained, or elsewhere: why.
    Not(Option<Error>),
}

fn outcome_at(outcome: Outcome, place: Option<&Place>) -> Outcome {
    let placement = place.map(|place| Placement {
        server: place.server,
        predicted_s: place.terms.map_or(f64::NAN, |terms| terms.seconds()),
        terms: place.terms,
    });
    Outcome {
        placement,
        ..outcome
    }
}

fn hold(argument: &mut Argument<'_>, function: &Function) -> Result<Held, Error> {
    Ok(match argument {
        Argument::Scalar(value) => Held::Scalar(value.clone()),
        Argument::In(bytes) => Held::In(bytes.as_ptr(), bytes.len()),
        Argument::Out(bytes) => Held::Out(bytes.as_mut_ptr(), bytes.len()),
        Argument::Skip => Held::Skip,
        Argument::Function(callback) => Held::Function(callback.clone()),
        Argument::Named(name) => {
            let Some(grid) = function.server().grid() else {
                unreachable!("only calls of a metaserver's functions are placed");
            };
            Held::Data(grid.find_data(function.server(), name)?.0)
        }
        Argument::Handle(_) => {
            let text = format!(
                "{}: an array that stays is at one server: call the function of that server",
                function.qualified_name()
            );
            return Err(Error::Failed(Failure::new(FailureKind::BadArgument, text)));
        }
    })
}

impl Held {
    /// # Safety
    /// The call is not over, and no other attempt of it is under way.
    unsafe fn argument<'a>(&self) -> Argument<'a> {
        match self {
            Held::Scalar(value) => Argument::Scalar(value.clone()),
            Held::In(start, bytes) => {
                // SAFETY: whoever started the call holds the array until its end.
                let bytes = unsafe { std::slice::from_raw_parts(*start, *bytes) };
                Argument::In(bytes)
            }
            Held::Out(start, bytes) => {
                // SAFETY: likewise, and leaves it alone.
                let bytes = unsafe { std::slice::from_raw_parts_mut(*start, *bytes) };
                Argument::Out(bytes)
            }
            Held::Skip => Argument::Skip,
            Held::Function(callback) => Argument::Function(callback.clone()),
            // It is put in its place when the server is known.
            Held::Data(_) => Argument::Skip,
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let copies = self
            .copies
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for copy in copies {
            copy.drop_soon();
        }
    }
}

impl Placed {
    fn new(
        function: &Function,
        wanted: Choose,
        arguments: &mut [Argument<'_>],
    ) -> Result<Placed, Error> {
        let held = arguments.iter_mut().map(|one| hold(one, function));
        let held: Vec<Held> = held.collect::<Result<_, _>>()?;
        let needs = held.iter().filter_map(|held| match held {
            Held::Data(found) => Some(found.need()),
            _ => None,
        });
        let needs: Vec<Need> = needs.collect();
        let wanted = Choose {
            data: (!needs.is_empty()).then_some(needs),
            ..wanted
        };
        Ok(Placed {
            meta: function.server().clone(),
            function: function.clone(),
            arguments: held,
            copies: Mutex::default(),
            state: Mutex::new(State {
                wanted,
                place: None,
                over: false,
                end: None,
            }),
        })
    }

    fn start(self, before: Option<Error>) -> Result<Pending, Error> {
        let attempt = self.begin(&mut self.lock(), before)?;
        Ok(Pending::shared(attempt).placed(self))
    }

    /// Makes the call over several connections to one server, where that may pay.
    fn in_streams(&self) -> Result<Streamed, Error> {
        let Some(grid) = self.meta.grid() else {
            unreachable!("only calls of a metaserver's functions are placed");
        };
        let mut state = self.lock();
        let place = grid.choose(&self.meta, &state.wanted)?;
        let server = grid.server(&self.meta, place.server, &place.address);
        let number = place.server;
        state.place = Some(place);
        let streamed = server.and_then(|server| {
            let function = self.function.at(&server)?;
            function.call_in_streams(&mut self.arguments((number, &server))?)
        });
        match streamed {
            Ok(Some(outcome)) => {
                self.tell(&state, &outcome, false);
                Ok(Streamed::Over(outcome_at(outcome, state.place.as_ref())))
            }
            Ok(None) => Ok(Streamed::Not(None)),
            // Where it was when its server was lost, nobody knows.
            Err(error) => match self.next_after(&error, Some(true)) {
                Next::Elsewhere => {
                    self.give_away(&mut state, &error);
                    Ok(Streamed::Not(Some(error)))
                }
                Next::End => Err(error),
                Next::Lost(why) => Err(self.lost(&mut state, error, why)),
            },
        }
    }

    /// The arguments as they were given, with named data where the call goes.
    fn arguments<'a>(&self, to: (u64, &Server)) -> Result<Vec<Argument<'a>>, Error> {
        let arguments = self.arguments.iter().map(|held| match held {
            Held::Data(found) => Ok(Argument::Handle(self.bring(found, to)?)),
            // SAFETY: the caller holds the arrays until the end of the call, and one attempt at
            // most uses them at a time.
            held => Ok(unsafe { held.argument() }),
        });
        arguments.collect()
    }

    fn lost(&self, state: &mut State, error: Error, why: &'static str) -> Error {
        let place = state.place.clone();
        self.give_away(state, &error);
        Error::Lost {
            function: self.function.qualified_name().to_string(),
            server: place.map(|place| place.address).unwrap_or_default(),
            why,
            source: Box::new(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places the call, at one server after the other until it is begun with; `before` is why it
    /// has to be.
    fn begin(&self, state: &mut State, mut before: Option<Error>) -> Result<Arc<Attempt>, Error> {
        let Some(grid) = self.meta.grid() else {
            unreachable!("only calls of a metaserver's functions are placed");
        };
        loop {
            let chosen = state.place.take().map(Ok);
            let chosen = chosen.unwrap_or_else(|| grid.choose(&self.meta, &state.wanted));
            let place = match chosen {
                Ok(place) => place,
                Err(error) => return Err(self.exhausted(error, before)),
            };
            state.place = Some(place.clone());
            let server = grid.server(&self.meta, place.server, &place.address);
            let begun = server.and_then(|server| self.begin_at(place.server, &server));
            match begun {
                Ok(attempt) => return Ok(attempt),
                Err(error) => match self.next_after(&error, None) {
                    Next::Elsewhere if state.wanted.exclude.len() < MOST_EXCLUDED => {
                        self.give_away(state, &error);
                        before = Some(error);
                    }
                    Next::Elsewhere | Next::End | Next::Lost(_) => return Err(error),
                },
            }
        }
    }

    fn begin_at(&self, number: u64, server: &Server) -> Result<Arc<Attempt>, Error> {
        let function = self.function.at(server)?;
        // SAFETY: the caller holds the arrays, and the attempt before has ended.
        let mut arguments = self.arguments((number, server))?;
        // SAFETY: the caller holds the arrays, and the attempt before has ended.
        let pending = unsafe { function.start(&mut arguments) }?;
        Ok(pending.into_attempt())
    }

    /// Has named data where the call goes.
    fn bring(&self, found: &Found, to: (u64, &Server)) -> Result<HandleId, Error> {
        let Some(grid) = self.meta.grid() else {
            unreachable!("only calls of a metaserver's functions are placed");
        };
        let (handle, is_own) = grid.bring(&self.meta, found, to)?;
        let id = handle.id();
        if is_own {
            let copies = self.copies.lock();
            copies.unwrap_or_else(PoisonError::into_inner).push(handle);
        }
        Ok(id)
    }

    /// The server is not asked again for this call, and the others hear of it.
    fn give_away(&self, state: &mut State, error: &Error) {
        let Some(place) = state.place.take() else {
            return;
        };
        state.wanted.exclude.push(place.server);
        let is_busy = matches!(error, Error::Failed(failure) if failure.kind == FailureKind::Busy);
        let observed = Observe {
            server: place.server,
            placement: 0,
            up: None,
            down: None,
            lost: !is_busy,
        };
        if let Some(grid) = self.meta.grid() {
            grid.observe(&self.meta, &place, observed);
        }
    }

    fn exhausted(&self, error: Error, before: Option<Error>) -> Error {
        let Some(before) = before else { return error };
        let text = format!("{error}; the last one tried said: {before}");
        Error::Failed(Failure::new(FailureKind::NoServer, text))
    }

    /// What follows a failure: of a call that was under way, whose results had perhaps begun to
    /// come, or of one that was not begun with.
    fn next_after(&self, error: &Error, returning: Option<bool>) -> Next {
        let begun = match error {
            Error::Connect { .. } | Error::Refused { .. } | Error::Interface { .. } => false,
            Error::Protocol { .. } if error.was_let_go() => false,
            Error::Disconnected { .. } | Error::Protocol { .. } => true,
            Error::Failed(failure) => match failure.kind {
                FailureKind::Draining
                | FailureKind::Busy
                | FailureKind::UnknownFunction
                | FailureKind::StaleInterface => false,
                FailureKind::ServerStopping => true,
                _ => return Next::End,
            },
            _ => return Next::End,
        };
        let Some(returning) = returning.filter(|_| begun) else {
            return Next::Elsewhere;
        };
        let interface = self.function.interface();
        let overwrites = interface
            .params
            .iter()
            .any(|param| param.mode == Mode::InOut && !param.dims.is_empty());
        if !interface.repeatable {
            return Next::Lost("its interface does not declare it `Repeatable \"yes\"`");
        }
        match overwrites && returning {
            true => Next::Lost("results had begun to come into arrays that it reads"),
            false => Next::Elsewhere,
        }
    }

    /// The attempt has ended: the next one, or none where the call is over.
    pub(crate) fn next(&self, ended: &Attempt) -> Option<Arc<Attempt>> {
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
            Err(error) => self.next_after(error, Some(ended.request.was_returning())),
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
            (_, result) => result.map(|outcome| outcome_at(outcome, state.place.as_ref())),
        };
        state.over = true;
        state.end = Some(end);
        None
    }

    /// Tells what the transfers of a call have taken.
    fn tell(&self, state: &State, outcome: &Outcome, shares: bool) {
        let Some(place) = &state.place else { return };
        let (up, down) = (state.wanted.up, state.wanted.down);
        let times = &outcome.times;
        let rest_s = times.total - outcome.wait - times.exec;
        // Where arrays are copied within the host, both copies are the client's.
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
        if let Some(grid) = self.meta.grid() {
            grid.observe(&self.meta, place, observed);
        }
    }

    /// What the call came to; told once.
    pub(crate) fn take_end(&self) -> Option<Result<Outcome, Error>> {
        self.lock().end.take()
    }

    /// The caller gives the call up.
    pub(crate) fn give_up(&self) {
        self.lock().over = true;
    }
}
