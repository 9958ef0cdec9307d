//! Messages about durable calls, which outlive their connection and the server.

use crate::call::Call;
use crate::failure::Failure;
use crate::ids::JobId;
use crate::message::MessageError;
use crate::{CallId, Kind, ProtocolError, message};
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode, decode, encode};
use strum::FromRepr;

/// Feature bit: calls may be submitted, and their results fetched later.
pub const JOBS: u64 = 1 << 8;

/// Where a durable call is, by its number on the wire and in journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, FromRepr)]
#[cbor(index_only)]
#[repr(u8)]
pub enum DurableState {
    /// All of it is there; it waits to run.
    #[n(1)]
    Queued = 1,
    /// The library computes.
    #[n(2)]
    Running,
    /// Its results can be fetched.
    #[n(3)]
    Done,
    /// It failed, and it is known why.
    #[n(4)]
    Failed,
    /// Its user gave it up.
    #[n(5)]
    Cancelled,
}

impl DurableState {
    /// Every state.
    pub const ALL: [DurableState; 5] = [
        DurableState::Queued,
        DurableState::Running,
        DurableState::Done,
        DurableState::Failed,
        DurableState::Cancelled,
    ];

    /// Whether nothing more happens to it.
    pub fn is_over(self) -> bool {
        matches!(
            self,
            DurableState::Done | DurableState::Failed | DurableState::Cancelled
        )
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            DurableState::Queued => "queued",
            DurableState::Running => "running",
            DurableState::Done => "done",
            DurableState::Failed => "failed",
            DurableState::Cancelled => "cancelled",
        }
    }
}

/// What is known of a durable call. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DurableRecord {
    /// Its name.
    #[n(0)]
    pub id: JobId,
    /// Its place in the order of submission, greater than that of every earlier one.
    #[n(1)]
    pub number: u64,
    /// Qualified name of the function.
    #[n(2)]
    pub function: String,
    /// Where it is.
    #[n(3)]
    pub state: DurableState,
    /// When it was accepted.
    #[n(4)]
    pub submitted: u64,
    /// When it began to run, last.
    #[n(5)]
    pub started: Option<u64>,
    /// When its outcome was known.
    #[n(6)]
    pub ended: Option<u64>,
    /// When it is forgotten; none before its end.
    #[n(7)]
    pub expires: Option<u64>,
    /// Bytes that it takes at the server.
    #[n(8)]
    pub bytes: u64,
    /// Why it failed.
    #[n(9)]
    pub failure: Option<Failure>,
}

/// A page of a user's durable calls, in the order of submission.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DurablePage {
    /// The calls of this page.
    #[n(0)]
    pub jobs: Vec<DurableRecord>,
    /// Ask for those after this number next, if there are more.
    #[n(1)]
    pub next: Option<u64>,
}

/// A durable call with what it takes to read its results: the interface, and the scalars on which
/// sizes depend.
#[derive(Clone, Debug, PartialEq)]
pub struct DurableDescription {
    /// What is known of it.
    pub record: DurableRecord,
    /// The interface in canonical IDL, and the call; both or none.
    pub call: Option<(String, Call)>,
}

/// Opens a call that is to outlive its connection.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitRequest {
    /// The call, without places.
    pub call: Call,
    /// For how many seconds its outcome is to be kept; none leaves that to the server.
    pub keep: Option<u64>,
}

/// A submission as it travels: the call is a message of its own.
#[derive(Encode, Decode)]
struct SubmitMessage {
    #[cbor(n(0), with = "minicbor::bytes")]
    call: Vec<u8>,
    #[n(1)]
    keep: Option<u64>,
}

#[derive(Encode, Decode)]
struct DescriptionMessage {
    #[n(0)]
    record: DurableRecord,
    #[n(1)]
    interface: Option<String>,
    #[cbor(n(2), with = "minicbor::bytes")]
    call: Option<Vec<u8>>,
}

/// Names one durable call.
#[derive(Encode, Decode)]
pub(crate) struct JobMessage {
    #[n(0)]
    pub(crate) id: JobId,
}

/// Asks to end a durable call.
#[derive(Encode, Decode)]
pub(crate) struct CancelJobMessage {
    #[n(0)]
    pub(crate) id: JobId,
    /// It is to be forgotten as well.
    #[n(1)]
    pub(crate) forget: bool,
}

/// Asks for a page of durable calls.
#[derive(Encode, Decode)]
pub(crate) struct ListJobsMessage {
    /// Those with a greater number.
    #[n(0)]
    pub(crate) after: u64,
}

impl SubmitRequest {
    /// Appends the message's CBOR.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut call = Vec::new();
        self.call.encode(&mut call);
        let message = SubmitMessage {
            call,
            keep: self.keep,
        };
        // Writing to a Vec cannot fail.
        let _ = encode(&message, out);
    }

    /// Reads the message, with every count bounded before memory is taken for it.
    pub fn decode(bytes: &[u8]) -> Result<SubmitRequest, MessageError> {
        let message: SubmitMessage = decode(bytes).map_err(MessageError::new)?;
        Ok(SubmitRequest {
            call: Call::decode(&message.call)?,
            keep: message.keep,
        })
    }
}

impl DurableDescription {
    pub(crate) fn append(&self, out: &mut Vec<u8>, request: CallId) {
        let (interface, call) = match &self.call {
            None => (None, None),
            Some((interface, call)) => {
                let mut bytes = Vec::new();
                call.encode(&mut bytes);
                (Some(interface.clone()), Some(bytes))
            }
        };
        let message = DescriptionMessage {
            record: self.record.clone(),
            interface,
            call,
        };
        message::append(out, Kind::Job, request, &message);
    }

    pub(crate) fn parse(payload: &[u8]) -> Result<DurableDescription, ProtocolError> {
        let DescriptionMessage {
            record,
            interface,
            call,
        } = message::parse(Kind::Job, payload)?;
        let call = match (interface, call) {
            (Some(interface), Some(call)) => {
                let call = message::parse_with(Kind::Job, Call::decode(&call))?;
                Some((interface, call))
            }
            _ => None,
        };
        Ok(DurableDescription { record, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn submission_round_trip() {
        let call = Call {
            function: 3,
            scalars: vec![None],
            elements: vec![4],
            data_bytes: 9,
            places: vec![],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
        };
        for keep in [None, Some(3600)] {
            let submission = SubmitRequest {
                call: call.clone(),
                keep,
            };
            let mut bytes = Vec::new();
            submission.encode(&mut bytes);
            assert_eq!(SubmitRequest::decode(&bytes), Ok(submission));
        }
        assert!(SubmitRequest::decode(&[0x82, 0x41, 0x00, 0x00]).is_err());
    }
}
