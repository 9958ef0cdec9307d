//! The links of this node as the daemon uses them: their sockets, waiting frames and carrier.
//! `trunk-device` makes the system calls. An interface that was removed and created again is opened
//! again, and the number of waiting frames is bounded.

use crate::control::{holder, reserve};
use crate::{Error, LinkConfig};
use farcall_trunk_device::{FaultInjector, Form, Interface, LinkDevice, PacketSocket};
use farcall_trunk_proto::{Mac, Nanos, Transmit};
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
    /// The form of its frames, and the number and the address of the interface, when the device was
    /// opened.
    form: Form,
    opened: Option<(i32, Mac)>,
    /// Keeps other trunks of this machine away from the interface.
    reservation: Option<UnixListener>,
    pub(crate) out: Vec<Transmit>,
    pub(crate) blocked: bool,
}

impl Link {
    pub(crate) fn open(config: &LinkConfig) -> Result<Link, Error> {
        let interface = Interface::open(&config.name)?;
        interface.address()?;
        let form = form(config, &interface);
        let opened = identity(&interface);
        let device = open_device(config, &interface, form).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NoRight(config.name.clone()),
            _ => Error::Socket(config.name.clone(), error),
        })?;
        Ok(Link {
            config: config.clone(),
            interface,
            device: Some(device),
            form,
            opened,
            reservation: None,
            out: Vec::with_capacity(2 * BATCH),
            blocked: false,
        })
    }

    /// Reserves the interface. Two trunks on one link would have the same addresses, and each would
    /// take the other's frames.
    fn reserve(&mut self) -> Result<(), Error> {
        let index = self.interface.index()?;
        self.reservation = None;
        let reserved = reserve(index).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::Reserved {
                link: self.config.name.clone(),
                trunk: None,
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
        Ok(self.interface.mtu()?.saturating_sub(self.form.overhead()))
    }

    /// Whether the processor is the limit of the link, and not its rate.
    pub(crate) fn is_fast(&self) -> bool {
        self.form == Form::Datagram
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
    /// or has another address, it is opened again, and the second value is true.
    pub(crate) fn look(&mut self) -> (bool, bool) {
        let carrier = self.interface.has_carrier().unwrap_or(false);
        if self.opened != identity(&self.interface) {
            self.lose();
        }
        if self.device.is_none() && carrier {
            let reopened = self.reopen();
            if let Err(error) = &reopened {
                tracing::warn!("{error}");
            }
            return (reopened.is_ok(), reopened.is_ok());
        }
        (carrier && self.device.is_some(), false)
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.reserve()?;
        self.form = form(&self.config, &self.interface);
        self.opened = identity(&self.interface);
        let device = open_device(&self.config, &self.interface, self.form);
        self.device = Some(device.map_err(|error| Error::Socket(self.config.name.clone(), error))?);
        Ok(())
    }

    /// Marks the interface as gone.
    pub(crate) fn lose(&mut self) {
        self.device = None;
    }
}

/// Reserves the links of the trunk `own`, which is starting. The error says which other trunk has
/// one. A running trunk must not ask that, because its frames would wait for the answer.
pub(crate) fn reserve_all(links: &mut [Link], own: &str) -> Result<(), Error> {
    let reserved = links.iter_mut().try_for_each(Link::reserve);
    reserved.map_err(|error| match error {
        Error::Reserved { link, .. } => {
            let trunk = holder(&link, own);
            Error::Reserved { link, trunk }
        }
        error => error,
    })
}

/// The number and the address of an interface, if it is there.
fn identity(interface: &Interface) -> Option<(i32, Mac)> {
    Some((interface.index().ok()?, interface.address().ok()?))
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

fn open_device(
    config: &LinkConfig,
    interface: &Interface,
    form: Form,
) -> io::Result<Box<dyn LinkDevice>> {
    let socket = PacketSocket::open(interface, form)?;
    Ok(match config.faults {
        None => Box::new(socket),
        Some(plan) => Box::new(FaultInjector::new(socket, plan)),
    })
}
