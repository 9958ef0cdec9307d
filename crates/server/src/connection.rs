//! One client connection: moves bytes between the socket, the protocol and the job buffers.

use crate::access::Evidence;
use crate::allowance::Allowance;
use crate::buffer::Segment;
use crate::job::Job;
use crate::listen::{Accepted, bound_ahead};
use crate::reactor::Way;
use crate::user::User;
use farcall_rpc_proto::HandleId;
use farcall_rpc_proto::server::{self, Event};
use farcall_rpc_proto::{
    Call, CallId, Chunk, Failure, Hello, Landing, Limits, Nanos, Piece, ProtocolError, Pull, Put,
    Submission, Transmit,
};
use farcall_tls::Session;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{readv, writev};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::rc::Rc;

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

/// Segments of one connection; so many descriptors can go with one write.
pub(crate) const MAX_SEGMENTS: usize = 200;
const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_SEGMENTS));

/// What `advance` has done.
#[derive(Debug)]
pub(crate) enum Step {
    /// Some bytes have moved; there may be more.
    Progress(usize),
    Event(Event),
    /// The socket has no more.
    Blocked,
    /// No more may be read now.
    UsedUp,
    /// The client closed its side.
    Closed,
}

/// Why a connection ends before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(
        "it has not read results for {0} s (limits.stalled_s and limits.stalled_busy_s in the \
         configuration)"
    )]
    Stalled(f64),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What a client offers.
pub(crate) enum Offer {
    Call(Call),
    Submission(Submission),
    Put(Put),
    Pull(Pull),
}

impl Offer {
    /// Bytes of its data stream.
    pub(crate) fn data_bytes(&self) -> u64 {
        match self {
            Offer::Put(put) => put.data_bytes,
            _ => self.call().map_or(0, |call| call.data_bytes),
        }
    }

    /// The call that it is, if it is one.
    pub(crate) fn call(&self) -> Option<&Call> {
        match self {
            Offer::Call(call) => Some(call),
            Offer::Submission(submission) => Some(&submission.call),
            Offer::Put(_) | Offer::Pull(_) => None,
        }
    }
}

/// A part of what is to be written.
enum Part {
    /// A range of `frames`.
    Frames { start: usize, end: usize },
    /// A piece of a job's buffer.
    Data { job: usize, piece: Piece },
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

/// An object of a client.
#[derive(Clone)]
pub(crate) struct Object {
    /// The file and the class.
    pub(crate) file: usize,
    pub(crate) class: String,
    /// The worker that holds it, or what becomes of calls because there is none any more.
    pub(crate) worker: Result<usize, Failure>,
    /// Its name, where it stays when its connections end.
    pub(crate) kept: Option<HandleId>,
}

/// One client connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    session: Option<Session>,
    /// Whether the client speaks TLS where it should; none before its first bytes.
    speaks_tls: Option<bool>,
    /// Who it is, for the log.
    pub(crate) peer: String,
    pub(crate) user: User,
    /// The host it comes from; none on a Unix socket.
    pub(crate) host: Option<IpAddr>,
    pub(crate) proto: server::Connection,
    pub(crate) connected: bool,
    pub(crate) opened: Nanos,
    /// Open jobs by call number.
    pub(crate) jobs: HashMap<CallId, usize>,
    /// Memory shared with the client, by the request that asked for it.
    pub(crate) segments: HashMap<CallId, Rc<Segment>>,
    /// By the request that asked for it.
    pub(crate) objects: HashMap<CallId, Object>,
    /// To be handed over with the next bytes.
    descriptors: Vec<OwnedFd>,
    /// Whether it is among those with input to go on with.
    pub(crate) is_ready: bool,
    /// A call that waits for memory; nothing is read until it has some.
    pub(crate) waiting: Option<(CallId, Offer)>,
    /// Calls that wait for a grant, in their order.
    pub(crate) held: VecDeque<(CallId, Offer)>,
    /// Whether its bytes cross a link.
    pub(crate) crosses_link: bool,
    /// The reservation whose bandwidth it has.
    pub(crate) reservation: Option<u64>,
    /// What it may move, up and down.
    pub(crate) allowed: [Allowance; 2],
    /// The event mask it is registered with.
    pub(crate) interest: EventFlags,
    input: Vec<u8>,
    unread: std::ops::Range<usize>,
    landing: Landing,
    frames: Vec<u8>,
    parts: VecDeque<Part>,
    /// Jobs whose results are being written; released once all is out.
    pub(crate) sending: Vec<usize>,
    /// When the client has taken something last.
    pub(crate) taken: Nanos,
}

