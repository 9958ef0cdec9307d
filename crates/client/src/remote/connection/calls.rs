//! Calls, and what of them travels.

use super::transfer::Transfer;
use super::{Connection, Reply, Request};
use crate::argument::Argument;
use crate::error::Error;
use farcall_idl::Layout;
use farcall_rpc_proto::{Call, HANDLES, PARTS};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Array data of a call that fill the buffers on the way.
const BULK_BYTES: u64 = 1 << 20;

impl Connection {
    /// Whether parts of arrays may travel on their own, and it is of use: within a host one
    /// connection is as fast as memory.
    pub(crate) fn moves_parts(&self) -> bool {
        self.has(PARTS | HANDLES) && !self.socket.is_within_host()
    }

    /// Begins a call.
    ///
    /// # Safety
    /// Until the request is over or dropped, the arrays of `arguments` stay where they are; those
    /// that are written are not touched by anybody else, those that are read not written.
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

    /// Whether large arrays travel on it, those of calls included that were given up and of which
    /// something may be on the way.
    pub(crate) fn carries_bulk(&self) -> bool {
        self.bulk.load(Ordering::Relaxed) > 0
    }
}

/// A call whose arrays are large, until the server has told its end.
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
