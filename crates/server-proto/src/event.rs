//! What has happened.

use crate::keys::{CallKey, ConnectionKey, MemoryKey, WorkerKey};
use crate::names::DataFile;
use crate::record::{Changed, DiskError, Record, Stored};
use farcall_idl::Document;
use farcall_rpc_proto::{Callback, Failure, FailureKind, HandleId, JobId, Nanos, User};

/// When it is. Both are the shell's to say; the first never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the server started.
    pub nanos: Nanos,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// A client that has connected.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// For the log.
    pub peer: String,
    /// Who it is as long as it says nothing.
    pub user: User,
    /// The host it comes from; none on a Unix socket.
    pub host: Option<core::net::IpAddr>,
    /// Whether it is on this host.
    pub is_local: bool,
    /// Whether it has come by a Unix socket, so that memory can be shared with it.
    pub is_unix: bool,
    /// The Unix socket that it is told of.
    pub local: Option<String>,
    /// The addresses that it is told of.
    pub ways: Option<Vec<String>>,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user.
    pub user: User,
    /// Whether the user may end the server and register libraries.
    pub is_operator: bool,
}

/// How a call ended, if its worker lived to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Nanoseconds in the library.
    pub exec_nanos: u64,
    /// Why there are no results.
    pub failure: Option<Failure>,
}

/// What became of a call that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The worker will never see it.
    Done,
    /// It is finished.
    Finished,
    /// The worker runs it.
    Runs,
}

/// How a worker ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// What kind of failure it is for the call that was running.
    pub kind: FailureKind,
    /// The cause, in words that follow the function's name.
    pub cause: String,
    /// Whether it had begun with the call whose turn it was.
    pub had_begun: bool,
}

/// What a worker says when it has bound its library.
#[derive(Clone, Debug, Default)]
pub struct Ready {
    /// By function, the library behind it.
    pub libraries: Vec<Option<String>>,
    /// Protections that this machine cannot give.
    pub unprotected: Vec<String>,
}

/// What a worker says while it runs.
#[derive(Clone, Debug)]
pub enum WorkerReport {
    /// It calls its caller back.
    Callback(Callback),
    /// It has done something that it must not.
    Problem(String),
}

/// One thing that has happened.
#[derive(Debug)]
pub enum Event {
    /// It is known who a client is, or why it is refused.
    Authenticated(ConnectionKey, Result<Identity, String>),
    /// A connection has ended: with an error, or because the client has closed it.
    Lost(ConnectionKey, Option<String>),
    /// The system has refused memory for a call or an array.
    NoMemory(MemoryKey, String),
    /// The system has refused memory that a client wanted to share, or it cannot be handed over.
    NotShared(ConnectionKey, String),

    /// A worker has bound its library.
    Ready(WorkerKey, Ready),
    /// A worker has finished a call.
    Finished(WorkerKey, CallKey, Finished),
    /// A worker has passed over a call that was taken back.
    Passed(WorkerKey),
    /// A call was to be taken back.
    Withdrawn(WorkerKey, CallKey, Withdrawal),
    /// A call could not be handed to a worker.
    NotRun(WorkerKey, CallKey, String),
    /// A running worker says something.
    WorkerReport(WorkerKey, WorkerReport),
    /// A worker has printed something.
    Printed(WorkerKey, Vec<u8>),
    /// A worker has ended.
    Died(WorkerKey, Death),

    /// The folder of durable calls is this server's, with what is recorded there.
    DurableOpened(Vec<Record>),
    /// The folder is another server's, whose place this one takes.
    DurableAwaited,
    /// A file was written, or could not be.
    Written(u64, Result<Stored, DiskError>),
    /// A file was read, or could not be.
    Fetched(u64, Result<(), DiskError>),
    /// A call was recorded, with its number, or could not be.
    Inserted(JobId, Result<u64, Failure>),
    /// A change was recorded; none where nothing is known of the call.
    Changed(JobId, Option<Changed>),
    /// A call was forgotten.
    Forgotten(JobId),

    /// An array has come from another server, or could not.
    Pulled(u64, Result<(), Failure>),
    /// A file of the data folder was read, or could not be.
    DataRead(HandleId, Result<(), String>),
    /// What the data folder has now.
    Folder(Vec<DataFile>),
    /// The interface file that was to be checked: its path and what it says, or why it cannot be
    /// served.
    Library(Result<(String, Document), Failure>),
    /// The server is to end when its calls have.
    Drain,
    /// The server is to end now.
    Stop,
}
