//! Messages about durable calls: submit, record, page, description. A decoder accepts only what its
//! encoder writes.

use crate::call::Call;
use crate::failure::Failure;
use crate::ids::JobId;
use crate::message::MessageError;
use crate::{CallId, Kind, ProtocolError, message};
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode, decode, encode};
use strum::FromRepr;

/// Feature bit: the server takes durable calls.
pub const JOBS: u64 = 1 << 8;

/// Feature bit: a submission can ask for the outcome of the call, too.
pub const OUTCOMES: u64 = 1 << 27;

/// The state of a durable call, by its number on the wire and in journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, FromRepr)]
#[cbor(index_only)]
#[repr(u8)]
pub enum DurableState {
    /// It has all its arguments and waits to run.
    #[n(1)]
    Queued = 1,
    /// The library computes.
    #[n(2)]
    Running,
    /// Its results can be fetched.
    #[n(3)]
    Done,
    /// It failed, and the reason is known.
    #[n(4)]
    Failed,
    /// Its user cancelled it.
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

    /// Whether the state is final.
    pub fn is_over(self) -> bool {
        matches!(
            self,
            DurableState::Done | DurableState::Failed | DurableState::Cancelled
        )
    }

    /// The name of the state.
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

/// The status of a durable call. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DurableRecord {
    /// The job id.
    #[n(0)]
    pub id: JobId,
    /// Number in the order of submission.
    #[n(1)]
    pub number: u64,
    /// Qualified name of the function.
    #[n(2)]
    pub function: String,
    /// How far it has come.
    #[n(3)]
    pub state: DurableState,
    /// When the server accepted it.
    #[n(4)]
    pub submitted: u64,
    /// When it last started to run.
    #[n(5)]
    pub started: Option<u64>,
    /// When it ended.
    #[n(6)]
    pub ended: Option<u64>,
    /// When the server forgets it; `None` before its end.
    #[n(7)]
    pub expires: Option<u64>,
    /// Bytes that it occupies at the server.
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
    /// Number after which the next page begins, if there is one.
    #[n(1)]
    pub next: Option<u64>,
}

/// A durable call with everything that is needed to read its results: the interface, and the
/// scalars that sizes depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct DurableDescription {
    /// Its status.
    pub record: DurableRecord,
    /// The interface in canonical form, and the call; both or neither.
    pub call: Option<(String, Call)>,
}

/// Submits a durable call.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitRequest {
    /// The call, without shared memory.
    pub call: Call,
    /// Retention of its outcome in seconds; `None` leaves it to the server.
    pub keep: Option<u64>,
    /// A second request, with the feature [`OUTCOMES`]: a fetch that begins when the call is
    /// recorded.
    pub fetch: Option<CallId>,
}

/// The request as it travels, with the call as a message of its own.
#[derive(Encode, Decode)]
struct SubmitMessage {
    #[cbor(n(0), with = "minicbor::bytes")]
    call: Vec<u8>,
    #[n(1)]
    keep: Option<u64>,
    #[n(2)]
    fetch: Option<CallId>,
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

/// Cancels a durable call.
#[derive(Encode, Decode)]
pub(crate) struct CancelJobMessage {
    #[n(0)]
    pub(crate) id: JobId,
    /// Whether the server also forgets it.
    #[n(1)]
    pub(crate) forget: bool,
}

/// Asks for a page of durable calls.
#[derive(Encode, Decode)]
pub(crate) struct ListJobsMessage {
    /// The page begins after this number.
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
            fetch: self.fetch,
        };
        // Writing to a Vec cannot fail.
        let _ = encode(&message, out);
    }

    /// Reads the message. Every count is bounded before memory is allocated for it.
    pub fn decode(bytes: &[u8]) -> Result<SubmitRequest, MessageError> {
        let message: SubmitMessage = decode(bytes).map_err(MessageError::new)?;
        Ok(SubmitRequest {
            call: Call::decode(&message.call)?,
            keep: message.keep,
            fetch: message.fetch,
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
            trace: None,
            before: None,
        };
        for (keep, fetch) in [(None, None), (Some(3600), None), (None, Some(9))] {
            let submission = SubmitRequest {
                call: call.clone(),
                keep,
                fetch,
            };
            let mut bytes = Vec::new();
            submission.encode(&mut bytes);
            assert_eq!(SubmitRequest::decode(&bytes), Ok(submission));
        }
        assert!(SubmitRequest::decode(&[0x82, 0x41, 0x00, 0x00]).is_err());
    }
}
