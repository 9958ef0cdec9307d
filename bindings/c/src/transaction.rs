//! Transactions of C programs: calls of a thread that are recorded, and run as a data-flow graph.
//! `farcall_client` records and runs them. Each thread has at most one open transaction.

use crate::call::list;
use crate::connect::Server;
use crate::error::{Problem, status};
use crate::function::Function;
use crate::texts::Texts;
use crate::{Status, ninf, text};
use farcall_client::{Argument, ArgumentOptions, LaidOut, Server as Client};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The figures of a transaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Calls that were made, including those that were repeated after a fault.
    pub calls: u64,
    /// Servers that have made at least one call.
    pub servers: u64,
    /// Bytes of arrays that this program has sent.
    pub sent_bytes: u64,
    /// Bytes of arrays that this program has received.
    pub returned_bytes: u64,
    /// Bytes of arrays that went from server to server.
    pub passed_bytes: u64,
    /// Seconds from start to end.
    pub total: f64,
}

/// A transaction of a thread.
#[derive(Default)]
struct Open {
    client: farcall_client::Transaction,
    servers: Vec<Client>,
    /// The texts that calls read. They come after the calls.
    texts: Vec<Texts>,
}

impl Open {
    fn add_server(&mut self, server: &Client) {
        let address = server.address();
        if self.servers.iter().all(|known| known.address() != address) {
            self.servers.push(server.clone());
        }
    }
}

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Whether the calls of this thread are recorded.
pub(crate) fn is_open() -> bool {
    // A destructor of the thread may come after that of the transaction.
    OPEN.try_with(|open| open.borrow().is_some())
        .unwrap_or(false)
}

/// Records a call.
///
/// # Safety
/// As for `farcall_call_array`, until the transaction has ended.
pub(crate) unsafe fn record(
    function: &Function,
    laid_out: LaidOut,
    arguments: &mut [Argument<'_>],
    texts: Texts,
) -> Result<(), Problem> {
    if texts.are_returned() {
        let text = "in a transaction no strings come back: make this call before or after it";
        return Err(Problem::argument(text.to_owned()));
    }
    OPEN.with_borrow_mut(|open| {
        let open = open.as_mut().ok_or_else(none_open)?;
        let client = function.client();
        // SAFETY: the caller's promise.
        unsafe {
            open.client
                .add_laid_out(&client, laid_out, arguments, &ArgumentOptions::default())
        }?;
        open.add_server(client.server());
        open.texts.push(texts);
        Ok(())
    })
}

fn none_open() -> Problem {
    Problem::argument("no transaction is open on this thread".to_owned())
}

fn begin(servers: Vec<Client>) -> Result<(), Problem> {
    if is_open() {
        let text = "a transaction is open on this thread already";
        return Err(Problem::argument(text.to_owned()));
    }
    let mut open = Open::default();
    servers.iter().for_each(|server| open.add_server(server));
    OPEN.set(Some(open));
    Ok(())
}

fn end() -> Result<Report, Problem> {
    let mut open = OPEN.take().ok_or_else(none_open)?;
    let report = open.client.run(&open.servers)?;
    Ok(Report {
        calls: report.calls as u64,
        servers: report.servers as u64,
        sent_bytes: report.sent_bytes,
        returned_bytes: report.returned_bytes,
        passed_bytes: report.passed_bytes,
        total: report.total,
    })
}

/// Begins a transaction: calls of this thread are recorded and return at once.
/// `farcall_transaction_end` runs them as a data-flow graph, on these `count` servers and on the
/// servers of the functions that are called. Calls that do not depend on each other run at the same
/// time. An array that one call writes and another reads remains at a server, or goes from server
/// to server. The memory of an array identifies it.
///
/// # Safety
/// `servers` points to `count` servers from `farcall_connect`. Until the transaction has ended, the
/// arrays of the calls stay at their addresses, nothing uses arrays that calls write, and nothing
/// writes the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_transaction_begin(
    servers: *const *const Server,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let servers = list(servers, count, "the array of servers")?;
        let client = |server: &*const Server| {
            let server = server.as_ref();
            let server = server.ok_or_else(|| Problem::null("farcall_transaction_begin: server"));
            Ok(server?.client().clone())
        };
        begin(servers.iter().map(client).collect::<Result<_, Problem>>()?)?;
        Ok(Status::FarcallOk)
    })
}

/// Says that the final contents of these bytes are not needed: they are not filled, if calls use
/// them as one array.
///
/// # Safety
/// `start` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_transaction_discard(start: *const c_void, bytes: usize) -> Status {
    status(|| {
        OPEN.with_borrow_mut(|open| {
            let open = open.as_mut().ok_or_else(none_open)?;
            let start = start.addr();
            open.client.discard(start..start.saturating_add(bytes));
            Ok(Status::FarcallOk)
        })
    })
}

/// Writes the graph of the calls that are recorded so far to an SVG file. This needs the Python
/// package and matplotlib: `FARCALL_PYTHON` names an interpreter that has both; the default is
/// `python3`.
///
/// # Safety
/// `path` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_transaction_draw(path: *const std::ffi::c_char) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "farcall_transaction_draw: path") }?;
        let graph = OPEN.with_borrow(|open| {
            let open = open.as_ref().ok_or_else(none_open)?;
            Ok::<String, Problem>(open.client.dot())
        })?;
        draw(&graph, path).map_err(|reason| Problem::argument(format!("{path}: {reason}")))?;
        Ok(Status::FarcallOk)
    })
}

/// Makes the Python package draw a graph.
fn draw(graph: &str, path: &str) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut file = tempfile::NamedTempFile::new().map_err(text)?;
    file.write_all(graph.as_bytes()).map_err(text)?;
    let named = std::env::var_os("FARCALL_PYTHON").filter(|python| !python.is_empty());
    let python = named.unwrap_or_else(|| "python3".into());
    let needs = "drawing needs Python with farcall and matplotlib; FARCALL_PYTHON names it";
    let run = Command::new(&python)
        .args(["-m", "farcall._graph"])
        .args([file.path(), Path::new(path)])
        .output()
        .map_err(|error| format!("{}: {error}; {needs}", python.display()))?;
    if run.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&run.stderr);
    let last = said.trim().lines().last().unwrap_or("no message");
    Err(format!("{}: {last}; {needs}", python.display()))
}

/// Runs the recorded calls, and fills their arrays. The message of an error names the call that
/// failed; the contents of arrays that calls write are then undefined.
///
/// # Safety
/// `report` is NULL or points to a report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_transaction_end(report: *mut Report) -> Status {
    status(|| {
        let made = end()?;
        // SAFETY: the caller's promise.
        if let Some(report) = unsafe { report.as_mut() } {
            *report = made;
        }
        Ok(Status::FarcallOk)
    })
}

/// Cancels a transaction: forgets the recorded calls.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_transaction_cancel() -> Status {
    status(|| {
        OPEN.take().ok_or_else(none_open)?;
        Ok(Status::FarcallOk)
    })
}

/// For `ninf.h`.
/// cbindgen:ignore
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_transaction_begin() -> c_int {
    ninf::guard(-1, || begin(Vec::new()).map(|()| 0))
}

/// For `ninf.h`.
/// cbindgen:ignore
#[unsafe(no_mangle)]
pub extern "C" fn Ninf_transaction_end() -> c_int {
    ninf::guard(-1, || end().map(|_| 0))
}
