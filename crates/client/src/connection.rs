//! One connection, used by one operation at a time on the caller's thread.

use crate::socket::Socket;
use crate::{Address, Argument, Error, Options};
use farcall_idl::Layout;
use farcall_rpc_proto::client::{self, Event};
use farcall_rpc_proto::{
    Call, CallId, Chunk, Direction, Hello, Limits, Listing, Piece, Pieces, Side, Times, Transmit,
    swap_bytes,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::time::{Duration, Instant};

/// Bytes read at once besides array data.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of a read beyond the array data it is for: room for the next frame headers, and little
/// more, because array data that land here are copied.
const LOOK_AHEAD: usize = 1 << 10;
/// Most buffers of one system call.
const MAX_SLICES: usize = 512;
/// How long a server's reason for closing is waited for once nothing can be sent.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Array bytes gathered before they are written.
const GATHER_BYTES: u64 = 1 << 20;

/// A connection and what has been read from it but not used.
pub(crate) struct Connection {
    address: Address,
    options: Options,
    socket: Socket,
    proto: client::Connection,
    input: Vec<u8>,
    /// The unused part of `input`.
    unread: std::ops::Range<usize>,
    frames: Vec<u8>,
    /// When the operation under way must end.
    deadline: Option<Instant>,
}

/// One call: what is sent, and where the result goes.
pub(crate) struct Exchange<'x, 'a> {
    pub(crate) call: &'x Call,
    pub(crate) layout: &'x Layout,
    pub(crate) arguments: &'x mut [Argument<'a>],
}

impl Connection {
    /// Connects and exchanges greetings.
    pub(crate) fn open(address: &Address, options: &Options) -> Result<Connection, Error> {
        let socket =
            Socket::connect(address, options.connect_timeout).map_err(|source| Error::Connect {
                address: address.clone(),
                source,
            })?;
        let hello = Hello::new(concat!("farcall-client ", env!("CARGO_PKG_VERSION")));
        let mut connection = Connection {
            address: address.clone(),
            options: options.clone(),
            socket,
            proto: client::Connection::new(Limits::default(), &hello),
            input: vec![0; INPUT_BYTES],
            unread: 0..0,
            frames: Vec::new(),
            deadline: None,
        };
        connection.options.timeout = Some(options.connect_timeout);
        connection.start()?;
        connection.send_frames()?;
        connection.wait(|event| match event {
            Event::Connected(_) => Some(Ok(())),
            _ => None,
        })?;
        connection.deadline = None;
        connection.set_socket_timeout()?;
        connection.options.timeout = options.timeout;
        Ok(connection)
    }

    /// Whether an idle connection is of no more use.
    pub(crate) fn is_stale(&self) -> bool {
        !self.unread.is_empty() || self.socket.is_stale()
    }

    /// A page of the functions served.
    pub(crate) fn list(&mut self, from: u32) -> Result<Listing, Error> {
        self.start()?;
        let id = self
            .proto
            .list(from)
            .map_err(|source| self.protocol(source))?;
        self.send_frames()?;
        self.wait(|event| match event {
            Event::Listing(request, listing) if request == id => Some(Ok(listing)),
            Event::Failed(request, failure) if request == id => Some(Err(Error::Failed(failure))),
            _ => None,
        })
    }

    /// Number and canonical IDL of a function.
    pub(crate) fn describe(&mut self, name: &str) -> Result<(u64, String), Error> {
        self.start()?;
        let id = self
            .proto
            .describe(name)
            .map_err(|source| self.protocol(source))?;
        self.send_frames()?;
        self.wait(|event| match event {
            Event::Interface {
                request,
                function,
                text,
            } if request == id => Some(Ok((function, text))),
            Event::Failed(request, failure) if request == id => Some(Err(Error::Failed(failure))),
            _ => None,
        })
    }

    fn start(&mut self) -> Result<(), Error> {
        self.deadline = self.options.timeout.map(|timeout| Instant::now() + timeout);
        self.set_socket_timeout()
    }

