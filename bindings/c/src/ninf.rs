//! The names of the Ninf client library: what `include/ninf.h` declares. They call the same code as
//! the names of `farcall.h`. Numbers and return values are those of Ninf, and unknown sessions are
//! ignored. `ninf.c` has what needs only other names of Ninf.

mod kept;
mod streams;

use crate::connect::Server;
use crate::error::{self, Problem, farcall_error_message, farcall_error_status};
use crate::function::Function;
use crate::session::remember_failed;
use crate::sessions::{Any, End, Sessions};
use crate::{Status, call, text, transaction};
use farcall_client::Options;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use streams::Streams;

const OK: c_int = 0;
const ERROR: c_int = -1;
/// Most servers that a file of `-map` names.
const MOST_HOSTS: usize = 1000;
/// How long a server that could not be reached comes after the others: an attempt may take as long
/// as the connection may.
const AWAY_FOR: Duration = Duration::from_secs(60);

unsafe extern "C" {
    /// Sets `ninf_error_code` (`ninf.c`).
    fn farcall_internal_ninf_failed(status: c_int, message: *const c_char);
}

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

static SESSIONS: Sessions = Sessions::new(c_int::MAX as u64);
static NINF: LazyLock<Mutex<Ninf>> = LazyLock::new(Mutex::default);
/// Held while streams are written, so that a wait returns only when those of its sessions are.
static DELIVERY: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Ninf {
    /// The server that `Ninf_parse_arg` has read.
    server: Option<String>,
    port: Option<String>,
    servers: HashMap<String, Arc<Server>>,
    /// The servers of `-map`, the next one first.
    hosts: VecDeque<String>,
    /// Those that could not be reached, and when to try them again.
    away: HashMap<String, Instant>,
    /// The streams of sessions that are under way.
    streams: BTreeMap<u64, Streams>,
    /// Sessions whose results could not be written to a stream.
    undelivered: BTreeMap<u64, Undelivered>,
}

/// Why the results of a session are not in its streams.
struct Undelivered {
    problem: Problem,
    /// A wait has reported it.
    is_told: bool,
}

/// Runs a function of Ninf. A failure is the last error, and sets `ninf_error_code`.
pub(crate) fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, Problem>) -> T {
    IS_CALLING.set(true);
    let result = error::guard(None, || body().map(Some));
    IS_CALLING.set(false);
    result.unwrap_or_else(|| {
        note();
        failed
    })
}

/// Whether this thread is in a function of Ninf, which makes the memory of texts that a call
/// returns where the caller has none.
pub(crate) fn is_calling() -> bool {
    IS_CALLING.get()
}

fn fail(problem: Problem) {
    error::fail(problem);
    note();
}

/// Tells the last error to `ninf.c`.
fn note() {
    // SAFETY: the message is a string of this thread.
    unsafe {
        farcall_internal_ninf_failed(farcall_error_status() as c_int, farcall_error_message())
    }
}

fn ninf() -> MutexGuard<'static, Ninf> {
    NINF.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ninf {
    /// The servers of `-map`, the next one first, and those that are away last; another call begins
    /// with the one after it.
    fn next_hosts(&mut self) -> Vec<String> {
        let now = Instant::now();
        let mut hosts: Vec<String> = self.hosts.iter().cloned().collect();
        hosts.sort_by_key(|host| self.away.get(host).is_some_and(|until| *until > now));
        self.hosts.rotate_left(self.hosts.len().min(1));
        hosts
    }

    /// Notes whether a server could be reached.
    fn note_host(&mut self, host: String, reached: bool) {
        if reached {
            self.away.remove(&host);
        } else {
            self.away.insert(host, Instant::now() + AWAY_FOR);
        }
    }

    /// The server of a function's name that names no server.
    fn default_address(&self) -> String {
        let environment = std::env::var("NINF_SERVER").ok();
        let host = || environment.filter(|host| !host.is_empty());
        match (&self.server, &self.port) {
            (Some(server), Some(port)) => format!("{server}:{port}"),
            (Some(server), None) => server.clone(),
            (None, Some(port)) => {
                format!(
                    "{}:{port}",
                    host().unwrap_or_else(|| "localhost".to_owned())
                )
            }
            (None, None) => farcall_client::default_address(),
        }
    }
}

