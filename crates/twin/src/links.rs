//! Learns the rates of links from transfers. A link between a site and a server is taken to be full
//! while arrays travel over it. A host has a limit of its own only if its links, together, carried
//! clearly less than each alone would have.

use std::collections::{BTreeMap, BTreeSet};

/// Smaller transfers say little about a rate.
const LEAST_BYTES: f64 = 65_536.0;
/// A host whose links carry less than this part of their sum has a limit of its own.
const SHARED: f64 = 0.8;
/// The part of the busy time that a measurement must have.
const ENOUGH: f64 = 0.05;

/// A transfer between a site and a server, in one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) site: usize,
    pub(crate) server: usize,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) bytes: f64,
}

/// Rates in bytes per second. Links and hosts without an entry have no known limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// By site and server.
    pub(crate) links: BTreeMap<(usize, usize), f64>,
    pub(crate) sites: BTreeMap<usize, f64>,
    pub(crate) servers: BTreeMap<usize, f64>,
}

/// The rates in one direction.
pub(crate) fn rates(transfers: &[Transfer]) -> Rates {
    let large = transfers.iter().copied();
    let large = large.filter(|one| one.bytes >= LEAST_BYTES && one.to_s > one.from_s);
    let large: Vec<Transfer> = large.collect();
    let links = apart(&large, |one| (one.site, one.server));
    let links = links.into_iter().map(|(link, own)| (link, rate(&own)));
    let links: BTreeMap<(usize, usize), f64> = links.collect();
    let limits = |host: fn(&Transfer) -> usize| -> BTreeMap<usize, f64> {
        let hosts = apart(&large, host).into_iter();
        hosts
            .filter_map(|(host, transfers)| Some((host, limit(&transfers, &links)?)))
            .collect()
    };
    Rates {
        sites: limits(|one| one.site),
        servers: limits(|one| one.server),
        links,
    }
}

fn apart<K: Ord>(all: &[Transfer], key: impl Fn(&Transfer) -> K) -> BTreeMap<K, Vec<Transfer>> {
    let mut apart: BTreeMap<K, Vec<Transfer>> = BTreeMap::new();
    for one in all {
        apart.entry(key(one)).or_default().push(*one);
    }
    apart
}

/// The rate of a link with these transfers. Each of them is at most as fast as the link, and some
/// paused or shared it; so it is that of the faster ones, or of all together.
fn rate(transfers: &[Transfer]) -> f64 {
    let busy = Busy::when(transfers, |_| true);
    let rates = transfers
        .iter()
        .map(|one| one.bytes / (one.to_s - one.from_s));
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates[(3 * rates.len()).div_ceil(4) - 1].max(busy.bytes / busy.seconds)
}

/// The limit of a host with these transfers.
fn limit(transfers: &[Transfer], links: &BTreeMap<(usize, usize), f64>) -> Option<f64> {
    let used: BTreeSet<(usize, usize)> =
        transfers.iter().map(|one| (one.site, one.server)).collect();
    if used.len() < 2 {
        return None;
    }
    let alone = used.iter().filter_map(|link| links.get(link)).copied();
    let together = Busy::when(transfers, |busy| busy.len() > 1);
    let rate = together.bytes / together.seconds;
    let is_known = together.seconds > ENOUGH * Busy::when(transfers, |_| true).seconds;
    // The links that were busy at a time are about two.
    let mut fastest: Vec<f64> = alone.collect();
    fastest.sort_by(f64::total_cmp);
    let sum: f64 = fastest.iter().rev().take(2).sum();
    (is_known && rate < SHARED * sum).then(|| rate.max(fastest[fastest.len() - 1]))
}

/// Some time in which links are busy, and what they carry then.
#[derive(Clone, Copy, Debug)]
struct Busy {
    seconds: f64,
    bytes: f64,
}

impl Busy {
    /// The time in which `counts` is true of the busy links, with their numbers of transfers.
    fn when(
        transfers: &[Transfer],
        counts: impl Fn(&BTreeMap<(usize, usize), usize>) -> bool,
    ) -> Busy {
        let mut moments: Vec<(f64, bool, usize)> = Vec::with_capacity(2 * transfers.len());
        for (index, one) in transfers.iter().enumerate() {
            moments.extend([(one.from_s, true, index), (one.to_s, false, index)]);
        }
        moments.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut busy = Busy {
            seconds: 0.0,
            bytes: 0.0,
        };
        let mut active: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let (mut rate, mut before_s) = (0.0, f64::NAN);
        for (moment_s, begins, index) in moments {
            if !active.is_empty() && counts(&active) {
                busy.seconds += moment_s - before_s;
                busy.bytes += rate * (moment_s - before_s);
            }
            before_s = moment_s;
            let one = &transfers[index];
            let own_rate = one.bytes / (one.to_s - one.from_s);
            let count = active.entry((one.site, one.server)).or_default();
            if begins {
                *count += 1;
                rate += own_rate;
            } else {
                *count = count.saturating_sub(1);
                rate -= own_rate;
                if *count == 0 {
                    active.remove(&(one.site, one.server));
                }
            }
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(site: usize, server: usize, from_s: f64, to_s: f64, bytes: f64) -> Transfer {
        Transfer {
            site,
            server,
            from_s,
            to_s,
            bytes,
        }
    }

    #[test]
    fn transfers_that_share_a_link_tell_its_whole_rate() {
        let two = [transfer(0, 0, 0.0, 2.0, 1e6), transfer(0, 0, 1.0, 3.0, 2e6)];
        let rates = rates(&two);
        assert_eq!(rates.links[&(0, 0)], 1e6);
        assert!(rates.sites.is_empty() && rates.servers.is_empty());
    }

    #[test]
    fn a_line_that_two_sites_share_is_found() {
        let alone = [transfer(0, 0, 0.0, 1.0, 1e6), transfer(1, 0, 2.0, 3.0, 1e6)];
        let both = [transfer(0, 0, 5.0, 7.0, 1e6), transfer(1, 0, 5.0, 7.0, 1e6)];
        let shared = rates(&[alone, both].concat());
        assert_eq!(shared.servers[&0], 1e6);
        assert_eq!(shared.links[&(0, 0)], 1e6);
        let both = [transfer(0, 0, 5.0, 6.0, 1e6), transfer(1, 0, 5.0, 6.0, 1e6)];
        let apart = rates(&[alone, both].concat());
        assert!(apart.servers.is_empty(), "{apart:?}");
        assert_eq!(apart.links[&(0, 0)], 1e6);
    }
}
