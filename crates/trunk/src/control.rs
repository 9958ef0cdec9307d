//! The control socket: one request a connection, answered by the event loop.

use rustix::event::{EventfdFlags, eventfd};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

/// A client that says or takes nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request, at most.
const REQUEST: u64 = 4096;
/// Requests waiting for the event loop, at most.
const WAITING: usize = 16;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Status,
    Metrics,
    Down,
}

pub(crate) struct Request {
    pub(crate) query: Query,
    pub(crate) answer: SyncSender<String>,
}

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// None runs under that name.
    #[error(
        "no trunk `{0}` runs here: `farcall trunk up --link IF --link IF --name {0}` starts one \
         (each network namespace has its own)"
    )]
    NotRunning(String),
    /// It runs under another user, who alone may end it.
    #[error("the trunk refuses: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("asking the trunk: {0}")]
    Io(#[from] io::Error),
}

fn address(name: &str) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("farcall-trunk-{name}"))
}

/// Asks a running daemon for `status` or `metrics`, or to go `down`; returns what it says.
///
/// # Errors
/// Where none runs under that name in this network namespace, or it refuses.
pub fn ask(name: &str, query: &str) -> Result<String, AskError> {
    let mut stream =
        UnixStream::connect_addr(&address(name)?).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => AskError::NotRunning(name.to_owned()),
            _ => error.into(),
        })?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    writeln!(stream, "{query}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.strip_prefix("error: ") {
        Some(text) => Err(AskError::Refused(text.trim().to_owned())),
        None => Ok(answer),
    }
}

/// The event loop's end.
pub(crate) struct Requests {
    pub(crate) queue: Receiver<Request>,
    /// Readable when a request waits.
    pub(crate) wake: Arc<OwnedFd>,
}

/// The end of a thread that serves clients.
#[derive(Clone)]
struct Loop {
    queue: SyncSender<Request>,
    wake: Arc<OwnedFd>,
}

impl Loop {
    fn ask(&self, query: Query) -> Option<String> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.queue.send(Request { query, answer }).ok()?;
        rustix::io::write(&*self.wake, &1_u64.to_ne_bytes()).ok()?;
        answered.recv_timeout(PATIENCE).ok()
    }
}

/// Serves the control socket of this name, and metrics where an address is given.
///
/// # Errors
/// `AddrInUse` where another daemon has the name.
pub(crate) fn serve(name: &str, metrics: Option<TcpListener>) -> io::Result<Requests> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    let (queue, requests) = mpsc::sync_channel(WAITING);
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let own = Loop {
        queue,
        wake: Arc::clone(&wake),
    };
    let other = own.clone();
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            // A client that cannot be served is its own loss.
            listener
                .incoming()
                .flatten()
                .for_each(|stream| drop(answer(&own, &stream)));
        })?;
    if let Some(listener) = metrics {
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let prepared = stream
                        .set_read_timeout(Some(PATIENCE))
                        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                    if prepared.is_ok() {
                        drop(answer_http(&other, &stream));
                    }
                }
            })?;
    }
    Ok(Requests {
        queue: requests,
        wake,
    })
}

/// An address for metrics, so that a wrong one is found before anything is made.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}

fn answer(event_loop: &Loop, mut stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).take(REQUEST).read_line(&mut line)?;
    let query = match line.trim() {
        "status" => Query::Status,
        "metrics" => Query::Metrics,
        "down" => match may_end(stream) {
            true => Query::Down,
            false => return writeln!(stream, "error: only its own user and root may end it"),
        },
        _ => return writeln!(stream, "error: ask for status, metrics or down"),
    };
    let answer = event_loop
        .ask(query)
        .unwrap_or_else(|| "error: it is about to end".to_owned());
    stream.write_all(answer.as_bytes())
}

fn may_end(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
    peer.is_ok_and(|peer| peer == own || peer.is_root())
}

fn answer_http(event_loop: &Loop, mut stream: impl Read + Write) -> io::Result<()> {
    let mut reader = BufReader::new(&mut stream).take(REQUEST);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        line.clear();
    }
    let (status, body) = match first.starts_with("GET /metrics ") {
        true => ("200 OK", event_loop.ask(Query::Metrics).unwrap_or_default()),
        false => ("404 Not Found", "see /metrics\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}
