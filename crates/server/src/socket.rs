//! One client's socket: moves bytes between it, the protocol and the memory of calls. It does not
//! decide what a message means. Array bytes go straight from the socket into the memory of a call
//! and back, and only what arrives with a frame header is copied.

use crate::access::{Claim, Evidence};
use crate::listen::{Accepted, bound_ahead};
use crate::memories::Memories;
use farcall_rpc_proto::{Chunk, Landing, Nanos, Piece, Transmit, User};
use farcall_server_proto::{ConnectionKey, Direction, MAX_SEGMENTS, MemoryKey, Server, Shown};
use farcall_tls::{Session, may_greet};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{readv, writev};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

/// Bytes that one connection may move, each way, before the others have their turn.
pub(crate) const TURN_BYTES: usize = 512 << 10;
/// Bytes read at once besides array data.
const INPUT_BYTES: usize = 16 << 10;
/// Bytes of a read beyond the array data it is for: room for the next frame headers, and little
/// more, because array data that land here are copied.
const LOOK_AHEAD: usize = 1 << 10;
/// Most buffers of one system call.
const MAX_SLICES: usize = 256;
/// Array bytes gathered before they are written.
const GATHER_BYTES: u64 = 256 << 10;
/// As many descriptors can go with one write as a connection may have segments.
const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_SEGMENTS));

/// What `advance` has done.
#[derive(Debug)]
pub(crate) enum Step {
    /// Some bytes have moved; there may be more.
    Progress(usize),
    /// The socket has no more.
    Blocked,
    /// No more may be read now.
    UsedUp,
    /// The client closed its side.
    Closed,
}

/// What was read beyond the places of array data.
struct Input {
    bytes: Vec<u8>,
    unread: std::ops::Range<usize>,
    /// Whether the last read has taken all that was there.
    is_drained: bool,
}

/// A part of the output that is not written yet.
enum Part {
    /// A range of `frames`.
    Frames { start: usize, end: usize },
    /// A piece of memory.
    Data { memory: MemoryKey, piece: Piece },
}

impl Part {
    /// Bytes.
    fn length(&self) -> usize {
        match self {
            Part::Frames { start, end } => end - start,
            Part::Data { piece, .. } => piece.length as usize,
        }
    }
}

/// The socket under TLS.
struct Bare<'s>(BorrowedFd<'s>);

impl Read for Bare<'_> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, place)?)
    }
}

impl Write for Bare<'_> {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, source, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One client's socket.
pub(crate) struct Socket {
    key: ConnectionKey,
    fd: OwnedFd,
    session: Option<Session>,
    /// Whether the client speaks TLS where it should; none before its first bytes.
    speaks_tls: Option<bool>,
    /// Who it is as long as it says nothing.
    user: User,
    /// Its host; `None` on a Unix socket.
    host: Option<IpAddr>,
    /// Both ends of a TCP connection within this host.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// To be handed over with the next bytes.
    descriptors: Vec<OwnedFd>,
    /// Whether it is among those with input to go on with.
    pub(crate) is_ready: bool,
    /// The event mask it is registered with.
    pub(crate) interest: EventFlags,
    input: Input,
    landing: Landing,
    frames: Vec<u8>,
    parts: VecDeque<Part>,
}

