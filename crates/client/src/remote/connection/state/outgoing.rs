//! Gathers what the protocol wants to send, and writes it without a copy. `pace` limits the rate.
//! If a call is given up after a header has announced its data, a copy of them is sent: the stream
//! stays correct, and a part of an array that also travels on another connection keeps its bytes.

use super::{Loss, MAX_SLICES, OpenRequests, State};
use crate::remote::connection::pace::Pace;
use crate::remote::connection::transfer::Transfer;
use crate::remote::socket::Socket;
use farcall_rpc_proto::{CallId, Chunk, Piece, Transmit, client};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Instant;

/// Writes before another thread may take the lock.
const TURN_WRITES: usize = 8;

/// A part of the bytes to write.
enum Part {
    /// A range of `frames`.
    Frames { start: usize, end: usize },
    /// A piece of a call's arrays.
    Data { call: CallId, piece: Piece },
    /// A copy of the data of a call that was given up after its header was written.
    Copy(Vec<u8>),
}

impl Part {
    /// Length in bytes.
    fn length(&self) -> usize {
        match self {
            Part::Frames { start, end } => end - start,
            Part::Data { piece, .. } => piece.length as usize,
            Part::Copy(bytes) => bytes.len(),
        }
    }
}

/// Bytes that are gathered and not written yet.
pub(super) struct Outgoing {
    /// Array bytes gathered before they are written.
    gather_bytes: u64,
    frames: Vec<u8>,
    parts: VecDeque<Part>,
    /// Whether the socket holds bytes that wait for room.
    unsent: bool,
    /// The sending rate, if the connection has reserved bandwidth.
    pace: Option<Pace>,
}

impl State {
    pub(super) fn write(&mut self, socket: &Socket) -> Result<(), Loss> {
        let written = self.write_parts(socket);
        match socket.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
            _ => self.outgoing.unsent = socket.wants_write(),
        }
        written
    }

    fn write_parts(&mut self, socket: &Socket) -> Result<(), Loss> {
        let (outgoing, open) = (&mut self.outgoing, &mut self.open);
        for _ in 0..TURN_WRITES {
            outgoing.refill(&mut self.proto, open);
            if outgoing.parts.is_empty() {
                return Ok(());
            }
            let most = outgoing.room();
            if most == 0 {
                return Ok(());
            }
            match socket.write(&outgoing.slices(most, open)) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => outgoing.written(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Gathers more, so that `has_unsent` is right.
        outgoing.refill(&mut self.proto, open);
        Ok(())
    }
}

impl Outgoing {
    pub(super) fn new(gather_bytes: u64) -> Outgoing {
        Outgoing {
            gather_bytes,
            frames: Vec::new(),
            parts: VecDeque::new(),
            unsent: false,
            pace: None,
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.parts.is_empty() || self.unsent
    }

    /// The time until which nothing is sent.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.pace.as_ref().and_then(Pace::pause)
    }

    pub(super) fn set_pace(&mut self, pace: Option<Pace>) {
        self.pace = pace;
    }

    /// Discards the gathered bytes.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
    }

    /// Copies data of a call that a header has announced, and that are not written yet. The memory
    /// of the call is not read afterwards.
    pub(super) fn withdraw(&mut self, id: CallId, transfer: Option<&Transfer>) {
        for part in &mut self.parts {
            if let Part::Data { call, piece } = part
                && *call == id
            {
                let data = transfer.map(|transfer| transfer.source(piece).to_vec());
                *part = Part::Copy(data.unwrap_or_else(|| vec![0; piece.length as usize]));
            }
        }
    }

    /// How many of the gathered bytes may be sent now.
    fn room(&mut self) -> usize {
        match &mut self.pace {
            None => usize::MAX,
            Some(pace) => pace.room(self.parts.iter().map(Part::length).sum()),
        }
    }

    /// The first gathered bytes, at most `most`.
    fn slices<'s>(&'s self, most: usize, open: &'s OpenRequests) -> Vec<IoSlice<'s>> {
        let mut left = most;
        let slices = self.parts.iter().take(MAX_SLICES).map_while(|part| {
            let bytes = self.source(part, open);
            let is_over = left == 0;
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            (!is_over).then(|| IoSlice::new(bytes))
        });
        slices.collect()
    }

    fn source<'s>(&'s self, part: &'s Part, open: &'s OpenRequests) -> &'s [u8] {
        match part {
            Part::Frames { start, end } => &self.frames[*start..*end],
            Part::Data { call, piece } => match open[call].transfer.as_ref() {
                Some(transfer) => transfer.source(piece),
                None => &[],
            },
            Part::Copy(bytes) => bytes,
        }
    }

    /// Gathers what the protocol wants to send, up to a bound, after everything was written.
    fn refill(&mut self, proto: &mut client::Connection, open: &mut OpenRequests) {
        if !self.parts.is_empty() {
            return;
        }
        self.frames.clear();
        let mut gathered = 0;
        let burst = self.pace.as_ref().map_or(u64::MAX, Pace::burst);
        while gathered < self.gather_bytes.min(burst) {
            let start = self.frames.len();
            let transmit = proto.poll_transmit(&mut self.frames);
            let end = self.frames.len();
            if end > start {
                self.parts.push_back(Part::Frames { start, end });
            }
            match transmit {
                Transmit::Idle => return,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    gathered += chunk.length;
                    self.gather_chunk(&chunk, open);
                }
            }
        }
    }

    fn gather_chunk(&mut self, chunk: &Chunk, open: &mut OpenRequests) {
        let open = open.get_mut(chunk.call);
        let transfer = open.and_then(|open| open.transfer.as_mut());
        let transfer = transfer.expect("only open calls are sent");
        let mut left = chunk.length;
        while let Some(piece) = transfer.next_outgoing(left) {
            left -= piece.length;
            self.parts.push_back(Part::Data {
                call: chunk.call,
                piece,
            });
        }
    }

    fn written(&mut self, count: usize) {
        if let Some(pace) = &mut self.pace {
            pace.spend(count);
        }
        let mut left = count;
        while let Some(part) = self.parts.front_mut() {
            let length = part.length();
            if left < length {
                match part {
                    Part::Frames { start, .. } => *start += left,
                    Part::Data { piece, .. } => {
                        piece.offset += left as u64;
                        piece.length -= left as u64;
                    }
                    Part::Copy(bytes) => drop(bytes.drain(..left)),
                }
                return;
            }
            left -= length;
            self.parts.pop_front();
        }
    }
}
