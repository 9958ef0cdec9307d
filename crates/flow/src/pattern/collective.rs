//! The rounds of the collective algorithms: what each rank sends and receives in each round. The
//! engine decides when a round begins. Each receive has exactly one matching send.

use super::{Kind, Round};

fn ceil_log2(n: u32) -> u64 {
    u64::from(n.next_power_of_two().trailing_zeros())
}

fn floor_power(n: u32) -> u32 {
    1 << (31 - n.leading_zeros())
}

pub(super) fn rounds(kind: &Kind, n: u32) -> u64 {
    if n < 2 {
        return 0;
    }
    let ring = u64::from(n) - 1;
    match kind {
        Kind::SimpleSpread | Kind::SimpleSpread2d | Kind::Pairwise | Kind::RingAllgather => ring,
        Kind::Alltoallv { .. } => ring,
        Kind::MixtureOfExperts { layers, .. } => 4 * ring * u64::from(*layers),
        Kind::Ring => 1,
        Kind::RingAllreduce => 2 * ring,
        Kind::BruckAllToAll
        | Kind::BinomialBroadcast
        | Kind::BruckAllgather
        | Kind::RecursiveDoublingAllgather => ceil_log2(n),
        Kind::ScatterAllgatherBroadcast => ceil_log2(n) + ring,
        Kind::RecursiveDoublingAllreduce => {
            let exchanges = u64::from(floor_power(n).trailing_zeros());
            exchanges + if n.is_power_of_two() { 0 } else { 2 }
        }
        Kind::TreeAllreduce => 2 * ceil_log2(n),
        Kind::HierarchicalAllreduce { group } => {
            2 * u64::from(group - 1) + 2 * u64::from(n / group - 1)
        }
        Kind::Pipeline { batches } => u64::from(*batches),
        Kind::Exchange { dims } => 2 * dims.iter().filter(|&&n| n > 1).count() as u64,
    }
}

pub(super) fn round(kind: &Kind, n: u32, size: f64, rank: u32, round: u64) -> Round {
    match kind {
        // The caller computes these.
        Kind::SimpleSpread | Kind::SimpleSpread2d | Kind::Pairwise => Round::NOTHING,
        Kind::Alltoallv { .. } | Kind::MixtureOfExperts { .. } => Round::NOTHING,
        Kind::Ring => Round {
            send: Some(((rank + 1) % n, size)),
            receive: None,
            receive_first: false,
        },
        Kind::BruckAllToAll => {
            let bit = 1u64 << round;
            shift(
                n,
                rank,
                bit,
                size * blocks_with_bit(u64::from(n), round as u32) as f64,
            )
        }
        Kind::BruckAllgather => {
            let step = 1u64 << round;
            let blocks = step.min(u64::from(n) - step);
            shift(
                n,
                rank,
                u64::from(n) - step % u64::from(n),
                size * blocks as f64,
            )
        }
        Kind::RingAllreduce => shift(n, rank, 1, size / f64::from(n)),
        Kind::RingAllgather => shift(n, rank, 1, size),
        Kind::RecursiveDoublingAllgather => {
            exchange(rank ^ (1 << round), size * (1u64 << round) as f64)
        }
        Kind::RecursiveDoublingAllreduce => doubling(n, size, rank, round),
        Kind::BinomialBroadcast => binomial(n, rank, round, |_| size),
        Kind::ScatterAllgatherBroadcast => {
            let log = ceil_log2(n);
            let block = size / f64::from(n);
            if round < log {
                scatter(n, rank, round, block)
            } else {
                shift(n, rank, 1, block)
            }
        }
        Kind::Exchange { dims } => halo(dims, size, rank, round),
        Kind::TreeAllreduce => {
            let log = ceil_log2(n);
            match round.checked_sub(log) {
                Some(round) => binomial(n, rank, round, |_| size),
                None => reverse(binomial(n, rank, log - 1 - round, |_| size), size),
            }
        }
        Kind::HierarchicalAllreduce { group } => hierarchical(n, *group, size, rank, round),
        Kind::Pipeline { .. } => Round {
            send: (rank + 1 < n).then_some((rank + 1, size)),
            receive: rank.checked_sub(1),
            receive_first: true,
        },
    }
}

/// Sends to the rank `by` places ahead and receives from the rank `by` places behind.
fn shift(n: u32, rank: u32, by: u64, bytes: f64) -> Round {
    let (n, rank) = (u64::from(n), u64::from(rank));
    let by = by % n;
    Round {
        send: Some((((rank + by) % n) as u32, bytes)),
        receive: Some(((rank + n - by) % n) as u32),
        receive_first: false,
    }
}

fn exchange(partner: u32, bytes: f64) -> Round {
    Round {
        send: Some((partner, bytes)),
        receive: Some(partner),
        receive_first: false,
    }
}

