//! Sockets: the byte stream to a server, over TCP, TLS, a Unix socket or ssh.
//!
//! A socket never blocks; only [`wait`] does.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use super::inherited;
use crate::address::Address;
use crate::options::Options;
use crate::remote::tunnel::Tunnel;
use farcall_tls::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::recv;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

pub(crate) use system::{Stream, pair};

/// Time between two looks whether somebody wants to give up.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(100);

/// Says whether to give up what waits: [`Options::on_interrupt`].
pub(crate) type GiveUp<'o> = Option<&'o (dyn Fn() -> bool + Send + Sync)>;

/// A connected stream socket that never blocks; [`wait`] does.
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// One thread at a time uses the session: the one that holds the connection's state.
    Tls(TcpStream, Mutex<Session>),
    Unix(Stream),
    /// A process of ssh is at the other end.
    Ssh(Stream, Tunnel),
}

impl Socket {
    /// Connects. The search for the addresses of the host takes at most the time of the options,
    /// and so does each address. With `way`, connects to that address instead.
    pub(crate) fn connect(
        address: &Address,
        way: Option<SocketAddr>,
        options: &Options,
    ) -> io::Result<Socket> {
        let timeout = options.connect_timeout;
        let give_up = options.on_interrupt.as_deref();
        let connect_tcp = |host, port| connect_tcp(host, port, way, timeout, give_up);
        let socket = match address {
            Address::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port)?),
            Address::Tls { host, port } => {
                let trust = options.credentials.trust().map_err(io::Error::other)?;
                let session = Session::client(&trust, host)?;
                Socket::Tls(connect_tcp(host, *port)?, Mutex::new(session))
            }
            Address::Unix(path) => Socket::Unix(system::connect_path(path, timeout, give_up)?),
            Address::Ssh(there) => {
                let (stream, tunnel) = Tunnel::open(there, timeout, give_up)?;
                Socket::Ssh(stream, tunnel)
            }
        };
        system::silence(socket.fd())?;
        Ok(opened(socket, options))
    }

    /// Connects to an abstract Unix socket, which only Linux has.
    pub(crate) fn connect_local(name: &str, options: &Options) -> io::Result<Socket> {
        let give_up = options.on_interrupt.as_deref();
        let stream = system::connect_abstract(name, options.connect_timeout, give_up)?;
        Ok(opened(Socket::Unix(stream), options))
    }

    /// The number of its descriptor.
    #[cfg(unix)]
    pub(super) fn number(&self) -> RawFd {
        self.fd().as_raw_fd()
    }

    /// Whether it is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Socket::Unix(_))
    }

    /// Whether memory of the server can arrive on it. Only Linux has memory that is safe to share.
    pub(crate) fn passes_memory(&self) -> bool {
        cfg!(target_os = "linux") && self.is_unix()
    }

    /// Whether ssh carries it.
    pub(crate) fn is_ssh(&self) -> bool {
        matches!(self, Socket::Ssh(..))
    }

    /// Whether it is a TLS session.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Socket::Tls(..))
    }

    /// What the TLS session exports, if there is one.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        match self {
            Socket::Tls(_, session) => lock(session).binding(),
            Socket::Tcp(_) | Socket::Unix(_) | Socket::Ssh(..) => None,
        }
    }

    /// Whether the server is on this host.
    pub(crate) fn is_within_host(&self) -> bool {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => is_within_host(stream).unwrap_or(false),
            Socket::Unix(_) => true,
            Socket::Ssh(..) => false,
        }
    }

    /// The last words of the process that carries the connection, if there is one.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Socket::Ssh(_, tunnel) => Some(tunnel.words()).filter(|words| !words.is_empty()),
            _ => None,
        }
    }

    /// The server's network address, if it has one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => stream.peer_addr().ok(),
            Socket::Unix(_) | Socket::Ssh(..) => None,
        }
    }

    /// Whether nobody on a network can read the bytes.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Socket::Tcp(stream) => is_within_host(stream).unwrap_or(false),
            Socket::Tls(..) | Socket::Unix(_) | Socket::Ssh(..) => true,
        }
    }

    /// Reads bytes. Descriptors that arrive with them are appended to `handed_over`.
    pub(crate) fn read(
        &self,
        places: &mut [IoSliceMut<'_>],
        handed_over: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read_vectored(places),
            Socket::Tls(stream, session) => lock(session).read(&mut Silent(stream), places),
            Socket::Unix(stream) => system::receive(stream, places, handed_over),
            Socket::Ssh(stream, _) => (&mut &*stream).read_vectored(places),
        }
    }

    /// Writes without raising a signal if the connection is closed. The signal ends programs that
    /// do not ignore it.
    pub(crate) fn write(&self, sources: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tls(stream, session) => lock(session).write(&mut Silent(stream), sources),
            Socket::Tcp(stream) => system::send(stream, sources),
            Socket::Unix(stream) | Socket::Ssh(stream, _) => system::send(stream, sources),
        }
    }

    /// Writes what TLS still holds. Fails with `WouldBlock` if the socket has no room for all of
    /// it.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match self {
            Socket::Tls(stream, session) => lock(session).flush(&mut Silent(stream)),
            Socket::Tcp(_) | Socket::Unix(_) | Socket::Ssh(..) => Ok(()),
        }
    }

    /// Bytes that the system of the peer has not accepted yet, if this system can tell.
    pub(crate) fn unsent(&self) -> Option<usize> {
        system::unsent(self.fd())
    }

    /// Whether accepted bytes wait for room.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Socket::Tls(_, session) => lock(session).wants_write(),
            Socket::Tcp(_) | Socket::Unix(_) | Socket::Ssh(..) => false,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => stream.as_fd(),
            Socket::Unix(stream) | Socket::Ssh(stream, _) => stream.as_fd(),
        }
    }

    /// Whether an idle connection can no longer be used: the server closed it, or sent something
    /// unasked.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = 0u8;
        if let Socket::Tls(stream, session) = self {
            // TLS has messages that arrive unasked.
            let places = &mut [IoSliceMut::new(std::slice::from_mut(&mut byte))];
            let read = lock(session).read(&mut Silent(stream), places);
            return !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        }
        let peeked = recv(self.fd(), std::slice::from_mut(&mut byte), system::LOOK);
        !matches!(peeked, Err(Errno::WOULDBLOCK))
    }
}

