//! The metaserver's directory, without a clock and without I/O: servers with their leases, what
//! they do, what the ways between them and their clients carry, calls that were placed, and where
//! the next call goes.
//!
//! # Driving a directory
//!
//! [`Directory`] is told what happens and when, in seconds since 1970, UTC: a server joins, reports
//! and leaves, a client has a call placed ([`Directory::choose`]) and says what became of it
//! ([`Directory::observe`]). What others are to know of it, other metaservers by a shared store or
//! clients that go on by themselves, are [`Record`]s: [`Directory::changes`] names those that have
//! changed, [`Directory::apply`] takes in those of others. A metaserver and a client without one
//! decide with the same code; [`client`] has what else a client decides.
//!
//! A [`session`] is what one connection may say to it, over the bytes of `farcall_rpc_proto`.
//! What peers say is a [`message`]; each is checked before it counts, and every table has its bound
//! in [`Settings`].

mod calls;
pub mod client;
mod directory;
mod flaw;
pub mod message;
mod server;
mod servers;
pub mod session;
pub mod shared;
mod traffic;

pub use directory::{Change, Directory, Located, Refusal, Settings, Viewer};
pub use flaw::Flaw;
pub use message::digest;
pub use message::record::{Key, Record};
pub use server::ServerStatus;