impl Connection {
    pub(crate) fn new(accepted: Accepted, limits: Limits, hello: Hello, now: Nanos) -> Connection {
        Connection {
            socket: accepted.socket,
            speaks_tls: match accepted.session {
                Some(_) => None,
                None => Some(true),
            },
            session: accepted.session,
            peer: accepted.peer,
            user: accepted.user,
            host: accepted.host,
            proto: server::Connection::new(limits, hello),
            connected: false,
            opened: now,
            jobs: HashMap::new(),
            segments: HashMap::new(),
            objects: HashMap::new(),
            descriptors: Vec::new(),
            is_ready: false,
            waiting: None,
            held: VecDeque::new(),
            crosses_link: !accepted.is_unix,
            reservation: None,
            allowed: Default::default(),
            interest: EventFlags::IN,
            input: vec![0; INPUT_BYTES],
            unread: 0..0,
            landing: Landing::default(),
            frames: Vec::new(),
            parts: VecDeque::new(),
            sending: Vec::new(),
            taken: now,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether more input can be handled now.
    pub(crate) fn takes_input(&self) -> bool {
        self.waiting.is_none() && !self.proto.is_congested()
    }

    /// Bounds what its client may send before it is read, or does so no longer.
    pub(crate) fn bound_ahead(&self, bytes: Option<u32>) {
        if self.crosses_link
            && let Err(error) = bound_ahead(self.fd(), bytes)
        {
            tracing::debug!("{}: its buffer cannot be set: {error}", self.peer);
        }
    }

    /// Whether it waits until it may move more.
    pub(crate) fn waits(&self, way: Way) -> bool {
        self.allowed[way as usize].is_used_up()
    }

    /// What it shows of its client, who gives this token.
    pub(crate) fn evidence<'e>(&'e self, token: Option<&'e str>) -> Evidence<'e> {
        Evidence {
            peer: &self.user,
            certificate: self.session.as_ref().and_then(Session::peer_name),
            token,
        }
    }

    /// Answers a request for shared memory.
    pub(crate) fn share(&mut self, request: CallId, segment: Segment) -> io::Result<()> {
        self.descriptors.push(segment.fd.try_clone()?);
        self.proto.shared(request, segment.bytes as u64);
        self.segments.insert(request, Rc::new(segment));
        Ok(())
    }

    /// Moves some bytes inwards. An event must be answered before the next call.
    pub(crate) fn advance(&mut self, jobs: &mut Slab<Job>, now: Nanos) -> Result<Step, Broken> {
        if let Some(chunk) = self.proto.incoming() {
            return self.take_data(jobs, chunk, now);
        }
        if self.unread.is_empty() {
            let most = self.allowed_in(0);
            return self.read(Vec::new(), most);
        }
        let input = &self.input[self.unread.clone()];
        let (taken, event) = self.proto.handle_input(input, now)?;
        self.unread.start += taken;
        Ok(event.map_or(Step::Progress(taken), Step::Event))
    }

    /// Whether the client speaks in clear text to an address that speaks TLS.
    pub(crate) fn lacks_tls(&self) -> bool {
        self.speaks_tls == Some(false)
    }

    /// Looks at a client's first bytes: one that does not speak TLS is to be told in clear text.
    fn look_for_tls(&mut self) -> io::Result<()> {
        /// How a TLS record with a part of a greeting begins (RFC 8446, 5.1).
        const GREETING: [u8; 2] = [0x16, 0x03];
        let mut first = [0; 2];
        let flags = RecvFlags::PEEK;
        let (count, _) = rustix::net::recv(&self.socket, &mut first, flags)?;
        self.speaks_tls = Some(first[..count] == GREETING[..count]);
        if self.lacks_tls() {
            self.session = None;
        }
        Ok(())
    }

    /// Reads into `places`, and what comes beyond them into the input buffer; at most so many
    /// bytes, which are as many as the places have or more.
    fn read<'a>(
        &'a mut self,
        mut places: Vec<IoSliceMut<'a>>,
        most: usize,
    ) -> Result<Step, Broken> {
        if most == 0 {
            return Ok(Step::UsedUp);
        }
        if self.speaks_tls.is_none()
            && let Err(error) = self.look_for_tls()
        {
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(Step::Blocked),
                _ => Err(error.into()),
            };
        }
        let room: usize = places.iter().map(|place| place.len()).sum();
        let ahead = match room > 0 || self.allowed[Way::Up as usize].is_limited() {
            true => LOOK_AHEAD,
            false => INPUT_BYTES,
        };
        let ahead = ahead.min(most.saturating_sub(room));
        if ahead > 0 {
            places.push(IoSliceMut::new(&mut self.input[..ahead]));
        }
        let read = match &mut self.session {
            None => readv(&self.socket, &mut places).map_err(io::Error::from),
            Some(session) => session.read(&mut Bare(self.socket.as_fd()), &mut places),
        };
        match read {
            Ok(0) => Ok(Step::Closed),
            Ok(count) => {
                self.allowed[Way::Up as usize].spend(count as u64);
                self.unread = 0..count.saturating_sub(room);
                Ok(Step::Progress(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::Blocked),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Step::Progress(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves array data to their places in the job buffer.
    fn take_data(
        &mut self,
        jobs: &mut Slab<Job>,
        chunk: Chunk,
        now: Nanos,
    ) -> Result<Step, Broken> {
        let job = self
            .jobs
            .get(&chunk.call)
            .and_then(|key| jobs.get_mut(*key));
        let Some(job) = job.filter(|_| !chunk.discard) else {
            return self.discard(chunk, now);
        };
        job.moved = now;
        job.swap = chunk.big_endian != cfg!(target_endian = "big");
        let room = self
            .landing
            .plan(chunk.length, MAX_SLICES, |most| job.next_incoming(most));
        let allowance = &mut self.allowed[Way::Up as usize];
        let most = match self.unread.is_empty() {
            true => usize::try_from(allowance.of(chunk.length)).unwrap_or(usize::MAX),
            false => usize::MAX,
        };
        let mut left = most;
        let places = self.landing.pieces().map_while(|piece| {
            // SAFETY: the pieces of a stream are distinct parts of the job's buffer, which lives
            // as long as the job and which no worker has while arguments arrive.
            let place = unsafe { &mut *job.memory(piece) };
            let length = place.len().min(left);
            let is_over = left == 0;
            left -= length;
            (!is_over).then(|| IoSliceMut::new(&mut place[..length]))
        });
        let mut places: Vec<_> = places.collect();
        let step = if self.unread.is_empty() {
            self.read(places, most)?
        } else {
            Step::Progress(self.copy_unread(&mut places))
        };
        let Step::Progress(count) = step else {
            return Ok(step);
        };
        let taken = (count as u64).min(room);
        self.landing.fill(taken);
        let event = self.proto.handle_data(taken, now);
        Ok(event.map_or(Step::Progress(count), Step::Event))
    }

    /// How many bytes of so many that are to come may be read now.
    fn allowed_in(&mut self, pending: u64) -> usize {
        let allowance = &mut self.allowed[Way::Up as usize];
        usize::try_from(allowance.of(pending)).unwrap_or(usize::MAX)
    }

    /// Copies bytes that came with an earlier read.
    fn copy_unread(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for place in places {
            let unread = &self.input[self.unread.clone()];
            let count = unread.len().min(place.len());
            place[..count].copy_from_slice(&unread[..count]);
            self.unread.start += count;
            copied += count;
        }
        copied
    }

    /// Throws away data of a call that is gone.
    fn discard(&mut self, chunk: Chunk, now: Nanos) -> Result<Step, Broken> {
        self.landing.clear();
        if self.unread.is_empty() {
            let most = self.allowed_in(chunk.length);
            return self.read(Vec::new(), most);
        }
        let count = self
            .unread
            .len()
            .min(usize::try_from(chunk.length).unwrap_or(usize::MAX));
        self.unread.start += count;
        let event = self.proto.handle_data(count as u64, now);
        Ok(event.map_or(Step::Progress(count), Step::Event))
    }

    /// Writes until everything is out, the socket takes no more, or it is time for the others.
    /// Returns whether all is out.
    ///
    /// The times of a call end with the write of its last byte, so `clock` is read again and again.
    pub(crate) fn flush(
        &mut self,
        jobs: &mut Slab<Job>,
        clock: impl Fn() -> Nanos,
    ) -> io::Result<bool> {
        let mut moved = 0;
        loop {
            if self.parts.is_empty() {
                self.frames.clear();
                self.gather(jobs, clock());
            }
            if self.parts.is_empty() {
                return self.flush_session();
            }
            if moved >= TURN_BYTES {
                // What was gathered keeps the connection waiting for its next turn.
                return Ok(false);
            }
            let most = self.allowed_out();
            if most == 0 {
                return Ok(false);
            }
            match self.write(jobs, most) {
                Ok(count) => {
                    self.allowed[Way::Down as usize].spend(count as u64);
                    self.descriptors.clear();
                    self.written(count);
                    self.taken = clock();
                    moved += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what TLS still holds. Returns whether all is out.
    fn flush_session(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            return Ok(true);
        };
        match session.flush(&mut Bare(self.socket.as_fd())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing that was gathered is still to be written.
    pub(crate) fn is_flushed(&self) -> bool {
        let session = self.session.as_ref();
        self.parts.is_empty() && !session.is_some_and(Session::wants_write)
    }

    /// Collects what the protocol wants sent, up to a bound.
    fn gather(&mut self, jobs: &mut Slab<Job>, now: Nanos) {
        let mut gathered = 0;
        // What has no room yet would only be in the way of what comes up until then.
        let bound = GATHER_BYTES.min(self.allowed[Way::Down as usize].left().max(1));
        while gathered < bound {
            let start = self.frames.len();
            let transmit = self.proto.poll_transmit(&mut self.frames, now);
            let end = self.frames.len();
            if end > start {
                self.parts.push_back(Part::Frames { start, end });
            }
            match transmit {
                Transmit::Idle => return,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    gathered += chunk.length;
                    self.gather_chunk(jobs, chunk);
                }
            }
        }
    }

    fn gather_chunk(&mut self, jobs: &mut Slab<Job>, chunk: Chunk) {
        let key = self.jobs[&chunk.call];
        let mut left = chunk.length;
        while left > 0 {
            let piece = jobs[key]
                .next_outgoing(left)
                .expect("as long as the layout says");
            left -= piece.length;
            self.parts.push_back(Part::Data { job: key, piece });
        }
    }

    /// How many of the gathered bytes may be written now.
    fn allowed_out(&mut self) -> usize {
        let allowance = &mut self.allowed[Way::Down as usize];
        if !allowance.is_limited() {
            return usize::MAX;
        }
        let pending = self.parts.iter().map(Part::length).sum::<usize>();
        usize::try_from(allowance.of(pending as u64)).unwrap_or(usize::MAX)
    }

    /// Writes at most so many bytes.
    fn write(&mut self, jobs: &Slab<Job>, most: usize) -> io::Result<usize> {
        let mut left = most;
        let slices = self.parts.iter().take(MAX_SLICES).map_while(|part| {
            let bytes = match part {
                Part::Frames { start, end } => &self.frames[*start..*end],
                // SAFETY: the job lives until its last piece is written, and its worker has
                // finished with the buffer.
                Part::Data { job, piece } => unsafe { &*jobs[*job].memory(piece) },
            };
            let is_over = left == 0;
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            (!is_over).then(|| IoSlice::new(bytes))
        });
        let slices: Vec<_> = slices.collect();
        if let Some(session) = &mut self.session {
            return session.write(&mut Bare(self.socket.as_fd()), &slices);
        }
        if self.descriptors.is_empty() {
            return Ok(writev(&self.socket, &slices)?);
        }
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); ANCILLARY_BYTES];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(&self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL);
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