    /// The socket waits no longer than the deadline; without one it is left alone.
    fn set_socket_timeout(&mut self) -> Result<(), Error> {
        let Some(deadline) = self.deadline else {
            return match self.options.timeout {
                None => Ok(()),
                Some(_) => self
                    .socket
                    .set_timeout(None)
                    .map_err(|error| self.broken(error)),
            };
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timed_out());
        }
        self.socket
            .set_timeout(Some(left))
            .map_err(|error| self.broken(error))
    }

    fn send_frames(&mut self) -> Result<(), Error> {
        self.frames.clear();
        while self.proto.poll_transmit(&mut self.frames) != Transmit::Idle {}
        let frames = std::mem::take(&mut self.frames);
        let result = self.write_all(&mut [IoSlice::new(&frames)]);
        self.frames = frames;
        result.map_err(|error| self.last_words(error))
    }

    /// Nothing more can be sent: what the server said before it closed tells more than the
    /// system's error does.
    fn last_words(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Disconnected { .. }) {
            return error;
        }
        let latest = Instant::now() + LAST_WORDS;
        self.deadline = Some(
            self.deadline
                .map_or(latest, |deadline| deadline.min(latest)),
        );
        while self.proto.incoming().is_none() {
            match self.next_event() {
                Ok(Some(Event::Failed(_, failure))) => return Error::Failed(failure),
                Ok(Some(_)) => {}
                Ok(None) if self.read_into(&mut Vec::new()).is_ok() => {}
                Ok(None) => return error,
                Err(said) => return said,
            }
        }
        error
    }

    fn write_all(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<(), Error> {
        while !slices.is_empty() {
            let some = slices.len().min(MAX_SLICES);
            match self.socket.write_vectored(&slices[..some]) {
                Ok(0) => return Err(self.broken(io::ErrorKind::WriteZero.into())),
                Ok(count) => IoSlice::advance_slices(&mut slices, count),
                Err(error) => self.survive(error)?,
            }
            // What is left must not take the whole time-out again.
            if self.deadline.is_some() && !slices.is_empty() {
                self.set_socket_timeout()?;
            }
        }
        Ok(())
    }

    /// Reads until `found` makes something of an event. No array data may come.
    fn wait<T>(
        &mut self,
        mut found: impl FnMut(Event) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        loop {
            match self.next_event()? {
                Some(event) => {
                    if let Some(result) = found(event) {
                        return result;
                    }
                }
                None => self.read_into(&mut Vec::new()).map(|_| ())?,
            }
        }
    }

    /// The next event that what has been read completes.
    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        let input = &self.input[self.unread.clone()];
        let (taken, event) = match self.proto.handle_input(input) {
            Ok(progress) => progress,
            Err(source) => return Err(self.protocol(source)),
        };
        self.unread.start += taken;
        Ok(event)
    }

    /// Reads into `places`, and what comes beyond them into the input buffer. Returns how many
    /// bytes went to `places`.
    fn read_into(&mut self, places: &mut Vec<IoSliceMut<'_>>) -> Result<usize, Error> {
        debug_assert!(self.unread.is_empty() || places.is_empty());
        let room: usize = places.iter().map(|place| place.len()).sum();
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        loop {
            if self.deadline.is_some() {
                self.set_socket_timeout()?;
            }
            let end = self.unread.end;
            let spare = &mut self.input[end..];
            let most = if room > 0 {
                spare.len().min(LOOK_AHEAD)
            } else {
                spare.len()
            };
            let result = if places.is_empty() {
                self.socket.read(spare)
            } else {
                let mut slices: Vec<IoSliceMut<'_>> = places
                    .iter_mut()
                    .map(|place| IoSliceMut::new(place))
                    .collect();
                slices.push(IoSliceMut::new(&mut spare[..most]));
                self.socket.read_vectored(&mut slices)
            };
            match result {
                Ok(0) => {
                    let closed = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    );
                    return Err(self.broken(closed));
                }
                Ok(count) => {
                    self.unread.end += count.saturating_sub(room);
                    return Ok(count.min(room));
                }
                Err(error) => self.survive(error)?,
            }
        }
    }

    /// Whether to try again after a failed read or write.
    fn survive(&self, error: io::Error) -> Result<(), Error> {
        match error.kind() {
            io::ErrorKind::Interrupted => match &self.options.on_interrupt {
                Some(give_up) if give_up() => Err(Error::Interrupted),
                _ => Ok(()),
            },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if self.deadline.is_some() => {
                Err(self.timed_out())
            }
            _ => Err(self.broken(error)),
        }
    }

    fn timed_out(&self) -> Error {
        let after = self.options.timeout.unwrap_or_default();
        Error::Timeout {
            address: self.address.clone(),
            after,
        }
    }

    fn broken(&self, source: io::Error) -> Error {
        Error::Disconnected {
            address: self.address.clone(),
            source,
        }
    }

    fn protocol(&self, source: farcall_rpc_proto::ProtocolError) -> Error {
        Error::Protocol {
            address: self.address.clone(),
            source,
        }
    }
}

