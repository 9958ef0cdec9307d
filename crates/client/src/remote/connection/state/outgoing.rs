//! Gathers what the protocol wants sent, and writes it from where it lies.

use super::{Loss, MAX_SLICES, State};
use crate::connection::pace::Pace;
use crate::socket::Socket;
use farcall_rpc_proto::{CallId, Chunk, Piece, Transmit};
use std::io::{self, IoSlice};

/// Writes before another thread may have the lock.
const TURN_WRITES: usize = 8;

/// A part of what is to be written.
pub(super) enum Part {
    /// A range of `frames`.
    Frames { start: usize, end: usize },
    /// A piece of a call's arrays.
    Data { call: CallId, piece: Piece },
    /// What stands for data of a call that was given up after their header was written.
    Zeros(Vec<u8>),
}

impl Part {
    /// Bytes.
    fn length(&self) -> usize {
        match self {
            Part::Frames { start, end } => end - start,
            Part::Data { piece, .. } => piece.length as usize,
            Part::Zeros(bytes) => bytes.len(),
        }
    }
}

impl State {
    /// Data of the call that are promised by a header but not yet written become zeros.
    pub(super) fn withdraw(&mut self, id: CallId) {
        for part in &mut self.parts {
            if let Part::Data { call, piece } = part
                && *call == id
            {
                *part = Part::Zeros(vec![0; piece.length as usize]);
            }
        }
    }

    pub(super) fn write(&mut self, socket: &Socket) -> Result<(), Loss> {
        let written = self.write_parts(socket);
        match socket.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
            _ => self.unsent = socket.wants_write(),
        }
        written
    }

    fn write_parts(&mut self, socket: &Socket) -> Result<(), Loss> {
        for _ in 0..TURN_WRITES {
            if self.parts.is_empty() {
                self.frames.clear();
                self.gather();
            }
            if self.parts.is_empty() {
                return Ok(());
            }
            let most = self.room();
            if most == 0 {
                return Ok(());
            }
            match socket.write(&self.slices(most)) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => {
                    self.written(count);
                    if let Some(pace) = &mut self.pace {
                        pace.spend(count);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // There may be more: `has_unsent` is to say so.
        if self.parts.is_empty() {
            self.frames.clear();
            self.gather();
        }
        Ok(())
    }

    /// How many of the gathered bytes may be written now.
    fn room(&mut self) -> usize {
        match &mut self.pace {
            None => usize::MAX,
            Some(pace) => pace.room(self.parts.iter().map(Part::length).sum()),
        }
    }

    /// Of what was gathered the first, at most so many bytes.
    fn slices(&self, most: usize) -> Vec<IoSlice<'_>> {
        let mut left = most;
        let slices = self.parts.iter().take(MAX_SLICES).map_while(|part| {
            let bytes = self.source(part);
            let is_over = left == 0;
            let bytes = &bytes[..bytes.len().min(left)];
            left -= bytes.len();
            (!is_over).then(|| IoSlice::new(bytes))
        });
        slices.collect()
    }

    fn source<'s>(&'s self, part: &'s Part) -> &'s [u8] {
        match part {
            Part::Frames { start, end } => &self.frames[*start..*end],
            Part::Data { call, piece } => match self.open[call].transfer.as_ref() {
                Some(transfer) => transfer.source(piece),
                None => &[],
            },
            Part::Zeros(bytes) => bytes,
        }
    }

    /// Collects what the protocol wants sent, up to a bound.
    fn gather(&mut self) {
        let mut gathered = 0;
        let burst = self.pace.as_ref().map_or(u64::MAX, Pace::burst);
        while gathered < self.gather_bytes.min(burst) {
            let start = self.frames.len();
            let transmit = self.proto.poll_transmit(&mut self.frames);
            let end = self.frames.len();
            if end > start {
                self.parts.push_back(Part::Frames { start, end });
            }
            match transmit {
                Transmit::Idle => return,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    gathered += chunk.length;
                    self.gather_chunk(&chunk);
                }
            }
        }
    }

    fn gather_chunk(&mut self, chunk: &Chunk) {
        let open = self.open.get_mut(&chunk.call);
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

    fn written(&mut self, mut count: usize) {
        while let Some(part) = self.parts.front_mut() {
            let length = part.length();
            if count < length {
                match part {
                    Part::Frames { start, .. } => *start += count,
                    Part::Data { piece, .. } => {
                        piece.offset += count as u64;
                        piece.length -= count as u64;
                    }
                    Part::Zeros(bytes) => bytes.truncate(length - count),
                }
                return;
            }
            count -= length;
            self.parts.pop_front();
        }
    }
}
