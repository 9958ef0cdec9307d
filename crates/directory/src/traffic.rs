//! What the ways between sites and servers carry.

use crate::record::{PathRecord, Values};
use farcall_schedule::forecast::{Forecasts, Path};
use farcall_schedule::placement::{Route, Way};
use std::collections::{BTreeMap, VecDeque};

/// Transfers that are remembered to tell which shared a link.
const MOST_RECENT: usize = 256;

/// A transfer that is over.
#[derive(Clone, Copy, Debug)]
struct Recent {
    server: u64,
    is_up: bool,
    from: f64,
    to: f64,
}

/// Sites, and the paths between them and the servers.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    forecasts: Forecasts,
    sites: BTreeMap<u64, String>,
    recent: VecDeque<Recent>,
    most_sites: usize,
}

impl Traffic {
    pub(crate) fn new(most_sites: usize, most_paths: usize) -> Traffic {
        Traffic {
            forecasts: Forecasts::new(most_paths),
            sites: BTreeMap::new(),
            recent: VecDeque::new(),
            most_sites,
        }
    }

    /// The number of a site. Where there are too many sites a new one has no name, so that nothing
    /// is kept of it.
    pub(crate) fn site(&mut self, name: &str) -> u64 {
        let number = crate::digest(name);
        if self.sites.len() < self.most_sites {
            self.sites.entry(number).or_insert_with(|| name.to_string());
        }
        number
    }

    pub(crate) fn site_name(&self, site: u64) -> Option<&str> {
        self.sites.get(&site).map(String::as_str)
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = (u64, &str)> {
        self.sites.iter().map(|(site, name)| (*site, name.as_str()))
    }

    /// A transfer has ended at `now`.
    pub(crate) fn observe(
        &mut self,
        (site, server, is_up): (u64, u64, bool),
        (from, to): (f64, f64),
        bytes: u64,
    ) {
        let sharing = match bytes >= Path::SHORT_BYTES {
            true => self.sharing(server, is_up, from, to),
            false => 1.0,
        };
        let (start, end) = if is_up {
            (site, server)
        } else {
            (server, site)
        };
        self.forecasts
            .observe(start, end, bytes, to - from, sharing);
        if bytes >= Path::SHORT_BYTES {
            if self.recent.len() == MOST_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(Recent {
                server,
                is_up,
                from,
                to,
            });
        }
    }

    /// The mean number of transfers that shared the server's link in a time, this one included, as
    /// far as they are over.
    fn sharing(&self, server: u64, is_up: bool, from: f64, to: f64) -> f64 {
        let others = self.recent.iter();
        let others = others.filter(|one| one.server == server && one.is_up == is_up);
        let shared: f64 = others
            .map(|one| (one.to.min(to) - one.from.max(from)).max(0.0))
            .sum();
        1.0 + shared / (to - from).max(1e-9)
    }

    pub(crate) fn route(&self, site: u64, server: u64) -> Route {
        let way = |from, to| self.forecasts.path(from, to).map_or(Way::UNKNOWN, Way::of);
        Route {
            up: way(site, server),
            down: way(server, site),
        }
    }

    /// Both directions, as far as they are known.
    pub(crate) fn paths(&self, site: u64, server: u64) -> [Option<&Path>; 2] {
        let path = |from, to| self.forecasts.path(from, to);
        [path(site, server), path(server, site)]
    }

    /// The fastest way to a server and from it, over all sites; 0 where nothing is known.
    pub(crate) fn rates_of_server(&self, server: u64) -> [f64; 2] {
        self.fastest(self.sites.keys().map(|site| (*site, server)))
    }

    /// The fastest way out of a site and into it.
    pub(crate) fn rates_of_site(&self, site: u64, servers: impl Iterator<Item = u64>) -> [f64; 2] {
        self.fastest(servers.map(|server| (site, server)))
    }

    fn fastest(&self, pairs: impl Iterator<Item = (u64, u64)>) -> [f64; 2] {
        let mut rates = [0.0f64; 2];
        for (site, server) in pairs {
            let paths = self.paths(site, server);
            for (fastest, path) in rates.iter_mut().zip(paths) {
                let known = path.and_then(Path::rate);
                *fastest = fastest.max(known.map_or(0.0, |known| known.value));
            }
        }
        rates
    }

    pub(crate) fn record(&self, site: u64, server: u64) -> Option<PathRecord> {
        let [up, down] = self.paths(site, server);
        if up.is_none() && down.is_none() {
            return None;
        }
        let values = |path: Option<&Path>| {
            let series = path.map(Path::series);
            series.map_or_else(Values::default, |(latencies, rates)| Values {
                latencies: latencies.recent().collect(),
                rates: rates.recent().collect(),
            })
        };
        Some(PathRecord {
            site: self.site_name(site)?.to_string(),
            server,
            up: values(up),
            down: values(down),
        })
    }

    pub(crate) fn apply(&mut self, record: PathRecord) {
        let (site, server) = (self.site(&record.site), record.server);
        for (from, to, values) in [(site, server, record.up), (server, site, record.down)] {
            let path = Path::resume(values.latencies, values.rates);
            self.forecasts.resume(from, to, path);
        }
    }
}