/// The server, if there is one, and the function of `ninf://host:port/module/name`.
fn split(name: &str) -> Result<(Option<&str>, &str), Problem> {
    let Some((_, rest)) = name.split_once("://") else {
        return Ok((None, name));
    };
    let start = name.len() - rest.len();
    match rest.split_once('/') {
        Some((host, function)) if !host.is_empty() && !function.is_empty() => {
            Ok((Some(&name[..start + host.len()]), function))
        }
        _ => Err(Problem::argument(format!(
            "`{name}` names no function: write ninf://HOST:PORT/FUNCTION"
        ))),
    }
}

fn function(name: &str) -> Result<Arc<Function>, Problem> {
    let (server, name) = split(name)?;
    let address = match server {
        Some(server) => server.to_owned(),
        None => ninf().default_address(),
    };
    let known = ninf().servers.get(&address).cloned();
    let server = match known {
        Some(server) => server,
        None => {
            let client = farcall_client::Server::connect(&address, Options::default())?;
            let made = Arc::new(Server::new(client));
            ninf().servers.entry(address).or_insert(made).clone()
        }
    };
    server.function(name)
}

/// For `variadic.c`: a share of the function of that name, which `farcall_internal_ninf_call` or
/// `farcall_internal_ninf_start` takes over; NULL if there is no such function.
///
/// # Safety
/// `name` is NULL or a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_function(name: *const c_char) -> *const Function {
    guard(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "Ninf_call: name") }?;
        Ok(Arc::into_raw(function(name)?))
    })
}

/// The same for `ninf.c`, for a call of a group: at the next host of `-map` that can be reached, if
/// the name has no server.
///
/// # Safety
/// As for `farcall_internal_ninf_function`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_on_next_host(
    name: *const c_char,
) -> *const Function {
    guard(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "Ninf_group_init: name") }?;
        let hosts = match name.contains("://") {
            true => Vec::new(),
            false => ninf().next_hosts(),
        };
        let mut found = None;
        for host in hosts {
            let at_host = function(&format!("{host}/{name}"));
            let is_away = |problem: &Problem| problem.status == Status::FarcallConnection;
            ninf().note_host(host, !at_host.as_ref().is_err_and(is_away));
            found = Some(at_host);
            if matches!(found, Some(Ok(_))) {
                break;
            }
        }
        Ok(Arc::into_raw(found.unwrap_or_else(|| function(name))?))
    })
}

/// For `variadic.c`: calls the function, and drops the share.
///
/// # Safety
/// As for `farcall_call_array`; `function` is from `farcall_internal_ninf_function`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_call(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    guard(ERROR, || unsafe {
        let function = Arc::from_raw(function);
        let refusal = "a transaction takes no `FILE *`: declare a filename";
        let refusal = transaction::is_open().then_some(refusal);
        let streams = Streams::open(
            &function,
            call::list(arguments, count, "the array of arguments")?,
            refusal,
        )?;
        let given = call::unchecked(arguments, count)?;
        call::call(&function, &given)?;
        streams.deliver()?;
        Ok(OK)
    })
}

/// For `variadic.c`: starts the call, and drops the share of the function. The call of a group may
/// run again with the same arguments, when a stream is at its end.
///
/// # Safety
/// As for `farcall_call_array_async`; `function` is from `farcall_internal_ninf_function`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_ninf_start(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
    is_in_group: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    guard(ERROR, || unsafe {
        let function = Arc::from_raw(function);
        let refusal = "a group takes no `FILE *`: declare a filename";
        let refusal = (is_in_group != 0).then_some(refusal);
        let streams = Streams::open(
            &function,
            call::list(arguments, count, "the array of arguments")?,
            refusal,
        )?;
        let given = call::unchecked(arguments, count)?;
        // A wait in another thread can see the end of the session only together with its streams.
        let ninf = (!streams.is_empty()).then(ninf);
        let id = call::start(&SESSIONS, function, &given, 0)?;
        if let Some(mut ninf) = ninf {
            ninf.streams.insert(id, streams);
        }
        Ok(id as c_int)
    })
}

/// Waits for a session; ignores an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_wait(session: c_int) -> c_int {
    guard(ERROR, || {
        let known = known(&[session]);
        Ok(match known.first() {
            Some(&id) => match SESSIONS.wait(id, None)? {
                Some(end) => report(id, end),
                None => ERROR,
            },
            None => OK,
        })
    })
}

/// Waits for all sessions that no wait has reported yet.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_wait_all() -> c_int {
    guard(ERROR, || {
        let failed = SESSIONS.wait_all(None, None)?.0;
        Ok(report_all(failed, None))
    })
}