impl Socket {
    pub(crate) fn new(key: ConnectionKey, accepted: Accepted) -> Socket {
        Socket {
            key,
            fd: accepted.socket,
            speaks_tls: match accepted.session {
                Some(_) => None,
                None => Some(true),
            },
            session: accepted.session,
            user: accepted.user,
            host: accepted.host,
            ends: accepted.ends,
            descriptors: Vec::new(),
            is_ready: false,
            interest: EventFlags::IN,
            input: Input {
                bytes: vec![0; INPUT_BYTES],
                unread: 0..0,
                is_drained: false,
            },
            landing: Landing::default(),
            frames: Vec::new(),
            parts: VecDeque::new(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bounds what its client may send before it is read, or does so no longer.
    pub(crate) fn bound_ahead(&self, bytes: Option<u32>) {
        if let Err(error) = bound_ahead(self.fd(), bytes) {
            tracing::debug!("the buffer of a connection cannot be set: {error}");
        }
    }

    /// The evidence about its client, who shows this.
    pub(crate) fn evidence<'e>(&'e self, shown: &'e Shown) -> Evidence<'e> {
        Evidence {
            peer: &self.user,
            certificate: self.session.as_ref().and_then(Session::peer_name),
            claim: match shown {
                Shown::Token(_) => Claim::Token,
                Shown::First(first) => Claim::First(first),
                Shown::Nothing | Shown::Proof(_) | Shown::Loan => Claim::Nothing,
            },
            binding: self.session.as_ref().and_then(Session::binding),
            host: self.host,
            ends: self.ends,
        }
    }

    /// Whether the next bytes can take one more descriptor along. Until they leave, the server has
    /// it open, also if the client returns the memory.
    pub(crate) fn hands_over_more(&self) -> bool {
        self.descriptors.len() < MAX_SEGMENTS
    }

    /// Hands a descriptor over with the next bytes.
    pub(crate) fn hand_over(&mut self, descriptor: OwnedFd) {
        self.descriptors.push(descriptor);
    }

    /// Reads some bytes. Before the next read, the caller must do what the server then asks for.
    pub(crate) fn advance(&mut self, server: &mut Server, memories: &Memories) -> io::Result<Step> {
        if let Some(chunk) = server.clients().incoming(self.key) {
            return self.take_data(server, memories, &chunk);
        }
        if self.input.unread.is_empty() {
            // Nearly always there is no more than the read before has found. If there is, an event
            // tells.
            return match std::mem::take(&mut self.input.is_drained) {
                true => Ok(Step::Blocked),
                false => self.read_within(server, Vec::new(), 0),
            };
        }
        let input = &self.input.bytes[self.input.unread.clone()];
        let taken = server.handle_input(self.key, input);
        self.input.unread.start += taken;
        Ok(Step::Progress(taken))
    }

    /// Whether the client speaks in clear text to an address that speaks TLS.
    pub(crate) fn lacks_tls(&self) -> bool {
        self.speaks_tls == Some(false)
    }

    /// Looks at a client's first bytes: a client that does not speak TLS gets its answer in clear
    /// text.
    fn look_for_tls(&mut self) -> io::Result<()> {
        let mut first = [0; 2];
        let flags = RecvFlags::PEEK;
        let (count, _) = rustix::net::recv(&self.fd, &mut first, flags)?;
        self.speaks_tls = Some(may_greet(&first[..count]));
        if self.lacks_tls() {
            self.session = None;
        }
        Ok(())
    }

    /// Reads into places for pending bytes, as far as the connection's allowance permits.
    fn read_within(
        &mut self,
        server: &mut Server,
        places: Vec<IoSliceMut<'_>>,
        pending: u64,
    ) -> io::Result<Step> {
        let Some(allowance) = server.lanes().allowance(self.key, Direction::Up) else {
            return Ok(Step::UsedUp);
        };
        let most = usize::try_from(allowance.of(pending)).unwrap_or(usize::MAX);
        let is_limited = allowance.is_limited();
        let step = self.read(places, most, is_limited)?;
        if let (Step::Progress(count), Some(allowance)) =
            (&step, server.lanes().allowance(self.key, Direction::Up))
        {
            allowance.spend(*count as u64);
        }
        Ok(step)
    }

    /// Reads into `places`, and what arrives beyond them into the input buffer. Reads at most
    /// `most` bytes, which is at least the size of the places.
    fn read<'a>(
        &'a mut self,
        mut places: Vec<IoSliceMut<'a>>,
        most: usize,
        is_limited: bool,
    ) -> io::Result<Step> {
        if most == 0 {
            return Ok(Step::UsedUp);
        }
        if self.speaks_tls.is_none()
            && let Err(error) = self.look_for_tls()
        {
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(Step::Blocked),
                _ => Err(error),
            };
        }
        let room: usize = places.iter().map(|place| place.len()).sum();
        let ahead = match room > 0 || is_limited {
            true => LOOK_AHEAD,
            false => INPUT_BYTES,
        };
        let ahead = ahead.min(most.saturating_sub(room));
        if ahead > 0 {
            places.push(IoSliceMut::new(&mut self.input.bytes[..ahead]));
        }
        let asked = room + ahead;
        let is_plain = self.session.is_none();
        let read = match &mut self.session {
            None => readv(&self.fd, &mut places).map_err(io::Error::from),
            Some(session) => session.read(&mut Bare(self.fd.as_fd()), &mut places),
        };
        match read {
            Ok(0) => Ok(Step::Closed),
            Ok(count) => {
                self.input.unread = 0..count.saturating_sub(room);
                self.input.is_drained = is_plain && count < asked;
                Ok(Step::Progress(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::Blocked),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Step::Progress(0)),
            Err(error) => Err(error),
        }
    }

    /// Moves array data into memory.
    fn take_data(
        &mut self,
        server: &mut Server,
        memories: &Memories,
        chunk: &Chunk,
    ) -> io::Result<Step> {
        let Some(mut landed) = server.place(self.key, chunk) else {
            return self.discard(server, chunk);
        };
        let Some(memory) = memories.get(landed.memory) else {
            return self.discard(server, chunk);
        };
        let room = self
            .landing
            .plan(chunk.length, MAX_SLICES, |most| landed.next(most));
        let most = match (
            self.input.unread.is_empty(),
            server.lanes().allowance(self.key, Direction::Up),
        ) {
            (true, Some(allowance)) => {
                usize::try_from(allowance.of(chunk.length)).unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        };
        let mut left = most;
        let places = self.landing.pieces().map_while(|piece| {
            // SAFETY: the pieces of a stream are distinct parts of the call's memory. The memory
            // lives as long as the call, and no worker has it while arguments arrive.
            let place = unsafe { memory.part(piece.offset, piece.length) };
            let length = place.len().min(left);
            let is_over = left == 0;
            left -= length;
            (!is_over).then(|| IoSliceMut::new(&mut place[..length]))
        });
        let mut places: Vec<_> = places.collect();
        let step = if self.input.unread.is_empty() {
            self.read_within(server, places, chunk.length)?
        } else {
            Step::Progress(self.copy_unread(&mut places))
        };
        let Step::Progress(count) = step else {
            return Ok(step);
        };
        let taken = (count as u64).min(room);
        self.landing.fill(taken);
        server.handle_data(self.key, taken);
        Ok(Step::Progress(count))
    }

    /// Copies bytes that arrived with an earlier read.
    fn copy_unread(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for place in places {
            let unread = &self.input.bytes[self.input.unread.clone()];
            let count = unread.len().min(place.len());
            place[..count].copy_from_slice(&unread[..count]);
            self.input.unread.start += count;
            copied += count;
        }
        copied
    }

    /// Discards data of a call that is gone.
    fn discard(&mut self, server: &mut Server, chunk: &Chunk) -> io::Result<Step> {
        self.landing.clear();
        if self.input.unread.is_empty() {
            return self.read_within(server, Vec::new(), chunk.length);
        }
        let length = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        let count = self.input.unread.len().min(length);
        self.input.unread.start += count;
        server.handle_data(self.key, count as u64);
        Ok(Step::Progress(count))
    }

    /// Writes until all output is written, the socket accepts no more, or the turn ends. Returns
    /// whether all is written.
    ///
    /// The times of a call end with the write of its last byte, so `clock` is read repeatedly.
    pub(crate) fn flush(
        &mut self,
        server: &mut Server,
        memories: &Memories,
        clock: impl Fn() -> Nanos,
    ) -> io::Result<bool> {
        let mut moved = 0;
        loop {
            if self.parts.is_empty() {
                self.frames.clear();
                self.gather(server, clock())?;
            }
            if self.parts.is_empty() {
                return self.flush_session();
            }
            if moved >= TURN_BYTES {
                // The gathered bytes make the connection wait for its next turn.
                return Ok(false);
            }
            let most = self.allowed_out(server);
            if most == 0 {
                return Ok(false);
            }
            match self.write(memories, most) {
                Ok(count) => {
                    if let Some(allowance) = server.lanes().allowance(self.key, Direction::Down) {
                        allowance.spend(count as u64);
                    }
                    self.descriptors.clear();
                    self.written(count);
                    server.clients_mut().taken(self.key, count as u64, clock());
                    moved += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the connection. Its last output is written if the socket accepts it now and it cuts no
    /// transfer.
    pub(crate) fn farewell(mut self, server: &mut Server, memories: &Memories, now: Nanos) {
        if !self.parts.is_empty() {
            return;
        }
        self.frames.clear();
        loop {
            let start = self.frames.len();
            match server
                .clients_mut()
                .poll_transmit(self.key, &mut self.frames, now)
            {
                Transmit::Frames => {}
                Transmit::Idle => break,
                Transmit::Data(_) => {
                    self.frames.truncate(start);
                    break;
                }
            }
        }
        let end = self.frames.len();
        if end > 0 {
            self.parts.push_back(Part::Frames { start: 0, end });
            // There is one try: a client that has left or violates the protocol is not waited for.
            let _ = self.write(memories, usize::MAX);
            let _ = self.flush_session();
        }
    }

    /// Writes what TLS still holds. Returns whether all is written.
    fn flush_session(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            return Ok(true);
        };
        match session.flush(&mut Bare(self.fd.as_fd())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether all gathered bytes are written.
    pub(crate) fn is_flushed(&self) -> bool {
        let session = self.session.as_ref();
        self.parts.is_empty() && !session.is_some_and(Session::wants_write)
    }

    /// Gathers what the protocol wants to send, up to a bound.
    fn gather(&mut self, server: &mut Server, now: Nanos) -> io::Result<()> {
        let mut gathered = 0;
        // Bytes that may not be sent yet would only delay what comes up meanwhile.
        let left = server
            .lanes()
            .allowance(self.key, Direction::Down)
            .map_or(0, |allowed| allowed.left());
        let bound = GATHER_BYTES.min(left.max(1));
        while gathered < bound {
            let start = self.frames.len();
            let transmit = server
                .clients_mut()
                .poll_transmit(self.key, &mut self.frames, now);
            let end = self.frames.len();
            if end > start {
                self.parts.push_back(Part::Frames { start, end });
            }
            match transmit {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    gathered += chunk.length;
                    self.gather_chunk(server, &chunk)?;
                }
            }
        }
        Ok(())
    }

    fn gather_chunk(&mut self, server: &mut Server, chunk: &Chunk) -> io::Result<()> {
        let mut left = chunk.length;
        while left > 0 {
            let next = server.next_outgoing(self.key, chunk, left);
            let (memory, piece) =
                next.ok_or_else(|| io::Error::other("the results are shorter than announced"))?;
            left -= piece.length;
            self.parts.push_back(Part::Data { memory, piece });
        }
        Ok(())
    }

    /// How many of the gathered bytes may be sent now.
    fn allowed_out(&self, server: &mut Server) -> usize {
        let Some(allowance) = server.lanes().allowance(self.key, Direction::Down) else {
            return 0;
        };
        if !allowance.is_limited() {
            return usize::MAX;
        }
        let pending = self.parts.iter().map(Part::length).sum::<usize>();
        usize::try_from(allowance.of(pending as u64)).unwrap_or(usize::MAX)
    }

    /// Writes at most `most` bytes.
    fn write(&mut self, memories: &Memories, most: usize) -> io::Result<usize> {
        let mut left = most;
        let slices = self.parts.iter().take(MAX_SLICES).map_while(|part| {
            let bytes: &[u8] = match part {
                Part::Frames { start, end } => &self.frames[*start..*end],
                // SAFETY: the call lives until its last piece is written, and its worker has
                // finished with the memory.
                Part::Data { memory, piece } => unsafe {
                    memories.get(*memory)?.part(piece.offset, piece.length)
                },
            };
            let is_over = left == 0;
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            (!is_over).then(|| IoSlice::new(bytes))
        });
        let slices: Vec<_> = slices.collect();
        if slices.is_empty() {
            return Err(io::Error::other("the memory of the results is gone"));
        }
        if let Some(session) = &mut self.session {
            return session.write(&mut Bare(self.fd.as_fd()), &slices);
        }
        if self.descriptors.is_empty() {
            return Ok(writev(&self.fd, &slices)?);
        }
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(&self.fd, &slices, &mut ancillary, SendFlags::NOSIGNAL);
        Ok(sent?)
    }

    fn written(&mut self, mut count: usize) {
        while count > 0 {
            let Some(part) = self.parts.front_mut() else {
                return;
            };
            let length = part.length();
            if count < length {
                match part {
                    Part::Frames { start, .. } => *start += count,
                    Part::Data { piece, .. } => {
                        piece.offset += count as u64;
                        piece.length -= count as u64;
                    }
                }
                return;
            }
            count -= length;
            self.parts.pop_front();
        }
    }
}
