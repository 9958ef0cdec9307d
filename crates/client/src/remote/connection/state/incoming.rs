//! Reads frames, and reads array data straight into the callers' arrays. `events` handles what the
//! frames mean. Data of a call that was given up are read and discarded.

use super::{INPUT_BYTES, Loss, MAX_SLICES, State};
use crate::remote::socket::Socket;
use farcall_rpc_proto::{Chunk, Landing};
use std::io::{self, IoSliceMut};
use std::ops::Range;

/// Bytes of a read beyond the expected array data: room for the next frame headers. It is small
/// because array data that arrive there must be copied.
const LOOK_AHEAD: usize = 1 << 10;

/// Bytes that were read and not handled yet, and the memory for the array data that follow.
pub(super) struct Input {
    bytes: Vec<u8>,
    unread: Range<usize>,
    landing: Landing,
}

impl Input {
    pub(super) fn new() -> Input {
        Input {
            bytes: vec![0; INPUT_BYTES],
            unread: 0..0,
            landing: Landing::default(),
        }
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.unread.clone()]
    }

    /// Copies bytes that arrived with an earlier read.
    fn copy_to(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        let mut copied = 0;
        for place in places {
            let unread = self.unread();
            let count = unread.len().min(place.len());
            place[..count].copy_from_slice(&unread[..count]);
            self.unread.start += count;
            copied += count;
        }
        copied
    }
}

impl State {
    /// Handles bytes that were read, or reads more. Returns `false` if the socket has none.
    pub(super) fn read_some(&mut self, socket: &Socket) -> Result<bool, Loss> {
        if let Some(chunk) = self.proto.incoming() {
            return self.take_data(socket, &chunk);
        }
        if self.input.unread.is_empty() {
            return Ok(self.read(socket, Vec::new())?.is_some());
        }
        let unread = self.input.unread();
        let (taken, event) = self.proto.handle_input(unread).map_err(Loss::Protocol)?;
        self.input.unread.start += taken;
        if let Some(event) = event {
            self.on_event(event);
        }
        Ok(true)
    }

    /// Reads into `places`, and what arrives beyond them into the input buffer. Returns the number
    /// of bytes, or `None` if the socket has none.
    fn read<'a>(
        &'a mut self,
        socket: &Socket,
        mut places: Vec<IoSliceMut<'a>>,
    ) -> Result<Option<usize>, Loss> {
        let room: usize = places.iter().map(|place| place.len()).sum();
        let most = if room > 0 { LOOK_AHEAD } else { INPUT_BYTES };
        places.push(IoSliceMut::new(&mut self.input.bytes[..most]));
        match socket.read(&mut places, &mut self.handed_over) {
            Ok(0) => {
                let text = "the server closed the connection".to_string();
                Err(Loss::Io(io::ErrorKind::UnexpectedEof, text))
            }
            Ok(count) => {
                self.silence.hear();
                self.input.unread = 0..count.saturating_sub(room);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves array data into the caller's arrays.
    fn take_data(&mut self, socket: &Socket, chunk: &Chunk) -> Result<bool, Loss> {
        let open = self
            .open
            .get_mut(chunk.call)
            .and_then(|open| open.transfer.as_mut());
        let Some(transfer) = open.filter(|_| !chunk.discard) else {
            return self.discard(socket, chunk);
        };
        transfer.foreign_order = chunk.big_endian != cfg!(target_endian = "big");
        let room = self.input.landing.plan(chunk.length, MAX_SLICES, |most| {
            transfer.next_incoming(most)
        });
        let pieces = self.input.landing.pieces();
        // SAFETY: the pieces of a stream are distinct parts of the caller's arrays.
        let places = pieces.map(|piece| unsafe { transfer.place(piece) });
        let mut places: Vec<_> = places.collect();
        let count = if self.input.unread.is_empty() {
            match self.read(socket, places)? {
                Some(count) => count,
                None => return Ok(false),
            }
        } else {
            self.input.copy_to(&mut places)
        };
        let taken = (count as u64).min(room);
        self.input.landing.fill(taken);
        self.proto.handle_data(taken);
        Ok(true)
    }

    /// Discards data of a call that was given up.
    fn discard(&mut self, socket: &Socket, chunk: &Chunk) -> Result<bool, Loss> {
        self.input.landing.clear();
        if self.input.unread.is_empty() {
            return Ok(self.read(socket, Vec::new())?.is_some());
        }
        let most = usize::try_from(chunk.length).unwrap_or(usize::MAX);
        let count = self.input.unread.len().min(most);
        self.input.unread.start += count;
        self.proto.handle_data(count as u64);
        Ok(true)
    }
}
