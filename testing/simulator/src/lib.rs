//! Whole servers in virtual time: the real `server-proto` and both ends of the real `rpc-proto`,
//! with models of sockets, workers and a disk that fail, and with servers that are killed at any
//! action. A quarter of the seeds simulate several servers behind metaservers, which are the real
//! `directory`.
//!
//! [`simulate`] plays one seed. A `Checker` sees what clients are told and what workers do, and
//! stops at the first step that breaks an invariant. The same seed and options give the same
//! history. [`minimise`] shortens a failing history.

mod checker;
mod client;
mod disk;
mod folder;
mod grid;
mod interfaces;
mod machine;
mod minimise;
mod options;
mod world;

pub use checker::Violation;
pub use minimise::minimise;
pub use options::{Faults, Flaw, GridFaults, Options, Subjects, SystemFaults};
pub use world::{Outcome, simulate};
