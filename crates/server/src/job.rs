//! One call on its way through the server.

use crate::buffer::{JobBuffer, Segment};
use farcall_idl::Layout;
use farcall_rpc_proto::{CallId, Direction, Piece, Pieces, Side};
use std::rc::Rc;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its arguments are arriving.
    Receiving,
    /// Waits for a worker.
    Queued,
    Running {
        worker: usize,
    },
    /// Its results are leaving.
    Sending,
}

/// One call.
pub(crate) struct Job {
    /// Whose it is; none when the client has gone.
    pub(crate) connection: Option<usize>,
    pub(crate) call: CallId,
    /// Number of the function in the table.
    pub(crate) function: u64,
    /// The encoded call, for the worker.
    pub(crate) message: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) buffer: Option<JobBuffer>,
    /// Shared memory with arrays of the call.
    pub(crate) segments: Vec<Rc<Segment>>,
    pub(crate) state: State,
    /// The arguments came in the other byte order.
    pub(crate) swap: bool,
    incoming: Pieces,
    outgoing: Pieces,
}

impl Job {
    pub(crate) fn new(
        connection: usize,
        call: CallId,
        function: u64,
        message: Vec<u8>,
        layout: Layout,
        buffer: Option<JobBuffer>,
        segments: Vec<Rc<Segment>>,
    ) -> Job {
        let incoming = Pieces::new(&layout, Direction::Sent, Side::Buffer);
        let outgoing = Pieces::new(&layout, Direction::Returned, Side::Buffer);
        let job = Job {
            connection: Some(connection),
            call,
            function,
            message,
            layout,
            buffer,
            segments,
            state: State::Receiving,
            swap: false,
            incoming,
            outgoing,
        };
        job.clear_gaps();
        job
    }

    /// Zeroes the arrays of which only a section arrives, so that the rest does not hold what an
    /// earlier call left there.
    fn clear_gaps(&self) {
        let Some(buffer) = &self.buffer else { return };
        for array in self
            .layout
            .travelling()
            .filter(|array| array.wire_bytes < array.bytes)
        {
            // SAFETY: the layout lies within the buffer, which no worker has yet.
            unsafe {
                let start = buffer.start().add(array.offset as usize);
                start.write_bytes(0, array.bytes as usize);
            }
        }
    }

    /// The next part of the argument stream, at most `most` bytes.
    pub(crate) fn next_incoming(&mut self, most: u64) -> Option<Piece> {
        self.incoming.take(most)
    }

    /// The next part of the result stream, at most `most` bytes.
    pub(crate) fn next_outgoing(&mut self, most: u64) -> Option<Piece> {
        self.outgoing.take(most)
    }

    /// The memory of a piece of the job's buffer.
    pub(crate) fn memory(&self, piece: &Piece) -> *mut [u8] {
        let buffer = self
            .buffer
            .as_ref()
            .expect("a job with arrays has a buffer");
        let (offset, length) = (piece.offset as usize, piece.length as usize);
        assert!(
            offset + length <= buffer.bytes(),
            "the layout lies within the buffer"
        );
        // SAFETY: checked above.
        std::ptr::slice_from_raw_parts_mut(unsafe { buffer.start().add(offset) }, length)
    }
}
