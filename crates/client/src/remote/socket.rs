//! The byte stream to a server.

use crate::address::Address;
use crate::credentials::Credentials;
use farcall_tls::Session;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connected stream socket that never blocks; [`wait`] does.
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// One thread at a time has the session, because it has the connection's state.
    Tls(TcpStream, Mutex<Session>),
    Unix(UnixStream),
}

impl Socket {
    /// Connects, trying every address of the host for at most `timeout` each; by another `way`
    /// where one is given.
    pub(crate) fn connect(
        address: &Address,
        way: Option<SocketAddr>,
        credentials: &Credentials,
        timeout: Duration,
    ) -> io::Result<Socket> {
        Ok(match address {
            Address::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, way, timeout)?),
            Address::Tls { host, port } => {
                let trust = credentials.trust().map_err(io::Error::other)?;
                let session = Session::client(&trust, host)?;
                Socket::Tls(connect_tcp(host, *port, way, timeout)?, Mutex::new(session))
            }
            Address::Unix(path) => {
                let name = path.as_os_str().as_bytes();
                Socket::Unix(connect_unix(name, timeout)?)
            }
        })
    }

    /// Connects to an abstract Unix socket.
    pub(crate) fn connect_local(name: &str, timeout: Duration) -> io::Result<Socket> {
        let name = [b"\0", name.as_bytes()].concat();
        Ok(Socket::Unix(connect_unix(&name, timeout)?))
    }

    /// Whether memory can be handed over on it.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Socket::Unix(_))
    }

    /// Whether the server is on this host.
    pub(crate) fn is_within_host(&self) -> bool {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => is_within_host(stream).unwrap_or(false),
            Socket::Unix(_) => true,
        }
    }

    /// The address of the server, where it has one on a network.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => stream.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Whether nobody on a network can read what is written.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Socket::Tcp(stream) => is_within_host(stream).unwrap_or(false),
            Socket::Tls(..) | Socket::Unix(_) => true,
        }
    }

    /// Reads; descriptors that come beside the bytes are appended to `handed_over`.
    pub(crate) fn read(
        &self,
        places: &mut [IoSliceMut<'_>],
        handed_over: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read_vectored(places),
            Socket::Tls(stream, session) => lock(session).read(&mut Silent(stream), places),
            Socket::Unix(stream) => receive(stream, places, handed_over),
        }
    }

    /// Writes without the signal that a closed connection would raise: it ends programs that do
    /// not ignore it.
    pub(crate) fn write(&self, sources: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Socket::Tls(stream, session) = self {
            return lock(session).write(&mut Silent(stream), sources);
        }
        // SAFETY: all fields of the header may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` has the layout of `iovec`.
        message.msg_iov = sources.as_ptr().cast_mut().cast();
        message.msg_iovlen = sources.len() as _;
        // SAFETY: the header names buffers that live until the call returns and are only read.
        let count = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Writes what TLS still holds; fails with `WouldBlock` where the socket has no room for all.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match self {
            Socket::Tls(stream, session) => lock(session).flush(&mut Silent(stream)),
            Socket::Tcp(_) | Socket::Unix(_) => Ok(()),
        }
    }

    /// Whether bytes that it has taken wait for room.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Socket::Tls(_, session) => lock(session).wants_write(),
            Socket::Tcp(_) | Socket::Unix(_) => false,
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(stream) | Socket::Tls(stream, _) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Whether an idle connection is of no more use: the server closed it, or spoke unasked.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = 0u8;
        if let Socket::Tls(stream, session) = self {
            // TLS has words of its own that come unasked.
            let places = &mut [IoSliceMut::new(std::slice::from_mut(&mut byte))];
            let read = lock(session).read(&mut Silent(stream), places);
            return !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        }
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the buffer is one byte of this frame, the descriptor is open.
        let count = unsafe { libc::recv(self.fd(), (&raw mut byte).cast(), 1, flags) };
        count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
    }
}

/// Writes without the signal that a closed connection would raise.
struct Silent<'s>(&'s TcpStream);

impl Read for Silent<'_> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.0.read(place)
    }
}

impl Write for Silent<'_> {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        // The standard library asks for no signal here, but not where it writes several slices.
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

