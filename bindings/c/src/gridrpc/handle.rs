//! Function handles of GridRPC (GFD-R-P.052, section 3.2): a function, by name, of a server. The
//! memory of a handle belongs to the program and holds only a number. A handle that was never bound
//! or has been destructed is an error and is not followed.

use super::{Code, Fault, Grid, INVALID_FUNCTION_HANDLE, NO_ERROR, grid, run};
use crate::error::Problem;
use crate::function::Function;
use crate::text;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// `grpc_function_handle_t`: the caller's memory. The first word is a number, the rest is spare.
#[repr(C)]
pub struct Handle {
    number: u64,
    spare: [u64; 3],
}

impl Handle {
    pub(super) fn of(number: u64) -> Handle {
        let spare = [0; 3];
        Handle { number, spare }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// The numbers start far from the values that unset memory usually has.
static LAST: AtomicU64 = AtomicU64::new(0x6772_7063_0000_0000);

/// Binds the handle to a function of the default server.
///
/// # Safety
/// `handle` points to a handle, `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_default(
    handle: *mut Handle,
    name: *const c_char,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe { bind(handle, None, name) })
}

/// Binds the handle to a function of a server.
///
/// # Safety
/// `handle` points to a handle, `server` and `name` are strings ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_init(
    handle: *mut Handle,
    server: *const c_char,
    name: *const c_char,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        grid()?;
        let server = text(server, "server_name")?;
        bind(handle, Some(server), name)
    })
}

/// Ends the handle. Its sessions continue.
///
/// # Safety
/// `handle` points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_function_handle_destruct(handle: *mut Handle) -> Code {
    run(|| {
        let grid = grid()?;
        // SAFETY: the caller's promise.
        let handle = unsafe { handle.as_mut() }.ok_or_else(invalid)?;
        let mut handles = grid.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.remove(&handle.number).ok_or_else(invalid)?;
        handle.number = 0;
        Ok(NO_ERROR)
    })
}

/// # Safety
/// `handle` points to memory of a handle, `name` is a string ended by NUL.
unsafe fn bind(
    handle: *mut Handle,
    server: Option<&str>,
    name: *const c_char,
) -> Result<Code, Fault> {
    let grid = grid()?;
    if handle.is_null() {
        return Err(Problem::null("handle").into());
    }
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "func_name") }?;
    let function = grid.server(server)?.function(name)?;
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut handles = grid.handles.lock().unwrap_or_else(PoisonError::into_inner);
    handles.insert(number, function);
    // SAFETY: the caller's promise; the memory may be unset.
    unsafe { handle.write(Handle::of(number)) };
    Ok(NO_ERROR)
}

/// The function of a handle.
///
/// # Safety
/// `handle` points to a handle or is NULL.
pub(super) unsafe fn function(grid: &Grid, handle: *const Handle) -> Result<Arc<Function>, Fault> {
    // SAFETY: the caller's promise.
    let handle = unsafe { handle.as_ref() }.ok_or_else(invalid)?;
    let handles = grid.handles.lock().unwrap_or_else(PoisonError::into_inner);
    handles.get(&handle.number).cloned().ok_or_else(invalid)
}

fn invalid() -> Fault {
    let text = "the function handle is not valid: it was never bound, or has been destructed";
    Fault::new(INVALID_FUNCTION_HANDLE, text)
}
