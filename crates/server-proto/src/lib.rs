//! What a computational server decides, as a state machine without I/O: calls and durable calls,
//! stored arrays, named data, objects, memory, processor elements, reservations, bandwidth.
//!
//! The crate opens no socket, starts no process, reads no clock and draws no random number. The
//! shell tells [`Server`] the time and what has happened, and the server says what to do. Memory,
//! workers, connections and calls have keys with a generation, so that a late event for something
//! that is gone finds nothing. The bytes of arrays never pass through it.

mod account;
mod action;
mod allowance;
mod arrays;
mod call;
mod clients;
mod connection;
mod context;
mod data;
mod disk;
mod durable;
mod durable_calls;
mod elements;
mod engine;
mod event;
mod flaw;
mod functions;
mod gpus;
mod ids;
mod keys;
mod lanes;
pub mod ledger;
mod libraries;
pub mod lifecycle;
mod links;
pub mod log;
mod map;
pub mod member;
mod memory;
mod names;
mod notes;
mod objects;
mod output;
mod quota;
mod record;
mod reservations;
#[cfg(test)]
mod samples;
mod segments;
mod server;
mod settings;
pub mod source;
mod unconfirmed;
mod worker;
mod workers;

pub use account::{Totals, UserTotals};
pub use action::{Action, Audit, Direction, Haste, Request, Segment, Shown, TracedCall, Transfer};
pub use allowance::Allowance;
pub use clients::Clients;
pub use connection::MAX_SEGMENTS;
pub use engine::{Figures, Overview, STATES, ServerStatus};
pub use event::{
    Accepted, Death, Event, Finished, Identity, Now, Ready, Refused, Withdrawal, WorkerReport,
};
pub use flaw::Flaw;
pub use functions::{Counts, Entry, Function, Functions};
pub use gpus::Gpus;
pub use keys::{Beside, CallKey, ConnectionKey, Key, MemoryKey, Table, WorkerKey};
pub use lanes::Lanes;
pub use links::Links;
pub use names::DataFile;
pub use record::{
    Changed, Content, DiskError, Entry as JournalEntry, MOST_SHORT, Outcome, Record, Stored,
};
pub use server::{Landed, Server};
pub use settings::{ArrayLimits, DurableLimits, Group, Groups, Limits, Settings};
