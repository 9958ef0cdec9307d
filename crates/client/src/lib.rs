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
mod call;
mod callback;
mod credentials;
mod data;
mod description;
mod error;
mod function;
mod grid;
mod handle;
mod metaserver;
mod offer;
mod options;
mod outcome;
mod output;
mod pending;
mod plan;
mod playback;
mod progress;
mod remote;
mod reservation;
mod server;
mod transaction;

pub use address::{
    Address, AddressError, DEFAULT_PORT, METASERVER_PORT, address_from_environment, default_address,
};
pub use argument::{Argument, Array, Element};
pub use call::LaidOut;
pub use callback::{Callback, CallbackArguments};
pub use credentials::Credentials;
pub use data::{DataStatus, Named};
pub use description::FunctionSummary;
pub use error::{ArgumentError, CallbackError, Error, Fault};
pub use farcall_idl::{Interface, Scalar};
pub use farcall_rpc_proto::{
    ArrayForm, DataName, Failure, FailureKind, HandleId, JobId, JobState, NoId, NoName,
};
pub use function::Function;
pub use metaserver::Metaserver;
pub use offer::{Offer, Terms};
pub use options::Options;
pub use outcome::{Outcome, Placement, Times};
pub use output::Output;
pub use pending::{Pending, wait_any};
pub use plan::Plan;
pub use playback::{Load, Playback};
pub use progress::Progress;
pub use remote::{
    Handle, HandleStatus, Job, JobStatus, Object, ObjectStatus, SharedMemory, Submitted,
};
pub use reservation::{Reservation, ReservationName, Wanted};
pub use server::Server;
pub use transaction::{Deferred, Identity, Input, Recording, Report, Transaction, Ways};
