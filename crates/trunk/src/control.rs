//! The control socket of a trunk: each connection has one request, which the event loop answers. A
//! client is served by a thread, so a slow client does not hold up the event loop. The number of
//! waiting requests is bounded. Only root and the user of the daemon can end it.

use farcall_metrics::Answer;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::UCred;
use rustix::process::Pid;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// A client that has not sent its request after this time, or does not take the answer for so long,
/// is disconnected.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between attempts to accept a connection after the system failed to.
const RETRY: Duration = Duration::from_millis(100);
/// How long the end of a daemon may take.
const END: Duration = Duration::from_secs(10);
/// Time between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// The most bytes of a request.
const REQUEST: usize = 4096;
/// The most bytes of an answer that is read.
const ANSWER: u64 = 64 << 20;
/// The largest number of requests that wait for the event loop.
const WAITING: usize = 128;

/// A request to the event loop.
pub(crate) enum Request {
    Status(SyncSender<String>),
    Metrics(Answer),
    Down(SyncSender<String>),
}

/// Why a daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon runs under this name.
    #[error(
        "no trunk `{0}` runs here: `farcall trunk up --link IF --link IF --name {0}` starts one \
         (each network namespace has its own)"
    )]
    NotRunning(String),
    /// The daemon runs as another user; only that user and root can end it.
    #[error("the trunk refused the request: {0}")]
    Refused(String),
    /// Who holds the name is no service, and neither root nor the user who asks. Everybody can
    /// listen at an abstract name.
    #[error(
        "user {user} holds the name of the trunk `{name}`, so this may be another program: end \
         it, or choose another --name; root and the user {user} can ask it"
    )]
    Stranger {
        /// Name of the trunk.
        name: String,
        /// Number of the user.
        user: u32,
    },
    /// The daemon was told to end, and has not ended.
    #[error("the trunk `{0}` is ending, and is not gone yet: look again, or end its process")]
    Ending(String),
    /// The connection broke.
    #[error("asking the trunk: {0}")]
    Io(#[from] io::Error),
}

/// The beginning of the names of control sockets.
const SOCKET: &str = "farcall-trunk-";

/// The names of the trunks that run in this network namespace.
///
/// # Errors
/// The system does not list its sockets.
pub fn running() -> io::Result<Vec<String>> {
    // Other programs can give their sockets names that are no text.
    let sockets = std::fs::read("/proc/thread-self/net/unix")?;
    Ok(listening(&String::from_utf8_lossy(&sockets)))
}

/// The names of trunks in a list of sockets, in the form of `/proc/net/unix`.
fn listening(sockets: &str) -> Vec<String> {
    /// The flag of a socket that takes connections.
    const ACCEPTS: &str = "00010000";
    let lines = sockets.lines().map(str::split_whitespace);
    let names = lines.filter_map(|mut words| {
        let takes = words.nth(3)? == ACCEPTS;
        let name = words.nth(3)?.strip_prefix('@')?.strip_prefix(SOCKET)?;
        takes.then(|| name.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn address(name: &str) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("{SOCKET}{name}"))
}

/// Reserves an interface for one trunk of this network namespace, until the socket is closed.
///
/// # Errors
/// `AddrInUse` if another trunk has the interface.
pub(crate) fn reserve(interface: i32) -> io::Result<UnixListener> {
    let name = format!("farcall-link-{interface}");
    UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(name)?)
}

/// The trunk of this network namespace that has a link, if it answers. The trunk `own`, which asks,
/// cannot answer meanwhile.
pub(crate) fn holder(link: &str, own: &str) -> Option<String> {
    let has = |name: &String| {
        let status = ask(name, "status").ok();
        let status = status.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let links = status
            .as_ref()
            .and_then(|status| status["links"].as_array());
        links.is_some_and(|links| links.iter().any(|other| other["name"] == link))
    };
    let mut others = running().ok()?.into_iter().filter(|name| name != own);
    others.find(has)
}

/// The process at the other end, unless it has no number here: this process or the other one is in
/// a container.
fn peer(stream: &UnixStream) -> Option<UCred> {
    rustix::net::sockopt::socket_peercred(stream).ok()
}

/// Whether a trunk of this user is none for the user `own`. Services run as users whose numbers
/// systemd gives, and no person has those.
fn is_stranger(user: u32, own: u32) -> bool {
    let is_service = user < 1000 || (61_184..65_520).contains(&user);
    own != 0 && own != user && !is_service
}

/// Connects to a running daemon, and returns its process, too.
fn connect(name: &str) -> Result<(UnixStream, Option<Pid>), AskError> {
    let stream = UnixStream::connect_addr(&address(name)?).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => AskError::NotRunning(name.to_owned()),
        _ => error.into(),
    })?;
    let peer = peer(&stream);
    let user = peer.map_or(0, |peer| peer.uid.as_raw());
    match is_stranger(user, rustix::process::geteuid().as_raw()) {
        true => Err(AskError::Stranger {
            name: name.to_owned(),
            user,
        }),
        false => Ok((stream, peer.map(|peer| peer.pid))),
    }
}

