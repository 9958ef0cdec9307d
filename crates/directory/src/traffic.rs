//! Measurements of the paths between sites and servers, and forecasts from them. The forecasting
//! methods are in `farcall_schedule::forecast`. A measurement far from its forecast counts only
//! after others confirm it, so one client that lies does not move a forecast. All tables are
//! bounded.

use crate::message::record::{PathRecord, Values};
use farcall_schedule::forecast::{Forecasts, Path};
use farcall_schedule::placement::{PathDirection, Route};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most recent transfers that are kept, to tell which of them shared a link.
const MOST_RECENT: usize = 256;

/// Most sites whose forecasts are kept ready.
const MOST_READY: usize = 64;

/// The paths between a site and the servers, by server position.
#[derive(Clone, Debug)]
pub(crate) struct SitePaths {
    pub(crate) routes: Vec<Route>,
    /// Observed rates up and down in bytes per second; 0 if none was observed.
    pub(crate) rates: Vec<[f64; 2]>,
}

/// A transfer that has ended.
#[derive(Clone, Copy, Debug)]
struct Recent {
    server: u64,
    is_up: bool,
    from: f64,
    to: f64,
}

/// Measurements far from their forecasts, which count once others confirm them. So one wrong
/// number, or one client that lies, does not move a forecast.
#[derive(Clone, Debug, Default)]
struct Unusual(BTreeMap<(u64, u64, bool), Suspect>);

/// An unusual measurement.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    user: u64,
    /// Seconds measured, divided by the seconds expected.
    ratio: f64,
    /// Number of confirmations, this measurement included.
    count: u32,
}

impl Unusual {
    /// A measurement is unusual if it is this many times as long or as short as expected.
    const FAR: f64 = 16.0;
    /// A measurement confirms another one within this ratio.
    const NEAR: f64 = 4.0;
    /// Number of measurements of one user that confirm each other. Two users need one each.
    const ENOUGH: u32 = 3;
    /// Most paths with unusual measurements.
    const MOST: usize = 1 << 12;

    /// Whether a measurement of a path counts.
    fn confirms(&mut self, path: (u64, u64, bool), ratio: f64, user: u64) -> bool {
        let is_near = |ratio: f64, most: f64| (1.0 / most..=most).contains(&ratio);
        if is_near(ratio, Unusual::FAR) {
            self.0.remove(&path);
            return true;
        }
        if self.0.len() >= Unusual::MOST {
            self.0.clear();
        }
        let first = Suspect {
            user,
            ratio,
            count: 0,
        };
        let suspect = self.0.entry(path).or_insert(first);
        if !is_near(ratio / suspect.ratio, Unusual::NEAR) {
            *suspect = first;
        }
        suspect.count += match suspect.user == user {
            true => 1,
            false => Unusual::ENOUGH,
        };
        suspect.count >= Unusual::ENOUGH
    }
}

/// The sites, and the paths between them and the servers.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    forecasts: Forecasts,
    sites: BTreeMap<u64, String>,
    recent: VecDeque<Recent>,
    unusual: Unusual,
    most_sites: usize,
    most_paths: usize,
    /// Forecasts by site, made once for many decisions.
    ready: BTreeMap<u64, SitePaths>,
}

impl Traffic {
    pub(crate) fn new(most_sites: usize, most_paths: usize) -> Traffic {
        Traffic {
            forecasts: Forecasts::new(most_paths),
            sites: BTreeMap::new(),
            recent: VecDeque::new(),
            unusual: Unusual::default(),
            most_sites,
            most_paths,
            ready: BTreeMap::new(),
        }
    }

    /// The number of a site. If there are too many sites, a new one gets no name and nothing is
    /// kept of it.
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

    /// Records a transfer that a user has measured. Returns whether it counts: an unusual time
    /// counts once it is confirmed.
    pub(crate) fn observe(
        &mut self,
        (site, server, is_up): (u64, u64, bool),
        (from, to): (f64, f64),
        bytes: u64,
        user: u64,
    ) -> bool {
        let sharing = match bytes >= Path::SHORT_BYTES {
            true => self.sharing(server, is_up, from, to),
            false => 1.0,
        };
        let (start, end) = if is_up {
            (site, server)
        } else {
            (server, site)
        };
        let path = self.forecasts.path(start, end);
        let expected_s = path.and_then(|path| path.expects(bytes, sharing));
        let ratio = expected_s.map_or(1.0, |expected_s| (to - from) / expected_s);
        if !self
            .unusual
            .confirms((start, end, bytes >= Path::SHORT_BYTES), ratio, user)
        {
            return false;
        }
        self.make_room(start, end);
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
        true
    }

