//! The engine's UDP socket. It sends and receives datagrams in batches, with one system call for
//! each batch.

use farcall_channel_proto::HEADER_BYTES;
use rustix::net::sockopt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Size of the kernel's buffer for each direction, in bytes: enough for a burst from many nodes at
/// once.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes of the longest datagram.
const DATAGRAM_BYTES: usize = 65_536;
/// Datagrams per iteration, so that neither direction delays the other for long.
pub(super) const BATCH: usize = 16;
/// Bytes of a socket address of either family.
const ADDRESS_BYTES: usize = size_of::<libc::sockaddr_in6>();

pub(super) struct Socket(UdpSocket);

/// Memory for the datagrams of one iteration.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    received: Vec<(SocketAddr, usize)>,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox {
            bytes: vec![0; BATCH * DATAGRAM_BYTES],
            received: Vec::with_capacity(BATCH),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.received.len()
    }

    /// A received datagram and the address of its sender.
    pub(super) fn get(&self, index: usize) -> (SocketAddr, &[u8]) {
        let (from, bytes) = self.received[index];
        (from, &self.bytes[index * DATAGRAM_BYTES..][..bytes])
    }
}

/// A datagram to send: its header, and the place of its body in memory. The body may lie in two
/// runs, in memory that a process may write to at the same time.
pub(super) struct Packet {
    pub(super) to: SocketAddr,
    pub(super) head: [u8; HEADER_BYTES],
    /// Addresses and lengths; only the kernel reads them.
    pub(super) body: [(*const u8, usize); 2],
}

impl Socket {
    pub(super) fn bind(address: IpAddr) -> io::Result<Socket> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        // Without the privilege to force the size, the kernel grants what the administrator allows.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES));
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES));
        Ok(Socket(socket))
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Receives the datagrams that have arrived, at most [`BATCH`].
    pub(super) fn receive(&self, inbox: &mut Inbox) {
        inbox.received.clear();
        let mut addresses = [[0u8; ADDRESS_BYTES]; BATCH];
        let mut vectors = [EMPTY; BATCH];
        // SAFETY: all zero is a valid message header, one without anything.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let places = inbox.bytes.chunks_exact_mut(DATAGRAM_BYTES);
        let parts = addresses.iter_mut().zip(places).zip(&mut vectors);
        for (header, ((address, place), vector)) in headers.iter_mut().zip(parts) {
            vector.iov_base = place.as_mut_ptr().cast();
            vector.iov_len = place.len();
            header.msg_hdr.msg_name = address.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = ADDRESS_BYTES as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: every header names memory of this frame or of the inbox, of the length it says.
        let count = unsafe {
            libc::recvmmsg(
                self.0.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        for (header, address) in headers.iter().zip(&addresses).take(count.max(0) as usize) {
            let from = decode(address).unwrap_or(NOBODY);
            inbox.received.push((from, header.msg_len as usize));
        }
    }

    /// Sends datagrams. A datagram that the kernel does not accept counts as lost in the network.
    pub(super) fn send(&self, packets: &[Packet]) {
        for packets in packets.chunks(BATCH) {
            let mut addresses = [([0u8; ADDRESS_BYTES], 0); BATCH];
            let mut vectors = [[EMPTY; 3]; BATCH];
            // SAFETY: all zero is a valid message header, one without anything.
            let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
            let parts = packets.iter().zip(&mut addresses).zip(&mut vectors);
            for (header, ((packet, address), vectors)) in headers.iter_mut().zip(parts) {
                *address = encode(&packet.to);
                vectors[0].iov_base = packet.head.as_ptr().cast_mut().cast();
                vectors[0].iov_len = packet.head.len();
                for (vector, (start, bytes)) in vectors[1..].iter_mut().zip(packet.body) {
                    vector.iov_base = start.cast_mut().cast();
                    vector.iov_len = bytes;
                }
                header.msg_hdr.msg_name = address.0.as_mut_ptr().cast();
                header.msg_hdr.msg_namelen = address.1;
                header.msg_hdr.msg_iov = vectors.as_mut_ptr();
                header.msg_hdr.msg_iovlen = 3;
            }
            let mut sent = 0;
            while sent < packets.len() {
                let left = &mut headers[sent..packets.len()];
                // SAFETY: every header names live memory that the kernel only reads; if a
                // process changes it at the same time, the kernel sends one or the other.
                let count = unsafe {
                    libc::sendmmsg(
                        self.0.as_raw_fd(),
                        left.as_mut_ptr(),
                        left.len() as libc::c_uint,
                        libc::MSG_NOSIGNAL,
                    )
                };
                sent += count.max(1) as usize;
            }
        }
    }
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Replaces the address of a sender that cannot be read. No gang job has a peer there.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Encodes the address for the kernel. Returns it with its length.
fn encode(address: &SocketAddr) -> ([u8; ADDRESS_BYTES], libc::socklen_t) {
    let mut out = [0; ADDRESS_BYTES];
    let (family, port) = match address {
        SocketAddr::V4(_) => (libc::AF_INET, address.port()),
        SocketAddr::V6(_) => (libc::AF_INET6, address.port()),
    };
    out[0..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&port.to_be_bytes());
    match address {
        SocketAddr::V4(four) => {
            out[4..8].copy_from_slice(&four.ip().octets());
            (out, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(six) => {
            out[8..24].copy_from_slice(&six.ip().octets());
            out[24..28].copy_from_slice(&six.scope_id().to_ne_bytes());
            (out, ADDRESS_BYTES as libc::socklen_t)
        }
    }
}

fn decode(bytes: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes[24..28].try_into().ok()?);
            Some(std::net::SocketAddrV6::new(ip.into(), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:80", "[::1]:65535", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(decode(&encode(&address).0), Some(address));
        }
    }

    #[test]
    fn a_batch_arrives_with_its_senders() {
        let bind = || Socket::bind(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)).expect("a port");
        let (one, other) = (bind(), bind());
        let body = [7u8; 3000];
        let packets: Vec<Packet> = (0..20)
            .map(|index| Packet {
                to: other.address().expect("bound"),
                head: [index; HEADER_BYTES],
                body: [(body.as_ptr(), 1000), (body[1000..].as_ptr(), 2000)],
            })
            .collect();
        one.send(&packets);
        let mut inbox = Inbox::new();
        let mut next = 0;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while next < 20 {
            assert!(std::time::Instant::now() < end, "{next} came");
            other.receive(&mut inbox);
            for index in 0..inbox.len() {
                let (from, bytes) = inbox.get(index);
                assert_eq!(from, one.address().expect("bound"));
                assert_eq!(bytes[..HEADER_BYTES], [next; HEADER_BYTES]);
                assert_eq!(bytes[HEADER_BYTES..], body);
                next += 1;
            }
        }
    }
}