/// Notes an open socket that children of this process are to close. Only Unix has forks.
fn opened(socket: Socket, options: &Options) -> Socket {
    #[cfg(unix)]
    if options.close_in_children {
        inherited::opened(socket.number());
    }
    #[cfg(not(unix))]
    let _ = options;
    socket
}

#[cfg(unix)]
impl Drop for Socket {
    fn drop(&mut self) {
        inherited::closes(self.number());
    }
}

/// Writes without raising a signal if the connection is closed.
struct Silent<'s>(&'s TcpStream);

impl Read for Silent<'_> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.0.read(place)
    }
}

impl Write for Silent<'_> {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        // The standard library suppresses the signal here, but not when it writes several slices.
        self.0.write(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_within_host(stream: &TcpStream) -> io::Result<bool> {
    Ok(stream.local_addr()?.ip() == stream.peer_addr()?.ip())
}

fn connect_tcp(
    host: &str,
    port: u16,
    way: Option<SocketAddr>,
    timeout: Duration,
    give_up: GiveUp<'_>,
) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let candidates: Vec<SocketAddr> = match way {
        Some(way) => vec![way],
        None => look_up(host, port, timeout, give_up)?,
    };
    for candidate in candidates {
        match system::connect_tcp(&candidate, timeout, give_up) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                system::bound_queue(&stream, is_within_host(&stream)?)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of a host.
pub(super) fn look_up(
    host: &str,
    port: u16,
    timeout: Duration,
    give_up: GiveUp<'_>,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    let look = move || Ok((host.as_str(), port).to_socket_addrs()?.collect());
    in_time(timeout, give_up, look).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(error.kind(), "no name server answered in time"),
        _ => error,
    })
}

