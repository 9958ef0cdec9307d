//! Stored arrays for the arguments and results of calls, over links that are slower than the digest
//! of an array. `kept` decides how long each is stored. It belongs to this connection and counts
//! towards the user's quota; if the server takes none, the array travels with the call.

use crate::kept::{Digest, Kept};
use crate::rule;
use farcall_client::{ArrayForm, Estimate, Handle, Server};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Bytes that a process keeps at its server, at most.
const MOST: u64 = 1 << 30;

/// A link over which nothing has travelled counts as slow: a place for an array then costs some
/// round trips once, and may save much.
const UNKNOWN_LINK: f64 = 1e7;

/// The arrays of one process at its server.
pub(crate) struct Store(Mutex<Kept<Handle>>);

/// What a call does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Change,
    /// It writes the array and does not read it.
    Write,
}

/// An array of a call that is at the server.
pub(crate) struct Placed {
    pub(crate) handle: Handle,
    /// Bytes that travelled to place it.
    pub(crate) sent: u64,
    form: String,
    access: Access,
    /// What leaves the server for it. The call may use these arrays, and even this one itself.
    leaving: Vec<Handle>,
}

impl Drop for Placed {
    /// The call has ended.
    fn drop(&mut self) {
        self.leaving.iter().for_each(Handle::drop_soon);
    }
}

/// Bytes that this processor digests in a second. It is measured once.
fn digest_rate() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let bytes = vec![1u8; 1 << 20];
        let start = Instant::now();
        std::hint::black_box(Digest::of("", &bytes));
        bytes.len() as f64 / start.elapsed().as_secs_f64().max(1e-9)
    })
}

impl Store {
    pub(crate) fn new() -> Store {
        Store(Mutex::new(Kept::new(MOST)))
    }

    fn kept(&self) -> MutexGuard<'_, Kept<Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an array of this size is worth a place.
    pub(crate) fn keeps(&self, bytes: u64, estimate: &Estimate) -> bool {
        let (up, down) = estimate.rates;
        let known = |rate: Option<f64>| rate.unwrap_or(UNKNOWN_LINK);
        let link = known(up).min(known(down));
        rule::keeps(bytes as f64, link, estimate.latency, digest_rate())
    }

    /// Gives an array a place at the server. `None` if the server has no room, or if it is not
    /// one server.
    pub(crate) fn place(
        &self,
        server: &Server,
        form: ArrayForm,
        bytes: &[u8],
        access: Access,
    ) -> Option<Placed> {
        let name = format!("{form:?}");
        let digest = (access == Access::Read).then(|| Digest::of(&name, bytes));
        if let Some(handle) = digest.and_then(|digest| self.kept().find(&digest)) {
            return Some(Placed {
                handle,
                sent: 0,
                form: name,
                access,
                leaving: Vec::new(),
            });
        }
        // Without bytes, it is an array of zeros.
        let contents = if access == Access::Write { &[] } else { bytes };
        let handle = server.put(form, contents, false).ok()?;
        let bytes = bytes.len() as u64;
        let leaving = digest.map(|digest| self.kept().add(digest, bytes, handle.clone()));
        Some(Placed {
            handle,
            sent: contents.len() as u64,
            form: name,
            access,
            leaving: leaving.unwrap_or_default(),
        })
    }

    /// Keeps an array that a call has written, with these contents.
    pub(crate) fn keep(&self, placed: &Placed, bytes: &[u8]) {
        let digest = Digest::of(&placed.form, bytes);
        let handle = placed.handle.clone();
        let left = self.kept().add(digest, bytes.len() as u64, handle);
        left.iter().for_each(Handle::drop_soon);
    }

    /// The call has failed: what it was to write is worth nothing.
    pub(crate) fn leave(&self, placed: &Placed) {
        if placed.access != Access::Read {
            placed.handle.drop_soon();
        }
    }

    /// Gives up all arrays. A server that has refused or failed a call still has them, and they
    /// count towards the user's quota.
    pub(crate) fn clear(&self) {
        let left = self.kept().clear();
        left.iter().for_each(Handle::drop_soon);
    }
}

impl Placed {
    /// Whether the call writes the array.
    pub(crate) fn is_written(&self) -> bool {
        self.access != Access::Read
    }
}
