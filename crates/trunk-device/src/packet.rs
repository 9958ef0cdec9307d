//! Packet sockets (`packet(7)`) that send and receive frames in batches.

use crate::interface::socket;
use crate::{Interface, LinkDevice, Received};
use bytes::Bytes;
use farcall_trunk_proto::{ETHERTYPE, Mac, Nanos, SHIM_BYTES, Transmit};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames in one system call.
const BATCH: usize = 64;
/// An Ethernet header.
const HEADER: usize = 14;
/// The kernel holds so much that came, in bytes.
const RECEIVE_BUFFER: c_int = 8 << 20;
/// And so much that is to be sent: a fraction of what a switch takes, for frames in it cannot be
/// recalled. The kernel counts about 2.3 KB for a full frame.
const SEND_BUFFER: c_int = 256 << 10;

/// The frames of the trunk's EtherType on one interface.
pub struct PacketSocket {
    socket: OwnedFd,
    source: Mac,
    buffers: Vec<u8>,
    stride: usize,
    headers: Vec<[u8; HEADER + SHIM_BYTES]>,
}

impl PacketSocket {
    /// Opens a link.
    ///
    /// # Errors
    /// Without the right to use packet sockets (`CAP_NET_RAW`).
    pub fn open(interface: &Interface) -> io::Result<PacketSocket> {
        let protocol = c_int::from(ETHERTYPE.to_be());
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        // Without a protocol until it is bound, or it would hear every interface.
        let socket = socket(libc::AF_PACKET, kind, 0)?;
        let index = interface.index().map_err(io::Error::other)?;
        set_option(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            RECEIVE_BUFFER,
        )
        .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER / 2)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // SAFETY: all bytes of a packet address may be zero.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol as u16;
        address.sll_ifindex = index;
        // SAFETY: the address is a `struct sockaddr_ll` and outlives the call.
        let result = unsafe {
            let size = size_of_val(&address) as u32;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let mtu = interface.mtu().map_err(io::Error::other)?;
        let stride = (usize::from(mtu) + HEADER + 64).next_multiple_of(64);
        Ok(PacketSocket {
            socket,
            source: interface.address().map_err(io::Error::other)?,
            buffers: vec![0; stride * BATCH],
            stride,
            headers: vec![[0; HEADER + SHIM_BYTES]; BATCH],
        })
    }
}

fn set_option(socket: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the value is an int and outlives the call.
    let result = unsafe {
        let size = size_of_val(&value) as u32;
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    }
}

/// A message made of these parts.
fn message(parts: &mut [libc::iovec]) -> libc::mmsghdr {
    // SAFETY: all bytes of a message header may be zero.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = parts.as_mut_ptr();
    message.msg_hdr.msg_iovlen = parts.len() as _;
    message
}

impl LinkDevice for PacketSocket {
    fn descriptor(&self) -> &OwnedFd {
        &self.socket
    }

    fn send(&mut self, _: Nanos, frames: &mut Vec<Transmit>) -> io::Result<bool> {
        while !frames.is_empty() {
            let batch = &frames[..frames.len().min(BATCH)];
            let mut parts = Vec::with_capacity(2 * batch.len());
            for (frame, header) in batch.iter().zip(&mut self.headers) {
                header[..6].copy_from_slice(&frame.destination.0);
                header[6..12].copy_from_slice(&self.source.0);
                header[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
                header[HEADER..].copy_from_slice(&frame.header);
                parts.push(part(header));
                parts.push(part(&frame.body));
            }
            let mut messages: Vec<_> = parts.chunks_mut(2).map(message).collect();
            // SAFETY: messages, parts and the bytes they point to outlive the call.
            let sent = unsafe {
                let (at, count) = (messages.as_mut_ptr(), messages.len() as u32);
                libc::sendmmsg(self.socket.as_raw_fd(), at, count, libc::MSG_DONTWAIT as _)
            };
            if sent > 0 {
                frames.drain(..sent as usize);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                Some(libc::EINTR) => {}
                // The interface dropped the first one, is down, or finds it too long.
                Some(libc::ENOBUFS | libc::ENETDOWN | libc::EMSGSIZE) => {
                    frames.remove(0);
                }
                _ => return Err(error),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, _: Nanos, take: &mut dyn FnMut(Received)) -> io::Result<usize> {
        let mut parts: Vec<_> = self.buffers.chunks(self.stride).map(part).collect();
        let mut messages: Vec<_> = parts.chunks_mut(1).map(message).collect();
        // SAFETY: messages, parts and the buffers they point to outlive the call.
        let got = unsafe {
            let (at, count) = (messages.as_mut_ptr(), messages.len() as u32);
            let no_time = std::ptr::null_mut();
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                at,
                count,
                libc::MSG_DONTWAIT as _,
                no_time,
            )
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(0),
                _ => Err(error),
            };
        }
        let got = got as usize;
        for (buffer, message) in self.buffers.chunks(self.stride).zip(&messages[..got]) {
            let length = message.msg_len as usize;
            let cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let Some(frame) = buffer
                .get(..length)
                .filter(|frame| !cut && frame.len() >= HEADER)
            else {
                continue;
            };
            // A switch floods what it does not know, and the socket hears all of it.
            if frame[..6] != self.source.0 && frame[..6] != Mac::BROADCAST.0 {
                continue;
            }
            let mut source = Mac::default();
            source.0.copy_from_slice(&frame[6..12]);
            take(Received {
                source,
                payload: Bytes::copy_from_slice(&frame[HEADER..]),
            });
        }
        Ok(got)
    }
}
