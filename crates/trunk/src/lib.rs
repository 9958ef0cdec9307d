//! The daemon of a trunk: one event loop over the links, the virtual interface and the clock.
//!
//! [`Daemon::start`] makes the interface, [`Daemon::run`] serves it until a signal or
//! [`ask`]`("down")` ends it. While it runs, [`ask`] reads its status over a control socket whose
//! name is abstract and belongs to the network namespace.

mod control;
mod daemon;
mod device;
mod report;

pub use control::{AskError, ask};
pub use daemon::Daemon;
pub use farcall_trunk_device::FaultPlan;
pub use farcall_trunk_proto::{Mac, Policy};

use farcall_trunk_device::{InterfaceError, TapError};
use farcall_trunk_proto::ConfigError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One of the own links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Name of the interface.
    pub name: String,
    /// Line rate in bits a second; none: as the interface says, or 1 Gbit/s where it says nothing.
    pub rate: Option<f64>,
    /// What to spoil, for tests.
    pub faults: Option<FaultPlan>,
}

/// What a daemon is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the virtual interface.
    pub name: String,
    /// The own links.
    pub links: Vec<LinkConfig>,
    /// IP addresses of the virtual interface, with the bits of their prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// How frames are spread.
    pub policy: Policy,
    /// Lost frames are sent again; none: where the policy is `max-min`.
    pub repair: Option<bool>,
    /// Span over which the published policies count.
    pub span: Duration,
    /// Authenticates control messages.
    pub key: Option<Vec<u8>>,
    /// Where Prometheus reads metrics by HTTP.
    pub metrics: Option<SocketAddr>,
}

/// Why a daemon does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A link cannot be used.
    #[error("{0}")]
    Link(#[from] InterfaceError),
    /// No packet socket on a link.
    #[error(
        "no right to use packet sockets on `{0}`: run as root, or grant it with `sudo setcap \
         cap_net_admin,cap_net_raw+ep $(command -v farcall)`"
    )]
    NoRight(String),
    /// No packet socket on a link, for another reason.
    #[error("opening a packet socket on `{0}`: {1}")]
    Socket(String, #[source] io::Error),
    /// No virtual interface.
    #[error("{0}")]
    Tap(#[from] TapError),
    /// The same link twice.
    #[error("link `{0}` is named twice")]
    Twice(String),
    /// Another daemon has this name.
    #[error("a trunk `{0}` runs here already: `farcall trunk down --name {0}` ends it")]
    Running(String),
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The address for metrics cannot be used.
    #[error("--metrics {0}: {1}")]
    Metrics(SocketAddr, #[source] io::Error),
    /// The machine refuses something else.
    #[error("{0}")]
    Io(#[from] io::Error),
}
