//! Rounds that repeat on all ranks, as in rings. The engine computes them at once instead of one
//! by one, with the same result. It does so only if nobody wants the single messages.
//!
//! A whole pattern of `K` equal rounds has a closed form if sends block, transfers have no latency
//! and sharing is max-min fair. Let `c` messages of a round pass a link of bandwidth `C`, and let
//! `M` be the largest `c / C`. The pattern of messages of `s` bytes then ends at `K s M`:
//!
//! - Not earlier: the link with the largest `c / C` must carry `K c s` bytes.
//! - Not later: a rank has one flow at a time, so at most `c` flows are on a link at any time. Each
//!   flow has a saturated link on which no flow is faster, so its rate is at least `1 / M`, and no
//!   message takes longer than `s M`. A rank starts round `k + 1` when messages of round `k` have
//!   ended, so by induction at the latest at `k s M`.

use super::{Driver, Mode, SIMULTANEOUS, Simulation};
use crate::pattern::Pattern;
use crate::routing::Routing;

impl Simulation<'_> {
    /// Runs a pattern that consists of equal rounds on all ranks, if it has its closed form.
    /// Returns whether it did.
    pub(super) fn run_repeated(&mut self) -> bool {
        let Driver::Queues(queues) = &self.driver else {
            return false;
        };
        let Some((pattern, bytes)) = queues.equal_rounds() else {
            return false;
        };
        let config = &self.config;
        let closed = config.mode == Mode::Exact
            && config.window == 1
            && config.resolution == 0.0
            && !config.verify
            && self.sink.is_none()
            && self.has_static_routes()
            && self.latency + self.config.stored_packet == 0.0
            && self.platform.latency() == 0.0
            && self.platform.hop_latency() == 0.0;
        if !closed {
            return false;
        }
        let (rounds, ranks) = (pattern.rounds(), pattern.ranks());
        let flows = self.flows_of_a_round(pattern, rounds as f64 * bytes);
        let loaded = flows.iter().zip(0..).filter(|(flows, _)| **flows > 0);
        let most = loaded
            .map(|(&flows, link)| f64::from(flows) / self.platform.bandwidth(link))
            .fold(0.0, f64::max);
        self.now = (rounds as f64 * (bytes * most)).min(f64::MAX);
        self.messages = rounds * u64::from(ranks);
        self.events = rounds;
        for (sum, flows) in self.link_bytes.iter_mut().zip(flows) {
            *sum = rounds as f64 * bytes * f64::from(flows);
        }
        true
    }

    fn has_static_routes(&self) -> bool {
        self.config.routing == Routing::Static && self.config.failures.is_empty()
    }

    /// Number of flows on each link if all ranks send the message of the first round. Each rank
    /// sends `bytes` in all rounds.
    fn flows_of_a_round(&mut self, pattern: Pattern, bytes: f64) -> Vec<u32> {
        let mut flows = vec![0u32; self.platform.links()];
        for rank in 0..pattern.ranks() {
            let Some((to, _)) = pattern.round(rank, 0).send else {
                continue;
            };
            let (source, destination) = (self.placement.node(rank), self.placement.node(to));
            let hops = self.platform.route(source, destination, &mut self.path);
            for &link in &self.path[..hops] {
                flows[link as usize] += 1;
            }
            self.watch.count(&self.path[..hops], (rank, to), bytes);
        }
        flows
    }

    /// Skips rounds that repeat the present one, in a pattern without the closed form.
    ///
    /// If two batches in a row ended the flows of all ranks after the same time, and all ranks
    /// repeat the same round, then every further repetition takes as long. The engine then advances
    /// time, counts and bytes for all of them at once. It does not do so when a sink receives the
    /// messages.
    pub(super) fn skip_repeated(&mut self, ended: usize, duration: f64) {
        let Driver::Queues(queues) = &self.driver else {
            return;
        };
        let (ranks, timers) = (queues.ranks(), self.timers.is_empty());
        if ended != ranks || !timers || self.sink.is_some() || !self.has_static_routes() {
            self.whole_batch = None;
            return;
        }
        let Driver::Queues(queues) = &mut self.driver else {
            return;
        };
        let same = |last: f64| (duration - last).abs() <= SIMULTANEOUS * self.now;
        if !self.whole_batch.replace(duration).is_some_and(same) {
            return;
        }
        let rounds = queues.rounds_to_skip();
        if rounds == 0 {
            return;
        }
        queues.skip(rounds);
        let (ranks, times) = (queues.ranks() as u64, rounds as f64);
        self.messages += rounds * ranks;
        self.events += rounds;
        self.now = (self.now + times * duration).min(f64::MAX);
        for slot in self.rates.active() {
            let flow = &mut self.flows[slot as usize];
            flow.since = self.now;
            flow.start = self.now;
            let end = self.now + flow.remaining / flow.rate;
            self.calendar.set(slot, end.min(f64::MAX));
            let flow = *flow;
            self.count(slot, &flow, times * flow.bytes);
        }
    }
}
