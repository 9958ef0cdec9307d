//! Tests of how a node divides its links among its peers. On random topologies a certificate proves
//! that the rates are max-min fair, independently of how they were computed.

use super::*;
use farcall_random::SplitMix64;

fn claim(links: &[usize], demand: f64) -> Claim {
    let mut caps = [0.0; MAX_LINKS];
    links.iter().for_each(|link| caps[*link] = f64::INFINITY);
    Claim { demand, caps }
}

fn fill(links: &[&[usize]]) -> Vec<f64> {
    let claims: Vec<Claim> = links
        .iter()
        .map(|links| claim(links, f64::INFINITY))
        .collect();
    let rates = water_fill(&[1.0, 1.0], &claims);
    certify(&[1.0, 1.0], &claims, &rates);
    rates
}

/// Proves that rates are max-min fair. They must be feasible. For each peer below its demand there
/// must be a full set of links in which no other peer gets more than it does, beyond what that
/// other peer sends elsewhere.
fn certify(capacity: &[f64], claims: &[Claim], rates: &[f64]) {
    let tolerance = 1e-6 * capacity.iter().sum::<f64>();
    let shares = split(capacity, claims, rates, &[]);
    let mut entries = 0;
    for (peer, share) in shares.iter().enumerate() {
        assert!(
            (share.iter().sum::<f64>() - rates[peer]).abs() < tolerance,
            "peer {peer}"
        );
        for (amount, cap) in share.iter().zip(&claims[peer].caps) {
            assert!(*amount >= 0.0 && *amount <= cap + tolerance);
            entries += usize::from(*amount > 0.0 && *amount < cap * (1.0 - 1e-6));
        }
    }
    for (link, capacity) in capacity.iter().enumerate() {
        assert!(shares.iter().map(|share| share[link]).sum::<f64>() < capacity + tolerance);
    }
    assert!(
        entries < (claims.len() + capacity.len()).max(1),
        "{entries} shares"
    );
    for (peer, rate) in rates.iter().enumerate() {
        assert!(*rate <= claims[peer].demand * (1.0 + 1e-9));
        let held = (0..1_usize << capacity.len()).any(|set| {
            let within: f64 = (0..capacity.len())
                .filter(|l| set >> l & 1 == 1)
                .map(|l| capacity[l])
                .sum();
            let beyond = |p: usize| (rates[p] - claims[p].outside(set)).max(0.0);
            let full = (0..rates.len()).map(beyond).sum::<f64>() >= within - tolerance;
            let most = (0..rates.len())
                .filter(|&p| beyond(p) > tolerance)
                .map(|p| rates[p]);
            let most = most.fold(0.0, f64::max);
            full && claims[peer].outside(set) <= rate + tolerance && most <= rate + tolerance
        });
        assert!(
            held || *rate >= claims[peer].demand - tolerance,
            "peer {peer} could get more"
        );
    }
}

fn assert_near(rates: &[f64], expected: &[f64]) {
    assert_eq!(rates.len(), expected.len());
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate - expected).abs() < 1e-9, "{rates:?}");
    }
}

#[test]
fn the_published_topologies_get_their_ideal_shares() {
    let third = 2.0 / 3.0;
    assert_near(&fill(&[&[0]]), &[1.0]);
    assert_near(&fill(&[&[0, 1]]), &[2.0]);
    assert_near(&fill(&[&[0, 1], &[0, 1]]), &[1.0, 1.0]);
    assert_near(&fill(&[&[0], &[0, 1]]), &[1.0, 1.0]);
    assert_near(&fill(&[&[0, 1], &[0, 1], &[0, 1]]), &[third; 3]);
    assert_near(&fill(&[&[0], &[0, 1], &[0, 1]]), &[third; 3]);
    assert_near(&fill(&[&[0], &[0, 1], &[1]]), &[third; 3]);
    assert_near(&fill(&[&[0], &[0, 1], &[0]]), &[0.5, 1.0, 0.5]);
}

#[test]
fn the_split_is_sparse() {
    let both = [claim(&[0], f64::INFINITY), claim(&[0, 1], f64::INFINITY)];
    let shares = split(&[1.0, 1.0], &both, &[1.0, 1.0], &[]);
    assert_eq!(
        (shares[0][..2].to_vec(), shares[1][..2].to_vec()),
        (vec![1.0, 0.0], vec![0.0, 1.0])
    );
    // Even where it was spread before.
    let mut spread = [0.0; MAX_LINKS];
    spread[..2].copy_from_slice(&[0.5, 0.5]);
    let twins = [claim(&[0, 1], f64::INFINITY); 2];
    let shares = split(&[1.0, 1.0], &twins, &[1.0, 1.0], &[spread, spread]);
    assert_eq!(
        shares
            .iter()
            .flatten()
            .filter(|share| **share > 0.0)
            .count(),
        2
    );
}

#[test]
fn a_split_stays_near_the_previous_one() {
    let claims = [claim(&[0, 1], f64::INFINITY); 3];
    let rates = water_fill(&[1.0, 1.0], &claims);
    let before = split(&[1.0, 1.0], &claims, &rates, &[]);
    let after = split(&[1.0, 1.0], &claims, &rates, &before);
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        assert!((before - after).abs() < 1e-9);
    }
}

#[test]
fn a_small_demand_is_met_in_full() {
    let claims = [
        claim(&[0], 0.1),
        claim(&[0, 1], f64::INFINITY),
        claim(&[0, 1], 0.5),
    ];
    let rates = water_fill(&[1.0, 1.0], &claims);
    certify(&[1.0, 1.0], &claims, &rates);
    assert_near(&rates, &[0.1, 1.4, 0.5]);
}

#[test]
fn slow_links_of_a_peer_delay_only_that_peer() {
    let mut slow = claim(&[0, 1], f64::INFINITY);
    slow.caps[0] = 0.1;
    slow.caps[1] = 0.2;
    let claims = [slow, claim(&[0, 1], f64::INFINITY)];
    let rates = water_fill(&[1.0, 1.0], &claims);
    certify(&[1.0, 1.0], &claims, &rates);
    assert_near(&rates, &[0.3, 1.7]);
}

#[test]
fn peers_without_a_link_get_nothing() {
    assert_near(&water_fill(&[1.0], &[claim(&[], f64::INFINITY)]), &[0.0]);
    assert_near(&water_fill(&[], &[claim(&[], 1.0)]), &[0.0]);
}

#[test]
fn random_topologies_are_certified() {
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let links = 1 + random.below(if seed % 10 == 0 { 8 } else { 4 }) as usize;
        let peers = 1 + random.below(if seed % 10 == 0 { 64 } else { 12 }) as usize;
        let capacity: Vec<f64> = (0..links)
            .map(|_| [1e6, 1.25e7, 1.25e8][random.below(3) as usize])
            .collect();
        let claims: Vec<Claim> = (0..peers)
            .map(|_| {
                let mut claim = claim(&[], f64::INFINITY);
                for cap in &mut claim.caps[..links] {
                    *cap = match random.below(4) {
                        0 => 0.0,
                        1 => random.below(20_000_000) as f64,
                        _ => f64::INFINITY,
                    };
                }
                if random.below(3) == 0 {
                    claim.demand = random.below(20_000_000) as f64;
                }
                claim
            })
            .collect();
        certify(&capacity, &claims, &water_fill(&capacity, &claims));
    }
}