/// Waits for one of the sessions that no wait has reported yet, and returns it; 0 if none is
/// left.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_wait_any() -> c_int {
    guard(ERROR, || match SESSIONS.wait_any(None, None)? {
        Any::Over(id, end) => {
            report(id, end);
            Ok(id as c_int)
        }
        Any::Running | Any::NoneLeft => Ok(0),
    })
}

/// # Safety
/// `sessions` points to `count` sessions that live long enough.
unsafe fn given<'a>(sessions: *const c_int, count: c_int) -> Result<&'a [c_int], Problem> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { call::list(sessions, count, "the array of sessions") }
}

/// Waits for all of these sessions.
///
/// # Safety
/// `sessions` points to `count` sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Ninf_wait_and(sessions: *const c_int, count: c_int) -> c_int {
    guard(ERROR, || {
        // SAFETY: the caller's promise.
        let ids = known(unsafe { given(sessions, count) }?);
        let failed = SESSIONS.wait_and(&ids, None)?.0;
        Ok(report_all(failed, Some(&ids)))
    })
}

/// Waits for one of these sessions, and returns it; 0 if none of them is known.
///
/// # Safety
/// `sessions` points to `count` sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Ninf_wait_or(sessions: *const c_int, count: c_int) -> c_int {
    guard(ERROR, || {
        // SAFETY: the caller's promise.
        let ids = known(unsafe { given(sessions, count) }?);
        if ids.is_empty() {
            return Ok(0);
        }
        Ok(SESSIONS.wait_or(&ids, None)?.map_or(0, |(id, end)| {
            report(id, end);
            id as c_int
        }))
    })
}

/// Whether a session is under way: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_session_probe(session: c_int) -> c_int {
    guard(0, || {
        let known = known(&[session]);
        let ended = known.first().map(|&id| SESSIONS.probe(id)).transpose()?;
        deliver();
        Ok(c_int::from(matches!(ended, Some(None))))
    })
}

/// Gives a session up and forgets it, so that no wait reports it. Returns 1.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_session_remove(session: c_int) -> c_int {
    guard(0, || {
        for id in known(&[session]) {
            SESSIONS.cancel(id)?;
            SESSIONS.wait(id, None)?;
        }
        deliver();
        Ok(1)
    })
}

/// Gives a session up; ignores an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_cancel(session: c_int) -> c_int {
    guard(ERROR, || {
        for id in known(&[session]) {
            SESSIONS.cancel(id)?;
        }
        deliver();
        Ok(OK)
    })
}

/// Gives all sessions up.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_cancel_all() -> c_int {
    guard(ERROR, || {
        SESSIONS.cancel_all(None);
        deliver();
        Ok(OK)
    })
}

/// Sets the server of names without one; NULL leaves it as it is.
///
/// # Safety
/// `server` and `port` are NULL or strings ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Ninf_set_server(server: *const c_char, port: *const c_char) {
    guard((), || {
        let given = |what: *const c_char, name| match what.is_null() {
            true => Ok(None),
            // SAFETY: the caller's promise.
            false => unsafe { text(what, name) }.map(|text| Some(text.to_owned())),
        };
        let (server, port) = (given(server, "server")?, given(port, "port")?);
        let mut ninf = ninf();
        ninf.server = server.or_else(|| ninf.server.take());
        ninf.port = port.or_else(|| ninf.port.take());
        Ok(())
    });
}

/// Takes `-server NAME`, `-port NUMBER` and `-map FILE` out of the arguments of a program, and
/// returns how many are left.
///
/// # Safety
/// `argv` points to `argc` strings, each ended by NUL, and one NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Ninf_parse_arg(argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    guard(argc, || unsafe {
        let count = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || count == 0 {
            return Ok(argc);
        }
        let given = std::slice::from_raw_parts_mut(argv, count);
        // The arguments change together, so that they are whole if a map cannot be read.
        let mut kept = Vec::with_capacity(count);
        let mut index = 0;
        while index < count {
            let value = given
                .get(index + 1)
                .copied()
                .filter(|value| !value.is_null());
            let option = option(given[index], index, value);
            match option {
                Some(("-server", value)) => ninf().server = Some(value),
                Some(("-port", value)) => ninf().port = Some(value),
                Some((_, value)) => read_map(&value)?,
                None => {
                    kept.push(given[index]);
                    index += 1;
                    continue;
                }
            }
            index += 2;
        }
        given[..kept.len()].copy_from_slice(&kept);
        if let Some(end) = given.get_mut(kept.len()) {
            *end = std::ptr::null_mut();
        }
        Ok(kept.len() as c_int)
    })
}