/// The user who holds the name of a trunk.
pub(crate) fn user_of(name: &str) -> Option<u32> {
    let stream = UnixStream::connect_addr(&address(name).ok()?).ok()?;
    Some(peer(&stream)?.uid.as_raw())
}

/// Asks a running daemon for `status` or `metrics`, and returns its answer.
///
/// # Errors
/// No daemon runs under this name in this network namespace, or it refuses.
pub fn ask(name: &str, query: &str) -> Result<String, AskError> {
    talk(connect(name)?.0, query)
}

/// Ends a running daemon, and waits until its name is free.
///
/// # Errors
/// As for [`ask`], or the daemon has not ended in time.
pub fn end(name: &str) -> Result<(), AskError> {
    end_within(name, END)
}

fn end_within(name: &str, time: Duration) -> Result<(), AskError> {
    let (stream, process) = connect(name)?;
    talk(stream, "down")?;
    let deadline = Instant::now() + time;
    loop {
        match connect(name) {
            Ok((_, other)) if other == process => {}
            // The name is free, or somebody else has taken it meanwhile.
            _ => return Ok(()),
        }
        if Instant::now() >= deadline {
            return Err(AskError::Ending(name.to_owned()));
        }
        thread::sleep(LOOK);
    }
}

fn talk(mut stream: UnixStream, query: &str) -> Result<String, AskError> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    writeln!(stream, "{query}")?;
    let mut answer = String::new();
    stream.take(ANSWER).read_to_string(&mut answer)?;
    match answer.strip_prefix("error: ") {
        Some(text) => Err(AskError::Refused(text.trim().to_owned())),
        None => Ok(answer),
    }
}

/// The event loop's end of the queue of requests.
pub(crate) struct Requests {
    pub(crate) queue: Receiver<Request>,
    /// Readable when a request waits.
    pub(crate) wake: Arc<OwnedFd>,
}

/// The end of the queue at a thread that serves clients.
#[derive(Clone)]
struct Loop {
    queue: SyncSender<Request>,
    wake: Arc<OwnedFd>,
}

impl Loop {
    /// Passes a request on. If too many wait, the request is dropped.
    fn ask(&self, request: Request) {
        if self.queue.try_send(request).is_ok() {
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// Serves the control socket of this name, and metrics if there is a listener for them.
///
/// # Errors
/// `AddrInUse` if another daemon has the name.
pub(crate) fn serve(name: &str, metrics: Option<TcpListener>) -> io::Result<Requests> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    let (queue, requests) = mpsc::sync_channel(WAITING);
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let own = Loop {
        queue,
        wake: Arc::clone(&wake),
    };
    let (for_metrics, for_others) = (own.clone(), own.clone());
    // Other users can keep each other waiting, but not root and the user of the trunk.
    let (others, connections) = mpsc::sync_channel::<UnixStream>(WAITING);
    thread::Builder::new()
        .name("others".to_owned())
        .spawn(move || {
            for stream in connections {
                let _ = answer(&for_others, &stream);
            }
        })?;
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            let serve = |stream: UnixStream| {
                // A client that cannot be served does not affect the daemon.
                let _ = match may_end(&stream) {
                    true => answer(&own, &stream),
                    false => others.try_send(stream).map_err(io::Error::other),
                };
            };
            accept(listener.incoming(), serve, || thread::sleep(RETRY));
        })?;
    if let Some(listener) = metrics {
        let address = listener.local_addr()?;
        farcall_web::serve(listener, move |answer| {
            for_metrics.ask(Request::Metrics(answer))
        })?;
        tracing::info!("metrics at http://{address}/metrics");
    }
    Ok(Requests {
        queue: requests,
        wake,
    })
}

/// Serves each connection. It rests after each failure to accept one: mostly descriptors are
/// lacking, and trying again at once does not help.
fn accept(
    connections: impl Iterator<Item = io::Result<UnixStream>>,
    serve: impl Fn(UnixStream),
    rest: impl Fn(),
) {
    for connection in connections {
        match connection {
            Ok(stream) => serve(stream),
            Err(_) => rest(),
        }
    }
}

