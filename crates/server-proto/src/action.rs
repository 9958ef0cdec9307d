//! Actions: what the server wants its shell to do.
//!
//! The shell performs actions in order and reports results as events.

use crate::gpus::Gpus;
use crate::keys::{CallKey, ConnectionKey, MemoryKey, WorkerKey};
use crate::names::DataFile;
use crate::record::{Content, Entry, Record, Stored};
use crate::source::SourceRequest;
use farcall_record::Line;
use farcall_rpc_proto::{
    CallId, CallbackAnswer, Failure, HandleId, JobId, Pieces, TraceContext, User,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// A direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// What a client shows to say who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// A token that a client of an earlier version has sent.
    Token(String),
    /// The first message of a client that proves that it knows its token.
    First(String),
    /// The answer to a challenge.
    Proof(String),
    /// The name of an array that is lent, instead of credentials.
    Loan,
}

/// When an entry goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// At once: the server waits for [`Event::Changed`](crate::Event::Changed) and its like.
    Now,
    /// The server waits, and an entry with `Now` probably follows within microseconds: its call
    /// runs and is brief. Both can then have one write.
    Soon,
    /// With one of the next entries: the server does not wait.
    Later,
}

/// One action. The shell performs actions in the order in which they come.
#[derive(Debug)]
pub enum Action {
    /// Find out who the peer is. [`Event::Authenticated`](crate::Event::Authenticated) or
    /// [`Event::Challenged`](crate::Event::Challenged) follows before more input of the connection.
    Authenticate(ConnectionKey, Shown),
    /// Write pending output.
    Flush(ConnectionKey),
    /// Continue with input that was left unread.
    Resume(ConnectionKey),
    /// Move bytes of a connection in this direction: its turn has come to use reserved bandwidth.
    Serve(ConnectionKey, Direction),
    /// Bound the bytes that a client may send before the server reads them, or remove the bound.
    BoundAhead(ConnectionKey, Option<u32>),
    /// End the connection: try once to write its last output, then forget it.
    Close(ConnectionKey),
    /// Accept clients that have connected already, and nobody after them.
    StopListening,

    /// Make zeroed memory of this size. If the system refuses,
    /// [`Event::NoMemory`](crate::Event::NoMemory) follows.
    MakeMemory {
        /// Its key.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
    },
    /// Make memory and pass it to a client with the next bytes.
    /// [`Event::Shared`](crate::Event::Shared) follows at once.
    ShareMemory {
        /// Its key.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
        /// The client that gets it.
        connection: ConnectionKey,
        /// Its request.
        request: CallId,
    },
    /// Free memory, here and in the workers.
    FreeMemory(MemoryKey),
    /// Fill a part of memory with zeros.
    ClearMemory {
        /// The memory.
        memory: MemoryKey,
        /// Offset of the part.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// Convert a part of memory from the other byte order.
    SwapMemory {
        /// The memory.
        memory: MemoryKey,
        /// Offset of the part.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bytes of each number.
        unit: usize,
    },

    /// Start a worker with this many processes for a library.
    StartWorker {
        /// Its key.
        worker: WorkerKey,
        /// Index of the library.
        library: usize,
        /// Number of processes.
        processes: u32,
        /// The GPUs that it can see.
        gpus: Gpus,
    },
    /// Give a call to a worker, behind its other calls.
    /// [`Overview::request`](crate::Overview::request) describes the call.
    Run {
        /// The worker.
        worker: WorkerKey,
        /// The call.
        call: CallKey,
    },
    /// Take a call back if its worker has not begun with it.
    /// [`Event::Withdrawn`](crate::Event::Withdrawn) follows.
    Withdraw {
        /// The worker.
        worker: WorkerKey,
        /// The call.
        call: CallKey,
    },
    /// Give a worker the answer of its callback.
    Answer {
        /// The worker.
        worker: WorkerKey,
        /// The answer.
        answer: CallbackAnswer,
    },
    /// End a worker for this reason. [`Event::Died`](crate::Event::Died) follows.
    EndWorker {
        /// The worker.
        worker: WorkerKey,
        /// The reason.
        reason: Failure,
    },

    /// Write a stream to a file. [`Event::Written`](crate::Event::Written) follows.
    WriteFile {
        /// Number of the transfer.
        ticket: u64,
        /// Source and destination.
        transfer: Transfer,
        /// Bytes that must remain free on the disk after it. `None` may fill the disk.
        room: Option<u64>,
    },
    /// Read a stream from a file. [`Event::Fetched`](crate::Event::Fetched) follows.
    ReadFile {
        /// Number of the transfer.
        ticket: u64,
        /// Source and destination.
        transfer: Transfer,
        /// Expected length and checksum of the file.
        stored: Stored,
    },
    /// Remove a file.
    RemoveFile(JobId, Content),
    /// Append to the journal.
    Record {
        /// What is appended, after all earlier entries.
        entry: Entry,
        /// When.
        haste: Haste,
    },

    /// Read an array from another server. [`Event::Pulled`](crate::Event::Pulled) follows.
    Pull {
        /// Number of this read.
        number: u64,
        /// Address of the other server, as the client wrote it.
        address: String,
        /// The name under which the array is lent.
        loan: HandleId,
        /// Destination.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
    },
    /// Let a connector open a source. [`Event::SourceFound`](crate::Event::SourceFound) follows.
    OpenSource {
        /// Number of this read.
        number: u64,
        /// The wanted array.
        wanted: Box<SourceRequest>,
    },
    /// Read the array that was found at a source. [`Event::Pulled`](crate::Event::Pulled) follows.
    TakeSource {
        /// Number of the read.
        number: u64,
        /// Destination.
        memory: MemoryKey,
        /// Its length.
        bytes: u64,
    },
    /// Leave the array that was found at a source. Nothing follows.
    LeaveSource(u64),
    /// Let a connector write an array to an address.
    /// [`Event::SourceWritten`](crate::Event::SourceWritten) follows.
    WriteSource {
        /// The request.
        call: CallKey,
        /// The address, and the form of the array.
        wanted: Box<SourceRequest>,
        /// The array. Others may read it meanwhile, and nobody writes it.
        memory: MemoryKey,
    },
    /// Read a file of the data folder. [`Event::DataRead`](crate::Event::DataRead) follows.
    ReadData {
        /// The array of the file.
        id: HandleId,
        /// The file.
        file: Arc<DataFile>,
        /// Destination.
        memory: MemoryKey,
    },
    /// Check whether an interface file can be served. [`Event::Library`](crate::Event::Library)
    /// follows.
    CheckLibrary {
        /// Its path, as the operator gave it.
        path: String,
        /// Its text.
        text: String,
    },
    /// Keep the library that was checked last: it is bound, and its functions are served.
    KeepLibrary,
    /// Forget the library that was checked last: it cannot be bound.
    ForgetLibrary,
    /// Save what was learned about functions and links.
    KeepLearned,
    /// Write to the audit log.
    Audit(Box<Audit>),
    /// Add a line to the record of calls.
    Note(Line),
    /// A call of a trace has ended: make its spans.
    Trace(Box<TracedCall>),
}

/// A call of a trace that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedCall {
    /// The call with its moments, as the record of calls has it.
    pub call: farcall_record::Call,
    /// The trace, and the span of the computation.
    pub context: TraceContext,
    /// The span of the client that has caused the call.
    pub parent: [u8; 8],
}

