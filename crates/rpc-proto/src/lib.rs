//! The Farcall protocol: frames, control messages, and the two ends of a connection as state
//! machines without I/O. `docs/spec/protocol.md` is the specification; `testing/conformance` has
//! its golden bytes.
//!
//! # Driving a connection
//!
//! [`client::Connection`] and [`server::Connection`] are driven in the same way. After each change,
//! drain:
//!
//! 1. Pass bytes from the peer to `handle_input`. It returns how many it took, and what happened.
//! 2. While `incoming()` returns a [`Chunk`], the next bytes on the wire are array data. Put them
//!    straight into the part of the call's data stream that the chunk names, from a read buffer or
//!    by reading the socket into place. Report them to `handle_data`.
//! 3. Call `poll_transmit` until it returns [`Transmit::Idle`]. It appends frame bytes to a buffer
//!    of the caller. After [`Transmit::Data`], the named part of the data stream follows on the
//!    wire, straight from where it lies.
//!
//! So array bytes never pass through this crate, and neither end copies them. The *data stream* of
//! a call is the concatenation of its array sections in the order of the interface: IN and INOUT
//! towards the server, INOUT and OUT back.
//!
//! Time comes from the caller, as nanoseconds of any monotonic clock. Every queue and table has its
//! bound in [`Limits`].
#![no_std]

extern crate alloc;

mod call;
mod call_status;
mod callback;
pub mod client;
mod failure;
mod file;
mod frame;
mod functions;
mod handles;
mod hello;
mod ids;
mod jobs;
mod kind;
mod memory;
mod message;
mod names;
mod objects;
mod operation;
mod receiver;
mod reservations;
mod scalars;
mod sender;
pub mod server;
mod stream;
pub mod trace;
mod user;

pub use call::{Call, DEADLINES, Made, OUTPUT, Times};
pub use call_status::{CALL_STATUS, CallName, CallPhase, CallStatus, Expected};
pub use callback::{CALLBACK_BYTES, CALLBACKS, Callback, CallbackAnswer};
pub use failure::{Failure, FailureKind, Fault};
pub use file::{FILE_PIECE_BYTES, FILES, FileRequest};
pub use frame::{FrameError, HEADER_BYTES, Header};
pub use functions::{ESTIMATES, Estimate, FunctionInterface, FunctionSummary, Listing, REGISTER};
pub use handles::{
    ArrayForm, ArrayPart, FormError, HANDLES, HandlePage, HandleRecord, LOANS, PARTS, Pull, Put,
    ROWS, Receipt, Rows, SOURCES, SourceOptions, WRITES, Write,
};
pub use hello::{DIRECTORY, Hello, VERSION_MAX, VERSION_MIN};
pub use ids::{HandleId, JobId, NoId};
pub use jobs::{
    DurableDescription, DurablePage, DurableRecord, DurableState, JOBS, OUTCOMES, SubmitRequest,
};
pub use kind::Kind;
pub use memory::SHARED_MEMORY;
pub use message::MessageError;
pub use names::{
    DataName, DataVersion, MOST_NAME, NAMES, Name, NamePage, NameRecord, NoName, check_name,
};
pub use objects::{KEPT_OBJECTS, OBJECTS, ObjectPage, ObjectRecord, ObjectRequest};
pub use operation::{AskSnapshot, OPERATION, SNAPSHOTS};
pub use receiver::Chunk;
pub use reservations::{
    RESERVATIONS, ReservationPage, ReservationRecord, ReservationRequest, Reserve,
};
pub use sender::{CREDIT, Transmit};
pub use stream::{Direction, Landing, Piece, Pieces, Side, swap_bytes};
pub use trace::{NoTraceContext, TRACES, TraceContext};
pub use user::User;

use alloc::string::String;

/// A monotonic time in nanoseconds, read by the caller.
pub type Nanos = u64;

/// Number of a request on its connection. The client chooses it and never uses it twice.
pub type CallId = u64;

/// Limits of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest control message in bytes, in both directions. A server with this many bytes waiting
    /// to be sent takes no more requests.
    pub control_bytes: u32,
    /// Array data in one frame, in bytes. A small call overtakes a large one after at most one
    /// frame.
    pub chunk_bytes: u32,
    /// Longest data stream that does not wait for a grant, in bytes; the same at both ends.
    pub grant_bytes: u32,
    /// Calls that may be open at once.
    pub calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            control_bytes: 1 << 20,
            chunk_bytes: 256 << 10,
            grant_bytes: 256 << 10,
            calls: 1024,
        }
    }
}

/// Why a connection cannot continue. The caller must close it; every open call has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are not a Farcall greeting.
    #[error("the peer does not speak the Farcall protocol")]
    NotFarcall,
    /// A frame header breaks the rules.
    #[error("malformed frame: {0}")]
    Frame(#[from] FrameError),
    /// A control message cannot be decoded.
    #[error("malformed {kind:?} message: {source}")]
    Message {
        /// The frame that carried it.
        kind: Kind,
        /// What is wrong with it.
        source: MessageError,
    },
    /// A known frame that is not allowed at this point.
    #[error("unexpected {0:?} frame")]
    OutOfPlace(Kind),
    /// Array data for a call that is not open, or more than was announced.
    #[error("array data for a call that expects none")]
    StrayData,
    /// The announced result has another length than the interface gives.
    #[error("the result has {announced} bytes, but the interface requires {expected}")]
    ResultLength {
        /// Bytes that the interface gives.
        expected: u64,
        /// Bytes that the server announced.
        announced: u64,
    },
    /// More calls were opened at once than the connection allows.
    #[error("more than {0} calls open on one connection")]
    TooManyCalls(usize),
    /// No protocol version in common.
    #[error(
        "no protocol version in common: one side speaks {theirs_min} to {theirs_max}, the other \
         {VERSION_MIN} to {VERSION_MAX}; update the older one"
    )]
    Version {
        /// Oldest version of the peer.
        theirs_min: u32,
        /// Newest version of the peer.
        theirs_max: u32,
    },
    /// The peer closed the connection and said why.
    #[error("the peer closed the connection: {0}")]
    Goodbye(String),
}
