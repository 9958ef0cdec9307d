//! Network interfaces: reads their properties, and configures the virtual interface. It does not
//! send frames; `packet` and `tap` do. A name is checked before the system sees it.

use farcall_trunk_proto::Mac;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::ffi::{c_int, c_ulong};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no interface of this name.
    #[error("there is no interface `{0}`; `ip link` lists the interfaces")]
    Missing(String),
    /// No interface can have this name.
    #[error(
        "`{0}` is not a name of an interface. Use 1 to 15 characters without `/`, `:`, `%` and \
         spaces."
    )]
    Name(String),
    /// It is not an Ethernet interface.
    #[error("`{0}` is not an Ethernet interface")]
    NotEthernet(String),
    /// The system refused an operation.
    #[error("{name}: {what}: {source}")]
    Refused {
        /// The interface.
        name: String,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// One interface of this network namespace, by name.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: OwnedFd,
}

/// `struct ethtool_cmd` of the kernel.
#[repr(C)]
#[derive(Default)]
struct EthtoolSettings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    ports: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    crossover: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

const ETHTOOL_GET_SETTINGS: u32 = 1;
const SIOCETHTOOL: c_ulong = 0x8946;

impl Interface {
    /// Finds an interface.
    ///
    /// # Errors
    /// There is no interface of this name.
    pub fn open(name: &str) -> Result<Interface, InterfaceError> {
        // The system would take `%d` for the next free number, and `:` for the end of the name.
        let valid = |byte: u8| byte.is_ascii_graphic() && !b"/:%".contains(&byte);
        let is_folder = matches!(name, "" | "." | "..");
        if is_folder || name.len() >= libc::IFNAMSIZ || !name.bytes().all(valid) {
            return Err(InterfaceError::Name(name.to_owned()));
        }
        let socket = datagrams(AddressFamily::INET).map_err(|source| InterfaceError::Refused {
            name: name.to_owned(),
            what: "opening a socket",
            source,
        })?;
        let interface = Interface {
            name: name.to_owned(),
            socket,
        };
        match interface.index() {
            Ok(_) => Ok(interface),
            Err(_) => Err(InterfaceError::Missing(name.to_owned())),
        }
    }

    /// The name by which it was found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn index(&self) -> Result<c_int, InterfaceError> {
        let request = self.ask(libc::SIOCGIFINDEX, "reading its number")?;
        // SAFETY: the kernel filled in the number.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    /// Its Ethernet address.
    ///
    /// # Errors
    /// The interface is gone, or it is not an Ethernet interface.
    pub fn address(&self) -> Result<Mac, InterfaceError> {
        let request = self.ask(libc::SIOCGIFHWADDR, "reading its address")?;
        // SAFETY: the kernel filled in the address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(InterfaceError::NotEthernet(self.name.clone()));
        }
        let mut bytes = [0; 6];
        for (byte, value) in bytes.iter_mut().zip(address.sa_data) {
            *byte = value.cast_unsigned();
        }
        Ok(Mac(bytes))
    }

    /// Its largest payload in bytes.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn mtu(&self) -> Result<u16, InterfaceError> {
        let request = self.ask(libc::SIOCGIFMTU, "reading its MTU")?;
        // SAFETY: the kernel filled in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    /// Whether it is up and has a carrier.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn has_carrier(&self) -> Result<bool, InterfaceError> {
        let flags = self.flags()?;
        let needed = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(flags & needed == needed)
    }

    fn flags(&self) -> Result<c_int, InterfaceError> {
        let request = self.ask(libc::SIOCGIFFLAGS, "reading its state")?;
        // SAFETY: the kernel filled in the flags.
        Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Its speed in Mbit/s, if the interface knows it.
    pub fn speed(&self) -> Option<u32> {
        let mut settings = EthtoolSettings {
            command: ETHTOOL_GET_SETTINGS,
            ..EthtoolSettings::default()
        };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut settings).cast();
        self.call(SIOCETHTOOL, &mut request).ok()?;
        let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
        (speed != 0 && speed < u32::from(u16::MAX) << 4).then_some(speed)
    }

    /// Brings it up or down.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_up(&self, up: bool) -> Result<(), InterfaceError> {
        let flags = self.flags()?;
        let flags = if up {
            flags | libc::IFF_UP
        } else {
            flags & !libc::IFF_UP
        };
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = flags as i16;
        self.tell(libc::SIOCSIFFLAGS, request, "bringing it up")
    }

    /// Sets its largest payload.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), InterfaceError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = c_int::from(mtu);
        self.tell(libc::SIOCSIFMTU, request, "setting its MTU")
    }

    /// Sets its Ethernet address.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_address(&self, address: Mac) -> Result<(), InterfaceError> {
        let mut request = self.request();
        // SAFETY: all bytes of a socket address may be zero.
        let mut bytes: libc::sockaddr = unsafe { mem::zeroed() };
        bytes.sa_family = libc::ARPHRD_ETHER;
        for (value, byte) in bytes.sa_data.iter_mut().zip(address.0) {
            *value = byte.cast_signed();
        }
        request.ifr_ifru.ifru_hwaddr = bytes;
        self.tell(libc::SIOCSIFHWADDR, request, "setting its address")
    }

    /// Sets how many packets the kernel queues for it.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_queue(&self, packets: c_int) -> Result<(), InterfaceError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_metric = packets;
        self.tell(libc::SIOCSIFTXQLEN, request, "setting its queue")
    }

    /// Adds an IP address to those that it has.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn add_ip(&self, address: IpAddr, prefix: u8) -> Result<(), InterfaceError> {
        let index = self.index()?;
        let ask = || {
            let socket = socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                None,
            )?;
            send(
                &socket,
                &new_address(index, address, prefix),
                SendFlags::empty(),
            )?;
            let mut answer = [0; 1024];
            let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
            result_of(&answer[..length])
        };
        ask().map_err(|source| self.refused("giving it an IP address", source))
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all bytes of an interface request may be zero.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        request
    }

    fn ask(&self, what: c_ulong, text: &'static str) -> Result<libc::ifreq, InterfaceError> {
        let mut request = self.request();
        match self.call(what, &mut request) {
            Ok(()) => Ok(request),
            Err(source) => Err(self.refused(text, source)),
        }
    }

    fn tell(
        &self,
        what: c_ulong,
        mut request: libc::ifreq,
        text: &'static str,
    ) -> Result<(), InterfaceError> {
        self.call(what, &mut request)
            .map_err(|source| self.refused(text, source))
    }

    fn call(&self, what: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the request is a `struct ifreq` and outlives the call.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                what as _,
                std::ptr::from_mut(request),
            )
        };
        check(result).map(drop)
    }

    fn refused(&self, what: &'static str, source: io::Error) -> InterfaceError {
        InterfaceError::Refused {
            name: self.name.clone(),
            what,
            source,
        }
    }
}

