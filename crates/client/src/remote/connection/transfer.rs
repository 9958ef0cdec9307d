//! Transfers: the caller's memory that a call sends from and receives into.
//!
//! A transfer maps pieces of the data streams to the caller's arrays and checks their bounds.

use crate::argument::{Argument, Memory};
use crate::progress::Progress;
use farcall_idl::Layout;
use farcall_rpc_proto::{Direction, Piece, Pieces, Side, swap_bytes};
use std::io::IoSliceMut;
use std::sync::Arc;

/// The data streams of one call, between the wire and the caller's arrays.
pub(crate) struct Transfer {
    memory: Vec<Memory>,
    layout: Arc<Layout>,
    outgoing: Pieces,
    incoming: Pieces,
    progress: Progress,
    /// Size of the units that are swapped between byte orders, for a stream that is one piece.
    unit: usize,
    /// Whether the result arrived in the other byte order.
    pub(crate) foreign_order: bool,
}

// SAFETY: who makes a transfer promises that its memory outlives it and is left alone.
unsafe impl Send for Transfer {}

impl Transfer {
    /// # Safety
    /// Until the transfer is dropped, the arrays of `arguments` must stay where they are. Nobody
    /// else may touch the written ones or write the read ones.
    pub(crate) unsafe fn new(arguments: &mut [Argument<'_>], layout: Arc<Layout>) -> Transfer {
        let memory = arguments.iter_mut().map(Argument::memory);
        Transfer {
            memory: memory.collect(),
            outgoing: Pieces::new(&layout, Direction::Sent, Side::Client),
            incoming: Pieces::new(&layout, Direction::Returned, Side::Client),
            progress: Progress {
                to_send: layout.sent_bytes(),
                to_receive: layout.returned_bytes(),
                ..Progress::default()
            },
            layout,
            unit: 1,
            foreign_order: false,
        }
    }

    /// A stream of one piece of memory, sent or filled. `unit` is the size of the parts that are
    /// swapped between byte orders.
    ///
    /// # Safety
    /// As [`Transfer::new`].
    pub(crate) unsafe fn of_one_piece(argument: Argument<'_>, unit: usize) -> Transfer {
        let bytes = argument.bytes().len() as u64;
        let nothing = Layout {
            arrays: Vec::new(),
            bytes: 0,
            cost: None,
            processor_elements: None,
            fewest_elements: None,
        };
        let sent = matches!(argument, Argument::In(_));
        // SAFETY: the caller's promise is the same.
        let mut transfer = unsafe { Transfer::new(&mut [argument], Arc::new(nothing)) };
        transfer.unit = unit.max(1);
        let piece = Pieces::whole(bytes);
        match sent {
            true => (transfer.outgoing, transfer.progress.to_send) = (piece, bytes),
            false => (transfer.incoming, transfer.progress.to_receive) = (piece, bytes),
        }
        transfer
    }

    /// The results of a durable call: nothing is sent.
    ///
    /// # Safety
    /// As [`Transfer::new`].
    pub(crate) unsafe fn fetching(arguments: &mut [Argument<'_>], layout: Arc<Layout>) -> Transfer {
        // SAFETY: the caller's promise is the same.
        let mut transfer = unsafe { Transfer::new(arguments, layout) };
        transfer.progress.to_send = 0;
        transfer
    }

    /// The arguments of a durable call: nothing comes back.
    ///
    /// # Safety
    /// As [`Transfer::new`].
    pub(crate) unsafe fn submitting(
        arguments: &mut [Argument<'_>],
        layout: Arc<Layout>,
    ) -> Transfer {
        // SAFETY: the caller's promise is the same.
        let mut transfer = unsafe { Transfer::new(arguments, layout) };
        transfer.progress.to_receive = 0;
        transfer
    }

    pub(crate) fn result_bytes(&self) -> u64 {
        self.layout.returned_bytes()
    }

    pub(crate) fn next_outgoing(&mut self, most: u64) -> Option<Piece> {
        let piece = self.outgoing.take(most)?;
        self.progress.sent += piece.length;
        Some(piece)
    }

    pub(crate) fn next_incoming(&mut self, most: u64) -> Option<Piece> {
        let piece = self.incoming.take(most)?;
        self.progress.received += piece.length;
        Some(piece)
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// The bytes of a piece, to send.
    pub(crate) fn source(&self, piece: &Piece) -> &[u8] {
        let start = self.start(piece);
        // SAFETY: `start` has checked the bounds; who made the transfer promises the rest.
        unsafe { std::slice::from_raw_parts(start, piece.length as usize) }
    }

    /// The memory of a piece, to fill.
    ///
    /// # Safety
    /// No two overlapping pieces may be in use at once.
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

    /// Converts a complete result to this machine's byte order, if needed.
    pub(crate) fn finish(&mut self) {
        if !self.foreign_order {
            return;
        }
        if self.unit > 1 {
            let piece = Piece {
                param: 0,
                offset: 0,
                length: self.memory[0].bytes as u64,
            };
            // SAFETY: it is the only piece.
            swap_bytes(&mut unsafe { self.place(&piece) }, self.unit);
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