/// Bounds what lies in the system's hands, for nothing overtakes it there. On a network that is
/// what has not been sent; within a host data pass to the other side at once, and wait there to be
/// read.
fn bound_queue(stream: &TcpStream, is_within_host: bool) -> io::Result<()> {
    let (option, bytes): (_, libc::c_int) = match is_within_host {
        true => (libc::TCP_WINDOW_CLAMP, 1 << 20),
        false => (libc::TCP_NOTSENT_LOWAT, 64 << 10),
    };
    // SAFETY: the value is one of this frame, as long as said.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connects to a Unix socket by its path, or by its abstract name after a zero byte.
fn connect_unix(name: &[u8], timeout: Duration) -> io::Result<UnixStream> {
    /// Between two tries while the server has no room for another connection.
    const NAP: Duration = Duration::from_millis(2);
    // SAFETY: all fields of the address may be zero.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A path ends with a zero byte.
    if name.len() >= address.sun_path.len() {
        let text = "the path of a Unix socket has at most 107 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (target, byte) in address.sun_path.iter_mut().zip(name) {
        *target = *byte as libc::c_char;
    }
    let is_path = usize::from(name.first() != Some(&0));
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + name.len() + is_path;
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call; the descriptor is new and nobody else's.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from_raw_fd(fd)
    };
    let end = Instant::now() + timeout;
    loop {
        let target = (&raw const address).cast();
        // SAFETY: the address is one of this frame, as long as said.
        if unsafe { libc::connect(stream.as_raw_fd(), target, length as libc::socklen_t) } == 0 {
            return Ok(stream);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if Instant::now() < end => std::thread::sleep(NAP),
            io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            _ => return Err(error),
        }
    }
}

/// Most descriptors that the system lets come beside one read.
const MAX_DESCRIPTORS: usize = 253;

fn receive(
    stream: &UnixStream,
    places: &mut [IoSliceMut<'_>],
    handed_over: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    /// Room for the descriptors and their header, as aligned as one.
    const WORDS: usize = (MAX_DESCRIPTORS * 4).div_ceil(8) + 4;
    let mut control = [0u64; WORDS];
    // SAFETY: all fields of the header may be zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSliceMut` has the layout of `iovec`.
    message.msg_iov = places.as_mut_ptr().cast();
    message.msg_iovlen = places.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names buffers that live until the call returns.
    let count = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled the control buffer; its own macros walk over it. Every descriptor
    // in it is new and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while let Some(part) = header.as_ref() {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(part).cast::<RawFd>();
                let bytes = part.cmsg_len - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<RawFd>() {
                    let fd = data.add(index).read_unaligned();
                    handed_over.push_back(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(&message, part);
        }
    }
    Ok(count)
}

fn connect_tcp(
    host: &str,
    port: u16,
    way: Option<SocketAddr>,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let candidates: Vec<SocketAddr> = match way {
        Some(way) => vec![way],
        None => (host, port).to_socket_addrs()?.collect(),
    };
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                bound_queue(&stream, is_within_host(&stream)?)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Interrupts a [`wait`] in another thread.
pub(crate) struct Waker {
    ring: UnixStream,
    heard: UnixStream,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let (ring, heard) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Waker { ring, heard })
    }

    /// Lets the wait return, now or when it begins.
    pub(crate) fn wake(&self) {
        // A full pipe has rung already.
        let _ = (&self.ring).write(&[1]);
    }

    fn entry(&self) -> libc::pollfd {
        libc::pollfd {
            fd: self.heard.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Forgets what has rung.
    fn hear(&self) {
        let _ = (&self.heard).read(&mut [0; 64]);
    }
}

/// Waits until the socket can be read, or written if `writing`, or the waker rings, or the time is
/// over: `false` then. An interrupting signal is the only error that is no mistake.
pub(crate) fn wait(
    socket: &Socket,
    waker: &Waker,
    writing: bool,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut entries = [entry(socket, writing), waker.entry()];
    let ready = poll(&mut entries, timeout)?;
    if entries[1].revents != 0 {
        waker.hear();
    }
    Ok(ready)
}

/// The same for several sockets, with their wakers: returns when one of them is ready.
pub(crate) fn wait_each(
    sockets: &[(&Socket, &Waker, bool)],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let pair = |(socket, waker, writing): &(&Socket, &Waker, bool)| {
        [entry(socket, *writing), waker.entry()]
    };
    let mut entries: Vec<_> = sockets.iter().flat_map(pair).collect();
    let ready = poll(&mut entries, timeout)?;
    for (index, (_, waker, _)) in sockets.iter().enumerate() {
        if entries[2 * index + 1].revents != 0 {
            waker.hear();
        }
    }
    Ok(ready)
}

fn entry(socket: &Socket, writing: bool) -> libc::pollfd {
    libc::pollfd {
        fd: socket.fd(),
        events: libc::POLLIN | if writing { libc::POLLOUT } else { 0 },
        revents: 0,
    }
}

fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
    // Rounded up, so that a deadline is over when the wait is.
    let millis = timeout.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the entries of this slice, as many as announced.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
    if ready < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ready > 0)
}
