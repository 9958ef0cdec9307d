//! The metaserver's directory, without a clock and without I/O: servers with their leases and load,
//! the paths between them and their clients, placed calls, and the choice of a server for the next
//! call.
//!
//! # Driving a directory
//!
//! The caller tells [`Directory`] what happens and when, in seconds since 1970, UTC. A server
//! joins, reports and leaves. A client asks for a placement ([`Directory::choose`]) and reports the
//! outcome ([`Directory::observe`]). What others need to know are [`Record`]s: other metaservers
//! read them from a shared store, and clients keep them for a time without a metaserver.
//! [`Directory::changes`] names the records that have changed; [`Directory::apply`] takes records
//! of others. A metaserver and a client without one decide with the same code. [`client`] has the
//! other decisions of a client.
//!
//! A [`session`] is what one connection may say to the directory, over the bytes of
//! `farcall_rpc_proto`. Peers send [`message`]s. Each is checked before it counts, and every table
//! has its bound in [`Settings`].

mod calls;
pub mod client;
mod directory;
mod flaw;
mod hints;
pub mod message;
mod notes;
mod server;
mod servers;
pub mod session;
pub mod shared;
mod traffic;

pub use directory::{Change, Directory, Located, Refusal, Settings, Viewer};
pub use flaw::Flaw;
pub use message::record::{Key, Record};
pub use message::{digest, source_name};
pub use server::ServerStatus;
