//! Failures that a server reports. They are the client's own type, so that users do not depend on
//! messages of the wire.

use farcall_rpc_proto::{self as proto, FailureKind};
use std::time::Duration;

/// A failure that a server reports, or that the client reports in the same form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// What happened and what to do, as a text for people.
    pub message: String,
    /// For [`FailureKind::NotFree`]: time from the refusal until the elements are free.
    pub earliest: Option<Duration>,
}

impl From<proto::Failure> for Failure {
    fn from(failure: proto::Failure) -> Failure {
        Failure {
            kind: failure.kind,
            message: failure.message,
            earliest: failure.earliest.map(Duration::from_millis),
        }
    }
}
