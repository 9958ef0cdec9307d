//! Orders what goes out: control frames first, then the data streams in turn, a chunk each.

use crate::frame::{BIG_ENDIAN, Header, Kind};
use crate::{CallId, Chunk, Limits};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What `poll_transmit` has put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Nothing (more) to send now.
    Idle,
    /// Frame bytes were appended; poll again.
    Frames,
    /// A data header was appended: this part of the data stream follows it on the wire.
    Data(Chunk),
}

struct Outbound {
    call: CallId,
    next: u64,
    total: u64,
}

/// The outgoing side of a connection.
pub(crate) struct Sender {
    chunk_bytes: u64,
    /// Encoded control frames.
    pub(crate) control: Vec<u8>,
    streams: VecDeque<Outbound>,
}

impl Sender {
    pub(crate) fn new(limits: &Limits) -> Sender {
        let chunk_bytes = u64::from(limits.chunk_bytes.max(1));
        Sender {
            chunk_bytes,
            control: Vec::new(),
            streams: VecDeque::new(),
        }
    }

    pub(crate) fn start_stream(&mut self, call: CallId, total: u64) {
        if total > 0 {
            self.streams.push_back(Outbound {
                call,
                next: 0,
                total,
            });
        }
    }

    /// Withdraws what of the call's stream is not out yet; says whether there was any.
    pub(crate) fn drop_stream(&mut self, call: CallId) -> bool {
        let before = self.streams.len();
        self.streams.retain(|stream| stream.call != call);
        self.streams.len() < before
    }

    /// Whether some of the call's stream is not out yet.
    pub(crate) fn has_stream(&self, call: CallId) -> bool {
        self.streams.iter().any(|stream| stream.call == call)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.streams.is_empty()
    }

    /// Appends the next frames to `out`. With the last chunk of a stream, `finished` is told.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> (Transmit, bool) {
        if !self.control.is_empty() {
            out.append(&mut self.control);
            return (Transmit::Frames, false);
        }
        let Some(mut stream) = self.streams.pop_front() else {
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
        out.extend_from_slice(&header.encode());
        let (call, offset) = (stream.call, stream.next);
        stream.next += length;
        let finished = stream.next == stream.total;
        if !finished {
            self.streams.push_back(stream);
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
