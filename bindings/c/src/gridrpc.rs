//! GridRPC (GFD-R-P.052) over the sessions of this library: what `include/grpc.h` declares.
//!
//! Section numbers are those of the standard. The header documents the choices that the standard
//! leaves open.

mod config;
mod handle;
pub(crate) mod ninfg;
mod stack;
mod wait;

use crate::connect::{ConnectOptions, Server};
use crate::error::{Problem, fail, guard};
use crate::function::Function;
use crate::object::Object;
use crate::sessions::{End, Sessions};
use crate::{Status, call, text};
use config::Config;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The return value of a GridRPC function: a number of `grpc_error_t`.
type Code = c_int;

const NO_ERROR: Code = 0;
const NOT_INITIALIZED: Code = 1;
const CONFIGFILE_NOT_FOUND: Code = 2;
const CONFIGFILE_ERROR: Code = 3;
const SERVER_NOT_FOUND: Code = 4;
const FUNCTION_NOT_FOUND: Code = 5;
const INVALID_FUNCTION_HANDLE: Code = 6;
const INVALID_SESSION_ID: Code = 7;
const RPC_REFUSED: Code = 8;
const COMMUNICATION_FAILED: Code = 9;
const SESSION_FAILED: Code = 10;
const NOT_COMPLETED: Code = 11;
const NONE_COMPLETED: Code = 12;
const OTHER_ERROR: Code = 13;
const ALREADY_INITIALIZED: Code = 15;

/// No session.
const VOID: c_int = -1;

/// Numbers continue after a new initialization, so that an old number never means a new session.
static SESSIONS: Sessions = Sessions::new(c_int::MAX as u64);
static GRID: RwLock<Option<Arc<Grid>>> = RwLock::new(None);

/// The state from `grpc_initialize` to `grpc_finalize`.
struct Grid {
    config: Config,
    servers: Mutex<HashMap<String, Arc<Server>>>,
    handles: Mutex<HashMap<u64, Arc<Function>>>,
    /// Objects of clients of Ninf-G.
    objects: Mutex<HashMap<u64, Arc<Object>>>,
}

/// An error: its number, and the problem for `farcall_error_message`.
struct Fault(Code, Problem);

impl Fault {
    fn new(code: Code, text: &str) -> Fault {
        Fault(code, Problem::argument(text.to_owned()))
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        Fault(code_of(&problem), problem)
    }
}

/// The number of a problem.
fn code_of(problem: &Problem) -> Code {
    match problem.status {
        Status::FarcallCancelled if ninfg::is_on() => ninfg::CANCELED,
        Status::FarcallTimeout if ninfg::is_on() => ninfg::TIMEOUT,
        Status::FarcallUnknownFunction => FUNCTION_NOT_FOUND,
        Status::FarcallConnection | Status::FarcallTimeout => COMMUNICATION_FAILED,
        Status::FarcallLibrary | Status::FarcallCancelled => SESSION_FAILED,
        Status::FarcallServer => RPC_REFUSED,
        Status::FarcallUnknownSession => INVALID_SESSION_ID,
        _ => OTHER_ERROR,
    }
}

/// The result of a session, for `grpc_get_error`.
fn code_of_end(end: &End) -> Code {
    match end {
        Ok(_) => NO_ERROR,
        Err(problem) => code_of(problem),
    }
}

unsafe extern "C" {
    /// Keeps the error for `grpc_last_error_get_np` (`ninfg.c`).
    safe fn farcall_internal_grpc_failed(code: Code);
}

/// Runs the body of a function of GridRPC.
fn run(body: impl FnOnce() -> Result<Code, Fault>) -> Code {
    guard(OTHER_ERROR, || Ok(body().unwrap_or_else(failed)))
}

/// Records a failure as the last one of this thread.
fn failed(Fault(code, problem): Fault) -> Code {
    fail(problem);
    farcall_internal_grpc_failed(code);
    code
}

fn grid() -> Result<Arc<Grid>, Fault> {
    let grid = GRID.read().unwrap_or_else(PoisonError::into_inner).clone();
    grid.ok_or_else(|| {
        let text = "GridRPC is not initialized: call grpc_initialize first";
        Fault::new(NOT_INITIALIZED, text)
    })
}

impl Grid {
    /// The server with this name, or the default server; the client connects to it once.
    fn server(&self, name: Option<&str>) -> Result<Arc<Server>, Fault> {
        let name = match name {
            Some(name) => self.config.address(name).to_owned(),
            None => self.config.default_server(),
        };
        let lock = || self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&name) {
            return Ok(known.clone());
        }
        let options = ConnectOptions {
            size: 0,
            connect_timeout: self.config.connect_timeout,
            timeout: self.config.timeout,
            other_host: 0,
        };
        let client = farcall_client::Server::connect(&name, options.read()?);
        let client = client.map_err(|error| Fault(SERVER_NOT_FOUND, Problem::from(error)))?;
        let made = Arc::new(Server::new(client));
        Ok(lock().entry(name).or_insert(made).clone())
    }
}

/// 3.1: reads the configuration.
///
/// # Safety
/// `file` is NULL or a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_initialize(file: *const c_char) -> Code {
    run(|| {
        let mut grid = GRID.write().unwrap_or_else(PoisonError::into_inner);
        if grid.is_some() {
            let text = "GridRPC is initialized already";
            return Err(Fault::new(ALREADY_INITIALIZED, text));
        }
        let file = match file.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { text(file, "grpc_initialize: file") }?),
        };
        *grid = Some(Arc::new(Grid {
            config: Config::read(file)?,
            servers: Mutex::default(),
            handles: Mutex::default(),
            objects: Mutex::default(),
        }));
        Ok(NO_ERROR)
    })
}

