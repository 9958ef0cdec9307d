//! The rates of the links to other hosts, learned from transfers that have ended. The shell saves
//! them across restarts. Short transfers teach nothing. The table is bounded: when a new host finds
//! it full, the table forgets all hosts.

use crate::map::Map;
use core::net::IpAddr;
use farcall_schedule::Throughput;

/// Hosts whose links are remembered.
const MAX_HOSTS: usize = 1024;

/// Rates between this host and another.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    up: Throughput,
    down: Throughput,
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

    /// Bytes per second to this host and from it, where anything is known of the link.
    pub(crate) fn rates_to(&self, host: Option<IpAddr>) -> (Option<u64>, Option<u64>) {
        let link = host.and_then(|host| self.0.get(&host).copied());
        let link = link.unwrap_or_default();
        let rate = |throughput: Throughput| throughput.rate().map(|rate| rate as u64);
        (rate(link.up), rate(link.down))
    }

    /// Learns from streams that have ended, each with its bytes and nanoseconds.
    pub(crate) fn learn(&mut self, host: IpAddr, up: Option<(u64, u64)>, down: Option<(u64, u64)>) {
        let mut ends = [up, down].into_iter().flatten();
        if !ends.any(|(bytes, _)| bytes >= Throughput::LEAST_BYTES) {
            return;
        }
        let link = self.entry(host);
        for (throughput, stream) in [(&mut link.up, up), (&mut link.down, down)] {
            if let Some((bytes, nanos)) = stream {
                throughput.observe(bytes, nanos as f64 * 1e-9);
            }
        }
    }
}
