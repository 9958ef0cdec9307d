//! Gang scheduling of parallel jobs on a cluster: all elements of a job run at the same time, and
//! jobs take turns in slices of a tenth of a second.
//!
//! A [`Daemon`] runs on each node; the daemons form a tree, whose root decides. Front ends talk to
//! the root through [`client`].

mod cgroup;
pub mod client;
mod daemon;
mod link;
mod node;
mod process;
mod trace;

pub use daemon::{Daemon, StartError};
pub use farcall_channel_proto::Freeze;
pub use farcall_gang_proto::{Ended, FARCALL_FAILED, Form, JobRow, JobSpec, Usage};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The control socket where none is named: an abstract one.
pub const DEFAULT_CONTROL: &str = "@farcall-gang";

/// How a daemon works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, told apart from all others.
    pub node: String,
    /// The daemon above; `None` at the root.
    pub parent: Option<SocketAddr>,
    /// Where daemons below this one connect; its address also carries the messages of jobs.
    pub listen: SocketAddr,
    /// The socket of front ends: a path, or an abstract name after `@`.
    pub control: String,
    /// What daemons show each other to be let in.
    pub token: String,
    /// How long jobs run in turn.
    pub slice: Duration,
    /// The switch protocol's form.
    pub form: Form,
    /// How a network is brought to rest.
    pub freeze: Freeze,
    /// Elements that run at a time on this node; `None` for its processors.
    pub slots: Option<u16>,
    /// Whether a job is switched out and in although it is alone, as SCore-D does.
    pub switch_alone: bool,
    /// Bytes for all jobs together; `None` for nine tenths of the machine's.
    pub memory: Option<u64>,
    /// A daemon that is not heard of for so long is gone; a stranger has so long to say who it is.
    /// Daemons give a sign each second, but not while they start elements.
    pub silence: Duration,
    /// User and group of the jobs that come by TCP; `None` for the daemon's own, unless that is
    /// root.
    pub tcp_user: Option<(u32, u32)>,
    /// Where Prometheus reads metrics by HTTP.
    pub metrics: Option<SocketAddr>,
    /// A file that gets a line for each switch.
    pub trace: Option<PathBuf>,
}
