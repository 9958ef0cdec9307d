//! Copies of the arrays that a call of a group changes. A call that fails while its results arrive
//! leaves parts of them, and must not run again from those.

use super::guard;
use crate::argument;
use crate::call;
use crate::error::Problem;
use crate::function::Function;
use crate::{Status, handle};
use farcall_idl::{Mode, Type};
use std::ffi::{c_int, c_void};
use std::slice;

/// The contents of INOUT arrays before the call.
pub struct Kept(Vec<(*mut u8, Vec<u8>)>);

/// For `variadic.c`: keeps the arrays that a call with these arguments changes. Returns 0 on
/// failure.
///
/// # Safety
/// As for `farcall_call_array`; `kept` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_keep(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
    kept: *mut *mut Kept,
) -> c_int {
    // SAFETY: the caller's promise.
    guard(0, || unsafe {
        let function = function.as_ref().ok_or(Problem::null("function"))?;
        let given = call::unchecked(arguments, count)?;
        *kept = Box::into_raw(Box::new(copies(function, &given)?));
        Ok(1)
    })
}

/// # Safety
/// As for [`farcall_internal_ninf_keep`].
unsafe fn copies(function: &Function, given: &[argument::Value]) -> Result<Kept, Problem> {
    let mut params = function.interface().params.iter();
    if params.any(|param| param.ty == Type::FilePointer) {
        // A group takes no streams: the call is refused before it reads its arguments.
        return Ok(Kept(Vec::new()));
    }
    let values = argument::by_parameter(function, given)?;
    // SAFETY: the caller's promise.
    let laid_out = unsafe { argument::lay_out(function, &values) }?;
    let arrays = laid_out.layout().arrays.iter();
    let mut copies = Vec::new();
    // Texts come back only from a call that succeeds.
    for array in arrays.filter(|array| array.mode == Mode::InOut) {
        let place = values[array.param].map_or(std::ptr::null_mut(), |value| value.data);
        let is_texts = function.interface().params[array.param].is_fixed_texts();
        if is_texts || place.is_null() || handle::is_one(place) || array.client_bytes == 0 {
            continue;
        }
        let bytes = array.client_bytes as usize;
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes).map_err(|_| {
            let text = format!("no memory for {bytes} bytes, with which a call can run again");
            Problem::new(Status::FarcallInternal, text)
        })?;
        // SAFETY: the caller's promise.
        copy.extend_from_slice(unsafe { slice::from_raw_parts(place.cast::<u8>(), bytes) });
        copies.push((place.cast(), copy));
    }
    Ok(Kept(copies))
}

/// For `variadic.c`: gives the arrays their contents back.
///
/// # Safety
/// `kept` is from `farcall_internal_ninf_keep`, and its arrays exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_restore(kept: *const Kept) {
    // SAFETY: the caller's promise.
    let kept = unsafe { kept.as_ref() };
    for (place, copy) in kept.map_or(&[][..], |kept| &kept.0) {
        // SAFETY: as above; the copy is memory of its own.
        unsafe { place.copy_from_nonoverlapping(copy.as_ptr(), copy.len()) };
    }
}

/// For `variadic.c`: frees the copies. NULL does nothing.
///
/// # Safety
/// `kept` is from `farcall_internal_ninf_keep`, or NULL; nothing uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_forget(kept: *mut Kept) {
    if !kept.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(kept) });
    }
}
