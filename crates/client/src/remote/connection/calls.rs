//! Begins calls on a connection and connects them with the memory of their arrays. It also counts
//! the calls with large arrays, so that small calls can choose another connection. `state` moves
//! the bytes. The arrays of a call are not touched after its request has ended.

use super::transfer::Transfer;
use super::{Connection, Reply, Request};
use crate::argument::Argument;
use crate::error::Error;
use farcall_idl::Layout;
use farcall_rpc_proto::{Call, HANDLES, PARTS};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Array bytes from which a call counts as large: enough to fill the buffers of the network path.
const BULK_BYTES: u64 = 1 << 20;

impl Connection {
    /// Whether arrays can travel in parts over several connections, and gain by it. Within one
    /// host, a single connection is as fast as memory.
    pub(crate) fn moves_parts(&self) -> bool {
        self.has(PARTS | HANDLES) && !self.socket.is_within_host()
    }

    /// Begins a call.
    ///
    /// # Safety
    /// Until the request has ended or is dropped, the arrays of `arguments` must stay where they
    /// are. Nobody else may touch the written ones or write the read ones.
    pub(crate) unsafe fn call(
        self: &Arc<Self>,
        call: &Call,
        arguments: &mut [Argument<'_>],
        layout: Arc<Layout>,
        reply: Reply,
    ) -> Result<Request, Error> {
        let arrays = layout.sent_bytes() + layout.returned_bytes();
        let is_bulk = arrays >= BULK_BYTES || reply.files().is_some();
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::new(arguments, layout) };
        let printed = reply.printed.clone();
        let mut request = self.start(|state| state.call(call, transfer, printed))?;
        request.reply = reply.is_needed().then_some(reply);
        if is_bulk {
            let bulk = Bulk::new(&self.bulk);
            self.lock().is_bulk(request.id, bulk);
        }
        Ok(request)
    }

    /// Whether large arrays travel on the connection, including those of calls that were given up.
    pub(crate) fn carries_bulk(&self) -> bool {
        self.bulk.load(Ordering::Relaxed) > 0
    }
}

/// Counts a call with large arrays until the server reports its end.
pub(crate) struct Bulk(Arc<AtomicUsize>);

impl Bulk {
    fn new(count: &Arc<AtomicUsize>) -> Bulk {
        count.fetch_add(1, Ordering::Relaxed);
        Bulk(count.clone())
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
