//! What a call would take, from what was learned of functions and links.

use super::Server;
use super::connections::call_of;
use crate::action::Way;
use crate::job::Job;
use crate::keys::ConnectionKey;
use crate::map::Map;
use core::net::IpAddr;
use farcall_idl::Layout;
use farcall_rpc_proto::{Call, CallId, Estimate, Failure};
use farcall_schedule::Throughput;

/// Hosts whose links are remembered.
const MAX_HOSTS: usize = 1024;

/// Rates between this host and another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    up: Throughput,
    down: Throughput,
}

impl Server {
    /// A client asks what a call would take.
    pub(super) fn tell_estimate(&mut self, key: ConnectionKey, request: CallId, call: &Call) {
        let estimate = self.estimate(key, call);
        let proto = &mut self.connections[key].proto;
        match estimate {
            Ok(estimate) => proto.estimated(request, &estimate),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn estimate(&self, key: ConnectionKey, call: &Call) -> Result<Estimate, Failure> {
        let (layout, ..) = self.prepare(key, call)?;
        self.check_reservation(key, call)?;
        let elements = match layout.processor_elements {
            Some(most) => u32::try_from(most).unwrap_or(u32::MAX),
            None => self.settings.elements,
        };
        let elements = elements.min(self.queue.settings().pes);
        let prediction = self
            .functions
            .get(call.function)?
            .predict(&layout, elements);
        let host = self.connections[key].peer.host;
        let link = host.and_then(|host| self.links.0.get(&host).copied());
        let link = link.unwrap_or_default();
        let rate = |throughput: Throughput| throughput.rate().map(|rate| rate as u64);
        Ok(Estimate {
            exec: prediction.map(|prediction| nanos(prediction.seconds)),
            factor: prediction.map(|prediction| prediction.factor),
            wait: nanos(self.wait_of(call, &layout, prediction.map(|known| known.seconds))),
            up: rate(link.up),
            down: rate(link.down),
            pes: Some(self.queue.settings().pes),
        })
    }

    /// Seconds until a call would start that takes so many.
    fn wait_of(&self, call: &Call, layout: &Layout, seconds: Option<f64>) -> f64 {
        let now = self.now();
        if let Some(id) = call.reservation {
            let own = self.queue.booking(id);
            return own.map_or(0.0, |own| own.from.saturating_sub(now) as f64 * 1e-9);
        }
        let backlog = self.backlog();
        if self.queue.bookings().next().is_none() {
            return backlog;
        }
        let fewest = layout.fewest_elements.unwrap_or(1);
        let from = now.saturating_add(nanos(backlog));
        let until = from.saturating_add(nanos(seconds.unwrap_or_default()).max(1));
        let fewest = u32::try_from(fewest).unwrap_or(u32::MAX);
        let start = self.queue.earliest(fewest, (from, until), now);
        start.saturating_sub(now) as f64 * 1e-9
    }

    /// Seconds until processor elements that are not reserved are free for one more call, if all
    /// computed all the time; what was never observed counts nothing.
    pub(super) fn backlog(&self) -> f64 {
        if self.queue.is_empty() && self.queue.free() > 0 {
            return 0.0;
        }
        let work = |job: &Job, pes: u32, done: f64| {
            let function = self.functions.get(job.function).ok()?;
            if self.is_reserved(job) {
                return None;
            }
            let seconds = function.predict(&job.layout, pes)?.seconds - done;
            Some(seconds.max(0.0) * f64::from(pes))
        };
        let now = self.now();
        let running = self.workers.values().filter_map(|worker| {
            let job = &self.calls[worker.call()?];
            work(job, job.pes, worker.running_for(now) as f64 * 1e-9)
        });
        let admitted = self.admitted.iter().filter_map(|job| {
            let job = &self.calls[*job];
            work(job, job.pes, 0.0)
        });
        let waiting = self.queue.waiting().filter_map(|id| {
            let job = &self.calls[call_of(id)];
            let fewest = job.layout.fewest_elements.unwrap_or(1);
            work(job, u32::try_from(fewest).unwrap_or(u32::MAX), 0.0)
        });
        let seconds: f64 = running.chain(admitted).chain(waiting).sum();
        seconds / f64::from(self.queue.settings().pes)
    }

    /// Learns the rates of a link from the streams that have ended on a connection; not from those
    /// that were held to a rate.
    pub fn learn_link(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let moved = connection.proto.take_moved();
        let Some(host) = connection.peer.host else {
            return;
        };
        let is_paced = |way: Way| connection.allowed[way as usize].is_limited();
        let up = moved.up.filter(|_| !is_paced(Way::Up));
        let down = moved.down.filter(|_| !is_paced(Way::Down));
        let mut ends = [up, down].into_iter().flatten();
        if !ends.any(|(bytes, _)| bytes >= Throughput::LEAST_BYTES) {
            return;
        }
        let link = self.links.entry(host);
        for (throughput, stream) in [(&mut link.up, up), (&mut link.down, down)] {
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
#[derive(Debug, Default)]
pub struct Links(Map<IpAddr, Link>);

impl Links {
    /// The link to a host, made where there is none.
    fn entry(&mut self, host: IpAddr) -> &mut Link {
        if self.0.len() >= MAX_HOSTS && !self.0.contains_key(&host) {
            self.0.clear();
        }
        self.0.entry(host).or_default()
    }

    /// Goes on with what was learned of a link before.
    pub fn resume(&mut self, host: IpAddr, up: Throughput, down: Throughput) {
        *self.entry(host) = Link { up, down };
    }

    /// What was learned.
    pub fn rates(&self) -> impl Iterator<Item = (IpAddr, Throughput, Throughput)> {
        self.0
            .iter()
            .map(|(host, link)| (*host, link.up, link.down))
    }
}
