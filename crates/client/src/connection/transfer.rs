//! The caller's memory that a call sends from and receives into.

use crate::Argument;
use farcall_idl::Layout;
use farcall_rpc_proto::{Direction, Piece, Pieces, Side, swap_bytes};
use std::io::{IoSlice, IoSliceMut};

/// Memory of one argument.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    bytes: usize,
    writable: bool,
}

/// The data streams of one call, between the wire and the caller's arrays.
pub(crate) struct Transfer {
    memory: Vec<Memory>,
    layout: Layout,
    outgoing: Pieces,
    incoming: Pieces,
    /// The result came in the other byte order.
    pub(crate) foreign_order: bool,
}

// SAFETY: whoever makes a transfer promises that its memory outlives it and is left alone.
unsafe impl Send for Transfer {}

impl Transfer {
    /// # Safety
    /// Until the transfer is dropped, the arrays of `arguments` stay where they are; those that
    /// are written are not touched by anybody else, those that are read not written.
    pub(crate) unsafe fn new(arguments: &mut [Argument<'_>], layout: Layout) -> Transfer {
        let memory = arguments.iter_mut().map(|argument| match argument {
            Argument::In(bytes) => {
                let start = bytes.as_ptr().cast_mut();
                Memory {
                    start,
                    bytes: bytes.len(),
                    writable: false,
                }
            }
            Argument::Out(bytes) => Memory {
                start: bytes.as_mut_ptr(),
                bytes: bytes.len(),
                writable: true,
            },
            Argument::Scalar(_) | Argument::Skip => Memory {
                start: std::ptr::null_mut(),
                bytes: 0,
                writable: false,
            },
        });
        Transfer {
            memory: memory.collect(),
            outgoing: Pieces::new(&layout, Direction::Sent, Side::Client),
            incoming: Pieces::new(&layout, Direction::Returned, Side::Client),
            layout,
            foreign_order: false,
        }
    }

    pub(crate) fn result_bytes(&self) -> u64 {
        self.layout.returned_bytes()
    }

    pub(crate) fn next_outgoing(&mut self, most: u64) -> Option<Piece> {
        self.outgoing.take(most)
    }

    pub(crate) fn next_incoming(&mut self, most: u64) -> Option<Piece> {
        self.incoming.take(most)
    }

    /// The bytes of a piece, to be sent.
    pub(crate) fn source(&self, piece: &Piece) -> IoSlice<'_> {
        let start = self.start(piece);
        // SAFETY: `start` has checked the bounds; the maker of the transfer answers for the rest.
        IoSlice::new(unsafe { std::slice::from_raw_parts(start, piece.length as usize) })
    }

    /// The memory of a piece, to be filled.
    ///
    /// # Safety
    /// No two pieces that overlap are in use at once.
    pub(crate) unsafe fn place<'m>(&self, piece: &Piece) -> IoSliceMut<'m> {
        assert!(
            self.memory[piece.param].writable,
            "only OUT arrays are returned"
        );
        let start = self.start(piece);
        // SAFETY: as in `source`, and the caller keeps pieces apart.
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, piece.length as usize) })
    }

    fn start(&self, piece: &Piece) -> *mut u8 {
        let Memory { start, bytes, .. } = self.memory[piece.param];
        let (offset, length) = (piece.offset as usize, piece.length as usize);
        assert!(offset + length <= bytes, "the layout fits the argument");
        // SAFETY: checked above.
        unsafe { start.add(offset) }
    }

    /// The result is complete: turns it into this machine's byte order if need be.
    pub(crate) fn finish(&mut self) {
        if !self.foreign_order {
            return;
        }
        for array in self
            .layout
            .travelling()
            .filter(|array| array.mode.is_returned())
        {
            for run in array.client_runs() {
                let piece = Piece {
                    param: array.param,
                    offset: run.offset,
                    length: run.len,
                };
                // SAFETY: one piece at a time.
                let mut place = unsafe { self.place(&piece) };
                swap_bytes(&mut place, array.element.swap_unit() as usize);
            }
        }
    }
}