impl Exchange<'_, '_> {
    /// Sends the call, waits for the result and puts it into the arguments.
    pub(crate) fn run(mut self, connection: &mut Connection) -> Result<Times, Error> {
        connection.start()?;
        let result_bytes = self.layout.returned_bytes();
        let id = connection
            .proto
            .call(self.call, result_bytes)
            .map_err(|source| connection.protocol(source))?;
        self.send(connection)
            .map_err(|error| connection.last_words(error))?;
        self.receive(connection, id)
    }

    /// Gathers frames and array data into as few system calls as possible.
    fn send(&self, connection: &mut Connection) -> Result<(), Error> {
        let mut pieces = Pieces::new(self.layout, Direction::Sent, Side::Client);
        loop {
            let mut frames = std::mem::take(&mut connection.frames);
            frames.clear();
            let mut plan: Vec<(usize, Option<Piece>)> = Vec::new();
            let mut gathered = 0;
            let idle = loop {
                match connection.proto.poll_transmit(&mut frames) {
                    Transmit::Idle => break true,
                    Transmit::Frames => plan.push((frames.len(), None)),
                    Transmit::Data(chunk) => {
                        plan.push((frames.len(), None));
                        let mut left = chunk.length;
                        while let Some(piece) = pieces.take(left) {
                            plan.push((frames.len(), Some(piece)));
                            left -= piece.length;
                        }
                        gathered += chunk.length;
                    }
                }
                if gathered >= GATHER_BYTES {
                    break false;
                }
            };
            let mut slices = Vec::with_capacity(plan.len());
            let mut sent = 0;
            for (frames_end, piece) in &plan {
                match piece {
                    None => slices.push(IoSlice::new(&frames[sent..*frames_end])),
                    Some(piece) => slices.push(IoSlice::new(self.source(piece))),
                }
                sent = *frames_end;
            }
            let result = connection.write_all(&mut slices);
            connection.frames = frames;
            result?;
            if idle {
                return Ok(());
            }
        }
    }

    fn source(&self, piece: &Piece) -> &[u8] {
        let bytes = match &self.arguments[piece.param] {
            Argument::In(bytes) => *bytes,
            Argument::Out(bytes) => &**bytes,
            Argument::Scalar(_) | Argument::Skip => &[],
        };
        &bytes[piece.offset as usize..][..piece.length as usize]
    }

