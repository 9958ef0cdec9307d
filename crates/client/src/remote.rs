//! One server: connections to it, requests, and calls of its functions.
//!
//! This module does not choose between servers; [`crate::grid`], above it, does. It knows
//! metaservers only as peers that a connection may lead to.

mod again;
mod attempt;
mod call;
mod callbacks;
mod catalogue;
mod connection;
mod data;
mod durable;
mod early;
mod files;
mod function;
mod handle;
#[cfg(unix)]
mod inherited;
mod object;
pub(crate) mod pages;
mod paths;
mod process;
mod requests;
mod reservation;
mod reserved;
mod server;
mod socket;
mod source;
mod staging;
mod streams;
mod tunnel;

pub(crate) use attempt::{After, Attempt, Begun, Continues};
pub use connection::SharedMemory;
pub(crate) use connection::{Connection, Key, Request, Watch, wait_for_any};
pub use durable::{DurableCall, DurableStatus, SubmittedCall};
pub(crate) use function::{Function, same_function};
pub(crate) use handle::put_within;
pub use handle::{Handle, HandleStatus};
#[cfg(unix)]
pub use inherited::close_inherited;
pub use object::{Object, ObjectStatus};
pub(crate) use process::generation;
pub(crate) use requests::names::check_names;
pub(crate) use requests::{directory, functions, operation};
pub(crate) use server::{Server, answers, connect_within, connection_within};
pub(crate) use source::{OwnArrays, wanted_form};
pub(crate) use streams::is_large;
pub use tunnel::RELAY_READY;
