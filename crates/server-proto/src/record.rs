//! Records of durable calls, as the journal has them. A [`Record`] has the state of a call and says
//! how long its arguments and results are. `lifecycle` decides which change of state is allowed,
//! `ledger` writes records as bytes, and the shell stores the data. A record of a call that ran
//! when the server ended is changed at the restart, so that it never claims to run.

use crate::flaw::{Flaw, has};
use crate::lifecycle::{Change, next};
use crate::map::Set;
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId, Made};
use minicbor::{Decode, Encode};
use std::sync::Arc;

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

/// Most bytes of arguments or results that are in the logs. Longer ones have a file.
pub const MOST_SHORT: u64 = 64 << 10;

/// A stream of array data on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Stored {
    /// Length in bytes.
    #[n(0)]
    pub bytes: u64,
    /// CRC-32 of the bytes.
    #[n(1)]
    pub sum: u32,
}

impl Stored {
    /// Describes these bytes.
    pub fn of(bytes: &[u8]) -> Stored {
        Stored {
            bytes: bytes.len() as u64,
            sum: crc32fast::hash(bytes),
        }
    }
}

/// An error of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// Whether the disk is full.
    pub is_full: bool,
    /// Whether the bytes are gone or are not what was written. Other errors may pass.
    pub is_damage: bool,
    /// The system's error.
    pub text: String,
}

/// A durable call in the journal. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Record {
    /// Place in the order of submission; given by the journal.
    #[n(0)]
    pub number: u64,
    /// Its job id.
    #[n(1)]
    pub id: JobId,
    /// Its user.
    #[n(2)]
    #[cbor(with = "text")]
    pub user: Arc<str>,
    /// Qualified name of the function.
    #[n(3)]
    #[cbor(with = "text")]
    pub function: Arc<str>,
    /// The interface of the function when it was called.
    #[n(4)]
    #[cbor(with = "text")]
    pub interface: Arc<str>,
    /// The message of the call.
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    pub call: Vec<u8>,
    /// Whether it may run twice.
    #[n(6)]
    pub repeatable: bool,
    /// Byte order of the arguments.
    #[n(7)]
    pub big_endian: bool,
    /// Its state.
    #[n(8)]
    pub state: DurableState,
    /// When it was submitted.
    #[n(9)]
    pub submitted: u64,
    /// When it was started last.
    #[n(10)]
    pub started: Option<u64>,
    /// When it ended.
    #[n(11)]
    pub ended: Option<u64>,
    /// How long servers had served with this folder when it ended, in milliseconds. Retention
    /// counts from here, so that neither a clock that jumps nor a server that is away ends it.
    #[n(12)]
    pub kept_from: Option<u64>,
    /// Seconds for which the outcome is kept.
    #[n(13)]
    pub keep: u64,
    /// Its arguments.
    #[n(14)]
    pub arguments: Stored,
    /// Its results. Until they exist, the length that they will have.
    #[n(15)]
    pub result: Stored,
    /// Nanoseconds in the library.
    #[n(16)]
    pub exec: Option<u64>,
    /// Why it failed.
    #[n(17)]
    pub failure: Option<Failure>,
    /// What has computed it.
    #[n(18)]
    pub made: Option<Made>,
}

/// A shared text as CBOR.
mod text {
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::{Error, Write};
    use minicbor::{Decoder, Encoder};
    use std::sync::Arc;

    pub(super) fn encode<C, W: Write>(
        text: &Arc<str>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), Error<W::Error>> {
        e.str(text)?.ok()
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<str>, DecodeError> {
        Ok(d.str()?.into())
    }
}

/// Texts that many records have in common. Each is in memory once.
#[derive(Debug, Default)]
pub(crate) struct Texts(Set<Arc<str>>);

impl Texts {
    /// With fewer texts, those that no record has any more are not looked for.
    const FEW: usize = 1000;

    /// Lets a record use the texts that others have, and gives back memory that it does not need.
    pub(crate) fn share(&mut self, record: &mut Record) {
        record.call.shrink_to_fit();
        for text in [
            &mut record.user,
            &mut record.function,
            &mut record.interface,
        ] {
            match self.0.get(text) {
                Some(known) => *text = known.clone(),
                None => {
                    self.0.insert(text.clone());
                }
            }
        }
        if self.0.len() >= Texts::FEW && self.0.len() == self.0.capacity() {
            self.0.retain(|text| Arc::strong_count(text) > 1);
        }
    }
}

impl Record {
    /// How long servers will have served with this folder when it is forgotten, in milliseconds.
    pub fn expires(&self) -> Option<u64> {
        let millis = if has(Flaw::ForgetsEarly) { 100 } else { 1000 };
        let keep = self.keep.saturating_mul(millis);
        Some(self.kept_from?.saturating_add(keep))
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

    /// Its arguments or its results.
    pub fn stored(&self, content: Content) -> Stored {
        match content {
            Content::Arguments => self.arguments,
            Content::Result => self.result,
            Content::Array => Stored::default(),
        }
    }

    /// Applies a change that the journal has recorded.
    pub fn apply(&mut self, changed: &Changed) {
        if !changed.applied {
            return;
        }
        let outcome = changed.outcome.clone();
        self.state = changed.state;
        self.result = outcome.result.unwrap_or(self.result);
        self.exec = outcome.exec;
        self.failure = outcome.failure;
        self.made = outcome.made;
        match changed.state.is_over() {
            true => (self.ended, self.kept_from) = (Some(changed.at), Some(changed.served)),
            false if changed.change == Change::Start => self.started = Some(changed.at),
            false => {}
        }
    }

    /// Whether a file of the call is needed after a restart.
    pub fn needs(&self, content: Content) -> bool {
        match content {
            Content::Arguments => !self.state.is_over(),
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

impl Entry {
    /// What is recorded of a call when the server starts again; `None` if its state stays.
    pub fn restart(record: &Record) -> Option<Entry> {
        let (change, outcome) = record.restart()?;
        Some(Entry::Change {
            id: record.id,
            change,
            outcome,
        })
    }
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
    /// What has computed it.
    pub made: Option<Made>,
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
    /// How long servers had served with this folder then, in milliseconds.
    pub served: u64,
    /// Whether the change had an effect.
    pub applied: bool,
    /// The data of the change.
    pub outcome: Outcome,
}