/// 3.1: cancels all calls and forgets everything.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_finalize() -> Code {
    run(|| {
        let mut held = GRID.write().unwrap_or_else(PoisonError::into_inner);
        let Some(grid) = held.take() else {
            drop(held);
            return grid().map(|_| NO_ERROR);
        };
        drop(held);
        SESSIONS.cancel_all(None);
        SESSIONS.clear();
        drop(grid);
        Ok(NO_ERROR)
    })
}

/// For `variadic.c`: a share of the function behind a handle, which
/// `farcall_internal_grpc_call` or `farcall_internal_grpc_start` takes over.
///
/// # Safety
/// `handle` points to a handle or is NULL, `function` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_function(
    handle: *const handle::Handle,
    function: *mut *const Function,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let found = handle::function(&*grid()?, handle)?;
        *function = Arc::into_raw(found);
        Ok(NO_ERROR)
    })
}

/// For `variadic.c`: calls the function, and drops the share.
///
/// # Safety
/// As for `farcall_call_array`; `function` is from `farcall_internal_grpc_function`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_call(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let function = Arc::from_raw(function);
        let given = call::unchecked(arguments, count)?;
        ninfg::calling(|| call::call(&function, &given))?;
        Ok(NO_ERROR)
    })
}

/// For `variadic.c`: starts the call, and drops the share of the function.
///
/// # Safety
/// As for `farcall_call_array_async`; `function` is from `farcall_internal_grpc_function`, and
/// `session` points to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_grpc_start(
    function: *const Function,
    handle: *const handle::Handle,
    session: *mut c_int,
    arguments: *const *mut c_void,
    count: usize,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        let function = Arc::from_raw(function);
        let session = session.as_mut().ok_or(Problem::null("sessionID"))?;
        *session = VOID;
        let given = call::unchecked(arguments, count)?;
        let handle = handle.addr();
        let id = ninfg::calling(|| call::start(&SESSIONS, function, &given, handle))?;
        *session = id as c_int;
        Ok(NO_ERROR)
    })
}

/// 3.6: the meaning of an error code; that of `GRPC_UNKNOWN_ERROR_CODE` for another number.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_error_string(code: Code) -> *const c_char {
    let text = match code {
        0 => c"GRPC_NO_ERROR: success",
        1 => c"GRPC_NOT_INITIALIZED: grpc_initialize has not been called",
        2 => c"GRPC_CONFIGFILE_NOT_FOUND: the configuration file cannot be read",
        3 => c"GRPC_CONFIGFILE_ERROR: the configuration file is wrong",
        4 => c"GRPC_SERVER_NOT_FOUND: the server cannot be reached",
        5 => c"GRPC_FUNCTION_NOT_FOUND: the server has no function of that name",
        6 => c"GRPC_INVALID_FUNCTION_HANDLE: the function handle is not valid",
        7 => c"GRPC_INVALID_SESSION_ID: there is no session of that number",
        8 => c"GRPC_RPC_REFUSED: the server refused the call",
        9 => c"GRPC_COMMUNICATION_FAILED: the connection to the server failed",
        10 => c"GRPC_SESSION_FAILED: the session failed",
        11 => c"GRPC_NOT_COMPLETED: the session has not completed",
        12 => c"GRPC_NONE_COMPLETED: none of the sessions has completed",
        13 => c"GRPC_OTHER_ERROR_CODE: another error; farcall_error_message() tells it",
        14 => c"GRPC_UNKNOWN_ERROR_CODE: the error code is unknown",
        15 => c"GRPC_ALREADY_INITIALIZED: grpc_initialize has been called before",
        16 => c"GRPC_LAST_ERROR_CODE: the highest error code",
        _ if !ninfg::is_on() => c"GRPC_UNKNOWN_ERROR_CODE",
        ninfg::CLASS_NOT_FOUND => c"GRPC_CLASS_NOT_FOUND_NP: the server has no class of that name",
        ninfg::CANCELED => c"GRPC_CANCELED_NP: the session was cancelled",
        ninfg::TIMEOUT => c"GRPC_TIMEOUT_NP: the session has exceeded its time",
        ninfg::INVALID_OBJECT_HANDLE => {
            c"GRPC_INVALID_OBJECT_HANDLE_NP: the object handle is not valid"
        }
        _ => c"GRPC_UNKNOWN_ERROR_CODE",
    };
    text.as_ptr()
}

/// 3.6: the result of a session. A session that runs has no error.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_get_error(session: c_int) -> Code {
    run(|| {
        grid()?;
        let end = SESSIONS.end(wait::id(session)?)?;
        Ok(end.map_or(NO_ERROR, |end| code_of_end(&end)))
    })
}

/// 3.6: the next session that failed in the last wait of this thread, `GRPC_SESSIONID_VOID` if
/// there are no more.
///
/// # Safety
/// `session` points to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_get_failed_sessionid(session: *mut c_int) -> Code {
    run(|| {
        grid()?;
        // SAFETY: the caller's promise.
        let session = unsafe { session.as_mut() }.ok_or(Problem::null("sessionID"))?;
        *session = crate::session::next_failed().map_or(VOID, |id| id as c_int);
        Ok(NO_ERROR)
    })
}

/// 3.2: the handle of the function of a session.
///
/// # Safety
/// `handle` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_get_handle(handle: *mut *mut handle::Handle, session: c_int) -> Code {
    run(|| {
        grid()?;
        // SAFETY: the caller's promise.
        let handle = unsafe { handle.as_mut() }.ok_or(Problem::null("handle"))?;
        let id = wait::id(session)?;
        let found = SESSIONS.handle(id).ok_or(Problem::unknown_session(id))?;
        *handle = ptr::with_exposed_provenance_mut(found);
        Ok(NO_ERROR)
    })
}
