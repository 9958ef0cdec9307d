//! What `linux.rs` does, on macOS. No descriptor arrives here, because the client offers no shared
//! memory, and there are no abstract names.

use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketType, socket, sockopt::set_socket_nosigpipe,
};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Nothing: [`silence`] says it once for each socket.
pub(crate) const SILENT: SendFlags = SendFlags::empty();

/// Writes to the socket raise no signal if the connection is closed.
pub(crate) fn silence(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(set_socket_nosigpipe(socket, true)?)
}

/// A stream socket that does not block. A program that another thread starts at this moment may
/// inherit it.
pub(crate) fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let made = socket(family, SocketType::STREAM, None)?;
    fcntl_setfd(&made, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&made, true)?;
    Ok(made)
}

/// Fails: only Linux has abstract names.
pub(crate) fn abstract_name(_: &str) -> io::Result<SocketAddrUnix> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Leaves the size of the buffers to the system.
pub(crate) fn bound_queue(_: &TcpStream, _is_within_host: bool) -> io::Result<()> {
    Ok(())
}

/// Reads bytes.
pub(crate) fn receive(
    stream: &UnixStream,
    places: &mut [IoSliceMut<'_>],
    _handed_over: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    (&mut &*stream).read_vectored(places)
}
