//! Records of durable calls, as the journal has them, and where their data are.

use crate::lifecycle::{Change, next};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};

/// A kind of data on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// The arguments of a durable call.
    Arguments,
    /// The results of a durable call.
    Result,
    /// A stored array, on the disk because memory is short.
    Array,
}

/// A stream of array data on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32 of the bytes.
    pub sum: u32,
}

/// An error of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// Whether the disk is full.
    pub is_full: bool,
    /// The system's error.
    pub text: String,
}

/// A durable call in the journal. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Place in the order of submission; given by the journal.
    pub number: u64,
    /// Its id.
    pub id: JobId,
    /// Whose it is.
    pub user: String,
    /// Qualified name.
    pub function: String,
    /// Its job id.
    pub interface: String,
    /// Its user.
    pub call: Vec<u8>,
    /// Qualified name of the function.
    pub repeatable: bool,
    /// Byte order of the arguments.
    pub big_endian: bool,
    /// The interface of the function when it was called.
    pub state: DurableState,
    /// When it was submitted.
    pub submitted: u64,
    /// When it was started last.
    pub started: Option<u64>,
    /// When it ended.
    pub ended: Option<u64>,
    /// Seconds for which the outcome is kept.
    pub keep: u64,
    /// Its state.
    pub arguments: Stored,
    /// Its results. Until they exist, the length that they will have.
    pub result: Stored,
    /// Nanoseconds in the library.
    pub exec: Option<u64>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl Record {
    /// When it is forgotten.
    pub fn expires(&self) -> Option<u64> {
        Some(self.ended?.saturating_add(self.keep.saturating_mul(1000)))
    }

    /// Bytes that the call occupies or will occupy: its data and its record.
    pub fn bytes(&self) -> u64 {
        let data = match self.state {
            DurableState::Queued | DurableState::Running => {
                self.arguments.bytes.saturating_add(self.result.bytes)
            }
            DurableState::Done => self.result.bytes,
            DurableState::Failed | DurableState::Cancelled => 0,
        };
        data.saturating_add((self.call.len() + self.interface.len()) as u64)
    }

    /// The change of the call when the server starts again; `None` if its state stays.
    pub fn restart(&self) -> Option<(Change, Outcome)> {
        let change = match self.repeatable {
            true => Change::RestartRepeatable,
            false => Change::RestartOnce,
        };
        let to = next(self.state, change).filter(|to| *to != self.state)?;
        if to != DurableState::Failed {
            return Some((change, Outcome::default()));
        }
        let text = format!(
            "outcome unknown: the server ended while {} was running, and the function is not \
             declared Repeatable; submit the call again if running it twice does no harm",
            self.function
        );
        let outcome = Outcome {
            failure: Some(Failure::new(FailureKind::OutcomeUnknown, text)),
            ..Outcome::default()
        };
        Some((change, outcome))
    }

    /// Whether a file of the call is needed after a restart.
    pub fn needs(&self, content: Content) -> bool {
        match content {
            Content::Arguments => self.state == DurableState::Queued,
            Content::Result => self.state == DurableState::Done,
            // Stored arrays do not outlive the server.
            Content::Array => false,
        }
    }
}

/// An entry for the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A new durable call. [`Event::Inserted`](crate::Event::Inserted) follows.
    Insert(Box<Record>),
    /// A change of a call. [`Event::Changed`](crate::Event::Changed) follows.
    Change {
        /// Its id.
        id: JobId,
        /// The change.
        change: Change,
        /// The data of the change.
        outcome: Outcome,
    },
    /// The end of a record. [`Event::Forgotten`](crate::Event::Forgotten) follows.
    Forget(JobId),
}

/// The outcome of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its results.
    pub result: Option<Stored>,
    /// Nanoseconds in the library.
    pub exec: Option<u64>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A change as the journal recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The intended change.
    pub change: Change,
    /// The state after it.
    pub state: DurableState,
    /// Time of the change, in milliseconds since 1970.
    pub at: u64,
    /// Whether the change had an effect.
    pub applied: bool,
    /// The data of the change.
    pub outcome: Outcome,
}
