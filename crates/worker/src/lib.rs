//! Worker processes of a computational server: the code that runs beside the library, and the
//! server's side of it.
//!
//! A worker is the server's own program started again. It binds one library, maps the memory of
//! calls, and calls functions in place; it has no network socket. [`Launcher`] starts a worker,
//! [`Worker`] is the server's side, and [`run_worker`] is what runs inside. This crate does not
//! decide which worker runs which call; `farcall-server-proto` does.

mod callback;
mod children;
mod control;
mod death;
mod elements;
mod environment;
mod files;
mod floats;
mod groups;
mod handle;
mod launch;
mod lent;
mod limits;
mod lingering;
mod memory;
mod mounts;
mod namespaces;
mod nursery;
mod parallel;
mod process;
mod sandbox;
mod signals;
mod slices;
mod surroundings;
mod trace;
mod walls;

pub use callback::WorkerMessage;
pub use control::{Outcome, TEXT_BYTES};
pub use death::{Death, no_process};
pub use farcall_library::{CallbackAnswer, CallbackRequest, Caller, MOST_CALLBACK_BYTES, Source};
pub use farcall_rpc_proto::{Failure, FailureKind};
pub use files::{remove_left_over, temporary_folder};
pub use groups::Groups;
pub use handle::{Done, MOST_READS, Run, Withdrawal, Worker};
pub use launch::{
    FileStamp, Identities, Launcher, LibrarySource, Ready, SharedSlices, is_parallel,
};
pub use memory::{MemoryObject, free};
pub use namespaces::{Namespaces, Refused};
pub use nursery::Nursery;
pub use process::{Callee, run_worker, run_worker_for};
pub use sandbox::{Reach, Sandbox};
pub use slices::Gang;
pub use walls::Walls;