/// Count of the numbers in `0..n` that have the given bit set.
fn blocks_with_bit(n: u64, bit: u32) -> u64 {
    let period = 2u64 << bit;
    let half = 1u64 << bit;
    n / period * half + (n % period).saturating_sub(half)
}

/// In round j the ranks below `2^j` send to the rank `2^j` above them.
fn binomial(n: u32, rank: u32, round: u64, bytes: impl Fn(u32) -> f64) -> Round {
    let step = 1u64 << round;
    let rank64 = u64::from(rank);
    if rank64 < step && rank64 + step < u64::from(n) {
        let to = (rank64 + step) as u32;
        Round {
            send: Some((to, bytes(to))),
            receive: None,
            receive_first: false,
        }
    } else if (step..2 * step).contains(&rank64) {
        Round {
            send: None,
            receive: Some((rank64 - step) as u32),
            receive_first: true,
        }
    } else {
        Round::NOTHING
    }
}

/// The round in which every message goes the other way, and has `bytes` bytes.
fn reverse(round: Round, bytes: f64) -> Round {
    Round {
        send: round.receive.map(|from| (from, bytes)),
        receive: round.send.map(|(to, _)| to),
        receive_first: round.send.is_some(),
    }
}

/// The rings of a hierarchical allreduce: in the groups, over the groups, in the groups.
fn hierarchical(n: u32, group: u32, size: f64, rank: u32, round: u64) -> Round {
    let (groups, inside) = (n / group, u64::from(group - 1));
    let (mine, place) = (rank / group, rank % group);
    if (inside..inside + 2 * u64::from(groups - 1)).contains(&round) {
        let ring = shift(groups, mine, 1, size / f64::from(n));
        let rank_in = |other: u32| other * group + place;
        return Round {
            send: ring.send.map(|(to, bytes)| (rank_in(to), bytes)),
            receive: ring.receive.map(rank_in),
            ..ring
        };
    }
    let ring = shift(group, place, 1, size / f64::from(group));
    Round {
        send: ring.send.map(|(to, bytes)| (mine * group + to, bytes)),
        receive: ring.receive.map(|from| mine * group + from),
        ..ring
    }
}

/// Round j of a binomial scatter. The span halves in every round, and a parent keeps the lower part
/// of its blocks.
fn scatter(n: u32, rank: u32, round: u64, block: f64) -> Round {
    let span = 1u64 << (ceil_log2(n) - 1 - round);
    let rank64 = u64::from(rank);
    if rank64.is_multiple_of(2 * span) && rank64 + span < u64::from(n) {
        let to = rank64 + span;
        let blocks = span.min(u64::from(n) - to);
        Round {
            send: Some((to as u32, block * blocks as f64)),
            receive: None,
            receive_first: false,
        }
    } else if rank64 % (2 * span) == span {
        Round {
            send: None,
            receive: Some((rank64 - span) as u32),
            receive_first: true,
        }
    } else {
        Round::NOTHING
    }
}

/// Recursive doubling (Thakur, Rabenseifner, Gropp). If N is not a power of two, the even ranks
/// among the first `2 (N - 2^k)` fold into their neighbours first and get the result at the end.
fn doubling(n: u32, size: f64, rank: u32, round: u64) -> Round {
    let power = floor_power(n);
    let folded = n - power;
    let exchanges = u64::from(power.trailing_zeros());
    let round = if folded == 0 { round + 1 } else { round };
    let inside = rank < 2 * folded;
    if round == 0 || round == exchanges + 1 {
        let back = round != 0;
        return match (inside, rank.is_multiple_of(2) != back) {
            (false, _) => Round::NOTHING,
            (true, true) => Round {
                send: Some((rank ^ 1, size)),
                receive: None,
                receive_first: false,
            },
            (true, false) => Round {
                send: None,
                receive: Some(rank ^ 1),
                receive_first: true,
            },
        };
    }
    if inside && rank.is_multiple_of(2) {
        return Round::NOTHING;
    }
    let virtual_rank = if inside { rank / 2 } else { rank - folded };
    let partner = virtual_rank ^ (1 << (round - 1));
    exchange(
        if partner < folded {
            2 * partner + 1
        } else {
            partner + folded
        },
        size,
    )
}

/// Two rounds for each dimension longer than 1: to the next rank and to the previous one.
fn halo(dims: &[u32], size: f64, rank: u32, round: u64) -> Round {
    let (mut stride, mut index) = (1u32, 0u64);
    for &n in dims {
        if n > 1 {
            if index == round / 2 {
                let at = rank / stride % n;
                let base = rank - at * stride;
                let up = base + (at + 1) % n * stride;
                let down = base + (at + n - 1) % n * stride;
                let (to, from) = if round.is_multiple_of(2) {
                    (up, down)
                } else {
                    (down, up)
                };
                return Round {
                    send: Some((to, size)),
                    receive: Some(from),
                    receive_first: false,
                };
            }
            index += 1;
        }
        stride *= n;
    }
    Round::NOTHING
}
