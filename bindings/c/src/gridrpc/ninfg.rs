//! What clients that were written for Ninf-G need beyond the standard: the mode of their calls,
//! and object handles. `include/ninfg/grpc.h` declares the names, and `ninfg.c` has those that need
//! only other functions of the C interface.
//!
//! In this mode a caller passes a placeholder for each WORK parameter, a text may be NULL, and
//! texts that a function returns are memory of `malloc`.

use super::handle::Handle;
use super::{Code, Fault, NO_ERROR, SESSIONS, grid, run, wait};
use crate::error::{Problem, fail, guard};
use crate::function::{Function, Times, kind};
use crate::object::Object;
use crate::{Kind, text};
use farcall_idl::{Param, Type};
use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

pub(super) const CLASS_NOT_FOUND: Code = 17;
pub(super) const CANCELED: Code = 18;
pub(super) const TIMEOUT: Code = 19;
pub(super) const INVALID_OBJECT_HANDLE: Code = 20;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Apart from the numbers of function handles.
static LAST: AtomicU64 = AtomicU64::new(0x6772_7063_8000_0000);

/// Whether the program uses the header for Ninf-G.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread makes a call of GridRPC in a program that uses the header for Ninf-G: other
/// calls of the program take their texts as everywhere.
pub(crate) fn is_calling() -> bool {
    is_on() && IS_CALLING.get()
}

/// Makes or starts a call of GridRPC.
pub(super) fn calling<T>(call: impl FnOnce() -> T) -> T {
    // A callback may make another call.
    let before = IS_CALLING.replace(true);
    let made = call();
    IS_CALLING.set(before);
    made
}

/// For `ninfg.c`: the program uses the header for Ninf-G.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_internal_ninfg_begin() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// For `ninfg.c`: records that the attributes of a handle or a session are NULL.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_internal_no_attributes() {
    fail(Problem::null("attr"));
}

/// For `ninfg.c`: records why it does not set or give the value of an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_internal_wrong_attribute() {
    let text = "there is no attribute of that name, or the pointer to its value is NULL";
    fail(Problem::argument(text.to_owned()));
}

/// For `variadic.c`: the kind of the placeholder that a caller passes at a position of the
/// interface; -1 if the parameter there is passed, or if no placeholders are.
///
/// # Safety
/// `function` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_placeholder(
    function: *const Function,
    position: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(function) = unsafe { function.as_ref() }.filter(|_| is_on()) else {
        return -1;
    };
    match function.client.interface().params.get(position) {
        Some(param) if param.is_passed() => -1,
        Some(param) if param.is_scalar() => kind(param.ty) as c_int,
        Some(_) => Kind::FarcallArray as c_int,
        None => -1,
    }
}

/// For `grpc_fortran.c`: 1 if the argument is a character or an array of them, with which Fortran
/// passes a length, else 0.
///
/// # Safety
/// `function` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_is_character(
    function: *const Function,
    index: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let param = function.and_then(|function| function.param(index));
    c_int::from(param.is_some_and(|param| param.ty == Type::Char))
}

/// For `grpc_fortran.c`: 1 if Fortran passes a length with the placeholder at a position of the
/// interface, else 0.
///
/// # Safety
/// `function` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_placeholder_has_length(
    function: *const Function,
    position: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let param = function.and_then(|function| function.interface().params.get(position));
    let has_length = |param: &Param| param.ty == Type::Char || kind(param.ty) == Kind::FarcallText;
    c_int::from(param.is_some_and(has_length))
}

/// For `grpc_fortran.c`: records why a call was not begun.
///
/// # Safety
/// `function` is one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_not_for_fortran(function: *const Function) {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let name = function.map_or("the function", |function| function.client.qualified_name());
    let text = "GRPC_CALL of Fortran passes no callback, no array of texts, and at most 256 \
                arguments: use the module `farcall`";
    fail(Problem::argument(format!("{name}: {text}")));
}

/// Makes an object of a class at a server, or at the default server if `server` is NULL.
///
/// # Safety
/// `handle` points to a handle; the others are NULL or strings ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_object(
    handle: *mut Handle,
    server: *const c_char,
    class: *const c_char,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let grid = grid()?;
        let server = match server.is_null() {
            true => None,
            false => Some(text(server, "server_name")?),
        };
        if handle.is_null() {
            return Err(Problem::null("handle").into());
        }
        let object = Object::make(&*grid.server(server)?, text(class, "class_name")?);
        let object = object.map_err(|problem| match problem.status {
            crate::Status::FarcallUnknownFunction => Fault(CLASS_NOT_FOUND, problem),
            _ => problem.into(),
        })?;
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mut objects = grid.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.insert(number, Arc::new(object));
        handle.write(Handle::of(number));
        Ok(NO_ERROR)
    })
}

/// For `ninfg.c`: whether the handle has an object.
///
/// # Safety
/// `handle` points to a handle, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_has_object(handle: *const Handle) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe { object(handle) }.map(|_| NO_ERROR))
}

/// The object of a handle.
///
/// # Safety
/// As for `farcall_internal_grpc_has_object`.
unsafe fn object(handle: *const Handle) -> Result<Arc<Object>, Fault> {
    let grid = grid()?;
    // SAFETY: the caller's promise.
    let handle = unsafe { handle.as_ref() }.ok_or_else(invalid)?;
    let objects = grid.objects.lock().unwrap_or_else(PoisonError::into_inner);
    objects.get(&handle.number()).cloned().ok_or_else(invalid)
}

/// Drops the object at its server.
///
/// # Safety
/// `handle` points to a handle, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_drop_object(handle: *mut Handle) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let grid = grid()?;
        let handle = handle.as_mut().ok_or_else(invalid)?;
        let removed = {
            let mut objects = grid.objects.lock().unwrap_or_else(PoisonError::into_inner);
            objects.remove(&handle.number())
        };
        removed.ok_or_else(invalid)?.close();
        *handle = Handle::of(0);
        Ok(NO_ERROR)
    })
}

/// For `variadic.c`: a share of a method, as `farcall_internal_grpc_function` gives of a function.
///
/// # Safety
/// `handle` points to a handle or is NULL, `name` is a string ended by NUL, `function` points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_method(
    handle: *const Handle,
    name: *const c_char,
    function: *mut *const Function,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let method = object(handle)?.method(text(name, "method_name")?)?;
        *function = Arc::into_raw(method);
        Ok(NO_ERROR)
    })
}

/// The times of a session that has ended, and 1; or 0 if it runs, and -1 if it is unknown.
///
/// # Safety
/// `times` points to times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_times(session: c_int, times: *mut Times) -> c_int {
    guard(-1, || {
        let id = wait::id(session).map_err(|Fault(_, problem)| problem)?;
        let end = SESSIONS.end(id)?;
        let ended = end.is_some();
        // SAFETY: the caller's promise.
        unsafe { times.write(end.and_then(Result::ok).unwrap_or_default()) };
        Ok(c_int::from(ended))
    })
}

fn invalid() -> Fault {
    let text = "the object handle is not valid: it was never bound, or has been destructed";
    Fault::new(INVALID_OBJECT_HANDLE, text)
}
