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

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SocketAddrUnix, sendmsg};
use std::io::{self, IoSlice};
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

/// Connects to a Unix socket with a path.
pub(super) fn connect_path(path: &Path, timeout: Duration) -> io::Result<Stream> {
    let known = SocketAddrUnix::new(path).map_err(|_| {
        let text = "the path of a Unix socket must have at most 107 bytes";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    connect(&known, timeout)
}

/// Connects to an abstract Unix socket, which only Linux has.
pub(super) fn connect_abstract(name: &str, timeout: Duration) -> io::Result<Stream> {
    connect(&kernel::abstract_name(name)?, timeout)
}

fn connect(address: &SocketAddrUnix, timeout: Duration) -> io::Result<Stream> {
    /// Time between two tries while the server has no room for another connection.
    const NAP: Duration = Duration::from_millis(2);
    let socket = kernel::unix_socket()?;
    let end = Instant::now().checked_add(timeout);
    let has_time = || end.is_none_or(|end| Instant::now() < end);
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if has_time() => std::thread::sleep(NAP),
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
