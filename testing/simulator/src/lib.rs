//! A whole server in virtual time: the real `server-proto` and both ends of the real `rpc-proto`,
//! with models of sockets, workers and a disk that fail, and a server that is killed at any action.
//! Or several of them with metaservers, which are the real `directory`, and clients whose calls
//! these place.
//!
//! [`simulate`] plays one seed. A `Checker` sees what clients are told and what workers do, as
//! somebody with a perfect memory would, and fails at the first step that breaks a promise. The
//! same seed and options give the same history; [`minimise`] makes a failing one short.

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
pub use options::{Faults, Flaw, GridFaults, Options, Subjects};
pub use world::{Outcome, simulate};
