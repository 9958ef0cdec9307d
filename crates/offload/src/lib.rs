//! Calls of unmodified programs, computed by a server.
//!
//! A drop-in library has the names of a numerical library, such as `dgesv_`. A program gets it by
//! `LD_PRELOAD`, or in the place of the real library. [`library`] writes its C text from
//! interfaces. Each of its functions compares the operations of the call with a bound. Below the
//! bound it goes on to the real function. Above, it asks the runtime, which is this crate in
//! `libfarcall.so.1`:
//!
//! - `shim` is the border to C: it takes a call and answers who computes it;
//! - `routine` reads the arguments of a call as its interface describes them;
//! - [`rule`] decides whether the call pays, and remembers speeds; it is pure;
//! - `remote` has the connection, and makes calls that leave the program's arrays whole if they
//!   fail; `store` has stored arrays for later calls, and `kept` says which (pure);
//! - `real` finds the real functions; `explain` tells which of them a program uses;
//! - [`statistics`] counts; [`settings`] reads the environment.
//!
//! The program never sees an error of the runtime. Every call that a server does not compute goes
//! to the real function, with the program's arrays as they were.

mod explain;
mod kept;
pub mod library;
mod real;
mod remote;
mod routine;
pub mod rule;
pub mod settings;
mod shim;
pub mod statistics;
mod store;
mod verify;
