//! Argument stacks: calls whose arguments are collected at run time, as pointers in the order of
//! the interface. `call` makes the calls. A call leaves the arguments on the stack.

use super::handle::{self, Handle};
use super::ninfg;
use super::{
    Code, NO_ERROR, VOID, farcall_internal_grpc_call, farcall_internal_grpc_start, grid, run,
};
use crate::error::{Problem, guard};
use crate::function::Function;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// `grpc_arg_stack_t`.
pub struct Stack {
    pointers: Vec<*mut c_void>,
    most: usize,
}

impl Stack {
    /// The arguments, without the placeholders for WORK parameters that clients of Ninf-G push.
    pub(super) fn arguments(&self, function: &Function) -> Vec<*mut c_void> {
        let params = &function.client.interface().params;
        let is_placeholder =
            |at: usize| ninfg::is_on() && params.get(at).is_some_and(|param| !param.is_passed());
        let pointers = self.pointers.iter().enumerate();
        let pointers = pointers.filter(|(at, _)| !is_placeholder(*at));
        pointers.map(|(_, pointer)| *pointer).collect()
    }
}

/// A stack for at most `most` arguments; NULL if `most` is negative.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_arg_stack_new(most: c_int) -> *mut Stack {
    guard(ptr::null_mut(), || {
        let most = usize::try_from(most)
            .map_err(|_| Problem::argument(format!("a stack for {most} arguments")))?;
        let pointers = Vec::new();
        Ok(Box::into_raw(Box::new(Stack { pointers, most })))
    })
}

/// Puts an argument on the stack: a pointer to a scalar or to the first element of an array.
///
/// # Safety
/// `stack` is from `grpc_arg_stack_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_arg_stack_push_arg(stack: *mut Stack, argument: *mut c_void) -> Code {
    run(|| {
        // SAFETY: the caller's promise.
        let stack = unsafe { stack.as_mut() }.ok_or(Problem::null("stack"))?;
        if stack.pointers.len() >= stack.most {
            let text = format!("the stack is full: it was made for {}", stack.most);
            return Err(Problem::argument(text).into());
        }
        stack.pointers.push(argument);
        Ok(NO_ERROR)
    })
}

/// Removes the last argument and returns it; NULL if there is none.
///
/// # Safety
/// `stack` is from `grpc_arg_stack_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_arg_stack_pop_arg(stack: *mut Stack) -> *mut c_void {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let stack = unsafe { stack.as_mut() }.ok_or(Problem::null("stack"))?;
        let empty = || Problem::argument("the stack is empty".to_owned());
        stack.pointers.pop().ok_or_else(empty)
    })
}

/// Frees the stack. NULL does nothing.
///
/// # Safety
/// `stack` is from `grpc_arg_stack_new`; the program does not use it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_arg_stack_destruct(stack: *mut Stack) -> Code {
    run(|| {
        if !stack.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(stack) });
        }
        Ok(NO_ERROR)
    })
}

/// Calls the function with the arguments of the stack, which remain on the stack.
///
/// # Safety
/// As for `farcall_call_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_call_argstack(handle: *const Handle, stack: *const Stack) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let function = handle::function(&*grid()?, handle)?;
        let stack = stack.as_ref().ok_or(Problem::null("stack"))?;
        let given = stack.arguments(&function);
        let (start, count) = (given.as_ptr(), given.len());
        Ok(farcall_internal_grpc_call(
            Arc::into_raw(function),
            start,
            count,
        ))
    })
}

/// Starts the call with the arguments of the stack.
///
/// # Safety
/// As for `farcall_call_array_async`; `session` points to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_call_argstack_async(
    handle: *const Handle,
    session: *mut c_int,
    stack: *const Stack,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        if let Some(session) = session.as_mut() {
            *session = VOID;
        }
        let function = handle::function(&*grid()?, handle)?;
        let stack = stack.as_ref().ok_or(Problem::null("stack"))?;
        let given = stack.arguments(&function);
        let (start, count) = (given.as_ptr(), given.len());
        let function = Arc::into_raw(function);
        Ok(farcall_internal_grpc_start(
            function, handle, session, start, count,
        ))
    })
}
