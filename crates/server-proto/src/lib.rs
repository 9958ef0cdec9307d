//! What a computational server decides, as a state machine without I/O: calls and submitted calls,
//! arrays and objects that stay, named data, memory, processor elements, reservations, bandwidth.
//!
//! It opens no socket, starts no process, reads no clock and draws no random number. [`Server`] is
//! told what has happened, with the time, and says what is to be done. Memory, workers, connections
//! and calls have keys with a generation: late word of something that is gone finds nothing. Bytes
//! of arrays never pass through it.

mod action;
mod allowance;
mod arrays;
mod connection;
mod durable;
mod event;
mod flaw;
mod functions;
mod ids;
mod job;
mod keys;
pub mod lifecycle;
mod map;
pub mod member;
mod memory;
mod names;
mod record;
mod server;
mod settings;
mod worker;

pub use action::{Action, Audit, Request, Segment, Way};
pub use allowance::Allowance;
pub use connection::MAX_SEGMENTS;
pub use event::{Accepted, Death, Event, Finished, Identity, Now, Ready, Said, Withdrawal};
pub use flaw::Flaw;
pub use functions::{Counts, Entry, Function, Functions};
pub use keys::{Beside, CallKey, ConnectionKey, Key, MemoryKey, Table, WorkerKey};
pub use names::DataFile;
pub use record::{Changed, Content, DiskError, Entry as JournalEntry, Outcome, Record, Stored};
pub use server::{Figures, Landed, Links, STATES, Server, Standing, Totals, UserTotals};
pub use settings::{ArrayLimits, DurableLimits, Limits, Settings};