/// Does what can neither be interrupted nor ended. If it takes too long, it goes on in a thread
/// that nobody waits for.
fn in_time<T: Send + 'static>(
    timeout: Duration,
    give_up: GiveUp<'_>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = mpsc::channel();
    // If nobody waits any more, nobody wants the result.
    std::thread::Builder::new().spawn(move || drop(tell.send(work())))?;
    let end = Instant::now().checked_add(timeout);
    loop {
        let left = end.map_or(LOOK_UP, |end| end.saturating_duration_since(Instant::now()));
        match told.recv_timeout(left.min(LOOK_UP)) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => check_patience(give_up)?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Fails if somebody wants to give up.
pub(crate) fn check_patience(give_up: GiveUp<'_>) -> io::Result<()> {
    match give_up.is_some_and(|give_up| give_up()) {
        true => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// Interrupts a [`wait`] in another thread.
pub(crate) struct Waker {
    ring: Stream,
    heard: Stream,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let (ring, heard) = pair()?;
        ring.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Waker { ring, heard })
    }

    /// Makes the wait return, now or when it begins.
    pub(crate) fn wake(&self) {
        // If the pipe is full, the thread is awake already.
        let _ = (&self.ring).write(&[1]);
    }

    fn entry(&self) -> PollFd<'_> {
        PollFd::new(&self.heard, PollFlags::IN)
    }

    /// Clears earlier wake-ups.
    fn hear(&self) {
        let _ = (&self.heard).read(&mut [0; 64]);
    }
}

/// Waits until the socket can be read, or written if `writing`, or until the waker rings. Returns
/// `false` after `timeout`. The only expected error is an interrupting signal.
pub(crate) fn wait(
    socket: &Socket,
    waker: &Waker,
    writing: bool,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut entries = [entry(socket, writing), waker.entry()];
    let ready = wait_ready(&mut entries, timeout)?;
    if !entries[1].revents().is_empty() {
        waker.hear();
    }
    Ok(ready)
}

/// Waits for several sockets and their wakers. Returns when one of them is ready.
pub(crate) fn wait_each<'s>(
    sockets: &[(&'s Socket, &'s Waker, bool)],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let pair = |&(socket, waker, writing): &(&'s Socket, &'s Waker, bool)| {
        [entry(socket, writing), waker.entry()]
    };
    let mut entries: Vec<_> = sockets.iter().flat_map(pair).collect();
    let ready = wait_ready(&mut entries, timeout)?;
    for (index, (_, waker, _)) in sockets.iter().enumerate() {
        if !entries[2 * index + 1].revents().is_empty() {
            waker.hear();
        }
    }
    Ok(ready)
}

fn entry(socket: &Socket, writing: bool) -> PollFd<'_> {
    let room = match writing {
        true => PollFlags::OUT,
        false => PollFlags::empty(),
    };
    PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN | room)
}

fn wait_ready(entries: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    // Windows takes at most 24 days. The caller looks at the clock, and waits again.
    #[cfg(windows)]
    let timeout = timeout.map(|time| time.min(Duration::from_millis(i32::MAX as u64)));
    // A timeout that the clock cannot represent is for ever.
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    Ok(poll(entries, timeout.as_ref())? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_a_host_ends_in_time_and_when_somebody_gives_up() {
        let slow = || {
            std::thread::sleep(Duration::from_secs(5));
            Ok(())
        };
        let start = Instant::now();
        let late = in_time(Duration::from_millis(20), None, slow).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let ended = in_time(Duration::MAX, Some(&|| true), slow).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(in_time(Duration::MAX, None, || Ok(1)).unwrap(), 1);
        let port = |host| look_up(host, 7, Duration::from_secs(60), None).unwrap()[0].port();
        assert_eq!((port("::1"), port("localhost")), (7, 7));
    }
}
