//! Calls functions of a Farcall server: blocking, on the caller's own thread, with arrays sent
//! from and received into the caller's own memory.
//!
//! ```no_run
//! use farcall_client::{Argument, Options, Scalar, Server};
//!
//! let server = Server::connect("farcall://localhost:3717", Options::default())?;
//! let ddot = server.function("blas/ddot")?;
//! let x: Vec<u8> = [1.0f64, 2.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
//! let mut result = [0; 8];
//! let arguments = &mut [
//!     Argument::Scalar(Scalar::Int(2)),
//!     Argument::In(&x),
//!     Argument::Scalar(Scalar::Int(1)),
//!     Argument::In(&x),
//!     Argument::Scalar(Scalar::Int(1)),
//!     Argument::Out(&mut result),
//! ];
//! let outcome = ddot.call(arguments)?;
//! println!("{} in {} s", f64::from_ne_bytes(result), outcome.times.total);
//! # Ok::<(), farcall_client::Error>(())
//! ```

mod address;
mod argument;
mod callback;
mod connection;
mod credentials;
mod data;
mod error;
mod files;
mod function;
mod grid;
mod handle;
mod job;
mod memory;
mod metaserver;
mod object;
mod output;
mod pending;
mod plan;
mod playback;
mod reservation;
mod server;
mod socket;
mod staging;
mod streams;
mod transaction;

pub use address::{
    Address, AddressError, DEFAULT_PORT, METASERVER_PORT, address_from_environment, default_address,
};
pub use argument::{Argument, ArgumentError};
pub use callback::{Callback, CallbackArguments};
pub use connection::Progress;
pub use credentials::Credentials;
pub use data::{DataStatus, Named};
pub use error::{CallbackError, Error, Fault};
pub use farcall_directory::message as directory;
pub use farcall_directory::message::{Offer, Terms};
pub use farcall_idl::{Interface, Scalar};
pub use farcall_rpc_proto::{
    ArrayForm, DataName, Failure, FailureKind, FunctionSummary, HandleId, JobId, JobState, NoId,
    NoName,
};
pub use function::{Function, Outcome, Placement, Times};
pub use handle::{Handle, HandleStatus};
pub use job::{Job, JobStatus, Submitted};
pub use memory::SharedMemory;
pub use metaserver::Metaserver;
pub use object::{Object, ObjectStatus};
pub use output::Output;
pub use pending::{Pending, wait_any};
pub use plan::Plan;
pub use playback::{Load, Playback};
pub use reservation::{Reservation, ReservationName, Wanted};
pub use server::{Options, Server};
pub use transaction::{Deferred, Identity, Input, Recording, Report, Transaction, Ways};
