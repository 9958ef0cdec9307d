//! Large arrays over several connections. They gain if there are several links, or if one
//! connection cannot fill a long path.
//!
//! The client stores the arrays at the server piece by piece, and every connection takes the next
//! piece when it has finished one. The call then names the stored arrays. A transfer begins with
//! one connection. Another one joins as long as the measured rate rises, and the result is
//! remembered.

use crate::address::Address;
use crate::argument::Argument;
use crate::call::Prepared;
use crate::error::Error;
use crate::outcome::{Outcome, Times};
use crate::remote::attempt::Attempt;
use crate::remote::connection::{Connection, Request, wait_for_any};
use crate::remote::function::Function;
use crate::remote::paths::Direction;
use crate::remote::requests::arrays;
use crate::remote::server::{Server, connection_by, may_add_connections};
use crate::timeout::Timeout;
use farcall_idl::{ArrayLayout, Interface, Layout, Mode};
use farcall_rpc_proto::{ArrayForm, ArrayPart, HandleId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Arrays of fewer bytes in total travel with their call.
const LEAST: u64 = 32 << 20;
/// A smaller array always travels with its call.
const LEAST_ARRAY: u64 = 4 << 20;
/// Bytes of a piece.
const PIECE: u64 = 1 << 20;
/// Pieces that a connection has at once: one travels while the server answers the other.
const AHEAD: usize = 2;
/// Bytes over which a rate is measured.
const WINDOW: u64 = 8 << 20;
const WINDOW_TIME: Duration = Duration::from_millis(100);
/// Bytes that are not measured after a connection has joined.
const SETTLE: u64 = 4 << 20;
/// A connection helps if it raises the rate by this factor.
const PAYS: f64 = 1.15;
/// Measurements in a row without gain before the result is that one connection is enough. On a busy
/// machine a single one may be wrong. If two or more help already, a single one ends the search, so
/// that the result is there within an array of [`LEAST`] bytes.
const AGAINST: u32 = 2;
/// Rate in bytes per second above which no connection is added: memory is the limit then, not the
/// network.
const FAST: f64 = 600e6;
/// An added connection that moves nothing for this long gives its pieces to the others.
const STALLED: Duration = Duration::from_secs(2);

/// A range of the caller's memory that travels.
#[derive(Clone, Copy)]
struct Part {
    id: HandleId,
    start: *mut u8,
    offset: u64,
    bytes: u64,
    /// Size of the units that are swapped between byte orders.
    unit: usize,
    /// The call writes the array after it was sent.
    is_rewritten: bool,
}

/// An array of the caller that is stored at the server while the call runs.
struct Lent {
    argument: usize,
    mode: Mode,
    whole: Part,
}

/// A connection and its current pieces.
struct StreamConnection {
    connection: Arc<Connection>,
    pieces: Vec<(Request, Part)>,
    /// Time of its last finished piece.
    since: Instant,
    /// Whether it gets no more pieces.
    leaves: bool,
}

impl Function {
    /// Makes a call whose arrays travel over several connections, and fills its OUT arrays. Returns
    /// `None` if one connection is enough.
    pub(crate) fn call_in_streams(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Option<Outcome>, Error> {
        if self.is_method() || self.terms.before.is_some() || !is_large(arguments) {
            return Ok(None);
        }
        let server = self.server();
        let connection = connection_by(server, prepared.timeout())?;
        let may_split =
            may_add_connections(server, &connection) && server.paths(|paths, _| paths.may_split());
        if !connection.moves_parts() || !may_split {
            return Ok(None);
        }
        // A connection with reserved bandwidth must carry the whole call.
        let own = self.own_connection(&connection, prepared.timeout())?;
        if own.is_some() {
            return Ok(None);
        }
        let start = Instant::now();
        let Some(lent) = self.lend(&connection, prepared, arguments)? else {
            return Ok(None);
        };
        let called = self.call_lent(&connection, prepared, arguments, &lent, start);
        for array in &lent {
            arrays::drop_handle_soon(&connection, array.whole.id);
        }
        called
    }

    /// Makes room at the server for the large arrays of a call. Returns `None` if the server has no
    /// room.
    fn lend(
        &self,
        connection: &Arc<Connection>,
        prepared: &Prepared,
        arguments: &[Argument<'_>],
    ) -> Result<Option<Vec<Lent>>, Error> {
        let interface = &self.description().interface;
        let is_here = |array: &&ArrayLayout| !arguments[array.param].is_at_server();
        let large = large_arrays(interface, &prepared.layout).filter(is_here);
        let large: Vec<&ArrayLayout> = large.collect();
        if large.iter().map(|array| array.bytes).sum::<u64>() < LEAST {
            return Ok(None);
        }
        let mut lent: Vec<Lent> = Vec::new();
        for array in large {
            let form = ArrayForm::of(array, interface.order());
            let unit = form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
            match arrays::put_zeros(connection, form, prepared.timeout()) {
                Ok(record) => lent.push(Lent {
                    argument: array.param,
                    mode: array.mode,
                    whole: Part {
                        id: record.id,
                        start: arguments[array.param].bytes().as_ptr().cast_mut(),
                        offset: 0,
                        bytes: array.bytes,
                        unit: unit.max(1),
                        is_rewritten: array.mode == Mode::InOut,
                    },
                }),
                Err(error) => {
                    lent.iter()
                        .for_each(|array| arrays::drop_handle_soon(connection, array.whole.id));
                    return match error {
                        Error::Failed(_) => Ok(None),
                        other => Err(other),
                    };
                }
            }
        }
        Ok(Some(lent))
    }

    /// Sends the arrays, makes the call, and fetches the arrays.
    fn call_lent(
        &self,
        connection: &Arc<Connection>,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
        lent: &[Lent],
        start: Instant,
    ) -> Result<Option<Outcome>, Error> {
        let timeout = prepared.timeout();
        let of = |wanted: fn(Mode) -> bool| {
            let arrays = lent.iter().filter(|array| wanted(array.mode));
            arrays.map(|array| array.whole).collect::<Vec<Part>>()
        };
        let server = self.server();
        let sent = of(Mode::is_sent);
        let there = match travel(server, connection, Direction::There, &sent, timeout) {
            // The call has not begun, so it can be made in the ordinary way.
            Err(Error::Failed(_)) | Ok(None) => return Ok(None),
            Ok(Some(seconds)) => seconds,
            Err(error) => return Err(error),
        };
        let mut kept = Vec::with_capacity(lent.len());
        for array in lent {
            let handle = Argument::Handle(array.whole.id);
            kept.push(std::mem::replace(&mut arguments[array.argument], handle));
        }
        // SAFETY: the borrows outlive the call, which is over or given up when this returns.
        let begun = unsafe { self.begin(prepared, arguments) };
        let outcome = begun.and_then(Attempt::wait);
        for (array, argument) in lent.iter().zip(kept) {
            arguments[array.argument] = argument;
        }
        let Outcome {
            times,
            wait,
            library,
            threads,
            ..
        } = outcome?;
        let returned = of(Mode::is_returned);
        let back = travel(server, connection, Direction::Back, &returned, timeout);
        let back = back.map_err(|error| after_call(connection.address(), error))?;
        let total = start.elapsed().as_secs_f64();
        let (send, recv) = (times.send + there, times.recv + back.unwrap_or(0.0));
        let times = Times {
            send,
            recv,
            exec: times.exec,
            other: total - send - recv - times.exec,
            total,
        };
        Ok(Some(Outcome {
            times,
            wait,
            placement: None,
            library,
            threads,
            receipts: Vec::new(),
            trace: None,
        }))
    }
}

/// The error of a call that has run, and whose results cannot be fetched. A client makes a call
/// again if the server lets it go or refuses it, because the function has not begun then. Here it
/// has run: after the error that this returns, only repeatable calls are made again.
fn after_call(address: &Address, error: Error) -> Error {
    match error {
        Error::Failed(_) | Error::Protocol { .. } => {
            let text = format!("the call has run, and its results cannot be fetched: {error}");
            Error::Disconnected {
                address: address.clone(),
                source: io::Error::other(text),
            }
        }
        other => other,
    }
}

/// Whether the arrays are large enough for several connections.
pub(crate) fn is_large(arguments: &[Argument<'_>]) -> bool {
    let bytes = arguments
        .iter()
        .map(|argument| argument.bytes().len() as u64);
    bytes.sum::<u64>() >= LEAST
}

/// The arrays that may travel apart from their call.
fn large_arrays<'l>(
    interface: &'l Interface,
    layout: &'l Layout,
) -> impl Iterator<Item = &'l ArrayLayout> {
    let sizes = &interface.element_refs;
    layout.arrays.iter().filter(|array| {
        let plain = array.is_full() && array.mode != Mode::Work;
        let sized = sizes.iter().any(|size| size.param == array.param);
        plain && !sized && array.bytes >= LEAST_ARRAY
    })
}

/// Moves arrays. Returns the time in seconds. Returns `None` if pieces of an array that the call
/// writes had to be sent again: the server may still get the first ones, and would hold the call up
/// for them, or write them over its results.
fn travel(
    server: &Server,
    first: &Arc<Connection>,
    direction: Direction,
    arrays: &[Part],
    timeout: Timeout,
) -> Result<Option<f64>, Error> {
    let start = Instant::now();
    let mut queue: VecDeque<Part> = arrays.iter().flat_map(pieces).collect();
    if queue.is_empty() {
        return Ok(Some(0.0));
    }
    let is_once = |part: &Part| direction == Direction::There && part.is_rewritten;
    let another = |index: usize| server.paths(|paths, to| paths.another(first, index, to));
    let found = server.paths(|paths, _| paths.found(direction));
    let mut lines = vec![StreamConnection::new(first.clone())];
    while lines.len() < found.unwrap_or(1)
        && let Some(other) = another(lines.len())?
    {
        lines.push(StreamConnection::new(other));
    }
    let mut probe = Probe::new(found, server.options().streams);
    loop {
        fill(&mut lines, &mut queue, direction)?;
        if lines.iter().all(|line| line.pieces.is_empty()) {
            break;
        }
        wait(&lines, first, timeout)?;
        let untried = queue.len();
        let moved = collect(server, &mut lines, &mut queue)?;
        leave_stalled(server, &mut lines, &mut queue);
        if queue.len() > untried && arrays.iter().any(is_once) {
            return Ok(None);
        }
        match probe.step(moved, lines.len()) {
            Step::Go => {}
            Step::Add => match another(lines.len())? {
                Some(other) => lines.push(StreamConnection::new(other)),
                None => probe.end(),
            },
            Step::Drop => drop_last(&mut lines),
        }
        lines.retain(|line| !line.leaves || !line.pieces.is_empty());
    }
    if let Some(count) = probe.found() {
        server.paths(|paths, _| paths.find(direction, count));
    }
    Ok(Some(start.elapsed().as_secs_f64()))
}

/// Lets the last added connection leave. The first one stays, because nobody else would move what
/// is left.
fn drop_last(lines: &mut [StreamConnection]) {
    if let [_, .., last] = lines {
        last.leaves = true;
    }
}

/// Removes stalled connections, and gives their pieces to the others.
fn leave_stalled(server: &Server, lines: &mut [StreamConnection], queue: &mut VecDeque<Part>) {
    for line in lines.iter_mut().skip(1) {
        if line.pieces.is_empty() || line.since.elapsed() < STALLED {
            continue;
        }
        // Dropping the requests gives them up.
        queue.extend(line.pieces.drain(..).map(|(_, part)| part));
        line.leave(server);
    }
}

impl StreamConnection {
    fn new(connection: Arc<Connection>) -> StreamConnection {
        StreamConnection {
            connection,
            pieces: Vec::new(),
            since: Instant::now(),
            leaves: false,
        }
    }

    /// Gives it no more pieces, and does not use it for later calls.
    fn leave(&mut self, server: &Server) {
        self.leaves = true;
        server.paths(|paths, _| paths.leave(&self.connection));
    }

    fn begin(&self, part: Part, direction: Direction) -> Result<Request, Error> {
        let wanted = ArrayPart {
            id: part.id,
            offset: part.offset,
            bytes: part.bytes,
        };
        let length = part.bytes as usize;
        // SAFETY: pieces are distinct parts of arguments that outlive the call, and every request
        // is over or given up when that returns.
        unsafe {
            match direction {
                Direction::There => {
                    let bytes = std::slice::from_raw_parts(part.start, length);
                    arrays::put_part(&self.connection, &wanted, bytes)
                }
                Direction::Back => {
                    let bytes = std::slice::from_raw_parts_mut(part.start, length);
                    arrays::get_part(&self.connection, &wanted, bytes, part.unit)
                }
            }
        }
    }
}

/// The pieces of an array.
fn pieces(whole: &Part) -> impl Iterator<Item = Part> + use<> {
    let whole = *whole;
    (0..whole.bytes.div_ceil(PIECE)).map(move |index| {
        let offset = index * PIECE;
        Part {
            start: whole.start.wrapping_add(offset as usize),
            offset,
            bytes: PIECE.min(whole.bytes - offset),
            ..whole
        }
    })
}

/// Gives every connection its next pieces. A lost connection leaves.
fn fill(
    lines: &mut [StreamConnection],
    queue: &mut VecDeque<Part>,
    direction: Direction,
) -> Result<(), Error> {
    for (index, line) in lines.iter_mut().enumerate() {
        while !line.leaves
            && line.pieces.len() < AHEAD
            && let Some(part) = queue.pop_front()
        {
            match line.begin(part, direction) {
                Ok(request) => {
                    if line.pieces.is_empty() {
                        line.since = Instant::now();
                    }
                    line.pieces.push((request, part));
                }
                Err(error) if index == 0 => return Err(error),
                Err(_) => {
                    line.leaves = true;
                    queue.push_front(part);
                }
            }
        }
    }
    Ok(())
}

fn wait(
    lines: &[StreamConnection],
    first: &Arc<Connection>,
    timeout: Timeout,
) -> Result<(), Error> {
    let requests = lines.iter().flat_map(|line| line.pieces.iter());
    let requests: Vec<&Request> = requests.map(|(request, _)| request).collect();
    let soon = Instant::now() + STALLED / 4;
    let until = timeout.end().map_or(soon, |end| end.min(soon));
    let ended = wait_for_any(&requests, Some(until))?;
    match ended || !timeout.has_passed() {
        true => Ok(()),
        false => Err(timeout.error(first.address())),
    }
}

/// Collects finished pieces. Pieces that another connection than the first one has lost, or that
/// were refused there, go to the others: it may lead to the successor of a server that ends, which
/// does not know the arrays. Returns the bytes that have travelled.
fn collect(
    server: &Server,
    lines: &mut [StreamConnection],
    queue: &mut VecDeque<Part>,
) -> Result<u64, Error> {
    let mut moved = 0;
    for (index, line) in lines.iter_mut().enumerate() {
        for (request, part) in std::mem::take(&mut line.pieces) {
            match request.take_end() {
                None => line.pieces.push((request, part)),
                Some(Ok(())) => {
                    line.since = Instant::now();
                    moved += part.bytes;
                }
                Some(Err(error)) if index == 0 => return Err(error),
                Some(Err(_)) => {
                    line.leave(server);
                    queue.push_front(part);
                }
            }
        }
    }
    Ok(moved)
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Go,
    /// Add a connection.
    Add,
    /// Remove the last one, which does not help.
    Drop,
}

/// Measures how many connections help.
struct Probe {
    most: usize,
    probing: bool,
    /// The best number of connections so far, and its rate in bytes per second.
    best: Option<(usize, f64)>,
    since: Instant,
    moved: u64,
    /// Bytes that are not measured yet.
    settle: u64,
    /// Measurements in a row in which the last connection did not help.
    against: u32,
}

impl Probe {
    fn new(found: Option<usize>, most: usize) -> Probe {
        Probe {
            most,
            probing: found.is_none(),
            best: None,
            since: Instant::now(),
            moved: 0,
            settle: 0,
            against: 0,
        }
    }

    /// There is no further connection to add.
    fn end(&mut self) {
        self.probing = false;
    }

    fn found(&self) -> Option<usize> {
        let (count, _) = self.best?;
        (!self.probing).then_some(count)
    }

    fn step(&mut self, moved: u64, count: usize) -> Step {
        if !self.probing {
            return Step::Go;
        }
        if self.settle > 0 {
            self.settle = self.settle.saturating_sub(moved);
            self.since = Instant::now();
            return Step::Go;
        }
        self.moved += moved;
        let elapsed = self.since.elapsed();
        if self.moved < WINDOW || elapsed < WINDOW_TIME {
            return Step::Go;
        }
        let rate = self.moved as f64 / elapsed.as_secs_f64();
        (self.moved, self.since) = (0, Instant::now());
        self.judge(rate, count)
    }

    fn judge(&mut self, rate: f64, count: usize) -> Step {
        if let Some((helping, best)) = self.best
            && rate < best * PAYS
        {
            self.against += 1;
            if helping == 1 && self.against < AGAINST {
                return Step::Go;
            }
            self.probing = false;
            return Step::Drop;
        }
        self.against = 0;
        self.best = Some((count, rate));
        if rate > FAST || count >= self.most {
            self.probing = false;
            return Step::Go;
        }
        self.settle = SETTLE;
        Step::Add
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_rpc_proto::{FailureKind, ProtocolError};

    #[test]
    fn a_connection_stays_only_where_it_pays() {
        let mut probe = Probe::new(None, 8);
        assert_eq!(probe.judge(10e6, 1), Step::Add);
        assert_eq!(probe.judge(19e6, 2), Step::Add);
        assert_eq!(probe.judge(20e6, 3), Step::Drop);
        assert_eq!(probe.found(), Some(2));
    }

    #[test]
    fn one_slow_measurement_does_not_end_a_connection() {
        let mut probe = Probe::new(None, 2);
        assert_eq!(probe.judge(10e6, 1), Step::Add);
        assert_eq!(probe.judge(5e6, 2), Step::Go);
        assert_eq!(probe.judge(19e6, 2), Step::Go);
        assert_eq!(probe.found(), Some(2));
    }

    #[test]
    fn where_memory_is_the_limit_one_is_enough() {
        let mut probe = Probe::new(None, 8);
        assert_eq!(probe.judge(2e9, 1), Step::Go);
        assert_eq!(probe.found(), Some(1));
    }

    #[test]
    fn a_call_whose_results_are_lost_does_not_begin_again() {
        let address: Address = "farcall://host:3717".parse().unwrap();
        let goodbye = Error::Protocol {
            address: address.clone(),
            source: ProtocolError::Goodbye("the server is draining".into()),
        };
        let refused = [
            FailureKind::Draining,
            FailureKind::NotFound,
            FailureKind::Busy,
            FailureKind::StaleInterface,
        ];
        let refused = refused.map(|kind| Error::failed(kind, "refused"));
        for error in refused.into_iter().chain([goodbye]) {
            let error = after_call(&address, error);
            assert!(matches!(error, Error::Disconnected { .. }), "{error}");
            assert!(!error.was_let_go() && !error.is_before_call());
        }
    }

    #[test]
    fn pieces_cover_an_array_once() {
        let whole = Part {
            id: HandleId([0; 16]),
            start: std::ptr::null_mut(),
            offset: 0,
            bytes: 3 * PIECE + 8,
            unit: 8,
            is_rewritten: false,
        };
        let mut end = 0;
        for piece in pieces(&whole) {
            assert_eq!((piece.offset, piece.start.addr() as u64), (end, end));
            end += piece.bytes;
        }
        assert_eq!(end, whole.bytes);
    }
}
