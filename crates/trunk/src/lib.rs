//! The daemon of a trunk: one event loop over the links, the virtual interface and the clock.
//!
//! [`Daemon::start`] creates the interface, and [`Daemon::run`] serves it until a signal or
//! [`end`] ends it. During this time, [`ask`] reads its status over a control socket. The
//! socket's name is abstract and belongs to the network namespace.

mod control;
mod daemon;
mod device;
mod load;
mod report;

pub use control::{AskError, ask, end, running};
pub use daemon::Daemon;
pub use farcall_trunk_device::FaultPlan;
pub use farcall_trunk_proto::{Mac, Policy};

use farcall_trunk_device::{InterfaceError, TapError};
use farcall_trunk_proto::ConfigError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The configuration of one of this node's links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Name of the interface.
    pub name: String,
    /// Line rate in bits a second. If it is none, the daemon uses the interface's speed, or 1
    /// Gbit/s if that is unknown.
    pub rate: Option<f64>,
    /// Deliberate faults, for tests.
    pub faults: Option<FaultPlan>,
}

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the virtual interface.
    pub name: String,
    /// This node's links.
    pub links: Vec<LinkConfig>,
    /// IP addresses of the virtual interface, with their prefix lengths in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// How frames are distributed over the links.
    pub policy: Policy,
    /// Whether lost frames are sent again. If it is none, only the policy `max-min` does so.
    pub repair: Option<bool>,
    /// Whether frames are delivered in the order in which they were sent.
    pub order: bool,
    /// Span over which the published policies count.
    pub span: Duration,
    /// The key that authenticates control messages.
    pub key: Option<Vec<u8>>,
    /// The address at which Prometheus reads metrics by HTTP.
    pub metrics: Option<SocketAddr>,
}

/// Why a daemon cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A link cannot be used.
    #[error("{0}")]
    Link(#[from] InterfaceError),
    /// The process has no right to open a packet socket on a link.
    #[error(
        "no right to use packet sockets on `{0}`: run as root, or grant it with `sudo setcap \
         cap_net_admin,cap_net_raw+ep $(command -v farcall)`"
    )]
    NoRight(String),
    /// A packet socket cannot be opened for another reason.
    #[error("cannot open a packet socket on `{0}`: {1}")]
    Socket(String, #[source] io::Error),
    /// The virtual interface cannot be created.
    #[error("{0}")]
    Tap(#[from] TapError),
    /// A link is named twice.
    #[error("link `{0}` is named twice")]
    Twice(String),
    /// Another trunk has this link, or the link has two names and both are given.
    #[error(
        "link `{link}` already belongs to {}. A link can be in one trunk only: leave it out, or \
         end the other trunk with `farcall trunk down --name NAME`.",
        .trunk.as_ref().map_or("another trunk".to_owned(), |name| format!("the trunk `{name}`"))
    )]
    Reserved {
        /// Name of the link.
        link: String,
        /// Name of the other trunk, if it is known.
        trunk: Option<String>,
    },
    /// Another daemon has this name.
    #[error(
        "a trunk `{name}` is already running{}: `farcall trunk down --name {name}` ends it, or \
         choose another --name",
        .user.map_or_else(String::new, |user| format!(" as user {user}"))
    )]
    Running {
        /// Name of the trunk.
        name: String,
        /// Who holds the name, if that is known.
        user: Option<u32>,
    },
    /// The configuration is not valid.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// An interface with so small an MTU cannot have addresses of IPv6.
    #[error(
        "--address: the trunk's MTU is {mtu}, because that of link `{link}` is small, and an \
         interface with addresses of IPv6 needs 1280: give the link a larger MTU (`ip link set \
         {link} mtu 1500`), or leave the link or these addresses out"
    )]
    Narrow {
        /// The link with the smallest MTU.
        link: String,
        /// The MTU of the virtual interface.
        mtu: u16,
    },
    /// The address for metrics cannot be used.
    #[error("--metrics {0}: {1}")]
    Metrics(SocketAddr, #[source] io::Error),
    /// Another system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}
