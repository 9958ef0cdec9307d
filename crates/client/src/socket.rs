//! The byte stream to a server.

use crate::Address;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected stream socket that never blocks; [`wait`] does.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects, trying every address of the host for at most `timeout` each.
    pub(crate) fn connect(address: &Address, timeout: Duration) -> io::Result<Socket> {
        let socket = match address {
            Address::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, timeout)?),
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        };
        match &socket {
            Socket::Tcp(stream) => stream.set_nonblocking(true)?,
            Socket::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(socket)
    }

    pub(crate) fn read(&self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read_vectored(places),
            Socket::Unix(stream) => (&mut &*stream).read_vectored(places),
        }
    }

    /// Writes without the signal that a closed connection would raise: it ends programs that do
    /// not ignore it.
    pub(crate) fn write(&self, sources: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all fields of the header may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` has the layout of `iovec`.
        message.msg_iov = sources.as_ptr().cast_mut().cast();
        message.msg_iovlen = sources.len() as _;
        // SAFETY: the header names buffers that live until the call returns and are only read.
        let count = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(stream) => stream.as_raw_fd(),
            Socket::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Whether an idle connection is of no more use: the server closed it, or spoke unasked.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the buffer is one byte of this frame, the descriptor is open.
        let count = unsafe { libc::recv(self.fd(), (&raw mut byte).cast(), 1, flags) };
        count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
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
}

/// Waits until the socket can be read, or written if `writing`, or the waker rings, or the time is
/// over. An interrupting signal is the only error that is no mistake.
pub(crate) fn wait(
    socket: &Socket,
    waker: &Waker,
    writing: bool,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let events = libc::POLLIN | if writing { libc::POLLOUT } else { 0 };
    let entry = |fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut entries = [
        entry(socket.fd(), events),
        entry(waker.heard.as_raw_fd(), libc::POLLIN),
    ];
    // Rounded up, so that a deadline is over when the wait is.
    let millis = timeout.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: two entries of this frame, as many as announced.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, millis) };
    if ready < 0 {
        return Err(io::Error::last_os_error());
    }
    if entries[1].revents != 0 {
        let _ = (&waker.heard).read(&mut [0; 64]);
    }
    Ok(())
}
