//! Placed calls: a call behind a metaserver, which moves to another server if its server is lost.
//!
//! This module keeps the arguments of the call until it ends, and begins it again elsewhere only if
//! that is safe. `farcall-directory` decides whether it is.

use crate::address::Address;
use crate::argument::{Argument, Held};
use crate::call::Prepared;
use crate::data::Source;
use crate::error::{Error, Failure};
use crate::grid::data::Found;
use crate::grid::directory::Grid;
use crate::grid::function::Function;
use crate::offer::TimeParts;
use crate::outcome::{Outcome, Placement};
use crate::pending::Pending;
use crate::remote::{After, Attempt, Begun, Continues, Handle, OwnArrays, Server, wanted_form};
use crate::timeout::Timeout;
use farcall_directory::client::{ChosenServer, Course, Next, Trouble};
use farcall_directory::message::{Choose, Need, Observe, Transfer};
use farcall_idl::{Interface, Mode};
use farcall_rpc_proto::{FailureKind, HandleId, HandleRecord};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the sources of a call are read anew if the server has dropped their arrays.
const MOST_ANEW: u32 = 3;
/// How long a call waits for the answer of a server while others can take it: a lost packet is sent
/// again within it.
const HASTE: Duration = Duration::from_secs(2);

/// An argument of a running call.
enum HeldArgument {
    Plain(Held),
    /// Named data, and the servers that hold them.
    Data(Found),
    /// An array that the server of the call reads, and the server that has read it.
    Source(SourceArgument, Option<(u64, HandleId)>),
}

/// The address of an array.
struct SourceArgument {
    source: Box<Source>,
    /// If it is a file of the data folder: the servers that have it.
    file: Option<Found>,
}

/// A placed call: its arguments, and how far it has come.
pub(crate) struct Call {
    function: Function,
    arguments: Vec<HeldArgument>,
    /// Copies of other users' data, and sources, that were read for this call.
    copies: OwnArrays,
    course: Course,
    prepared: Prepared,
    /// Time that choices of a server have taken.
    chosen: Duration,
    /// The parameter whose source a server is reading, and that server.
    reading: Option<(usize, u64, Server)>,
    /// How often its sources were read anew.
    anew: u32,
    /// The refusal of the server that can promise the earliest end.
    soonest: Option<Failure>,
    /// Servers that have not answered at once. They are asked again if no other one takes the call.
    slow: Vec<ChosenServer>,
    /// Whether that is so.
    is_patient: bool,
}

/// The outcome of a try to make the call over several connections.
enum Streamed {
    Over(Outcome),
    /// The call must be made over one connection: several gain nothing, or an error (the value)
    /// moved it elsewhere.
    Not(Option<Error>),
}

fn outcome_at(outcome: Outcome, place: Option<&ChosenServer>, chosen: Duration) -> Outcome {
    let placement = place.map(|place| Placement {
        server: place.server,
        chosen_s: chosen.as_secs_f64(),
        predicted_s: place.terms.map_or(f64::NAN, |terms| terms.seconds()),
        terms: place.terms.map(TimeParts::from),
    });
    Outcome {
        placement,
        ..outcome
    }
}

fn hold(
    argument: &mut Argument<'_>,
    function: &Function,
    timeout: Timeout,
) -> Result<HeldArgument, Error> {
    match argument {
        Argument::Named(name) => {
            let found = function.grid().find_data(name, timeout)?.0;
            Ok(HeldArgument::Data(found))
        }
        Argument::Handle(_) => {
            let text = format!(
                "{}: a stored array is at one server: call the function of that server",
                function.description().qualified
            );
            Err(Error::failed(FailureKind::BadArgument, text))
        }
        Argument::Source(source) => {
            let file = function.grid().find_file(source)?;
            let source = source.clone();
            Ok(HeldArgument::Source(SourceArgument { source, file }, None))
        }
        other => Ok(HeldArgument::Plain(Held::of(other))),
    }
}

