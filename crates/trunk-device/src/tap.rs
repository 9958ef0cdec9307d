//! The virtual interface: a TAP device that passes large segments in both directions. `segment`
//! splits them, and `coalesce` joins frames. The interface disappears when it is dropped. A packet
//! that the kernel refuses is lost, as on a wire.

use crate::coalesce::Packet;
use crate::segment::{OFFLOAD_BYTES, OffloadHeader, split};
use crate::{Interface, InterfaceError};
use bytes::Bytes;
use farcall_trunk_proto::{Deliver, Mac};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_ulong};
use std::io::{self, IoSlice};
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

const DEVICE: &str = "/dev/net/tun";
/// Bytes of the largest segment with its headers.
const LARGEST: usize = 65_536 + 256;
/// The smallest MTU with which the kernel lets an interface have addresses of IPv6 (RFC 8200,
/// section 5).
const LEAST_IPV6_MTU: u16 = 1280;
/// Packets that the kernel queues for the trunk. The trunk's queue management does not see these
/// packets, so there must be few.
const QUEUE: c_int = 512;

const TUNSETIFF: c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: c_ulong = 0x4004_54d8;
const TUN_F_CSUM: c_uint = 1;
const TUN_F_TSO4: c_uint = 2;
const TUN_F_TSO6: c_uint = 4;
const TUN_F_TSO_ECN: c_uint = 8;