/// Reads a request, which is a line.
fn request(mut stream: &UnixStream) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < REQUEST {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 256];
        match stream.read(&mut piece)? {
            0 => break,
            count => line.extend(&piece[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

fn answer(event_loop: &Loop, mut stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = request(stream)?;
    let (sender, answer) = mpsc::sync_channel(1);
    let request = match line.as_str() {
        "status" => Request::Status(sender),
        "metrics" => Request::Metrics(Box::new(move |text| drop(sender.try_send(text.encode())))),
        "down" => match may_end(stream) {
            true => Request::Down(sender),
            false => {
                return writeln!(
                    stream,
                    "error: only the user of the trunk and root can end it"
                );
            }
        },
        _ => {
            return writeln!(
                stream,
                "error: unknown request: use status, metrics or down"
            );
        }
    };
    event_loop.ask(request);
    let answer = answer.recv_timeout(PATIENCE);
    let answer = answer.unwrap_or_else(|_| "error: the trunk is about to end".to_owned());
    stream.write_all(answer.as_bytes())
}

fn may_end(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    let peer = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
    peer.is_ok_and(|peer| peer == own || peer.is_root())
}

#[cfg(test)]
mod tests {
    use super::{
        Request, accept, address, ask, end_within, holder, is_stranger, listening, running, serve,
    };
    use std::cell::Cell;
    use std::io::{self, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::time::Duration;

    #[test]
    fn who_asks_slowly_does_not_keep_others_waiting() {
        let name = format!("slow-{}", std::process::id());
        let requests = serve(&name, None).unwrap();
        let mut slow = UnixStream::connect_addr(&address(&name).unwrap()).unwrap();
        // A byte comes before each limit on a single read.
        let slow = std::thread::spawn(move || {
            while slow.write_all(b"s").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let asked = std::thread::spawn(move || ask(&name, "status"));
        match requests.queue.recv_timeout(Duration::from_secs(60)) {
            Ok(Request::Status(answer)) => answer.send("well".to_owned()).unwrap(),
            _ => panic!("no request for the status"),
        }
        assert_eq!(asked.join().unwrap().unwrap(), "well");
        slow.join().unwrap();
    }

    #[test]
    fn a_name_that_a_stranger_holds_is_no_trunk() {
        for (user, own) in [
            (0, 1000),
            (1000, 1000),
            (1000, 0),
            (997, 1000),
            (61_200, 1000),
        ] {
            assert!(!is_stranger(user, own), "{user} for {own}");
        }
        for user in [1001, 61_000, 65_534] {
            assert!(is_stranger(user, 1000), "{user}");
        }
    }

    #[test]
    fn a_trunk_that_does_not_end_is_told() {
        let name = format!("stays-{}", std::process::id());
        let requests = serve(&name, None).unwrap();
        let ended = std::thread::spawn(move || end_within(&name, Duration::from_millis(50)));
        match requests.queue.recv_timeout(Duration::from_secs(60)) {
            Ok(Request::Down(answer)) => answer.send(String::new()).unwrap(),
            _ => panic!("no request to end"),
        }
        // The thread that listens lives as long as this process.
        let told = ended.join().unwrap().unwrap_err().to_string();
        assert!(told.contains("is not gone yet"), "{told}");
    }

    #[test]
    fn a_trunk_that_looks_for_the_holder_of_a_link_does_not_ask_itself() {
        let name = |letter| format!("{letter}-{}", std::process::id());
        let (own, other) = (name('a'), name('b'));
        let own_requests = serve(&own, None).unwrap();
        let requests = serve(&other, None).unwrap();
        let asked = std::thread::spawn(move || holder("eth9", &own));
        match requests.queue.recv_timeout(Duration::from_secs(60)) {
            Ok(Request::Status(answer)) => {
                let status = r#"{"links": [{"name": "eth9"}]}"#;
                answer.send(status.to_owned()).unwrap();
            }
            _ => panic!("no request for the status"),
        }
        assert_eq!(asked.join().unwrap(), Some(other));
        assert!(own_requests.queue.try_recv().is_err());
    }

    #[test]
    fn a_failure_to_accept_is_followed_by_a_rest() {
        let (served, rests) = (Cell::new(0), Cell::new(0));
        let full = || Err(io::Error::other("too many open files"));
        let connections = [full(), UnixStream::pair().map(|pair| pair.0), full()];
        let serve = |_| served.set(served.get() + 1);
        accept(connections.into_iter(), serve, || {
            rests.set(rests.get() + 1)
        });
        assert_eq!((served.get(), rests.get()), (1, 2));
    }

    #[test]
    fn trunks_are_found_although_another_socket_has_a_name_that_is_no_text() {
        let name = format!("odd-{}", std::process::id());
        let _requests = serve(&name, None).unwrap();
        let odd = SocketAddr::from_abstract_name([name.as_bytes(), b"\xff"].concat()).unwrap();
        let _odd = UnixListener::bind_addr(&odd).unwrap();
        assert!(running().unwrap().contains(&name));
    }

    #[test]
    fn trunks_are_found_by_their_sockets() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/dbus/socket\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 12 @farcall-trunk-two\n\
                       0000000000000000: 00000003 00000000 00000000 0001 03 13 @farcall-trunk-two\n\
                       0000000000000000: 00000003 00000000 00000000 0001 03 14\n\
                       0000000000000000: 00000002 00000000 00010000 0001 01 15 @farcall-trunk-a\n";
        assert_eq!(listening(sockets), ["a", "two"]);
        assert!(listening("").is_empty());
    }
}