/// A stream between memory and the disk.
#[derive(Debug)]
pub struct Transfer {
    /// The owner of the data.
    pub id: JobId,
    /// The kind of data.
    pub content: Content,
    /// The memory.
    pub memory: MemoryKey,
    /// The parts of the memory.
    pub pieces: Pieces,
    /// The call that a long array belongs to. It is written behind the array, so that the file
    /// tells what it is. `None` for short arrays and for stored arrays.
    pub about: Option<Box<Record>>,
}

/// An entry of the audit log.
#[derive(Debug)]
pub struct Audit {
    /// The user.
    pub user: User,
    /// Address of the user; `None` after the user has disconnected.
    pub peer: Option<String>,
    /// What the user asked for, usually a function.
    pub what: String,
    /// The outcome.
    pub outcome: String,
    /// For a call: bytes in each direction, and nanoseconds in the library.
    pub call: Option<([u64; 2], u64)>,
}

/// Actions in order.
#[derive(Debug, Default)]
pub struct Actions(VecDeque<Action>);

impl Actions {
    pub(crate) fn push(&mut self, action: Action) {
        self.0.push_back(action);
    }

    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.0.pop_front()
    }

    /// Takes back that a worker gets a call. Returns whether the shell had not given it yet.
    pub(crate) fn take_back(&mut self, call: CallKey) -> bool {
        let before = self.0.len();
        let runs = |action: &Action| matches!(action, Action::Run { call: of, .. } if *of == call);
        self.0.retain(|action| !runs(action));
        self.0.len() < before
    }
}

/// A call as a worker needs it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Index of the function in its library.
    pub function: usize,
    /// Memory of the call.
    pub buffer: Option<MemoryKey>,
    /// Shared memory segments with other arrays of the call. They come before `arrays`.
    pub segments: &'a [std::rc::Rc<Segment>],
    /// Stored arrays that the call uses.
    pub arrays: &'a [MemoryKey],
    /// Whether the arguments arrived in the other byte order.
    pub swap: bool,
    /// Processor elements of the call.
    pub pes: u32,
    /// Whether no other call may share its worker.
    pub alone: bool,
    /// The encoded call.
    pub message: &'a [u8],
}

/// Memory shared with a client. It is freed when nobody refers to it any more.
#[derive(Debug)]
pub struct Segment {
    /// Its key.
    pub memory: MemoryKey,
    /// Its length.
    pub bytes: u64,
}
