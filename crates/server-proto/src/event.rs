//! Events: what the shell tells the server. `action` has the answers. An event states a fact and
//! has no effect until [`Server::handle`](crate::Server::handle) takes it.

use crate::keys::{CallKey, ConnectionKey, MemoryKey, WorkerKey};
use crate::names::DataFile;
use crate::record::{Changed, DiskError, Record, Stored};
use crate::source::SourceFound;
use farcall_idl::Document;
use farcall_rpc_proto::{
    CallId, Callback, Failure, FailureKind, HandleId, JobId, Nanos, Receipt, User,
};

/// The current time. The shell sets both values; `nanos` never goes back.
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
    /// Its name in the log.
    pub peer: String,
    /// The user that it counts as until it authenticates.
    pub user: User,
    /// Its host; `None` on a Unix socket.
    pub host: Option<core::net::IpAddr>,
    /// Whether it is on this host.
    pub is_local: bool,
    /// Whether it uses a Unix socket, so that memory can be shared with it.
    pub is_unix: bool,
    /// The Unix socket that the greeting offers to it.
    pub local: Option<String>,
    /// The addresses that the greeting offers to it.
    pub ways: Option<Vec<String>>,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user.
    pub user: User,
    /// Whether the user may drain the server and register libraries.
    pub is_operator: bool,
    /// The proof for the client that this server knows its token too.
    pub signature: Option<String>,
}

/// Why a client is refused.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The text for the client.
    pub text: String,
    /// The text for the log and the audit log; `None` if they have enough lines about its host.
    pub logged: Option<String>,
}

impl From<String> for Refused {
    fn from(text: String) -> Refused {
        Refused {
            logged: Some(text.clone()),
            text,
        }
    }
}

/// How a call ended, if its worker survived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Nanoseconds in the library.
    pub exec_nanos: u64,
    /// Why there are no results.
    pub failure: Option<Failure>,
}

/// The result of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The worker will never see the call.
    Done,
    /// The call is finished.
    Finished,
    /// The worker runs the call.
    Runs,
}

/// How a worker ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// The kind of failure of the running call.
    pub kind: FailureKind,
    /// The cause, as a text that follows the function's name.
    pub cause: String,
    /// Whether the worker had begun with its current call.
    pub had_begun: bool,
    /// Whether something else than the function and the server has ended it. The same call may then
    /// succeed in another worker.
    pub is_foreign: bool,
    /// Whether it never had a process, because the system refused one. That may pass.
    pub is_unborn: bool,
}

/// A worker's report after it has bound its library.
#[derive(Clone, Debug, Default)]
pub struct Ready {
    /// The library behind each function.
    pub libraries: Vec<Option<String>>,
    /// Protections that this machine does not offer.
    pub unprotected: Vec<String>,
}

/// A report of a running worker.
#[derive(Clone, Debug)]
pub enum WorkerReport {
    /// The function calls its caller back.
    Callback(Callback),
    /// The worker has done something forbidden.
    Problem(String),
}

/// One event.
#[derive(Debug)]
pub enum Event {
    /// Who a client is, or why it is refused.
    Authenticated(ConnectionKey, Result<Identity, Refused>),
    /// The client must prove who it is. The text is for the client.
    Challenged(ConnectionKey, String),
    /// A connection has ended: with an error, or because the client closed it.
    Lost(ConnectionKey, Option<String>),
    /// The system has refused memory for a call or an array.
    NoMemory(MemoryKey, String),
    /// Memory of so many bytes goes to the client that wanted to share it, with the next bytes; or
    /// why there is none.
    Shared(ConnectionKey, CallId, Result<u64, String>),

    /// A worker has bound its library.
    Ready(WorkerKey, Ready),
    /// A worker has finished a call.
    Finished(WorkerKey, CallKey, Finished),
    /// A worker has skipped a call that was taken back.
    Passed(WorkerKey),
    /// The result of a withdrawal.
    Withdrawn(WorkerKey, CallKey, Withdrawal),
    /// A worker could not be given a call, and why.
    NotRun(WorkerKey, String),
    /// A running worker reports something.
    WorkerReport(WorkerKey, WorkerReport),
    /// A worker has printed something.
    Printed(WorkerKey, Vec<u8>),
    /// A worker has closed its connection and gets no more calls. [`Event::Died`] follows.
    Leaves(WorkerKey),
    /// A worker has ended.
    Died(WorkerKey, Death),

    /// The server has taken the state folder over, with these records. Servers had served with it
    /// for so many milliseconds before.
    DurableOpened(Vec<Record>, u64),
    /// Another server still has the state folder. This server waits to take it over.
    DurableAwaited,
    /// A write has ended.
    Written(u64, Result<Stored, DiskError>),
    /// A read has ended.
    Fetched(u64, Result<(), DiskError>),
    /// The journal has recorded a durable call under this number, or could not.
    Inserted(JobId, Result<u64, Failure>),
    /// The journal has recorded a change; `None` if it does not know the call.
    Changed(JobId, Option<Changed>),
    /// The journal has forgotten a call.
    Forgotten(JobId),

    /// The read of an array from another server or from a source has ended.
    Pulled(u64, Result<(), Failure>),
    /// What is at the address of a source, or why it cannot be read.
    SourceFound(u64, Result<SourceFound, Failure>),
    /// The writing of an array to an address has ended.
    SourceWritten(CallKey, Result<Receipt, Failure>),
    /// The read of a data file has ended.
    DataRead(HandleId, Result<(), String>),
    /// The current contents of the data folder.
    Folder(Vec<DataFile>),
    /// The files of a library have changed, and its interface has not. New calls must run in
    /// workers that load the files again.
    Replaced(usize),
    /// A checked interface file: its path and contents, or why it cannot be served.
    Library(Result<(String, Document), Failure>),
    /// The server must end after its calls.
    Drain,
    /// The server must end now.
    Stop,
}
