//! Gang scheduling without I/O: what the root decides ([`Root`]), which jobs run in which slice
//! ([`QueueTree`]), how all nodes switch from some jobs to others ([`Switch`]), what a job's saved
//! context says about it ([`judge`]), and the messages between daemons and front ends
//! ([`Message`]).
//!
//! After SCore-D (Hori, Tezuka, Ishikawa, 1998). Time and events come from the caller; nothing here
//! reads a clock or draws a random number.
#![no_std]

extern crate alloc;

mod message;
mod queue;
mod root;
mod state;
mod switch;

pub use message::{
    Ended, JobRow, JobSpec, MAX_MESSAGE, Message, MessageError, Placement, Report, Usage,
};
pub use queue::{Admission, NoAdmission, Partition, QueueTree};
pub use root::{Counts, Order, Root, Settings};
pub use state::{Blocked, Element, Global, Waits, judge};
pub use switch::{Action, Form, Round, Step, Switch};

/// Nanoseconds of any clock that does not jump.
pub type Nanos = u64;

/// Exit status where Farcall failed, not the program.
pub const FARCALL_FAILED: u8 = 125;

/// A job's number at its daemon, from 1; never used twice.
pub type JobId = u64;
