//! What a call came to, besides the arrays that it has filled.

use crate::offer::TimeParts;
use farcall_rpc_proto as proto;
use std::sync::Arc;

/// What a call gives besides the arrays it filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it took.
    pub times: Times,
    /// Seconds of [`Times::other`] from the last argument to the start of the library.
    pub wait: f64,
    /// Where a metaserver has placed the call.
    pub placement: Option<Placement>,
    /// The library that has computed it, its version and its kernel, as far as it says.
    pub library: Option<Arc<str>>,
}

/// Where a call was placed, and what it was predicted to take there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The server's number, as in [`crate::Offer::server`].
    pub server: u64,
    /// Seconds from then until its results are back.
    pub predicted_s: f64,
    /// Of what these consist, where that was told.
    pub terms: Option<TimeParts>,
}

/// How long a call took, in seconds, split as in the second Ninf paper (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The server received the arguments.
    pub send: f64,
    /// The library ran.
    pub exec: f64,
    /// The server sent the results.
    pub recv: f64,
    /// The rest of `total`: waiting, hand-overs, the way through the network.
    pub other: f64,
    /// From the start of the call to its return, at the caller.
    pub total: f64,
}

impl Times {
    pub(crate) fn new(times: proto::Times, total: f64) -> Times {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        let [send, exec, recv] = [times.send, times.exec, times.recv].map(seconds);
        Times {
            send,
            exec,
            recv,
            other: total - send - exec - recv,
            total,
        }
    }
}
