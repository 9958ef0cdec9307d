//! Reads frames, and array data to their places in the callers' arrays.

use super::{INPUT_BYTES, Loss, MAX_SLICES, State};
use crate::socket::Socket;
use farcall_rpc_proto::Chunk;
use std::io::{self, IoSliceMut};

/// Bytes of a read beyond the array data it is for: room for the next frame headers, and little
/// more, because array data that land here are copied.
const LOOK_AHEAD: usize = 1 << 10;

impl State {
    /// Handles what has been read, or reads some more; `false` when the socket has none.
    pub(super) fn read_some(&mut self, socket: &Socket) -> Result<bool, Loss> {
        if let Some(chunk) = self.proto.incoming() {
            return self.take_data(socket, &chunk);
        }
        if self.unread.is_empty() {
            return Ok(self.read(socket, Vec::new())?.is_some());
        }
        let input = &self.input[self.unread.clone()];
        let (taken, event) = self.proto.handle_input(input).map_err(Loss::Protocol)?;
        self.unread.start += taken;
        if let Some(event) = event {
            self.on_event(event);
        }
        Ok(true)
    }

    /// Reads into `places`, and what comes beyond them into the input buffer. Returns how many
    /// bytes came; `None` when the socket has none.
    fn read<'a>(
        &'a mut self,
        socket: &Socket,
        mut places: Vec<IoSliceMut<'a>>,
    ) -> Result<Option<usize>, Loss> {
        let room: usize = places.iter().map(|place| place.len()).sum();
        let most = if room > 0 { LOOK_AHEAD } else { INPUT_BYTES };
        places.push(IoSliceMut::new(&mut self.input[..most]));
        match socket.read(&mut places, &mut self.handed_over) {
            Ok(0) => {
                let text = "the server closed the connection".to_string();
                Err(Loss::Io(io::ErrorKind::UnexpectedEof, text))
            }
            Ok(count) => {
                self.unread = 0..count.saturating_sub(room);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves array data to their places in the caller's arrays.
    fn take_data(&mut self, socket: &Socket, chunk: &Chunk) -> Result<bool, Loss> {
        let open = self
            .open
            .get_mut(&chunk.call)
            .and_then(|open| open.transfer.as_mut());
        let Some(transfer) = open.filter(|_| !chunk.discard) else {
            return self.discard(socket, chunk);
        };
        transfer.foreign_order = chunk.big_endian != cfg!(target_endian = "big");
        let room = self.landing.plan(chunk.length, MAX_SLICES, |most| {
            transfer.next_incoming(most)
        });
        // SAFETY: the pieces of a stream are distinct parts of the caller's arrays.
        let places = self
            .landing
            .pieces()
            .map(|piece| unsafe { transfer.place(piece) });
        let mut places: Vec<_> = places.collect();
        let count = if self.unread.is_empty() {
            match self.read(socket, places)? {
                Some(count) => count,
                None => return Ok(false),
            }
        } else {
            self.copy_unread(&mut places)
        };
        let taken = (count as u64).min(room);
        self.landing.fill(taken);
        self.proto.handle_data(taken);
        Ok(true)
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

    /// Throws away data of a call that was given up.
    fn discard(&mut self, socket: &Socket, chunk: &Chunk) -> Result<bool, Loss> {
        self.landing.clear();
        if self.unread.is_empty() {
            return Ok(self.read(socket, Vec::new())?.is_some());
        }
        let count = self
            .unread
            .len()
            .min(usize::try_from(chunk.length).unwrap_or(usize::MAX));
        self.unread.start += count;
        self.proto.handle_data(count as u64);
        Ok(true)
    }
}
