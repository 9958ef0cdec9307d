//! Data streams: where the bytes of a call's arrays lie, piece by piece. It computes places only;
//! the shells move the bytes. Each byte of a section is in exactly one piece, in the order of the
//! interface.

use alloc::collections::VecDeque;
use farcall_idl::{ArrayLayout, Layout, Run, Runs};

/// One of the two data streams of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// IN and INOUT sections, towards the server.
    Sent,
    /// INOUT and OUT sections, back to the client.
    Returned,
}

/// The memory that offsets refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller's arrays; offsets count from the start of each array.
    Client,
    /// The call buffer; offsets count from its start.
    Buffer,
}

/// A contiguous part of a data stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the array parameter.
    pub param: usize,
    /// First byte, counted as the [`Side`] says.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
}

/// Walks a data stream from its start to its end.
#[derive(Clone, Debug)]
pub struct Pieces {
    arrays: VecDeque<(usize, Runs)>,
    rest: Option<Piece>,
}

impl Pieces {
    /// The stream of a call with this layout, as it lies on this side.
    pub fn new(layout: &Layout, direction: Direction, side: Side) -> Pieces {
        let travels = |array: &&ArrayLayout| match direction {
            Direction::Sent => array.mode.is_sent(),
            Direction::Returned => array.mode.is_returned(),
        };
        let runs = |array: &ArrayLayout| match side {
            Side::Client => array.client_runs(),
            Side::Buffer => array.buffer_runs(),
        };
        let arrays = layout.travelling().filter(travels);
        Pieces {
            arrays: arrays.map(|array| (array.param, runs(array))).collect(),
            rest: None,
        }
    }

    /// A stream that is one piece at the start of a call buffer.
    pub fn whole(bytes: u64) -> Pieces {
        Pieces::part(0, bytes)
    }

    /// A stream that is one piece, from `offset` on.
    pub fn part(offset: u64, bytes: u64) -> Pieces {
        let piece = Piece {
            param: 0,
            offset,
            length: bytes,
        };
        Pieces {
            arrays: VecDeque::new(),
            rest: (bytes > 0).then_some(piece),
        }
    }

    /// The next contiguous part, at most `most` bytes. `None` at the end of the stream, or if
    /// `most` is 0.
    pub fn take(&mut self, most: u64) -> Option<Piece> {
        if most == 0 {
            return None;
        }
        let whole = match self.rest.take() {
            Some(piece) => piece,
            None => self.next_run()?,
        };
        let length = whole.length.min(most);
        if length < whole.length {
            let offset = whole.offset + length;
            self.rest = Some(Piece {
                offset,
                length: whole.length - length,
                ..whole
            });
        }
        Some(Piece { length, ..whole })
    }

    fn next_run(&mut self) -> Option<Piece> {
        loop {
            let (param, runs) = self.arrays.front_mut()?;
            if let Some(Run { offset, len }) = runs.next() {
                return Some(Piece {
                    param: *param,
                    offset,
                    length: len,
                });
            }
            self.arrays.pop_front();
        }
    }
}

/// The destinations of the next bytes of an incoming chunk. Some are filled; the rest wait for the
/// next read.
#[derive(Clone, Debug, Default)]
pub struct Landing {
    pieces: VecDeque<Piece>,
}

impl Landing {
    /// Adds pieces from `next` until they cover the `left` bytes of the chunk, or there are `most`
    /// of them. Returns how many bytes they cover.
    pub fn plan(
        &mut self,
        left: u64,
        most: usize,
        mut next: impl FnMut(u64) -> Option<Piece>,
    ) -> u64 {
        let planned: u64 = self.pieces.iter().map(|piece| piece.length).sum();
        let mut unplanned = left - planned;
        while self.pieces.len() < most
            && let Some(piece) = next(unplanned)
        {
            unplanned -= piece.length;
            self.pieces.push_back(piece);
        }
        left - unplanned
    }

    /// The pieces to fill, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// Records that the first `count` bytes are filled.
    pub fn fill(&mut self, mut count: u64) {
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                return;
            };
            if piece.length > count {
                piece.offset += count;
                piece.length -= count;
                return;
            }
            count -= piece.length;
            self.pieces.pop_front();
        }
    }

    /// Forgets a chunk that is discarded.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }
}

/// Reverses the bytes of every group of `unit` bytes, from one byte order to the other.
///
/// # Panics
/// If the length is not a multiple of `unit`, or `unit` is 0.
pub fn swap_bytes(bytes: &mut [u8], unit: usize) {
    assert_eq!(bytes.len() % unit, 0);
    match unit {
        2 => swap::<2>(bytes),
        4 => swap::<4>(bytes),
        8 => swap::<8>(bytes),
        _ => bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse),
    }
}

/// With the number known, the compiler reverses many elements at once.
fn swap<const UNIT: usize>(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(UNIT).for_each(<[u8]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use farcall_idl::{Scalar, parse_interface};

    #[test]
    fn pieces_cover_the_sections_in_order() {
        let text = "Define f(IN int n, INOUT double a[n][4:n], OUT double b[n]) Calls f(n, a, b);";
        let interface = parse_interface(text).unwrap();
        let layout = interface
            .layout(&[Some(Scalar::Int(2)), None, None], &[])
            .unwrap();
        let walk = |direction, side, most| {
            let mut pieces = Pieces::new(&layout, direction, side);
            let pieces = core::iter::from_fn(|| pieces.take(most));
            pieces
                .map(|piece| (piece.param, piece.offset, piece.length))
                .collect::<Vec<_>>()
        };
        let sent = [(1, 0, 10), (1, 10, 6), (1, 32, 10), (1, 42, 6)];
        assert_eq!(walk(Direction::Sent, Side::Client, 10), sent);
        // The first array has 64 bytes, and as many lie behind it.
        let returned = [(1, 0, 16), (1, 32, 16), (2, 128, 16)];
        assert_eq!(walk(Direction::Returned, Side::Buffer, 100), returned);
        assert_eq!(walk(Direction::Sent, Side::Client, 0), []);
    }
}
