//! Calls functions of a Farcall server: blocking, on the caller's own thread, with arrays sent
//! from and received into the caller's own memory.
//!
//! ```no_run
//! use farcall_client::{Options, Server};
//!
//! let server = Server::connect("farcall://localhost:3717", Options::default())?;
//!
//! // One argument for each parameter, in the order of the interface.
//! let ddot = server.function("blas/ddot")?;
//! let (x, y) = (vec![1.0, 2.0], [3.0, 4.0]);
//! let mut dot = 0.0;
//! ddot.call(&mut [
//!     2.into(),
//!     (&x).into(),
//!     1.into(),
//!     (&y).into(),
//!     1.into(),
//!     (&mut dot).into(),
//! ])?;
//!
//! // Or by name, in any order.
//! let dgesv = server.function("lapack/dgesv")?;
//! let a: [f64; 4] = [2.0, 0.0, 0.0, 4.0];
//! let (mut lu, mut b, mut pivots, mut info) = (a, [1.0, dot], [0i32; 2], 0i32);
//! let outcome = dgesv.call_named([
//!     ("n", 2.into()),
//!     ("nrhs", 1.into()),
//!     ("a", (&mut lu[..]).into()),
//!     ("lda", 2.into()),
//!     ("ipiv", (&mut pivots).into()),
//!     ("b", (&mut b[..]).into()),
//!     ("ldb", 2.into()),
//!     ("info", (&mut info).into()),
//! ])?;
//! println!("x = {b:?} in {} s", outcome.times.total);
//! # Ok::<(), farcall_client::Error>(())
//! ```
//!
//! Slices and vectors of `i8` to `u64`, `f32`, `f64` and, for complex numbers, `[f32; 2]` and
//! `[f64; 2]` are arrays, and the types of their elements are compared with the interface. With the
//! feature `ndarray`, views of that crate are arrays too: their shape and order are compared as
//! well.
//! An [`Argument`] lists the other kinds: bytes, stored arrays, callbacks.
//!
//! One server lies under many: behind the address of a metaserver, [`Server`] has every call placed
//! on one of the servers that have joined it.

mod address;
mod argument;
mod call;
mod call_status;
mod callback;
mod completion;
mod credentials;
mod data;
mod description;
mod error;
mod estimate;
mod estimator;
mod function;
mod grid;
mod handle;
mod memory;
mod metaserver;
mod offer;
mod options;
mod outcome;
mod output;
mod pending;
mod playback;
mod progress;
mod remote;
mod reservation;
mod server;
mod terms;
mod timeout;
mod trace;
mod transaction;

pub use address::{
    Address, AddressError, DEFAULT_PORT, METASERVER_PORT, SshAddress, address_from_environment,
    default_address,
};
pub use argument::{Argument, Array, Element};
pub use call::LaidOut;
pub use call_status::{CallPhase, CallStatus, Expected};
pub use callback::{Callback, CallbackArguments};
pub use completion::Completions;
pub use credentials::{Credentials, secret_files};
pub use data::{DataStatus, Named, NoSource, Source};
pub use description::FunctionSummary;
pub use error::{ArgumentError, CallbackError, Error, Failure, Fault};
pub use estimate::Estimate;
pub use estimator::Estimator;
pub use farcall_idl::{Interface, Scalar};
pub use farcall_rpc_proto::{
    ArrayForm, AskSnapshot, DataName, DurableState, FailureKind, HandleId, JobId, NoId, NoName,
    Receipt, Rows, SourceOptions, TraceContext,
};
pub use function::Function;
pub use memory::zeroed;
pub use metaserver::Metaserver;
pub use offer::{Offer, TimeParts};
pub use options::Options;
pub use outcome::{Outcome, Placement, Times};
pub use output::Output;
pub use pending::{Pending, wait_any};
pub use playback::{Load, Playback, plan_may_write};
pub use progress::Progress;
#[cfg(unix)]
pub use remote::close_inherited;
pub use remote::{
    DurableCall, DurableStatus, Handle, HandleStatus, Object, ObjectStatus, RELAY_READY,
    SharedMemory, SubmittedCall,
};
pub use reservation::{Reservation, ReservationName, ReservationSpec};
pub use server::Server;
pub use trace::{collector_problem, new_trace};
pub use transaction::{ArgumentOptions, Deferred, Identity, Input, Recording, Report, Transaction};