    fn receive(&mut self, connection: &mut Connection, id: CallId) -> Result<Times, Error> {
        let mut landing = Landing::new(self);
        loop {
            if let Some(chunk) = connection.proto.incoming() {
                landing.take_chunk(connection, chunk)?;
                continue;
            }
            match connection.next_event()? {
                Some(Event::Done(call, times)) if call == id => {
                    if landing.foreign_order {
                        self.swap_results();
                    }
                    return Ok(times);
                }
                Some(Event::Failed(call, failure)) if call == id => {
                    return Err(Error::Failed(failure));
                }
                Some(_) => {}
                None if connection.proto.incoming().is_some() => {}
                None => drop(connection.read_into(&mut Vec::new())?),
            }
        }
    }

    fn swap_results(&mut self) {
        for array in self
            .layout
            .arrays
            .iter()
            .filter(|array| array.mode.is_returned())
        {
            let Argument::Out(bytes) = &mut self.arguments[array.param] else {
                continue;
            };
            for run in array.client_runs() {
                let run = &mut bytes[run.offset as usize..][..run.len as usize];
                swap_bytes(run, array.element.swap_unit() as usize);
            }
        }
    }
}

/// Where the result stream goes: the caller's arrays.
struct Landing {
    pieces: Pieces,
    /// Start and length of each argument's memory; empty where nothing may be written.
    memory: Vec<(*mut u8, usize)>,
    foreign_order: bool,
}

impl Landing {
    fn new(exchange: &mut Exchange<'_, '_>) -> Landing {
        let memory = exchange
            .arguments
            .iter_mut()
            .map(|argument| match argument {
                Argument::Out(bytes) => (bytes.as_mut_ptr(), bytes.len()),
                _ => (std::ptr::null_mut(), 0),
            });
        Landing {
            memory: memory.collect(),
            pieces: Pieces::new(exchange.layout, Direction::Returned, Side::Client),
            foreign_order: false,
        }
    }

    /// Takes one whole chunk, from what has been read and then from the socket.
    fn take_chunk(&mut self, connection: &mut Connection, chunk: Chunk) -> Result<(), Error> {
        self.foreign_order = chunk.big_endian != cfg!(target_endian = "big");
        let (mut left, mut unplanned) = (chunk.length, chunk.length);
        let mut places: Vec<IoSliceMut<'_>> = Vec::new();
        while left > 0 {
            while places.len() < MAX_SLICES && unplanned > 0 {
                let piece = self
                    .pieces
                    .take(unplanned)
                    .expect("results are as long as announced");
                unplanned -= piece.length;
                places.push(IoSliceMut::new(self.place(&piece)));
            }
            let count = if connection.unread.is_empty() {
                connection.read_into(&mut places)?
            } else {
                copy_unread(connection, &mut places)
            };
            advance(&mut places, count);
            connection.proto.handle_data(count as u64);
            left -= count as u64;
        }
        Ok(())
    }

    /// The memory of one piece.
    fn place<'m>(&self, piece: &Piece) -> &'m mut [u8] {
        let (start, bytes) = self.memory[piece.param];
        let (offset, length) = (piece.offset as usize, piece.length as usize);
        assert!(offset + length <= bytes, "the layout fits the argument");
        // SAFETY: within an argument that the exchange borrows mutably for as long as `self` is
        // used; the pieces of one stream never overlap and each is taken once.
        unsafe { std::slice::from_raw_parts_mut(start.add(offset), length) }
    }
}

/// Drops the first `count` bytes of the places.
fn advance(places: &mut Vec<IoSliceMut<'_>>, count: usize) {
    let all = places.len();
    let mut rest = places.as_mut_slice();
    IoSliceMut::advance_slices(&mut rest, count);
    let left = rest.len();
    places.drain(..all - left);
}

/// Moves bytes that came with an earlier read.
fn copy_unread(connection: &mut Connection, places: &mut [IoSliceMut<'_>]) -> usize {
    let mut copied = 0;
    for place in places {
        let unread = &connection.input[connection.unread.clone()];
        let count = unread.len().min(place.len());
        place[..count].copy_from_slice(&unread[..count]);
        connection.unread.start += count;
        copied += count;
        if count < place.len() {
            break;
        }
    }
    copied
}
