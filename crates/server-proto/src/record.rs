//! What is recorded of a durable call, and where its data are.

use crate::lifecycle::{Change, next};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};

/// Which data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// Of a durable call.
    Arguments,
    /// Of a durable call.
    Result,
    /// An array that stays, for want of memory.
    Array,
}

/// A stream of array data on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of the bytes.
    pub sum: u32,
}

/// Why the disk did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// Whether it has no room.
    pub is_full: bool,
    /// What the system said.
    pub text: String,
}

/// A durable call as it is recorded. Times are milliseconds since 1970.
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
    /// Canonical IDL of the function as it was called.
    pub interface: String,
    /// The encoded call.
    pub call: Vec<u8>,
    /// Whether the function may be run again.
    pub repeatable: bool,
    /// Byte order of the arguments.
    pub big_endian: bool,
    /// Where it stands.
    pub state: DurableState,
    /// When it was submitted.
    pub submitted: u64,
    /// When it was started last.
    pub started: Option<u64>,
    /// When it ended.
    pub ended: Option<u64>,
    /// Seconds for which the outcome is kept.
    pub keep: u64,
    /// Its arguments.
    pub arguments: Stored,
    /// Before the end, the length that the result will have.
    pub result: Stored,
    /// Nanoseconds in the library.
    pub exec: Option<u64>,
    /// Why it came to nothing.
    pub failure: Option<Failure>,
}

impl Record {
    /// When it is forgotten.
    pub fn expires(&self) -> Option<u64> {
        Some(self.ended?.saturating_add(self.keep.saturating_mul(1000)))
    }

    /// Bytes that it takes, or will have taken: its data, and what is recorded of the call.
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

    /// What becomes of it when the server starts again; none where it stays as it is.
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
            "outcome unknown: the server ended while {} was running, and it is not declared \
             Repeatable; submit it again if that does no harm",
            self.function
        );
        let outcome = Outcome {
            failure: Some(Failure::new(FailureKind::OutcomeUnknown, text)),
            ..Outcome::default()
        };
        Some((change, outcome))
    }

    /// Whether a file of it is needed after a restart.
    pub fn needs(&self, content: Content) -> bool {
        match content {
            Content::Arguments => self.state == DurableState::Queued,
            Content::Result => self.state == DurableState::Done,
            // Arrays do not outlive the server.
            Content::Array => false,
        }
    }
}

/// A change to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A call is submitted: [`Event::Inserted`](crate::Event::Inserted) follows.
    Insert(Box<Record>),
    /// Something happens to one: [`Event::Changed`](crate::Event::Changed) follows.
    Change {
        /// Its id.
        id: JobId,
        /// What happens.
        change: Change,
        /// With what.
        outcome: Outcome,
    },
    /// It is forgotten: [`Event::Forgotten`](crate::Event::Forgotten) follows.
    Forget(JobId),
}

/// What is known at the end of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its results.
    pub result: Option<Stored>,
    /// Nanoseconds in the library.
    pub exec: Option<u64>,
    /// Why it came to nothing.
    pub failure: Option<Failure>,
}

/// A change as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// What was to happen.
    pub change: Change,
    /// The state after it.
    pub state: DurableState,
    /// When that was, in milliseconds since 1970.
    pub at: u64,
    /// Whether the change applied.
    pub applied: bool,
    /// What was recorded with it.
    pub outcome: Outcome,
}
