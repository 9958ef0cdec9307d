//! The links of this node as the daemon uses them: their sockets, waiting frames and carrier.
//! `trunk-device` makes the system calls. An interface that was removed and created again is opened
//! again, and the number of waiting frames is bounded.

use crate::control::{holder, reserve};
use crate::{Error, LinkConfig};
use farcall_trunk_device::{FaultInjector, Form, Interface, LinkDevice, PacketSocket};
use farcall_trunk_proto::{Nanos, Transmit};
use std::io;
use std::os::unix::net::UnixListener;

/// Frames passed to a link at once.
pub(crate) const BATCH: usize = 64;
/// The most frames that wait for a blocked link; these are heartbeats only.
const WAITING: usize = 256;
/// The rate of an interface that does not know its speed, in bits a second.
const UNKNOWN_SPEED: f64 = 1e9;
/// From this rate, frames are sent in datagrams, in bits a second.
const FAST: f64 = 5e9;

pub(crate) struct Link {
    pub(crate) config: LinkConfig,
    pub(crate) interface: Interface,
    device: Option<Box<dyn LinkDevice>>,
    /// Keeps other trunks of this machine away from the interface.
    reservation: Option<UnixListener>,
    pub(crate) out: Vec<Transmit>,
    pub(crate) blocked: bool,
}

impl Link {
    pub(crate) fn open(config: &LinkConfig) -> Result<Link, Error> {
        let interface = Interface::open(&config.name)?;
        interface.address()?;
        let device = open_device(config, &interface).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NoRight(config.name.clone()),
            _ => Error::Socket(config.name.clone(), error),
        })?;
        Ok(Link {
            config: config.clone(),
            interface,
            device: Some(device),
            reservation: None,
            out: Vec::with_capacity(2 * BATCH),
            blocked: false,
        })
    }

    /// Reserves the interface. Two trunks on one link would have the same addresses, and each would
    /// take the other's frames.
    pub(crate) fn reserve(&mut self) -> Result<(), Error> {
        let index = self.interface.index()?;
        self.reservation = None;
        let reserved = reserve(index).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::Reserved {
                link: self.config.name.clone(),
                trunk: holder(&self.config.name),
            },
            _ => error.into(),
        });
        self.reservation = Some(reserved?);
        Ok(())
    }

    /// Line rate in bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        bit_rate(&self.config, &self.interface) / 8.0
    }

    /// Largest payload of an Ethernet frame that the link carries in its form.
    pub(crate) fn mtu(&self) -> Result<u16, Error> {
        let overhead = form(&self.config, &self.interface).overhead();
        Ok(self.interface.mtu()?.saturating_sub(overhead))
    }

    /// Whether the processor is the limit of the link, and not its rate.
    pub(crate) fn is_fast(&self) -> bool {
        form(&self.config, &self.interface) == Form::Datagram
    }

    pub(crate) fn device(&mut self) -> Option<&mut dyn LinkDevice> {
        Some(&mut **self.device.as_mut()?)
    }

    /// Sends the waiting frames. Returns false if the link accepts no more at present.
    pub(crate) fn flush(&mut self, now: Nanos) -> bool {
        let Some(device) = &mut self.device else {
            self.out.clear();
            return true;
        };
        let open = match device.send(now, &mut self.out) {
            Ok(open) => open,
            Err(error) => {
                tracing::warn!(
                    "{}: {error}; the link is not used until it comes back",
                    self.config.name
                );
                self.device = None;
                true
            }
        };
        self.out.truncate(WAITING);
        open
    }

    /// Checks whether the interface has a carrier. If the interface was removed and created again,
    /// it is opened again, and the second value is true.
    pub(crate) fn look(&mut self) -> (bool, bool) {
        let carrier = self.interface.has_carrier().unwrap_or(false);
        if self.device.is_none() && carrier {
            if let Err(error) = self.reserve() {
                tracing::warn!("{error}");
                return (false, false);
            }
            self.device = open_device(&self.config, &self.interface).ok();
            return (self.device.is_some(), self.device.is_some());
        }
        (carrier && self.device.is_some(), false)
    }

    /// Marks the interface as gone.
    pub(crate) fn lose(&mut self) {
        self.device = None;
    }
}

fn bit_rate(config: &LinkConfig, interface: &Interface) -> f64 {
    let speed = interface.speed().map(|mbit| f64::from(mbit) * 1e6);
    config.rate.or(speed).unwrap_or(UNKNOWN_SPEED)
}

/// Chooses the form of frames. If the processor is the limit, fewer and larger packets are worth
/// their overhead.
fn form(config: &LinkConfig, interface: &Interface) -> Form {
    if bit_rate(config, interface) >= FAST {
        Form::Datagram
    } else {
        Form::Ethernet
    }
}

fn open_device(config: &LinkConfig, interface: &Interface) -> io::Result<Box<dyn LinkDevice>> {
    let socket = PacketSocket::open(interface, form(config, interface))?;
    Ok(match config.faults {
        None => Box::new(socket),
        Some(plan) => Box::new(FaultInjector::new(socket, plan)),
    })
}
