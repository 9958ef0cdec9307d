//! Calls whose arguments are in an array, as pointers or as values with a type. `argument` reads
//! them, and `sessions` keeps calls that run on. Inside a transaction, a call is recorded and does
//! not run.

use crate::argument::{self, Use, Value};
use crate::error::{Problem, guard, status};
use crate::function::{Function, share};
use crate::session::SESSIONS;
use crate::sessions::Sessions;
use crate::texts::Texts;
use crate::{SessionId, Status, transaction};
use std::ffi::c_void;
use std::sync::Arc;

/// Calls a function with `count` arguments in the order of the interface. Each is a pointer to a
/// scalar of the type of `farcall_argument_kind`, or to the first element of an array, or the
/// address of a callback. The call fills OUT and INOUT arrays in place; after a failure their
/// contents are undefined. Callbacks run on the thread that waits for the call.
///
/// # Safety
/// `function` is from `farcall_function_of`. Each argument points to what the interface declares,
/// and an array has its whole declared size. Until the call returns, nothing else writes to the
/// arrays, and nothing else reads the arrays that the call writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_call_array(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let function = share(function)?;
        let given = unchecked(arguments, count)?;
        call(&function, &given)
    })
}

/// Starts a call as `farcall_call_array` does, and returns its session; 0 on failure. Arguments and
/// results travel while some thread waits for a call to this server.
///
/// # Safety
/// As for `farcall_call_array`, until a wait has reported the end of the session, or
/// `farcall_cancel` or `farcall_disconnect` has returned. Scalars and texts are copied at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_call_array_async(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
) -> SessionId {
    // SAFETY: the caller's promise.
    guard(0, || unsafe {
        let function = share(function)?;
        let given = unchecked(arguments, count)?;
        start(&SESSIONS, function, &given, 0)
    })
}

/// Calls a function with arguments that state their own type and size. The call checks each of them
/// against the interface, and widens integers and floating-point scalars if that loses nothing.
/// This is for languages above C.
///
/// # Safety
/// As for `farcall_call_array`; `values` points to `count` arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_call_values(
    function: *const Function,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let function = share(function)?;
        let values = list(values, count, "the array of values")?;
        call(&function, values)
    })
}

/// Starts a call as `farcall_call_values` does, and returns its session; 0 on failure.
///
/// # Safety
/// As for `farcall_call_array_async`; `values` points to `count` arguments, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_call_values_async(
    function: *const Function,
    values: *const Value,
    count: usize,
) -> SessionId {
    // SAFETY: the caller's promise.
    guard(0, || unsafe {
        let function = share(function)?;
        let values = list(values, count, "the array of values")?;
        start(&SESSIONS, function, values, 0)
    })
}

/// # Safety
/// As for `farcall_call_values`.
pub(crate) unsafe fn call(function: &Function, given: &[Value]) -> Result<Status, Problem> {
    let mut texts = Texts::default();
    // SAFETY: the caller's promise; the texts outlive the call.
    let read = unsafe { argument::read(function, given, Use::Call, &mut texts) };
    let (laid_out, mut arguments) = read?;
    if transaction::is_open() {
        // SAFETY: the caller's promise; the transaction holds the texts.
        unsafe { transaction::record(function, laid_out, &mut arguments, texts) }?;
        return Ok(Status::FarcallOk);
    }
    let outcome = function.client().call_laid_out(laid_out, &mut arguments)?;
    texts.deliver();
    function.keep(&outcome);
    Ok(Status::FarcallOk)
}

/// # Safety
/// As for `farcall_call_values_async`.
pub(crate) unsafe fn start(
    sessions: &Sessions,
    function: Arc<Function>,
    given: &[Value],
    handle: usize,
) -> Result<u64, Problem> {
    let mut texts = Texts::default();
    // SAFETY: the caller's promise; the session holds the texts.
    let read = unsafe { argument::read(&function, given, Use::Call, &mut texts) };
    let (laid_out, mut arguments) = read?;
    if transaction::is_open() {
        let text = "a transaction records its calls: use a call that waits";
        return Err(Problem::argument(text.to_owned()));
    }
    sessions.check_room()?;
    // SAFETY: the caller's promise.
    let pending = unsafe { function.client().start_laid_out(laid_out, &mut arguments) }?;
    let tag = function.server;
    Ok(sessions.add(function, (pending, texts), tag, handle))
}

/// # Safety
/// `arguments` points to `count` pointers.
pub(crate) unsafe fn unchecked(
    arguments: *const *mut c_void,
    count: usize,
) -> Result<Vec<Value>, Problem> {
    // SAFETY: the caller's promise.
    let pointers = unsafe { list(arguments, count, "the array of arguments") }?;
    Ok(pointers.iter().copied().map(Value::unchecked).collect())
}

/// Elements that a program passes. `what` names them.
///
/// # Safety
/// `start` points to `count` elements that live long enough.
#[inline]
pub(crate) unsafe fn list<'a, T>(
    start: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Problem> {
    match count {
        0 => Ok(&[]),
        _ if start.is_null() => Err(Problem::null(what)),
        _ if !fits::<T>(count) => Err(too_many(count)),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(start, count) }),
    }
}

/// Elements that a program passes to be written. `what` names them.
///
/// # Safety
/// As for [`list`], and nobody else uses them meanwhile.
#[inline]
pub(crate) unsafe fn list_mut<'a, T>(
    start: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [T], Problem> {
    match count {
        0 => Ok(&mut []),
        _ if start.is_null() => Err(Problem::null(what)),
        _ if !fits::<T>(count) => Err(too_many(count)),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(start, count) }),
    }
}

/// Whether memory can have so many elements.
#[inline]
pub(crate) fn fits<T>(count: usize) -> bool {
    count <= isize::MAX as usize / size_of::<T>()
}

#[cold]
pub(crate) fn too_many(count: usize) -> Problem {
    let text = "are more than memory can have: was a negative number passed?";
    Problem::argument(format!("{count} {text}"))
}
