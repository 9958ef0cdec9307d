//! Gang scheduling without I/O, after SCore-D (Hori, Tezuka, Ishikawa, 1998). The parts are:
//!
//! - [`Root`]: the decisions of the root daemon;
//! - [`QueueTree`]: which gang jobs run in which slice;
//! - [`Switch`]: the protocol by which all nodes perform a gang switch;
//! - [`Heartbeat`]: which daemons have been silent for too long;
//! - [`Pmi`]: what processes of MPI ask of the one that started them;
//! - [`rest`]: when the state of a gang job can be taken;
//! - [`checkpoint`]: the file in which its state is kept;
//! - [`judge`]: the state of a gang job, from its saved context;
//! - [`suspect`]: a deadlock of processes that poll and never sleep;
//! - [`told`]: what front ends say, in lines that a server can read;
//! - [`Message`]: the messages between daemons and front ends.
//!
//! The caller provides time and events. This crate reads no clock and draws no random numbers.
#![no_std]

extern crate alloc;

pub mod checkpoint;
mod environment;
mod heartbeat;
mod message;
mod pmi;
mod queue;
pub mod rest;
mod root;
mod state;
mod suspicion;
mod switch;
pub mod told;

pub use heartbeat::{Heartbeat, Pulse};
pub use message::{
    Ended, Introduction, JobRow, JobSpec, Lengths, MAX_MESSAGE, MAX_SPEC, Message, MessageError,
    Piece, Place, Placement, Polling, Report, Rest, Usage, VERSION, Wanted,
};
pub use pmi::{PMIX, Pairs, Pmi, PmiAction, PmiError};
pub use queue::{Admission, NoAdmission, Partition, QueueTree};
pub use root::{Counts, Order, Root, Settings, check_name};
pub use state::{Blocked, Global, Process, Waits, judge};
pub use suspicion::{Poller, Pollers, suspect};
pub use switch::{Action, Behind, Form, Round, Step, Switch, Turn};

/// Nanoseconds of any monotonic clock.
pub type Nanos = u64;

/// Exit status when Farcall failed and not the program.
pub const FARCALL_FAILED: u8 = 125;

/// The number of a gang job at its root daemon, from 1; never reused.
pub type JobId = u64;
