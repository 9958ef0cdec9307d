//! What sockets do on Unix. `windows.rs` has the same functions for Windows, and `linux.rs` and
//! `other.rs` have what differs from one Unix to another.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
use linux as kernel;
#[cfg(not(target_os = "linux"))]
use other as kernel;

pub(super) use kernel::{bound_queue, receive, silence};

use super::{GiveUp, LOOK_UP};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SocketAddrUnix, sendmsg};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A stream within this host.
pub(crate) type Stream = UnixStream;

/// Looks at what has arrived, and neither takes it nor waits for it.
pub(super) const LOOK: RecvFlags = RecvFlags::PEEK.union(RecvFlags::DONTWAIT);

/// Two connected streams.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    UnixStream::pair()
}

/// Connects over TCP.
pub(super) fn connect_tcp(
    to: &SocketAddr,
    timeout: Duration,
    give_up: GiveUp<'_>,
) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = kernel::stream_socket(family)?;
    match rustix::net::connect(&socket, to) {
        Ok(()) => return Ok(socket.into()),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let end = Instant::now().checked_add(timeout);
    loop {
        let left = end.map_or(LOOK_UP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            let text = "connection timed out";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let nap = Timespec::try_from(left.min(LOOK_UP)).unwrap_or_default();
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&nap)) {
            Ok(0) | Err(Errno::INTR) => super::check_patience(give_up)?,
            Ok(_) => {
                socket_error(&socket)??;
                return Ok(socket.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects to a Unix socket with a path.
pub(super) fn connect_path(
    path: &Path,
    timeout: Duration,
    give_up: GiveUp<'_>,
) -> io::Result<Stream> {
    let known = SocketAddrUnix::new(path).map_err(|_| {
        let text = "the path of a Unix socket must have at most 107 bytes";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    connect(&known, timeout, give_up)
}

/// Connects to an abstract Unix socket, which only Linux has.
pub(super) fn connect_abstract(
    name: &str,
    timeout: Duration,
    give_up: GiveUp<'_>,
) -> io::Result<Stream> {
    connect(&kernel::abstract_name(name)?, timeout, give_up)
}

fn connect(address: &SocketAddrUnix, timeout: Duration, give_up: GiveUp<'_>) -> io::Result<Stream> {
    /// Time between two tries while the server has no room for another connection.
    const NAP: Duration = Duration::from_millis(2);
    let socket = kernel::stream_socket(AddressFamily::UNIX)?;
    let end = Instant::now().checked_add(timeout);
    let has_time = || end.is_none_or(|end| Instant::now() < end);
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if has_time() => {
                std::thread::sleep(NAP);
                super::check_patience(give_up)?;
            }
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes without raising a signal if the connection is closed.
pub(super) fn send(socket: &impl AsFd, sources: &[IoSlice<'_>]) -> io::Result<usize> {
    let nothing = &mut SendAncillaryBuffer::default();
    Ok(sendmsg(socket, sources, nothing, kernel::SILENT)?)
}

/// Bytes that the system of the peer has not accepted yet.
pub(super) fn unsent(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer, which lives in this stack frame.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (told == 0).then_some(usize::try_from(bytes).ok()?)
}
