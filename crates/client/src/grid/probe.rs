//! Small transfers to servers of which no way is known.

use crate::{ArrayForm, Error, Server};
use farcall_directory::message::{Observe, Transfer};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes of a probe: enough to tell the rate of a link, little to carry.
const BYTES: usize = 256 << 10;
/// Questions that tell the latency; the first may wake the server up.
const QUESTIONS: usize = 3;
/// Servers that are probed for one function.
const MOST: usize = 32;

/// Servers that were probed, or are to be.
#[derive(Default)]
pub(super) struct Probes(Mutex<HashSet<u64>>);

impl Probes {
    /// Probes, one after the other and beside the caller, those of these servers to which no way is
    /// known.
    pub(super) fn begin(
        &self,
        meta: &Server,
        servers: &[(u64, String)],
        is_known: impl Fn(u64) -> bool,
    ) {
        let mut probed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = servers.iter().filter(|(server, _)| probed.insert(*server));
        let fresh = fresh.filter(|(server, _)| !is_known(*server)).take(MOST);
        let fresh: Vec<(u64, String)> = fresh.cloned().collect();
        if fresh.is_empty() {
            return;
        }
        let meta = meta.clone();
        let probe = move || {
            for (server, address) in fresh {
                let Some(grid) = meta.grid() else { return };
                let reached = grid.server(&meta, server, &address);
                let observed = reached.and_then(|server| probe(&server));
                for observed in observed.into_iter().flatten() {
                    grid.observe_probe(&meta, server, observed);
                }
            }
        };
        // Without a thread, transfers of calls will tell.
        let _ = std::thread::Builder::new()
            .name("probe".into())
            .spawn(probe);
    }
}

/// Latency, and the rate of both directions where arrays travel.
fn probe(server: &Server) -> Result<Vec<Observe>, Error> {
    let mut round_trip = f64::INFINITY;
    for _ in 0..QUESTIONS {
        round_trip = round_trip.min(server.ping()?.as_secs_f64());
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
    if server.shares_memory()? {
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
