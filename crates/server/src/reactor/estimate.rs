//! What a call would take, from what was learned of functions and links.

use super::Reactor;
use crate::job::Job;
use farcall_rpc_proto::{Call, Estimate, Failure};
use farcall_schedule::Throughput;
use std::net::IpAddr;

/// Hosts whose links are remembered.
const MAX_HOSTS: usize = 1024;

/// Rates between this host and another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    up: Throughput,
    down: Throughput,
}

impl Reactor {
    pub(super) fn estimate(&self, key: usize, call: &Call) -> Result<Estimate, Failure> {
        let (layout, ..) = self.prepare(key, call)?;
        let prediction = self.functions.get(call.function)?.predict(&layout);
        let host = self.connections[key].host;
        let link = host.and_then(|host| self.links.get(&host).copied());
        let link = link.unwrap_or_default();
        let rate = |throughput: Throughput| throughput.rate().map(|rate| rate as u64);
        Ok(Estimate {
            exec: prediction.map(|prediction| nanos(prediction.seconds)),
            factor: prediction.map(|prediction| prediction.factor),
            wait: nanos(self.backlog()),
            up: rate(link.up),
            down: rate(link.down),
        })
    }

    /// Seconds until a slot is free for one more call; what was never observed counts nothing.
    fn backlog(&self) -> f64 {
        let predicted = |job: &Job| {
            let function = self.functions.get(job.function).ok()?;
            Some(function.predict(&job.layout)?.seconds)
        };
        let running = self.workers.iter().filter_map(|(_, worker)| {
            let left = predicted(&self.jobs[worker.job()?])? - worker.running_for().as_secs_f64();
            Some(left.max(0.0))
        });
        if self.queue.is_empty() && self.computing() < self.slots {
            return 0.0;
        }
        let queued = self
            .queue
            .iter()
            .filter_map(|job| predicted(&self.jobs[*job]));
        running.chain(queued).sum::<f64>() / self.slots.max(1) as f64
    }

    /// Learns the rates of a link from the streams that have ended on a connection.
    pub(super) fn learn_link(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let moved = connection.proto.take_moved();
        let Some(host) = connection.host else { return };
        let mut ends = [moved.up, moved.down].into_iter().flatten();
        if !ends.any(|(bytes, _)| bytes >= Throughput::LEAST_BYTES) {
            return;
        }
        if self.links.len() >= MAX_HOSTS && !self.links.contains_key(&host) {
            self.links.clear();
        }
        let link = self.links.entry(host).or_default();
        for (throughput, stream) in [(&mut link.up, moved.up), (&mut link.down, moved.down)] {
            if let Some((bytes, nanos)) = stream {
                throughput.observe(bytes, nanos as f64 * 1e-9);
            }
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Links by the address of the other host.
pub(super) type Links = std::collections::HashMap<IpAddr, Link>;
