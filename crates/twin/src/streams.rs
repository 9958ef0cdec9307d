//! Finds out which calls a client made only after the results of others.
//!
//! A program that calls in a loop calls later if its calls take longer; a timer or an independent
//! user does not. The record does not say which it was. So this module asks whether the calls of a
//! user's host look independent. Independent calls overlap without a bound, and the pauses before
//! them become shorter when calls take longer. Pauses of a program do neither. Whatever the group,
//! a call that follows the end of another at once is taken for the next one of a loop. The more
//! calls end, the more others follow one of them at once by chance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A pause up to this part of the earlier call, divided by the number of calls that ended
/// meanwhile, or up to [`SHORT_S`], is none. About this part of independent calls has such a pause
/// by chance.
const SHORT_PART: f64 = 0.05;
const SHORT_S: f64 = 0.005;
/// Independent calls would have exceeded the largest overlap that often.
const ENOUGH: f64 = 3.0;
/// The slope of pauses over the times of calls: 0 for a loop, -1 for independent calls.
const SLOPE: f64 = -0.5;

/// A call: its user and host as a number, and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) group: usize,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

/// For each call, the earlier call that it waited for. `spans` are in the order of their starts.
pub(crate) fn streams(spans: &[Span]) -> Vec<Option<usize>> {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (call, span) in spans.iter().enumerate() {
        groups.entry(span.group).or_default().push(call);
    }
    let mut after = vec![None; spans.len()];
    for calls in groups.values() {
        let (before, overlap) = predecessors(spans, calls);
        let loops = is_bounded(spans, calls, overlap) && slope(spans, calls, &before) > SLOPE;
        let mut ends: Vec<f64> = calls.iter().map(|call| spans[*call].to_s).collect();
        ends.sort_by(f64::total_cmp);
        for (call, before) in calls.iter().zip(before) {
            let before: Option<usize> = before;
            after[*call] = before.filter(|before| {
                let earlier = &spans[*before];
                let pause_s = spans[*call].from_s - earlier.to_s;
                loops || pause_s <= short_s(earlier, &ends)
            });
        }
    }
    after
}

/// The longest pause after a call that is none. `ends` are those of its group, in order.
fn short_s(earlier: &Span, ends: &[f64]) -> f64 {
    let until = |time_s: f64| ends.partition_point(|end_s| *end_s <= time_s);
    let meanwhile = until(earlier.to_s) - until(earlier.from_s);
    let part = SHORT_PART / meanwhile.max(1) as f64;
    SHORT_S.max(part * (earlier.to_s - earlier.from_s))
}

/// The call that ended last before each call began and that has no successor yet, and the largest
/// number of calls at a time.
fn predecessors(spans: &[Span], calls: &[usize]) -> (Vec<Option<usize>>, usize) {
    // Times are not negative, so their bits sort like the numbers.
    let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut over: Vec<usize> = Vec::new();
    let mut overlap = 0;
    let before = calls.iter().map(|call| {
        let Span { from_s, to_s, .. } = spans[*call];
        while let Some(Reverse((end, one))) = running.peek().copied()
            && f64::from_bits(end) <= from_s
        {
            running.pop();
            over.push(one);
        }
        running.push(Reverse((to_s.to_bits(), *call)));
        overlap = overlap.max(running.len());
        over.pop()
    });
    (before.collect(), overlap)
}

/// Whether independent calls with the same load would have overlapped more. Their number would have
/// the distribution of Poisson.
fn is_bounded(spans: &[Span], calls: &[usize], overlap: usize) -> bool {
    let first = spans[calls[0]].from_s;
    let last = calls
        .iter()
        .map(|call| spans[*call].to_s)
        .fold(first, f64::max);
    let busy_s = calls
        .iter()
        .map(|call| spans[*call].to_s - spans[*call].from_s);
    let load = busy_s.sum::<f64>() / (last - first).max(1e-9);
    // As a logarithm: of more than 700 calls at a time, the first terms are too small for a number.
    let mut term = -load;
    let mut below = 0.0;
    for number in 0..overlap {
        below += term.exp();
        term += (load / (number + 1) as f64).ln();
    }
    calls.len() as f64 * (1.0 - below) >= ENOUGH
}

