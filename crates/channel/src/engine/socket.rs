//! The engine's UDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Bytes that the kernel may hold for the socket, each way: a burst from many nodes at once.
const BUFFER_BYTES: libc::c_int = 4 << 20;
/// The longest datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// Datagrams taken in one turn, so that sending is not put off for long.
const BATCH: usize = 16;

pub(super) struct Socket(UdpSocket);

/// Memory for the datagrams of one turn.
pub(super) struct Batch {
    bytes: Vec<u8>,
    received: Vec<(SocketAddr, usize)>,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch {
            bytes: vec![0; BATCH * DATAGRAM_BYTES],
            received: Vec::with_capacity(BATCH),
        }
    }
}

impl Socket {
    pub(super) fn bind(address: IpAddr) -> io::Result<Socket> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        for (forced, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // Without the right to force it, the kernel gives what the administrator allows.
            if !set(&socket, forced) {
                set(&socket, plain);
            }
        }
        Ok(Socket(socket))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The datagrams that are there, at most a turn's.
    pub(super) fn receive<'a>(
        &self,
        batch: &'a mut Batch,
    ) -> impl Iterator<Item = (SocketAddr, &'a [u8])> {
        batch.received.clear();
        for place in batch.bytes.chunks_exact_mut(DATAGRAM_BYTES) {
            match self.0.recv_from(place) {
                Ok((bytes, from)) => batch.received.push((from, bytes)),
                Err(_) => break,
            }
        }
        let places = batch.bytes.chunks_exact(DATAGRAM_BYTES);
        let received = places.zip(&batch.received);
        received.map(|(place, (from, bytes))| (*from, &place[..*bytes]))
    }

    /// Sends a datagram. One that the kernel does not take is lost, as the network may lose any.
    pub(super) fn send(&self, to: SocketAddr, head: &[u8], body: &[u8]) {
        let parts = [io::IoSlice::new(head), io::IoSlice::new(body)];
        let _ = rustix::net::sendmsg_addr(
            &self.0,
            &to,
            &parts,
            &mut rustix::net::SendAncillaryBuffer::default(),
            rustix::net::SendFlags::NOSIGNAL,
        );
    }
}

fn set(socket: &UdpSocket, option: libc::c_int) -> bool {
    let value = BUFFER_BYTES;
    // SAFETY: the value outlives the call and has the length that is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    done == 0
}