/// Reads the hosts of groups: a host and a port in each line.
fn read_map(file: &str) -> Result<(), Problem> {
    let wrong = |what: &dyn Display| Problem::argument(format!("-map {file}: {what}"));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut hosts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(host) = words.next().filter(|host| !host.starts_with('#')) else {
            continue;
        };
        let port = words.next().and_then(|port| port.parse::<u16>().ok());
        let what = format!("line {}: write a host and a port", number + 1);
        let port = port.ok_or_else(|| wrong(&what))?;
        hosts.push(format!("ninf://{host}:{port}"));
    }
    if hosts.len() > MOST_HOSTS {
        let many = hosts.len();
        return Err(wrong(&format!("{many} hosts: name at most {MOST_HOSTS}")));
    }
    ninf().hosts.extend(hosts);
    Ok(())
}

/// The option at an index, and its value.
///
/// # Safety
/// The strings are ended by NUL, or NULL.
unsafe fn option(
    name: *const c_char,
    index: usize,
    value: Option<*mut c_char>,
) -> Option<(&'static str, String)> {
    if index == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"-server" => "-server",
        b"-port" => "-port",
        b"-map" => "-map",
        _ => return None,
    };
    // SAFETY: the caller's promise.
    let value = unsafe { CStr::from_ptr(value?) }.to_str().ok()?;
    Some((name, value.to_owned()))
}

/// Prints the error of the last operation of this thread that failed.
///
/// # Safety
/// `what` is NULL or a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Ninf_perror(what: *const c_char) {
    // SAFETY: it is a string of this thread.
    let message = unsafe { CStr::from_ptr(farcall_error_message()) }.to_string_lossy();
    let line = if what.is_null() {
        format!("{message}\n")
    } else {
        // SAFETY: the caller's promise.
        let what = unsafe { CStr::from_ptr(what) }.to_string_lossy();
        format!("{what}: {message}\n")
    };
    // There is nowhere else to tell that standard error is full or closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The status of the last operation of this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_error_code() -> c_int {
    farcall_error_status() as c_int
}

fn known(sessions: &[c_int]) -> Vec<u64> {
    let ids = sessions.iter().filter_map(|&id| u64::try_from(id).ok());
    ids.filter(|&id| SESSIONS.find(id).is_some()).collect()
}

fn report(id: u64, end: End) -> c_int {
    let failed = end.err().map(|problem| (id, problem));
    report_all(failed.into_iter().collect(), Some(&[id]))
}

/// Gives the files of sessions that have ended well to the streams of the caller.
fn deliver() {
    let _one_at_a_time = DELIVERY.lock().unwrap_or_else(PoisonError::into_inner);
    let ids: Vec<u64> = ninf().streams.keys().copied().collect();
    for id in ids {
        let ended = SESSIONS.end(id);
        if matches!(ended, Ok(None)) {
            continue;
        }
        let streams = ninf().streams.remove(&id);
        if let (Ok(Some(Ok(_))), Some(streams)) = (ended, streams)
            && let Err(problem) = streams.deliver()
        {
            let is_told = false;
            let undelivered = Undelivered { problem, is_told };
            ninf().undelivered.insert(id, undelivered);
        }
    }
    let is_known = |id: &u64, _: &mut Undelivered| SESSIONS.find(*id).is_some();
    ninf().undelivered.retain(is_known);
}

/// The sessions that a wait reports and whose results are not in their streams: those of `ids`, or
/// all that no wait has reported.
fn undelivered(ids: Option<&[u64]>) -> Vec<(u64, Problem)> {
    let mut ninf = ninf();
    let all = ninf.undelivered.iter_mut();
    let wanted = all.filter(|(id, one)| match ids {
        Some(ids) => ids.contains(id),
        None => !one.is_told,
    });
    let told = wanted.map(|(id, one)| {
        one.is_told = true;
        (*id, one.problem.clone())
    });
    told.collect()
}

/// Reports the sessions that have failed among `ids`, or among all.
fn report_all(mut failed: Vec<(u64, Problem)>, ids: Option<&[u64]>) -> c_int {
    deliver();
    failed.extend(undelivered(ids));
    remember_failed(failed.iter().map(|(id, _)| *id));
    match failed.into_iter().next() {
        Some((_, problem)) => {
            fail(problem);
            ERROR
        }
        None => OK,
    }
}
