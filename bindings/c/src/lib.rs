//! `libfarcall`: the client for C. `include/farcall.h` is made from this file.
//!
//! No panic leaves a function of the library, and a NULL where an object belongs is an error.

mod argument;
mod channel;
mod error;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use farcall_client::Options;
use farcall_idl::Type;

use crate::error::{Problem, guard};

/// What became of an operation, and whose fault it was.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    FarcallOk = 0,
    /// The caller's: an argument, a name or an address.
    FarcallArgument = 1,
    /// The server has no function of that name.
    FarcallUnknownFunction = 2,
    /// The server cannot be reached, or the connection was lost.
    FarcallConnection = 3,
    /// The server did not answer in time.
    FarcallTimeout = 4,
    /// The called library crashed, ended its process, or ran past a limit.
    FarcallLibrary = 5,
    /// The server refused the call or failed.
    FarcallServer = 6,
    /// A fault of this library.
    FarcallInternal = 7,
}

/// How an argument is passed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pointer to the first element.
    FarcallArray = 0,
    /// char
    FarcallChar = 1,
    /// int16_t
    FarcallShort = 2,
    /// int32_t
    FarcallInt = 3,
    /// int64_t
    FarcallLong = 4,
    /// float
    FarcallFloat = 5,
    /// double
    FarcallDouble = 6,
    /// farcall_scomplex
    FarcallScomplex = 7,
    /// farcall_dcomplex
    FarcallDcomplex = 8,
    /// const char *
    FarcallText = 9,
}

/// How long a call took, in seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Until the server had the arguments.
    pub send: f64,
    /// In the library.
    pub exec: f64,
    /// Until the server had sent the results.
    pub recv: f64,
    /// The rest of the total.
    pub other: f64,
    /// From the start of the call to its return.
    pub total: f64,
}

/// A server.
pub struct Server {
    client: farcall_client::Server,
    /// Boxed, because handles point to them; they live as long as the server.
    functions: Mutex<HashMap<String, Box<Function>>>,
}

/// A function of a server.
pub struct Function {
    client: farcall_client::Function,
    /// Parameters that a caller passes: all but work space.
    passed: Vec<usize>,
    times: Mutex<Times>,
}

/// Connects to `farcall://host:port` or `unix:///path`. NULL where that fails.
///
/// # Safety
///
/// `address` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_connect(address: *const c_char) -> *mut Server {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let address = unsafe { text(address, "farcall_connect: address") }?;
        let client = farcall_client::Server::connect(address, Options::default())?;
        Ok(Box::into_raw(Box::new(Server {
            client,
            functions: Mutex::default(),
        })))
    })
}

/// Closes the connections and ends the functions of the server. NULL is let pass.
///
/// # Safety
///
/// `server` is from `farcall_connect`; neither it nor its functions are used from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_disconnect(server: *mut Server) {
    guard((), || {
        if !server.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(server) });
        }
        Ok(())
    });
}

/// The function of that name, `module/name` or `name` alone; it lives as long as the server.
/// Its interface is fetched once. NULL where there is none.
///
/// # Safety
///
/// `server` is from `farcall_connect`, `name` a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_function_of(
    server: *mut Server,
    name: *const c_char,
) -> *mut Function {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "farcall_function_of: name") }?;
        let lock = || {
            server
                .functions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = lock().get_mut(name) {
            return Ok(ptr::from_mut(&mut **known));
        }
        let client = server.client.function(name)?;
        let params = &client.interface().params;
        let passed = (0..params.len())
            .filter(|&index| params[index].is_passed())
            .collect();
        let made = Box::new(Function {
            client,
            passed,
            times: Mutex::default(),
        });
        Ok(ptr::from_mut(
            &mut **lock().entry(name.to_owned()).or_insert(made),
        ))
    })
}

/// How many arguments the function takes.
///
/// # Safety
///
/// `function` is from `farcall_function_of`, or NULL, which takes none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_count(function: *const Function) -> usize {
    // SAFETY: the caller's promise.
    unsafe { function.as_ref() }.map_or(0, |function| function.passed.len())
}

/// How the argument at `index` is passed, from 0.
///
/// # Safety
///
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_kind(function: *const Function, index: usize) -> Kind {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let found = function.and_then(|function| {
        let param = &function.client.interface().params[*function.passed.get(index)?];
        param.is_scalar().then(|| kind(param.ty))
    });
    found.unwrap_or(Kind::FarcallArray)
}

/// Calls a function with `count` arguments in the order of the interface: each points to its
/// scalar, in the type of `farcall_argument_kind`, or to the first element of its array. OUT and
/// INOUT arrays are filled in place; after a failure their contents are undefined.
///
/// # Safety
///
/// `function` is from `farcall_function_of`; every argument points to what the interface declares,
/// arrays to their whole declared size; nothing else writes to them, and nothing else reads those
/// that are written, until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_call_array(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
) -> Status {
    let done = guard(None, || {
        // SAFETY: the caller's promise.
        let function = unsafe { function.as_ref() }.ok_or(Problem::null("function"))?;
        let given = match count {
            0 => &[],
            _ if arguments.is_null() => return Err(Problem::null("arguments")),
            // SAFETY: the caller's promise.
            _ => unsafe { std::slice::from_raw_parts(arguments, count) },
        };
        // SAFETY: the caller's promise.
        let mut arguments = unsafe { argument::read(function, given) }?;
        let times = function.client.call(&mut arguments)?.times;
        let farcall_client::Times {
            send,
            exec,
            recv,
            other,
            total,
        } = times;
        *function
            .times
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Times {
            send,
            exec,
            recv,
            other,
            total,
        };
        Ok(Some(Status::FarcallOk))
    });
    done.unwrap_or_else(|| error::farcall_error_status())
}

/// How long the last call of the function took, in any thread; zeros before the first.
///
/// # Safety
///
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_times_of(function: *const Function) -> Times {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    function.map_or_else(Times::default, |function| {
        *function
            .times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    })
}

fn kind(ty: Type) -> Kind {
    match ty {
        Type::Char | Type::UnsignedChar => Kind::FarcallChar,
        Type::Short | Type::UnsignedShort => Kind::FarcallShort,
        Type::Int | Type::UnsignedInt => Kind::FarcallInt,
        Type::Long | Type::LongLong | Type::UnsignedLong | Type::UnsignedLongLong => {
            Kind::FarcallLong
        }
        Type::Float => Kind::FarcallFloat,
        Type::Double => Kind::FarcallDouble,
        Type::SComplex => Kind::FarcallScomplex,
        Type::DComplex => Kind::FarcallDcomplex,
        Type::String | Type::Filename | Type::FilePointer => Kind::FarcallText,
    }
}

/// # Safety
///
/// `text` is NULL or a string ended by NUL, which outlives the result.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Problem> {
    if text.is_null() {
        return Err(Problem::null(what));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Problem::argument(format!("{what} is not UTF-8")))
}
