//! Memory for arrays, which is shared with a server on the same host. The client makes the shared
//! memory; elsewhere the piece is ordinary memory. Each piece is remembered by its address, so a
//! wrong address is an error and is not freed.

use crate::Status;
use crate::connect::Server;
use crate::error::{Problem, guard};
use farcall_client::SharedMemory;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The address of each piece is a multiple of this.
const ALIGNMENT: usize = 64;

/// The pieces that callers have, by their addresses.
static PIECES: Mutex<BTreeMap<usize, Piece>> = Mutex::new(BTreeMap::new());

enum Piece {
    Shared { _memory: SharedMemory },
    Own { start: *mut u8, layout: Layout },
}

// SAFETY: a piece is plain memory; the caller who has it is responsible for its use.
unsafe impl Send for Piece {}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Piece::Own { start, layout } = self {
            // SAFETY: it was allocated with this layout, and is dropped once.
            unsafe { dealloc(*start, *layout) };
        }
    }
}

fn pieces() -> MutexGuard<'static, BTreeMap<usize, Piece>> {
    PIECES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of zeros for arrays, at a multiple of 64 bytes. If the server is on this host, the memory
/// is shared with it, and calls to the server do not copy arrays in it. Otherwise it is ordinary
/// memory. Returns NULL if there is not enough memory.
///
/// The function works in this memory. If a call is given up (`farcall_cancel`, a time-out), it may
/// write there until the server has ended it: free the memory, and allocate other memory for the
/// next call.
///
/// # Safety
/// `server` is from `farcall_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_allocate(server: *const Server, bytes: usize) -> *mut c_void {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
        let (start, piece) = match server.share(bytes)? {
            Some(memory) => (memory.start(), Piece::Shared { _memory: memory }),
            None => own(bytes)?,
        };
        pieces().insert(start.addr(), piece);
        Ok(start.cast())
    })
}

/// Frees memory from `farcall_allocate`. No call under way may use it. The program may have
/// disconnected from the server before. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_free(memory: *mut c_void) {
    guard((), || {
        if memory.is_null() {
            return Ok(());
        }
        let piece = pieces().remove(&memory.addr());
        match piece {
            Some(piece) => drop(piece),
            None => {
                let text = "farcall_free: the memory is not from farcall_allocate";
                return Err(Problem::argument(text.to_owned()));
            }
        }
        Ok(())
    });
}

fn own(bytes: usize) -> Result<(*mut u8, Piece), Problem> {
    let none = || {
        let text = format!("no memory for {bytes} bytes");
        Problem::new(Status::FarcallInternal, text)
    };
    let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| none())?;
    // SAFETY: the layout has a size above 0.
    let start = unsafe { alloc_zeroed(layout) };
    match start.is_null() {
        true => Err(none()),
        false => Ok((start, Piece::Own { start, layout })),
    }
}
