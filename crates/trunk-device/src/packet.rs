//! Packet sockets (`packet(7)`) that send and receive the frames of a trunk in batches. It moves
//! bytes; `trunk-proto` reads them. A socket receives from its own interface only.

pub(crate) mod form;
mod stamp;

use crate::interface::check;
use crate::{Interface, LinkDevice, Received};
use farcall_trunk_proto::{Mac, Nanos, Transmit};
use form::{DATAGRAM_BYTES, FILTER, Prefix, parse};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use stamp::{Clock, STAMP_BYTES};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// The largest number of frames in one system call.
const BATCH: usize = 64;
/// The largest packet of the socket, with its offload header. It must not be a multiple of the page
/// size, because all buffers would then share the same cache lines.
const LARGEST: usize = 65_536 + 64 * 17;
/// Size of the kernel's receive buffer in bytes.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Size of the kernel's send buffer in bytes: a fraction of a switch's buffer, because frames in it
/// cannot be recalled. The kernel counts about 2.3 KB for a full frame.
const SEND_BUFFER: usize = 256 << 10;
/// The same for the datagram form, in which the kernel counts about 70 KB for 44 frames.
const SEND_BUFFER_DATAGRAMS: usize = 1 << 20;

/// The form in which frames are sent on a link. Every receiver understands both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Ethernet frames with an EtherType of their own, which has the least overhead.
    Ethernet,
    /// UDP datagrams, many in one system call, for links that are faster than the processor.
    Datagram,
}

impl Form {
    /// Bytes of the payload of an Ethernet frame that the form occupies.
    pub fn overhead(self) -> u16 {
        match self {
            Form::Ethernet => 0,
            Form::Datagram => DATAGRAM_BYTES as u16,
        }
    }
}

/// Sends and receives the frames of a trunk on one interface.
pub struct PacketSocket {
    socket: OwnedFd,
    source: Mac,
    form: Form,
    buffers: Vec<u8>,
    /// Memory for the kernel's time stamp of each packet.
    stamps: Vec<[u64; STAMP_BYTES / 8]>,
}

impl PacketSocket {
    /// Opens a link.
    ///
    /// # Errors
    /// The process has no right to use packet sockets (`CAP_NET_RAW`), or the system refuses an
    /// operation.
    pub fn open(interface: &Interface, form: Form) -> io::Result<PacketSocket> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The socket has no protocol until it is bound. Otherwise it would receive from every
        // interface.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = interface.index().map_err(io::Error::other)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
        let send_buffer = match form {
            Form::Ethernet => SEND_BUFFER / 2,
            Form::Datagram => SEND_BUFFER_DATAGRAMS / 2,
        };
        sockopt::set_socket_send_buffer_size_force(&socket, send_buffer)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, send_buffer))?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        attach_filter(&socket)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // SAFETY: all bytes of a packet address may be zero.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        // SAFETY: the address is a `struct sockaddr_ll` and outlives the call.
        let result = unsafe {
            let size = size_of_val(&address) as u32;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)
        };
        check(result)?;
        Ok(PacketSocket {
            socket,
            source: interface.address().map_err(io::Error::other)?,
            form,
            buffers: vec![0; LARGEST * BATCH],
            stamps: vec![[0; STAMP_BYTES / 8]; BATCH],
        })
    }

    /// Divides the frames into groups. Each result has the headers before a group.
    fn groups(&self, frames: &[Transmit]) -> Vec<Prefix> {
        let mut groups = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let group = match self.form {
                Form::Ethernet => Some(Prefix::ethernet(self.source, first)),
                Form::Datagram => Prefix::datagram(self.source, rest),
            };
            let Some(group) = group else { break };
            rest = &rest[group.frames..];
            groups.push(group);
        }
        groups
    }
}

fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    let mut filter = FILTER.map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k });
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions outlive the call.
    let result = unsafe {
        let (at, size) = ((&raw const program).cast(), size_of_val(&program) as u32);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        libc::setsockopt(socket.as_raw_fd(), level, name, at, size)
    };
    check(result).map(drop)
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
    check(result).map(drop)
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    }
}

/// A part that the kernel fills.
fn place(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast::<c_void>(),
        iov_len: bytes.len(),
    }
}

/// A message that consists of these parts.
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
            let groups = self.groups(&frames[..frames.len().min(BATCH)]);
            let mut parts = Vec::with_capacity(groups.len() + 2 * BATCH);
            let mut rest = &frames[..];
            for group in &groups {
                parts.push(part(group.bytes()));
                let (own, others) = rest.split_at(group.frames);
                parts.extend(
                    own.iter()
                        .flat_map(|frame| [part(&frame.header), part(&frame.body)]),
                );
                rest = others;
            }
            let mut open = &mut parts[..];
            let mut messages = Vec::with_capacity(groups.len());
            for group in &groups {
                let (own, others) = open.split_at_mut(1 + 2 * group.frames);
                messages.push(message(own));
                open = others;
            }
            // SAFETY: messages, parts and the bytes they point to outlive the call.
            let sent = unsafe {
                let (at, count) = (messages.as_mut_ptr(), messages.len() as u32);
                libc::sendmmsg(self.socket.as_raw_fd(), at, count, libc::MSG_DONTWAIT as _)
            };
            if sent > 0 {
                let sent: usize = groups[..sent as usize]
                    .iter()
                    .map(|group| group.frames)
                    .sum();
                frames.drain(..sent);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(false),
                Some(libc::EINTR) => {}
                // The interface dropped the first frame, is down, or the frame is too long.
                Some(libc::ENOBUFS | libc::ENETDOWN | libc::EMSGSIZE) => {
                    frames.drain(..groups[0].frames);
                }
                _ => return Err(error),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, _: Nanos, take: &mut dyn FnMut(Received)) -> io::Result<usize> {
        let mut parts: Vec<_> = self.buffers.chunks_mut(LARGEST).map(place).collect();
        let mut messages: Vec<_> = parts.chunks_mut(1).map(message).collect();
        for (message, stamp) in messages.iter_mut().zip(&mut self.stamps) {
            message.msg_hdr.msg_control = stamp.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = STAMP_BYTES as _;
        }
        // SAFETY: messages, parts, stamps and the buffers they point to outlive the call.
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
        let clock = Clock::read();
        for (buffer, message) in self.buffers.chunks(LARGEST).zip(&messages[..got]) {
            let cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            if let Some(packet) = buffer.get(..message.msg_len as usize).filter(|_| !cut) {
                let at = clock.arrival(&message.msg_hdr);
                parse(packet, self.source, |source, payload| {
                    take(Received {
                        source,
                        payload,
                        at,
                    });
                });
            }
        }
        Ok(got)
    }
}