/// How much the pause before a call changes with the time of the call before it.
fn slope(spans: &[Span], calls: &[usize], before: &[Option<usize>]) -> f64 {
    let pairs = calls.iter().zip(before);
    let pairs: Vec<(f64, f64)> = pairs
        .filter_map(|(call, before)| {
            let earlier = spans[(*before)?];
            let pause_s = spans[*call].from_s - earlier.to_s;
            Some((earlier.to_s - earlier.from_s, pause_s))
        })
        .collect();
    let count = pairs.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (seconds, pause_s) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let both = sum(&|pair| (pair.0 - seconds) * (pair.1 - pause_s));
    let own = sum(&|pair| (pair.0 - seconds).powi(2));
    if own > 0.0 { both / own } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_random::SplitMix64;

    fn share(spans: &mut [Span]) -> f64 {
        spans.sort_by(|one, other| one.from_s.total_cmp(&other.from_s));
        let after = streams(spans);
        after.iter().flatten().count() as f64 / spans.len() as f64
    }

    fn span(from_s: f64, seconds: f64) -> Span {
        Span {
            group: 0,
            from_s,
            to_s: from_s + seconds,
        }
    }

    /// Calls of `clients` loops with these mean times of calls and pauses.
    fn loops(clients: u64, seconds: f64, pause_s: f64) -> Vec<Span> {
        let mut random = SplitMix64::new(clients);
        let mut spans = Vec::new();
        for _ in 0..clients {
            let mut now_s = random.unit();
            for _ in 0..50 {
                let call = span(now_s, seconds * (0.2 + 1.6 * random.unit()));
                now_s = call.to_s + pause_s * 2.0 * random.unit();
                spans.push(call);
            }
        }
        spans
    }

    #[test]
    fn programs_that_call_in_a_loop_are_found() {
        for (clients, seconds, pause_s) in [(1, 1.0, 0.0), (1, 0.2, 0.3), (4, 1.0, 0.2)] {
            let share = share(&mut loops(clients, seconds, pause_s));
            assert!(share > 0.9, "{clients} clients: {share}");
        }
    }

    #[test]
    fn independent_calls_are_left_at_their_times() {
        let mut random = SplitMix64::new(3);
        let mut now_s = 0.0;
        let mut arrivals = Vec::new();
        for _ in 0..300 {
            now_s -= 0.5 * (1.0 - random.unit()).ln();
            arrivals.push(span(now_s, 0.2 + 0.6 * random.unit()));
        }
        assert!(share(&mut arrivals) < 0.15, "{}", share(&mut arrivals));
        // A timer never lets its calls overlap.
        let mut timer: Vec<Span> = (0..100)
            .map(|tick| span(f64::from(tick), 0.1 + 0.8 * random.unit()))
            .collect();
        assert!(share(&mut timer) < 0.15, "{}", share(&mut timer));
    }

    /// Calls wait longer and longer, so that a twentieth of their time is longer than the time from
    /// one end to the next.
    #[test]
    fn independent_calls_at_an_overloaded_server_are_left_at_their_times() {
        let mut random = SplitMix64::new(5);
        let (mut now_s, mut free_s) = (0.0, 0.0f64);
        let mut arrivals = Vec::new();
        for _ in 0..3000 {
            now_s -= 0.5 * (1.0 - random.unit()).ln();
            free_s = free_s.max(now_s) + 0.5 + random.unit();
            arrivals.push(span(now_s, free_s - now_s));
        }
        assert!(share(&mut arrivals) < 0.15, "{}", share(&mut arrivals));
    }

    #[test]
    fn a_bound_is_below_what_independent_calls_would_reach() {
        for load in [100.0, 1000.0] {
            let spans: Vec<Span> = (0..20_000)
                .map(|call| span(f64::from(call) / load, 1.0))
                .collect();
            let calls: Vec<usize> = (0..spans.len()).collect();
            let most = load + 8.0 * load.sqrt();
            assert!(is_bounded(&spans, &calls, load as usize), "{load}");
            assert!(!is_bounded(&spans, &calls, most as usize), "{load}");
        }
    }

    #[test]
    fn calls_that_follow_at_once_are_the_next_ones_of_a_loop() {
        let mut few = vec![span(0.0, 1.0), span(1.001, 2.0), span(3.01, 1.0)];
        few.push(span(10.0, 1.0));
        assert_eq!(streams(&few), [None, Some(0), Some(1), None]);
    }
}
