//! Computes the rates that this node grants to its peers. Together the grants fill the node's links
//! without filling queues.

use crate::MAX_LINKS;
use crate::grants::{Claim, PerLink, split, water_fill};
use alloc::vec::Vec;

/// Share of a link's capacity that is granted. The rest is for control messages and keeps queues
/// short.
const HANDED_OUT: f64 = 0.995;
/// Share of a link's capacity that an idle peer may use without asking.
const FLOOR: f64 = 0.05;
/// The largest share for all idle peers together.
const FLOOR_ALL: f64 = 0.2;
/// Shares below this part of a link are not worth granting.
const CRUMB: f64 = 1e-3;

/// What this node knows about one peer as a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Whether it has frames that wait for grants.
    pub(crate) limited: bool,
    /// Recent rate of wire bytes received from it, in bytes a second.
    pub(crate) rate: f64,
    /// The most that it can send on each link; 0 if the link is not usable.
    pub(crate) caps: PerLink,
    /// Its previous grants.
    pub(crate) before: PerLink,
}

/// Computes the grants of all peers, in the order of `demands`.
pub(crate) fn grant(capacity: &[f64], demands: &[Demand]) -> Vec<PerLink> {
    let handed_out: Vec<f64> = capacity.iter().map(|rate| rate * HANDED_OUT).collect();
    let claims: Vec<Claim> = demands
        .iter()
        .map(|demand| Claim {
            demand: if demand.limited {
                f64::INFINITY
            } else {
                2.0 * demand.rate
            },
            caps: demand.caps,
        })
        .collect();
    let rates = water_fill(&handed_out, &claims);
    let before: Vec<PerLink> = demands.iter().map(|demand| demand.before).collect();
    let mut shares = split(&handed_out, &claims, &rates, &before);
    let floor = FLOOR.min(FLOOR_ALL / demands.len().max(1) as f64);
    for (share, demand) in shares.iter_mut().zip(demands) {
        for (link, share) in share.iter_mut().enumerate().take(capacity.len()) {
            if demand.caps[link] <= 0.0 {
                *share = 0.0;
            } else if !demand.limited {
                *share = share.max(floor * capacity[link].min(demand.caps[link]));
            } else if *share < CRUMB * capacity[link] {
                *share = 0.0;
            }
        }
    }
    shares
}

/// Whether two grants differ by more than noise.
pub(crate) fn differ(before: &PerLink, after: &PerLink) -> bool {
    (0..MAX_LINKS).any(|link| (before[link] - after[link]).abs() > 0.02 * before[link])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(links: &[usize], limited: bool, rate: f64) -> Demand {
        let mut caps = [0.0; MAX_LINKS];
        links.iter().for_each(|link| caps[*link] = 100.0);
        Demand {
            limited,
            rate,
            caps,
            before: [0.0; MAX_LINKS],
        }
    }

    #[test]
    fn backlogged_peers_get_exactly_their_shares() {
        let shares = grant(
            &[100.0; 2],
            &[demand(&[0], true, 0.0), demand(&[0, 1], true, 0.0)],
        );
        assert_eq!(shares[0][..2], [99.5, 0.0]);
        assert_eq!(shares[1][..2], [0.0, 99.5]);
    }

    #[test]
    fn a_quiet_peer_does_not_reduce_the_rates_of_others() {
        let shares = grant(
            &[100.0; 2],
            &[demand(&[0], false, 0.01), demand(&[0, 1], true, 0.0)],
        );
        assert_eq!(shares[0][0], 5.0);
        assert!(shares[1][0] + shares[1][1] > 198.9);
    }
}
