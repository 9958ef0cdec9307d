//! The sender: decides the order of outgoing frames. Control frames go first. Data streams follow
//! one after the other, but a stream of a single chunk overtakes, between two chunks of the others.
//!
//! A call with long arguments waits for the server's grant. If the server gives no grants, such a
//! call is opened only when its data begin. A server that must wait for memory has then received
//! all calls before it.

use crate::frame::{BIG_ENDIAN, Header};
use crate::{CallId, Chunk, Kind, Limits};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Feature bit: a stream longer than a chunk waits for the server's grant.
pub const CREDIT: u64 = 1 << 7;

/// What `poll_transmit` has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Nothing to send now.
    Idle,
    /// Frame bytes were appended; poll again.
    Frames,
    /// A data header was appended: this part of the data stream follows it on the wire.
    Data(Chunk),
}

struct Outbound {
    call: CallId,
    /// The frame that opens the call, if it is not sent yet.
    opening: Vec<u8>,
    next: u64,
    total: u64,
}

/// The outgoing side of a connection.
pub(crate) struct Sender {
    chunk_bytes: u64,
    grant_bytes: u64,
    /// Encoded control frames.
    pub(crate) control: Vec<u8>,
    streams: VecDeque<Outbound>,
    /// Lengths of streams that wait for a grant.
    held: BTreeMap<CallId, u64>,
    /// Whether the last chunk was a whole stream that overtook others.
    overtaken: bool,
}

impl Sender {
    pub(crate) fn new(limits: &Limits) -> Sender {
        let chunk_bytes = u64::from(limits.chunk_bytes.max(1));
        Sender {
            chunk_bytes,
            grant_bytes: u64::from(limits.grant_bytes),
            control: Vec::new(),
            streams: VecDeque::new(),
            held: BTreeMap::new(),
            overtaken: false,
        }
    }

    /// Queues a stream, and before it the frame that opens its call. A long stream waits for a
    /// grant if the server gives grants.
    pub(crate) fn start_call(
        &mut self,
        call: CallId,
        mut opening: Vec<u8>,
        total: u64,
        granted: bool,
    ) {
        let waits = !granted && self.is_long(total);
        if waits || total <= self.chunk_bytes {
            self.control.append(&mut opening);
        }
        match waits {
            true => drop(self.held.insert(call, total)),
            false => self.queue(call, opening, total),
        }
    }

    /// Releases the stream of a call. Returns `false` if it was not waiting.
    pub(crate) fn grant(&mut self, call: CallId) -> bool {
        let Some(total) = self.held.remove(&call) else {
            return false;
        };
        self.queue(call, Vec::new(), total);
        true
    }

    /// Whether a stream of this length waits for a grant.
    pub(crate) fn is_long(&self, total: u64) -> bool {
        total > self.grant_bytes
    }

    pub(crate) fn start_stream(&mut self, call: CallId, total: u64) {
        self.queue(call, Vec::new(), total);
    }

    fn queue(&mut self, call: CallId, opening: Vec<u8>, total: u64) {
        if total > 0 {
            self.streams.push_back(Outbound {
                call,
                opening,
                next: 0,
                total,
            });
        }
    }

    /// Withdraws the unsent part of the call's stream. Returns whether there was one. The call is
    /// still opened, so that it can be given up.
    pub(crate) fn drop_stream(&mut self, call: CallId) -> bool {
        if self.held.remove(&call).is_some() {
            return true;
        }
        let index = self.streams.iter().position(|stream| stream.call == call);
        let Some(mut stream) = index.and_then(|index| self.streams.remove(index)) else {
            return false;
        };
        self.control.append(&mut stream.opening);
        true
    }

    /// The stream whose turn it is.
    fn next_stream(&mut self) -> Option<Outbound> {
        let short = |stream: &Outbound| stream.total <= self.chunk_bytes;
        let overtaking = match self.overtaken {
            true => None,
            false => self.streams.iter().position(short),
        };
        self.overtaken = overtaking.is_some_and(|index| index > 0);
        self.streams.remove(overtaking.unwrap_or(0))
    }

    /// Whether a part of the call's stream is unsent.
    pub(crate) fn has_stream(&self, call: CallId) -> bool {
        self.held.contains_key(&call) || self.streams.iter().any(|stream| stream.call == call)
    }

    /// Whether the other side cannot have accepted the call: the frame that opens it goes with its
    /// data and is unsent, or the grant for its data has not come.
    pub(crate) fn keeps_back(&self, call: CallId) -> bool {
        self.held.contains_key(&call) || self.is_unopened(call)
    }

    /// Whether the frame that opens the call goes with its data and is unsent.
    pub(crate) fn is_unopened(&self, call: CallId) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|stream| stream.call == call && !stream.opening.is_empty())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.streams.is_empty() && self.held.is_empty()
    }

    /// Appends the next frames to `out`. The returned flag marks the last chunk of a stream.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> (Transmit, bool) {
        if !self.control.is_empty() {
            out.append(&mut self.control);
            return (Transmit::Frames, false);
        }
        let Some(mut stream) = self.next_stream() else {
            return (Transmit::Idle, false);
        };
        let length = self.chunk_bytes.min(stream.total - stream.next);
        let big_endian = cfg!(target_endian = "big");
        let flags = if big_endian { BIG_ENDIAN } else { 0 };
        let header = Header {
            kind: Kind::Data,
            flags,
            call: stream.call,
            length: length as u32,
        };
        out.append(&mut stream.opening);
        out.extend_from_slice(&header.encode());
        let (call, offset) = (stream.call, stream.next);
        stream.next += length;
        let finished = stream.next == stream.total;
        if !finished {
            self.streams.push_front(stream);
        }
        (
            Transmit::Data(Chunk {
                call,
                offset,
                length,
                big_endian,
                discard: false,
            }),
            finished,
        )
    }
}
