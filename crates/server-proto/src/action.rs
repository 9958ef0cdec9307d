//! What the shell is to do.

use crate::keys::{CallKey, ConnectionKey, MemoryKey, WorkerKey};
use crate::names::DataFile;
use crate::record::{Content, Entry, Stored};
use farcall_rpc_proto::{CallbackAnswer, Failure, HandleId, JobId, Pieces, User};
use std::collections::VecDeque;
use std::sync::Arc;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// One thing to do. The shell does them in the order in which they come.
#[derive(Debug)]
pub enum Action {
    /// Find out who this is: [`Event::Authenticated`](crate::Event::Authenticated) follows before
    /// more input of the connection.
    Authenticate {
        /// The connection.
        connection: ConnectionKey,
        /// The token that its client gave.
        token: Option<String>,
    },
    /// Write what there is to write.
    Flush(ConnectionKey),
    /// Go on with input that was left where it is.
    Resume(ConnectionKey),
    /// It is a connection's turn to move bytes this way at a reserved rate.
    Serve(ConnectionKey, Direction),
    /// Bound what a client may send before it is read, or do so no longer.
    BoundAhead(ConnectionKey, Option<u32>),
    /// End the connection: try once to write its last words, then forget it.
    Close(ConnectionKey),
    /// Accept who has connected already, and nobody from then on.
    StopListening,

    /// Make memory of so many bytes, all zero. Where the system refuses,
    /// [`Event::NoMemory`](crate::Event::NoMemory) follows.
    MakeMemory {
        /// Its key.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
    },
    /// Make memory, and hand it over to a client with the next bytes. Where the system refuses,
    /// [`Event::NotShared`](crate::Event::NotShared) follows.
    ShareMemory {
        /// Its key.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
        /// Who gets it.
        connection: ConnectionKey,
    },
    /// The memory is not needed any more, here and in the workers.
    FreeMemory(MemoryKey),
    /// Zero a part of memory.
    ClearMemory {
        /// Which.
        memory: MemoryKey,
        /// Where the part begins.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Bring a part of memory from the other byte order to this machine's.
    SwapMemory {
        /// Which.
        memory: MemoryKey,
        /// Where the part begins.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bytes of each number.
        unit: usize,
    },

    /// Start a worker of so many processes for a library.
    StartWorker {
        /// Its key.
        worker: WorkerKey,
        /// Index of the library.
        library: usize,
        /// How many.
        processes: u32,
    },
    /// Hand a worker a call, behind others that it has:
    /// [`Overview::request`](crate::Overview::request) tells which.
    Run {
        /// The worker.
        worker: WorkerKey,
        /// The call.
        call: CallKey,
    },
    /// Take a call back, if the worker has not begun with it:
    /// [`Event::Withdrawn`](crate::Event::Withdrawn) follows.
    Withdraw {
        /// The worker.
        worker: WorkerKey,
        /// The call.
        call: CallKey,
    },
    /// Hand a worker the answer of its callback.
    Answer {
        /// The worker.
        worker: WorkerKey,
        /// The answer.
        answer: CallbackAnswer,
    },
    /// End a worker, for this reason: [`Event::Died`](crate::Event::Died) follows.
    EndWorker {
        /// The worker.
        worker: WorkerKey,
        /// Why.
        reason: Failure,
    },

    /// Write a stream to a file: [`Event::Written`](crate::Event::Written) follows.
    WriteFile {
        /// Number of the transfer.
        ticket: u64,
        /// From where to where.
        transfer: Transfer,
        /// Bytes that the disk is to have left for others; none takes what there is.
        room: Option<u64>,
    },
    /// Read a stream from a file: [`Event::Fetched`](crate::Event::Fetched) follows.
    ReadFile {
        /// Number of the transfer.
        ticket: u64,
        /// From where to where.
        transfer: Transfer,
        /// What the file must be.
        stored: Stored,
    },
    /// Remove a file.
    RemoveFile(JobId, Content),
    /// Append to the journal.
    Record(Entry),

    /// Read an array from another server: [`Event::Pulled`](crate::Event::Pulled) follows.
    Pull {
        /// Number of the reading.
        number: u64,
        /// The other server, as the client wrote it.
        address: String,
        /// The name under which the array is lent.
        loan: HandleId,
        /// Where it goes.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
    },
    /// Read a file of the data folder: [`Event::DataRead`](crate::Event::DataRead) follows.
    ReadData {
        /// The array that it is.
        id: HandleId,
        /// The file.
        file: Arc<DataFile>,
        /// Where it goes.
        memory: MemoryKey,
    },
    /// Look whether an interface file can be served:
    /// [`Event::Library`](crate::Event::Library) follows.
    CheckLibrary {
        /// Its path, as the operator has given it.
        path: String,
        /// Its text.
        text: String,
    },
    /// The library that was checked last is bound: its functions are served.
    KeepLibrary,
    /// The library that was checked last cannot be bound: forget it.
    ForgetLibrary,
    /// Keep what was learned of functions and links.
    KeepLearned,
    /// Write to the audit.
    Audit(Box<Audit>),
}

/// A stream between memory and the disk.
#[derive(Debug)]
pub struct Transfer {
    /// Whose data.
    pub id: JobId,
    /// Which.
    pub content: Content,
    /// Where they are, or go.
    pub memory: MemoryKey,
    /// Which parts of it.
    pub pieces: Pieces,
}

/// What the audit is told.
#[derive(Debug)]
pub struct Audit {
    /// Who.
    pub user: User,
    /// Where the user is; none who has gone.
    pub peer: Option<String>,
    /// What it was: mostly a function.
    pub what: String,
    /// What it came to.
    pub outcome: String,
    /// Bytes each way, and nanoseconds in the library, where it was a call.
    pub call: Option<([u64; 2], u64)>,
}

/// Actions in their order.
#[derive(Debug, Default)]
pub struct Actions(VecDeque<Action>);

impl Actions {
    pub(crate) fn push(&mut self, action: Action) {
        self.0.push_back(action);
    }

    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.0.pop_front()
    }
}

/// What a worker is to compute.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Index of the function in its library.
    pub function: usize,
    /// Memory of the call.
    pub buffer: Option<MemoryKey>,
    /// Where its other arrays lie: segments, then arrays that stay.
    pub segments: &'a [std::rc::Rc<Segment>],
    /// Arrays that stay.
    pub arrays: &'a [MemoryKey],
    /// The arguments came in the other byte order.
    pub swap: bool,
    /// Processor elements it has.
    pub pes: u32,
    /// Whether no others may be posted before or behind it.
    pub alone: bool,
    /// The encoded call.
    pub message: &'a [u8],
}

/// Memory shared with a client. It ends with the last who knows it.
#[derive(Debug)]
pub struct Segment {
    /// Its key.
    pub memory: MemoryKey,
    /// Its length.
    pub bytes: u64,
}