/// A message of `rtnetlink(7)` that gives an interface an IP address (`RTM_NEWADDR`). The request
/// of `netdevice(7)` would replace an address of IPv4.
fn new_address(index: c_int, address: IpAddr, prefix: u8) -> Vec<u8> {
    let mut attributes = Vec::new();
    let mut attribute = |kind: u16, value: &[u8]| {
        attributes.extend((4 + value.len() as u16).to_ne_bytes());
        attributes.extend(kind.to_ne_bytes());
        attributes.extend(value);
    };
    let family = match address {
        IpAddr::V4(address) => {
            let own = u32::from(address);
            attribute(libc::IFA_LOCAL, &own.to_be_bytes());
            attribute(libc::IFA_ADDRESS, &own.to_be_bytes());
            // A network of two stations or one has no address for all.
            if prefix < 31 {
                let all = own | u32::MAX >> prefix;
                attribute(libc::IFA_BROADCAST, &all.to_be_bytes());
            }
            libc::AF_INET
        }
        IpAddr::V6(address) => {
            attribute(libc::IFA_LOCAL, &address.octets());
            attribute(libc::IFA_ADDRESS, &address.octets());
            libc::AF_INET6
        }
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let length = 16 + 8 + attributes.len() as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(libc::RTM_NEWADDR.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    // The number of the request and its sender do not matter.
    message.extend([0; 8]);
    message.extend([family as u8, prefix, 0, libc::RT_SCOPE_UNIVERSE]);
    message.extend(index.to_ne_bytes());
    message.extend(attributes);
    message
}

/// The result in the answer to a message of `rtnetlink(7)`: 0 or a negative error.
fn result_of(answer: &[u8]) -> io::Result<()> {
    let result = answer.get(16..).and_then(|error| error.first_chunk());
    match result.map(|error| i32::from_ne_bytes(*error)) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn datagrams(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Converts the result of a system call that returns a negative number on failure.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    match result {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Reports changes of the state of interfaces.
#[derive(Debug)]
pub struct Carrier {
    socket: OwnedFd,
}

impl Carrier {
    /// Starts to listen for changes.
    ///
    /// # Errors
    /// The system has no such sockets.
    pub fn new() -> io::Result<Carrier> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        let all = SocketAddrNetlink::new(0, libc::RTMGRP_LINK as u32);
        rustix::net::bind(&socket, &all)?;
        Ok(Carrier { socket })
    }

    /// The descriptor to poll.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.socket
    }

    /// Reads all messages, and returns whether there were any. The caller reads the new state from
    /// the interfaces, because the messages are not parsed.
    pub fn take(&self) -> bool {
        let mut buffer = [0_u8; 8192];
        let mut any = false;
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((1.., _)) => any = true,
                // Some messages were lost, but the caller reads the state anyway.
                Err(Errno::NOBUFS) if !any => any = true,
                _ => return any,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for name in ["", "..", "a name", "sixteen_letters_", "fc%d", "lo:1"] {
            assert!(
                matches!(Interface::open(name), Err(InterfaceError::Name(_))),
                "{name}"
            );
        }
        assert!(matches!(
            Interface::open("absent"),
            Err(InterfaceError::Missing(_))
        ));
    }

    #[test]
    fn the_loopback_is_there() {
        let loopback = Interface::open("lo").unwrap();
        assert!(loopback.index().unwrap() > 0);
        assert!(matches!(
            loopback.address(),
            Err(InterfaceError::NotEthernet(_))
        ));
    }
}