    /// Mean number of transfers that shared the server's link in a time, including this one. Only
    /// transfers that have ended are counted.
    fn sharing(&self, server: u64, is_up: bool, from: f64, to: f64) -> f64 {
        let others = self.recent.iter();
        let others = others.filter(|one| one.server == server && one.is_up == is_up);
        let shared: f64 = others
            .map(|one| (one.to.min(to) - one.from.max(from)).max(0.0))
            .sum();
        1.0 + shared / (to - from).max(1e-9)
    }

    /// Makes room for a new path. The path that is forgotten may be among the ready forecasts.
    fn make_room(&mut self, from: u64, to: u64) {
        let is_full = self.forecasts.paths().len() >= self.most_paths;
        if is_full && self.forecasts.path(from, to).is_none() {
            self.ready.clear();
        }
    }

    /// Makes the forecasts of a site ready for [`Traffic::ways`].
    pub(crate) fn prepare(&mut self, site: u64, servers: impl Iterator<Item = (usize, u64)>) {
        if self.ready.contains_key(&site) {
            return;
        }
        if self.ready.len() >= MOST_READY {
            self.ready.clear();
        }
        let (routes, rates) = (Vec::new(), Vec::new());
        self.ready.insert(site, SitePaths { routes, rates });
        for (place, server) in servers {
            self.renew(site, place, server);
        }
    }

    /// The ready forecasts of a site.
    pub(crate) fn ways(&self, site: u64) -> Option<&SitePaths> {
        self.ready.get(&site)
    }

    /// Updates the forecasts for a server at a new position.
    pub(crate) fn settle(&mut self, place: usize, server: u64) {
        let sites: Vec<u64> = self.ready.keys().copied().collect();
        for site in sites {
            self.renew(site, place, server);
        }
    }

    /// Updates the forecasts after a new measurement.
    pub(crate) fn renew(&mut self, site: u64, place: usize, server: u64) {
        let (route, rates) = (self.route(site, server), self.fastest([(site, server)]));
        let Some(ways) = self.ready.get_mut(&site) else {
            return;
        };
        if ways.routes.len() <= place {
            let unknown = Route {
                up: PathDirection::UNKNOWN,
                down: PathDirection::UNKNOWN,
            };
            ways.routes.resize(place + 1, unknown);
            ways.rates.resize(place + 1, [0.0; 2]);
        }
        ways.routes[place] = route;
        ways.rates[place] = rates;
    }

    pub(crate) fn route(&self, site: u64, server: u64) -> Route {
        let way = |from, to| {
            self.forecasts
                .path(from, to)
                .map_or(PathDirection::UNKNOWN, PathDirection::of)
        };
        Route {
            up: way(site, server),
            down: way(server, site),
        }
    }

    /// Both directions of a path, as far as they are known.
    pub(crate) fn paths(&self, site: u64, server: u64) -> [Option<&Path>; 2] {
        let path = |from, to| self.forecasts.path(from, to);
        [path(site, server), path(server, site)]
    }

    /// The ends of all known paths in both orders: one of the two is a site and a server.
    pub(crate) fn pairs(&self) -> BTreeSet<(u64, u64)> {
        let known = self.forecasts.paths();
        known
            .flat_map(|((from, to), _)| [(from, to), (to, from)])
            .collect()
    }

    /// The fastest path to a server and from it, over all sites; 0 if none is known.
    pub(crate) fn rates_of_server(&self, server: u64) -> [f64; 2] {
        self.fastest(self.sites.keys().map(|site| (*site, server)))
    }

    fn fastest(&self, pairs: impl IntoIterator<Item = (u64, u64)>) -> [f64; 2] {
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

    /// Takes another metaserver's record of a path. Returns the site.
    pub(crate) fn apply(&mut self, record: PathRecord) -> u64 {
        let (site, server) = (self.site(&record.site), record.server);
        for (from, to, values) in [(site, server, record.up), (server, site, record.down)] {
            let path = Path::resume(values.latencies, values.rates);
            self.make_room(from, to);
            self.forecasts.resume(from, to, path);
        }
        site
    }
}
