//! What sockets do on Linux alone: descriptors that come with bytes, abstract names, and a bound on
//! the bytes in the buffers of TCP. `other.rs` has the same functions for other systems.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, recvmsg, socket_with,
};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Sends without raising a signal if the connection is closed.
pub(crate) const SILENT: SendFlags = SendFlags::NOSIGNAL;

/// Most descriptors that the system passes with one read.
const MAX_DESCRIPTORS: usize = 253;

/// Nothing: [`SILENT`] says it with each write.
pub(crate) fn silence(_: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

/// A stream socket that does not block and that no other program inherits.
pub(crate) fn stream_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// The address of an abstract Unix socket.
pub(crate) fn abstract_name(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Bounds the bytes in the system's buffers, which nothing can overtake. On a network these are
/// unsent bytes. Within a host, bytes pass to the other side at once and wait there to be read.
pub(crate) fn bound_queue(stream: &TcpStream, is_within_host: bool) -> io::Result<()> {
    let (option, bytes): (_, libc::c_int) = match is_within_host {
        true => (libc::TCP_WINDOW_CLAMP, 1 << 20),
        false => (libc::TCP_NOTSENT_LOWAT, 64 << 10),
    };
    // SAFETY: the value lives in this stack frame and has the given size.
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

/// Reads bytes. Descriptors that arrive with them are appended to `handed_over`.
pub(crate) fn receive(
    stream: &UnixStream,
    places: &mut [IoSliceMut<'_>],
    handed_over: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, places, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed_over.extend(descriptors);
        }
    }
    Ok(received.bytes)
}
