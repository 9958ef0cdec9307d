//! What one client says about servers.
//!
//! A client can be wrong, and it can lie. So its word is a hint. A loss counts at once for the
//! client's own calls; for the calls of others it counts only if the server is silent as well
//! ([`Directory::doubt`]). The time of a transfer counts only if the directory placed the call for
//! this client, and only within what is possible for that call. The number of hints is bounded.

use crate::Directory;
use crate::calls::Placed;
use crate::message::{Choose, Observe, Transfer};
use farcall_schedule::forecast::Path;
use std::collections::BTreeMap;

/// Most servers about which one client is remembered.
const MOST_SERVERS: usize = 256;
/// Most probes of one server that count for one client: one for the latency, one for the rate.
const MOST_PROBES: u32 = 2;
/// Most bytes of a probe.
const PROBE_BYTES: u64 = 1 << 20;
/// Longest time of a probe in seconds, for short transfers and for long ones.
const PROBE_S: [f64; 2] = [2.0, 10.0];
/// No link is faster, in bytes per second.
const FASTEST: f64 = 1e12;
/// Clocks of a client and a metaserver may differ by this many seconds over the time of a call.
const SLACK_S: f64 = 0.1;

/// What a client has said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// When the client lost each server.
    lost: BTreeMap<u64, f64>,
    /// Number of probes of each server.
    probes: BTreeMap<u64, u32>,
}

impl Hints {
    /// Notes that the client cannot reach a server.
    pub(crate) fn lose(&mut self, server: u64, now: f64) {
        if self.lost.len() < MOST_SERVERS || self.lost.contains_key(&server) {
            self.lost.insert(server, now);
        }
    }

    /// The question of the client, without the servers that it has lost and that have not reported
    /// since. `None` if there are none.
    pub(crate) fn avoid(&mut self, directory: &Directory, wanted: &Choose) -> Option<Choose> {
        self.lost
            .retain(|server, when| directory.is_silent_since(*server, *when));
        if self.lost.is_empty() || wanted.explain {
            return None;
        }
        let mut wanted = wanted.clone();
        wanted.exclude.extend(self.lost.keys());
        Some(wanted)
    }

    /// The measured transfers that can be true. `placed` is the call, if this client placed it.
    pub(crate) fn possible(
        &mut self,
        observed: &Observe,
        placed: Option<&Placed>,
        now: f64,
    ) -> [Option<Transfer>; 2] {
        let transfers = [observed.up, observed.down];
        let Some(placed) = placed else {
            return match self.may_probe(observed.server) {
                true => transfers.map(|one| one.filter(is_probe)),
                false => [None, None],
            };
        };
        let longest_s = now - placed.at + SLACK_S;
        let is_possible = |bytes: u64| {
            move |one: &Transfer| {
                one.bytes <= bytes && one.seconds <= longest_s && rate(one) <= FASTEST
            }
        };
        [
            transfers[0].filter(is_possible(placed.up)),
            transfers[1].filter(is_possible(placed.down)),
        ]
    }

    fn may_probe(&mut self, server: u64) -> bool {
        if self.probes.len() >= MOST_SERVERS && !self.probes.contains_key(&server) {
            return false;
        }
        let probes = self.probes.entry(server).or_default();
        *probes += 1;
        *probes <= MOST_PROBES
    }
}

fn is_probe(one: &Transfer) -> bool {
    let longest_s = PROBE_S[usize::from(one.bytes >= Path::SHORT_BYTES)];
    one.bytes <= PROBE_BYTES && one.seconds <= longest_s && rate(one) <= FASTEST
}

fn rate(one: &Transfer) -> f64 {
    one.bytes as f64 / one.seconds.max(f64::MIN_POSITIVE)
}
