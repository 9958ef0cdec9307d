//! Probes: small transfers that measure the path to a server before any call has used it. `grid`
//! reports the results to the metaserver. A client probes each server once at most.

use crate::error::Error;
use crate::remote::{Server, functions};
use farcall_directory::message::{Observe, Transfer};
use farcall_rpc_proto::ArrayForm;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes of a probe: enough to measure the rate of a link, and cheap to send.
const BYTES: usize = 256 << 10;
/// Round trips that measure the latency. The first one may have to wake the server.
const QUESTIONS: usize = 3;
/// Limit on the servers that are probed for one function.
const MOST: usize = 32;

/// Servers that were probed or will be.
#[derive(Default)]
pub(super) struct Probes(Mutex<HashSet<u64>>);

impl Probes {
    /// Those of these servers to which no path is known and that nobody has probed yet.
    pub(super) fn take(
        &self,
        servers: &[(u64, String)],
        is_known: impl Fn(u64) -> bool,
    ) -> Vec<(u64, String)> {
        let mut probed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = servers.iter().filter(|(server, _)| probed.insert(*server));
        let fresh = fresh.filter(|(server, _)| !is_known(*server)).take(MOST);
        fresh.cloned().collect()
    }
}

/// Measures the latency of a path, and its rate in both directions if the server takes arrays.
pub(super) fn probe(server: &Server) -> Result<Vec<Observe>, Error> {
    let mut round_trip = f64::INFINITY;
    for _ in 0..QUESTIONS {
        round_trip = round_trip.min(functions::ping(&server.connection()?)?.as_secs_f64());
    }
    let one_way = Transfer {
        bytes: 64,
        seconds: round_trip / 2.0,
    };
    let observed = |up, down| Observe {
        server: 0,
        placement: 0,
        up: Some(up),
        down: Some(down),
        lost: false,
    };
    let latency = observed(one_way, one_way);
    if server.connection()?.shares() {
        return Ok(vec![latency]);
    }
    let form = ArrayForm {
        element: "char".into(),
        shape: vec![BYTES as u64],
        column_major: false,
    };
    let mut bytes = vec![0; BYTES];
    let timed = |start: Instant| Transfer {
        bytes: BYTES as u64,
        seconds: (start.elapsed().as_secs_f64() - round_trip / 2.0).max(1e-6),
    };
    let start = Instant::now();
    let array = server.put(form, &bytes, false)?;
    let up = timed(start);
    let start = Instant::now();
    array.get(&mut bytes)?;
    Ok(vec![latency, observed(up, timed(start))])
}
