//! The outcome of a call besides its arrays: times, placement and library. The parts of the time
//! come from the server, and the total from the client. The parts always add up to the total.

use crate::offer::TimeParts;
use farcall_rpc_proto::{self as proto, Receipt, TraceContext};
use std::sync::Arc;

/// The outcome of a call besides its arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The times of the call.
    pub times: Times,
    /// Time from the arrival of the last argument to the start of the library, in seconds. It is
    /// part of [`Times::other`].
    pub wait: f64,
    /// The server that a metaserver chose for the call.
    pub placement: Option<Placement>,
    /// The library that computed the call, with version and kernel if the library reports them.
    pub library: Option<Arc<str>>,
    /// Threads of the library. `None` if the server does not tell.
    pub threads: Option<u32>,
    /// What the server has written to addresses, by the indices of the parameters.
    pub receipts: Vec<(usize, Receipt)>,
    /// The trace that the call belonged to.
    pub trace: Option<TraceContext>,
}

/// The server of a placed call, and the predicted time there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The server's number, as in [`crate::Offer::server`].
    pub server: u64,
    /// Predicted time from the placement to the return of the results, in seconds.
    pub predicted_s: f64,
    /// The parts of the predicted time, if the metaserver sent them.
    pub terms: Option<TimeParts>,
    /// Time that the choice of the server took, in seconds. It is part of [`Times::other`].
    pub chosen_s: f64,
}

/// The times of a call in seconds, split as in section 4.2 of the second Ninf paper.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Transfer of the arguments to the server.
    pub send: f64,
    /// Computation in the library.
    pub exec: f64,
    /// Transfer of the results from the server.
    pub recv: f64,
    /// The rest of `total`: waits, hand-overs, network latency.
    pub other: f64,
    /// From the start of the call to its return, at the caller.
    pub total: f64,
}

impl Times {
    pub(crate) fn new(times: &proto::Times, total: f64) -> Times {
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
