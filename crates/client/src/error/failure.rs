//! What a server reports of a failure.

use farcall_rpc_proto::{self as proto, FailureKind};
use std::time::Duration;

/// A failure as a server reports it, or the client in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What happened and what to do, for the user's eyes.
    pub message: String,
    /// With [`FailureKind::NotFree`]: how long from then it can be had.
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