/// Whether results go to the memory of arguments, so that the call cannot begin again after some of
/// them came. A program in C can give the memory of an OUT array for an IN array, too.
fn overwrites(interface: &Interface, arguments: &[Argument<'_>]) -> bool {
    let arrays = || {
        let params = interface.params.iter().zip(arguments);
        params.filter(|(param, _)| !param.dims.is_empty())
    };
    arrays().any(|(param, argument)| match param.mode {
        Mode::InOut => true,
        Mode::In => arrays()
            .filter(|(other, _)| other.mode == Mode::Out)
            .any(|(_, other)| argument.overlaps(other)),
        Mode::Out | Mode::Work => false,
    })
}

impl Call {
    pub(super) fn new(
        function: &Function,
        wanted: Choose,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Call, Error> {
        let overwrites = overwrites(&function.description().interface, arguments);
        let timeout = prepared.timeout();
        let held = arguments.iter_mut().map(|one| hold(one, function, timeout));
        let held: Vec<HeldArgument> = held.collect::<Result<_, _>>()?;
        let interface = &function.description().interface;
        let mut needs: Vec<Need> = Vec::new();
        for (index, held) in held.iter().enumerate() {
            match held {
                HeldArgument::Data(found) => needs.push(found.need()),
                HeldArgument::Source(SourceArgument { source, file }, _)
                    if interface
                        .params
                        .get(index)
                        .is_some_and(|param| param.mode == Mode::In) =>
                {
                    let form = wanted_form(interface, index);
                    let read = function.grid().find_source(source, &form)?;
                    let file = || Some(file.as_ref()?.need_of(source.options.rows));
                    needs.extend(read.map(|found| found.need()).or_else(file));
                }
                HeldArgument::Source(..) | HeldArgument::Plain(_) => {}
            }
        }
        let wanted = Choose {
            data: (!needs.is_empty()).then_some(needs),
            ..wanted
        };
        Ok(Call {
            function: function.clone(),
            arguments: held,
            copies: OwnArrays::default(),
            course: Course::new(wanted, interface.repeatable, overwrites),
            prepared,
            chosen: Duration::ZERO,
            reading: None,
            anew: 0,
            soonest: None,
            slow: Vec::new(),
            is_patient: false,
        })
    }

    fn grid(&self) -> &Grid {
        self.function.grid()
    }

    /// Chooses the next server for the call.
    fn choose(&mut self) -> Result<ChosenServer, Error> {
        let start = Instant::now();
        let chosen = self.grid().choose(self.course.wanted());
        self.chosen += start.elapsed();
        chosen
    }

    /// The server chosen for the call.
    fn reach(&mut self, place: &ChosenServer) -> Result<Server, Error> {
        let patience = if self.is_patient {
            Duration::MAX
        } else {
            HASTE
        };
        let left = self.prepared.timeout().left();
        let patience = left.map_or(patience, |left| left.min(patience));
        let server = self
            .grid()
            .server_within(place.server, &place.address, patience);
        let is_slow = match &server {
            Err(Error::Connect { source, .. }) => source.kind() == io::ErrorKind::TimedOut,
            Err(Error::Timeout { .. }) => true,
            _ => false,
        };
        if is_slow && !self.is_patient {
            self.slow.push(place.clone());
        }
        server
    }

    /// Fails if the time-out of the call has passed. `place` is the last server that was tried.
    fn check_time(&self, place: &ChosenServer) -> Result<(), Error> {
        let timeout = self.prepared.timeout();
        match timeout.has_passed() {
            true => Err(timeout.error(&place.address.parse()?)),
            false => Ok(()),
        }
    }

    /// Whether the time of the call has passed at another server than `place`, which holds data of
    /// the call. That says nothing about `place`.
    fn is_late_elsewhere(&self, error: &Error, place: &ChosenServer) -> bool {
        let Error::Timeout { address, .. } = error else {
            return false;
        };
        let chosen = place.address.parse::<Address>();
        self.prepared.timeout().has_passed() && chosen.is_ok_and(|chosen| chosen != *address)
    }

    /// A server that has not answered at once, when no other one takes the call because of `error`.
    fn another(&mut self, error: Error) -> Result<ChosenServer, Error> {
        if matches!(error, Error::Interrupted) {
            // The caller gives up.
            return Err(error);
        }
        self.is_patient = true;
        self.slow.pop().ok_or(error)
    }

    /// Begins the call at the server chosen for it. `before` is the error of an earlier server.
    pub(super) fn start(mut self, before: Option<Error>) -> Result<Begun, Error> {
        let attempt = self.begin(before)?;
        let call = Box::new(self);
        Ok(Begun { attempt, call })
    }

    /// Makes the call and waits for its end. Large arrays may travel over several connections.
    pub(super) fn finish(mut self) -> Result<Outcome, Error> {
        match self.in_streams()? {
            Streamed::Over(outcome) => Ok(outcome),
            Streamed::Not(before) => Pending::from(self.start(before)?).wait(),
        }
    }

    /// Makes the call over several connections to one server, if that may be faster.
    fn in_streams(&mut self) -> Result<Streamed, Error> {
        let place = self.choose()?;
        self.course.goes_to(place.clone());
        let reached = self
            .reach(&place)
            .and_then(|server| Ok((self.function.at(&server)?, server)));
        let streamed = match reached {
            Ok((function, server)) => {
                let arguments = self.arguments((place.server, &server));
                arguments.and_then(|mut arguments| {
                    function.call_in_streams(&mut self.prepared, &mut arguments)
                })
            }
            Err(error) => {
                // The call has not begun, so `begin` goes elsewhere with it.
                let after = self.course.after(trouble_at_start(&error), None);
                if after != Next::Elsewhere {
                    return Err(error);
                }
                self.give_away(&error);
                self.check_time(&place)?;
                return Ok(Streamed::Not(Some(error)));
            }
        };
        match streamed {
            Ok(Some(outcome)) => {
                self.tell(&outcome, false);
                let outcome = self.copies.finish(outcome, self.prepared.timeout())?;
                Ok(Streamed::Over(outcome_at(
                    outcome,
                    self.course.place(),
                    self.chosen,
                )))
            }
            Ok(None) => Ok(Streamed::Not(None)),
            // Nobody knows how far the call had come when its server was lost.
            Err(error) => match self.course.after(trouble(&error), Some(true)) {
                Next::Elsewhere => {
                    self.give_away(&error);
                    self.check_time(&place)?;
                    Ok(Streamed::Not(Some(error)))
                }
                Next::End => Err(error),
                Next::Lost(why) => Err(self.lost(error, why)),
            },
        }
    }

    /// The arguments, with named data at the server of the call.
    fn arguments<'a>(&mut self, to: (u64, &Server)) -> Result<Vec<Argument<'a>>, Error> {
        let function = &self.function;
        let (grid, interface) = (function.grid(), &function.description().interface);
        let (copies, layout) = (&mut self.copies, &self.prepared.layout);
        let timeout = self.prepared.timeout();
        copies.forget_results();
        let held = self.arguments.iter_mut().enumerate();
        let arguments = held.map(|(index, held)| match held {
            HeldArgument::Data(found) => {
                // Brings named data to the server of the call.
                let (handle, is_own) = grid.bring(found, to, timeout)?;
                Ok(Argument::Handle(copies.take(handle, is_own)))
            }
            HeldArgument::Source(SourceArgument { source, .. }, _)
                if interface
                    .params
                    .get(index)
                    .is_some_and(|param| param.mode == Mode::Out) =>
            {
                let of = (interface, &**layout);
                let id = copies.result(to.1, of, index, source, timeout)?;
                Ok(Argument::Handle(id))
            }
            HeldArgument::Source(_, Some((server, id))) if *server == to.0 => {
                Ok(Argument::Handle(*id))
            }
            HeldArgument::Source(SourceArgument { source, file }, read) => {
                let form = wanted_form(interface, index);
                let brought = match file {
                    Some(file) => grid.bring_file(file, (source, &form), to, timeout)?,
                    None => None,
                };
                let (handle, is_own) = match brought {
                    Some(brought) => brought,
                    None => to.1.read_source(source, form, false, timeout)?,
                };
                let id = copies.take(handle, is_own);
                *read = Some((to.0, id));
                Ok(Argument::Handle(id))
            }
            // SAFETY: the caller holds the arrays until the call ends, and at most one attempt uses
            // them at a time.
            HeldArgument::Plain(held) => Ok(unsafe { held.argument() }),
        });
        arguments.collect()
    }

    /// The next source among the IN arguments that a server has not read.
    fn unread(&self, number: u64) -> Option<(usize, &SourceArgument)> {
        let interface = &self.function.description().interface;
        let params = interface.params.iter().zip(&self.arguments).enumerate();
        let mut unread = params.filter_map(|(index, (param, held))| match held {
            HeldArgument::Source(source, read)
                if param.mode == Mode::In
                    && read.as_ref().is_none_or(|(server, _)| *server != number) =>
            {
                Some((index, source))
            }
            _ => None,
        });
        unread.next()
    }

    /// Goes on with the call when its server has read a source for it.
    fn has_read(&mut self, record: HandleRecord) -> After {
        if let Some((index, number, server)) = self.reading.take() {
            let (handle, is_own) = server.has_read(record);
            self.settle((index, number), handle, is_own);
        }
        let attempt = self.begin(None);
        attempt.map_or_else(|error| After::End(Err(error)), After::Again)
    }

    /// Forgets the arrays of sources, which the server has dropped. Returns whether there are some.
    fn reads_anew(&mut self) -> bool {
        let mut forgotten = false;
        for held in &mut self.arguments {
            if let HeldArgument::Source(_, read) = held {
                forgotten |= read.take().is_some();
            }
        }
        self.anew += 1;
        forgotten && self.anew <= MOST_ANEW
    }

    /// Notes that a server has the array of a source.
    fn settle(&mut self, (index, number): (usize, u64), handle: Handle, is_own: bool) {
        let id = self.copies.take(handle, is_own);
        if let Some(HeldArgument::Source(_, read)) = self.arguments.get_mut(index) {
            *read = Some((number, id));
        }
        self.prepared = self.prepared.again();
    }

    fn lost(&mut self, error: Error, why: &'static str) -> Error {
        let place = self.course.place().cloned();
        self.give_away(&error);
        Error::Lost {
            function: self.function.description().qualified.clone(),
            server: place.map(|place| place.address).unwrap_or_default(),
            why,
            source: Box::new(error),
        }
    }

    /// Places the call, at one server after the other, until one of them begins with it. `before`
    /// is the error that moves it.
    fn begin(&mut self, mut before: Option<Error>) -> Result<Arc<Attempt>, Error> {
        loop {
            let chosen = self.course.place().cloned().map(Ok);
            let chosen = chosen.unwrap_or_else(|| self.choose());
            let place = match chosen.or_else(|error| self.another(error)) {
                Ok(place) => place,
                Err(error) => return Err(self.exhausted(error, before)),
            };
            self.course.goes_to(place.clone());
            let server = self.reach(&place);
            let begun = server.and_then(|server| self.begin_at(place.server, &server));
            match begun {
                Ok(attempt) => return Ok(attempt),
                Err(error) if self.is_late_elsewhere(&error, &place) => return Err(error),
                Err(error) => match self.course.after(trouble_at_start(&error), None) {
                    Next::Elsewhere => {
                        self.give_away(&error);
                        self.check_time(&place)?;
                        before = Some(more_telling(before, error));
                    }
                    Next::End | Next::Lost(_) => return Err(error),
                },
            }
        }
    }

    /// Begins the call at a server, or lets the server read the next source of the call first.
    fn begin_at(&mut self, number: u64, server: &Server) -> Result<Arc<Attempt>, Error> {
        let function = self.function.at(server)?;
        let timeout = self.prepared.timeout();
        while let Some((index, SourceArgument { source, file })) = self.unread(number) {
            let form = wanted_form(&self.function.description().interface, index);
            let brought = match file {
                Some(file) => {
                    let to = (number, server);
                    self.grid().bring_file(file, (source, &form), to, timeout)?
                }
                None => None,
            };
            let Some((handle, is_own)) = brought else {
                let attempt = server.begin_to_read(source, form, timeout)?;
                self.reading = Some((index, number, server.clone()));
                return Ok(Arc::new(attempt));
            };
            self.settle((index, number), handle, is_own);
        }
        let mut arguments = self.arguments((number, server))?;
        // SAFETY: the caller holds the arrays, and the earlier attempt has ended.
        let attempt = unsafe { function.begin(&mut self.prepared, &mut arguments) };
        attempt.map(Arc::new)
    }

    /// Excludes the server for this call, and tells the other threads and the directory.
    fn give_away(&mut self, error: &Error) {
        let known = self.soonest.as_ref().and_then(|soonest| soonest.earliest);
        if let Error::Failed(failure) = error
            && let Some(end) = failure.earliest
            && known.is_none_or(|known| end < known)
        {
            self.soonest = Some(failure.clone());
        }
        if let Some((place, observed)) = self.course.give_away(trouble(error)) {
            self.grid().observe(&place, &observed);
        }
    }

    fn exhausted(&self, error: Error, before: Option<Error>) -> Error {
        if matches!(error, Error::Interrupted) {
            // The program wants to see what has interrupted it.
            return error;
        }
        if let Some(soonest) = &self.soonest {
            return Error::Failed(soonest.clone());
        }
        let Some(before) = before else { return error };
        let text = format!("{error}; one that was tried said: {before}");
        Error::failed(FailureKind::NoServer, text)
    }

    /// Reports how long the transfers of the call took.
    fn tell(&self, outcome: &Outcome, shares: bool) {
        let Some(place) = self.course.place() else {
            return;
        };
        let wanted = self.course.wanted();
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
    fn after(&mut self, ended: &Attempt, result: Result<Outcome, Error>) -> After {
        let error = match result {
            Ok(outcome) => {
                if let Some(record) = ended.take_read() {
                    return self.has_read(record);
                }
                if !self.copies.is_writing() {
                    self.tell(&outcome, ended.shares);
                }
                return self
                    .copies
                    .after(outcome_at(outcome, self.course.place(), self.chosen));
            }
            // The call itself is over: a result of it could not be written.
            Err(error) if self.copies.is_writing() => return After::End(Err(error)),
            Err(error) if ended.lacks_array(&error) && self.reads_anew() => {
                let attempt = self.begin(None);
                return attempt.map_or_else(|error| After::End(Err(error)), After::Again);
            }
            Err(error) => error,
        };
        // A server that reads a source has not begun with the call.
        let after = match self.reading.take() {
            Some(_) => self.course.after(trouble_at_start(&error), None),
            None => {
                let changed = ended.has_changed(true);
                self.course.after(trouble(&error), Some(changed))
            }
        };
        match after {
            Next::Elsewhere => {
                self.give_away(&error);
                let attempt = self.begin(Some(error));
                attempt.map_or_else(|error| After::End(Err(error)), After::Again)
            }
            Next::End => After::End(Err(error)),
            Next::Lost(why) => After::End(Err(self.lost(error, why))),
        }
    }
}

/// How an error kept a call from being begun: a server that does not answer in time may be frozen,
/// and another one can begin with the call.
pub(super) fn trouble_at_start(error: &Error) -> Trouble {
    match error {
        Error::Timeout { .. } => Trouble::NotBegun,
        other => trouble(other),
    }
}

/// How an error kept a call from its results.
pub(super) fn trouble(error: &Error) -> Trouble {
    match error {
        error if error.is_before_call() => Trouble::NotBegun,
        Error::Disconnected { .. } | Error::Protocol { .. } => Trouble::Lost,
        Error::Failed(failure) => Trouble::Failed(failure.kind),
        _ => Trouble::Own,
    }
}

/// Of the errors of two servers, the one that says more about the call: the refusal of a server
/// that answers, or else the later one.
fn more_telling(before: Option<Error>, error: Error) -> Error {
    match before {
        Some(refusal @ Error::Failed(_)) if error.is_before_call() => refusal,
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_in_array_that_is_also_an_out_array_is_overwritten() {
        let text = "Define f(IN int n, IN double x[n], OUT double y[n]) Calls \"C\" f(n, x, y);";
        let interface = farcall_idl::parse_interface(text).expect("an interface");
        let mut memory = [0u8; 48];
        let (start, mut other) = (memory.as_mut_ptr(), [0u8; 24]);
        let given = |first: usize, second: &mut [u8]| {
            // SAFETY: nothing reads or writes the slices, as in a program in C.
            let x = unsafe { std::slice::from_raw_parts(start.add(first), 24) };
            let arguments = [Argument::Skip, Argument::In(x), Argument::Out(second)];
            overwrites(&interface, &arguments)
        };
        // SAFETY: as above.
        let out = || unsafe { std::slice::from_raw_parts_mut(start, 24) };
        assert!(given(0, out()) && given(23, out()));
        assert!(!given(24, out()) && !given(0, &mut other));
    }

    #[test]
    fn a_refusal_says_more_than_a_server_that_is_gone() {
        let refusal = || Error::failed(FailureKind::NotFree, "no end in time");
        let gone = || Error::Connect {
            address: "farcall://127.0.0.1:1".parse().expect("an address"),
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        let text = |before: Option<Error>, error: Error| more_telling(before, error).to_string();
        assert_eq!(text(Some(refusal()), gone()), refusal().to_string());
        assert_eq!(text(Some(gone()), refusal()), refusal().to_string());
        assert_eq!(text(None, gone()), gone().to_string());
    }
}