/// Why the virtual interface cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device file does not exist.
    #[error(
        "{DEVICE} is missing: load the kernel's module (`modprobe tun`); in a container, pass \
         the device in (`--device {DEVICE}`)"
    )]
    NoDevice,
    /// The user has no permission.
    #[error(
        "no right to make a network interface: run as root, or grant it with `sudo setcap \
         cap_net_admin,cap_net_raw+ep $(command -v farcall)`"
    )]
    NoRight(#[source] io::Error),
    /// An interface of this name exists already.
    #[error("an interface `{0}` exists already: stop its owner, or choose another --name")]
    Taken(String),
    /// Somebody has removed the interface.
    #[error("the interface `{0}` was removed: start the trunk again")]
    Gone(String),
    /// The interface cannot be configured.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// Another system call failed.
    #[error("cannot create the interface: {0}")]
    Other(#[source] io::Error),
}

/// The virtual interface. It disappears when it is dropped.
#[derive(Debug)]
pub struct Tap {
    file: OwnedFd,
    interface: Interface,
    buffer: Vec<u8>,
    packet: Packet,
    addresses: Vec<(IpAddr, u8)>,
}

impl Tap {
    /// Creates an interface, which is not yet up.
    ///
    /// # Errors
    /// Returns what is missing, and how to get it.
    pub fn create(name: &str, address: Mac, mtu: u16) -> Result<Tap, TapError> {
        if matches!(Interface::open(name), Ok(_) | Err(InterfaceError::Name(_))) {
            Interface::open(name)?;
            return Err(TapError::Taken(name.to_owned()));
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => TapError::NoDevice,
            Errno::ACCESS | Errno::PERM => TapError::NoRight(error.into()),
            _ => TapError::Other(error.into()),
        })?;
        attach(&file, name).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TapError::NoRight(error),
            Some(libc::EBUSY | libc::EEXIST) => TapError::Taken(name.to_owned()),
            _ => TapError::Other(error),
        })?;
        let interface = Interface::open(name)?;
        interface.set_address(address)?;
        interface.set_mtu(mtu)?;
        interface.set_queue(QUEUE)?;
        Ok(Tap {
            file,
            interface,
            buffer: vec![0; LARGEST],
            packet: Packet::new(),
            addresses: Vec::new(),
        })
    }

    /// Adds IP addresses, and brings the interface up.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn bring_up(&mut self, addresses: &[(IpAddr, u8)]) -> Result<(), InterfaceError> {
        self.interface.set_up(true)?;
        self.addresses = addresses.to_vec();
        addresses
            .iter()
            .try_for_each(|(ip, prefix)| self.interface.add_ip(*ip, *prefix))
    }

    /// Sets the MTU after that of the smallest link has changed. The kernel takes the addresses of
    /// IPv6 away if it is too small for them, so they are given again when it is large enough.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), InterfaceError> {
        let had_none = self.interface.mtu()? < LEAST_IPV6_MTU;
        self.interface.set_mtu(mtu)?;
        let lost = self.addresses.iter().filter(|(ip, _)| ip.is_ipv6());
        match had_none && mtu >= LEAST_IPV6_MTU {
            true => {
                (lost.into_iter()).try_for_each(|(ip, prefix)| self.interface.add_ip(*ip, *prefix))
            }
            false => Ok(()),
        }
    }

    /// Whether an interface with this MTU cannot have all addresses that it was given.
    pub fn is_too_narrow(&self, mtu: u16) -> bool {
        is_too_narrow(mtu, &self.addresses)
    }

    /// The descriptor to poll.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.file
    }

    /// Reads one packet and passes its frames to `take`. Returns false if none waits.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&mut self, take: impl FnMut(Bytes)) -> io::Result<bool> {
        match rustix::io::read(&self.file, &mut self.buffer) {
            Ok(length) => {
                let packet = &self.buffer[..length];
                if let Some((header, packet)) = packet.split_first_chunk::<OFFLOAD_BYTES>() {
                    split(OffloadHeader::decode(header), packet, take);
                }
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            // The interface was set down: frames arrive again when it is up.
            Err(Errno::IO) => Ok(false),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Passes frames to the kernel, joining those of one stream.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn send(&mut self, frames: impl Iterator<Item = Deliver>) -> io::Result<()> {
        let mut open = false;
        for frame in frames {
            if open && self.packet.join(&frame) {
                continue;
            }
            if open {
                self.flush()?;
            }
            self.packet.start(frame);
            open = true;
        }
        if open { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut parts: [IoSlice<'_>; 66] = [IoSlice::new(&[]); 66];
        let pieces = self.packet.pieces.len();
        let (offload, headers) = {
            let (offload, headers) = self.packet.finish();
            (offload.encode(), headers.to_vec())
        };
        parts[0] = IoSlice::new(&offload);
        parts[1] = IoSlice::new(&headers);
        for (part, piece) in parts[2..].iter_mut().zip(&self.packet.pieces) {
            *part = IoSlice::new(piece);
        }
        match rustix::io::writev(&self.file, &parts[..2 + pieces]) {
            Ok(_) => Ok(()),
            Err(error) if is_loss(error) => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: Errno) -> io::Error {
        match error {
            Errno::BADFD => io::Error::other(TapError::Gone(self.interface.name().to_owned())),
            error => error.into(),
        }
    }
}

/// Whether the kernel has refused a packet, has no memory for it, or the interface is down: the
/// packet is lost, as on a wire.
fn is_loss(error: Errno) -> bool {
    matches!(
        error,
        Errno::AGAIN | Errno::INTR | Errno::INVAL | Errno::IO | Errno::NOMEM | Errno::NOBUFS
    )
}

/// Whether an interface with this MTU cannot have all these addresses.
pub fn is_too_narrow(mtu: u16, addresses: &[(IpAddr, u8)]) -> bool {
    mtu < LEAST_IPV6_MTU && addresses.iter().any(|(ip, _)| ip.is_ipv6())
}

fn attach(file: &OwnedFd, name: &str) -> io::Result<()> {
    // SAFETY: all bytes of an interface request may be zero.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as i16;
    let mut size = OFFLOAD_BYTES as c_int;
    let offloads = c_ulong::from(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN);
    let descriptor = file.as_raw_fd();
    // SAFETY: request, size and offloads are what the calls expect and outlive them.
    let call = |what: c_ulong, argument: *mut libc::c_void| unsafe {
        match libc::ioctl(descriptor, what as _, argument) {
            result if result < 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    call(TUNSETIFF, (&raw mut request).cast())?;
    call(TUNSETVNETHDRSZ, (&raw mut size).cast())?;
    call(
        TUNSETOFFLOAD,
        std::ptr::without_provenance_mut(offloads as usize),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel says `NOBUFS` if it has no memory for a packet.
    #[test]
    fn a_lack_of_memory_loses_a_packet_and_not_the_interface() {
        for error in [Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::IO] {
            assert!(is_loss(error), "{error}");
        }
        assert!(!is_loss(Errno::BADFD));
    }
}
