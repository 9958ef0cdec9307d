//! Gang scheduling of parallel programs on a cluster. All processes of a gang job run at the same
//! time, and gang jobs take turns in slices of a tenth of a second.
//!
//! A [`Daemon`] runs on each node. The daemons form a tree, and the root daemon makes the
//! decisions. Front ends talk to the root daemon through [`client`].

mod cgroup;
pub mod client;
mod daemon;
mod job;
mod journal;
mod link;
mod mpi;
mod node;
mod own_memory;
pub mod pmix;
mod process;
mod proof;
mod start;
mod states;
mod token;
mod trace;

pub use cgroup::control_groups_work;
pub use daemon::{Daemon, StartError};
pub use farcall_channel_proto::Freeze;
pub use farcall_gang_proto::{Ended, FARCALL_FAILED, Form, JobRow, JobSpec, Usage, told};
pub use process::{become_user, inherited};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default control socket, an abstract one.
pub const DEFAULT_CONTROL: &str = "@farcall-gang";

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name, which must be unique.
    pub node: String,
    /// The address of the parent daemon; `None` at the root daemon.
    pub parent: Option<SocketAddr>,
    /// The addresses at which daemons below this one can connect: it takes the first that is free.
    /// The messages of gang jobs use the same IP address.
    pub listen: Vec<SocketAddr>,
    /// The control socket for front ends: a path, or an abstract name after `@`.
    pub control: String,
    /// The secret that all daemons share. A daemon proves that it knows it to join. If it is empty,
    /// daemons on the loopback use one that is kept in a file of their user.
    pub token: String,
    /// Length of a slice.
    pub slice: Duration,
    /// The form of the gang switch.
    pub form: Form,
    /// How a network is brought to rest.
    pub freeze: Freeze,
    /// Number of processes that run at the same time on this node; `None` for the number of its
    /// processors.
    pub slots: Option<u16>,
    /// Percent of the processor time that a user's interactive gang jobs can have before others.
    /// Those of all users together can have twice as much.
    pub share: u8,
    /// Whether a gang job is switched out and in even if it is alone, as in SCore-D.
    pub switch_alone: bool,
    /// Bytes of memory for all gang jobs together; `None` for 90 % of the machine's memory.
    pub memory: Option<u64>,
    /// A daemon that is silent for this long counts as lost. A new peer must identify itself within
    /// the same time. Daemons send a sign of life each second. Time in which this daemon itself did
    /// not run does not count.
    pub silence: Duration,
    /// User and group of gang jobs that arrive by TCP; `None` for those of the daemon, unless it
    /// runs as root.
    pub tcp_user: Option<(u32, u32)>,
    /// The address at which Prometheus reads metrics by HTTP.
    pub metrics: Option<SocketAddr>,
    /// A trace file that gets a line for each gang switch.
    pub trace: Option<PathBuf>,
    /// The network interface that processes of MPI use between nodes, such as that of a trunk;
    /// `None` for their own choice.
    pub mpi_interface: Option<String>,
    /// The arguments with which this program calls [`pmix::serve`]; `None` if it does not.
    pub pmix: Option<Vec<String>>,
    /// The folder with the provider of libfabric that carries MPI over channels; `None` if it is
    /// not installed.
    pub fabric: Option<PathBuf>,
}
