//! Tests of the patterns without a network: every receive has its send, and the volumes are those
//! of the literature. A wrong name gets an error that lists the alternatives.

use super::*;
use std::collections::HashMap;

const NAMES: [&str; 17] = [
    "all-to-all:simple-spread",
    "all-to-all:simple-spread-2d",
    "all-to-all:pairwise",
    "all-to-all:bruck",
    "all-to-allv:3",
    "ring",
    "broadcast:binomial",
    "broadcast:scatter-allgather",
    "allreduce:ring",
    "allreduce:recursive-doubling",
    "allreduce:tree",
    "allreduce:hierarchical:4",
    "allreduce:hierarchical:1",
    "pipeline:3",
    "allgather:ring",
    "allgather:recursive-doubling",
    "allgather:bruck",
];

#[test]
fn every_receive_has_its_send_and_the_count_is_right() {
    for ranks in [2, 3, 4, 5, 7, 8, 12, 16, 25] {
        for name in NAMES.into_iter().chain(["exchange:5x5", "exchange:2x3x2"]) {
            let Ok(pattern) = Pattern::parse(name, ranks, 8.0) else {
                continue;
            };
            let mut total = 0;
            for round in 0..pattern.rounds() {
                let mut sent: HashMap<(u32, u32), u32> = HashMap::new();
                for rank in 0..ranks {
                    if let Some((to, bytes)) = pattern.round(rank, round).send {
                        assert!(to < ranks && bytes > 0.0 && to != rank, "{name} {ranks}");
                        *sent.entry((rank, to)).or_default() += 1;
                        total += 1;
                    }
                }
                for rank in 0..ranks {
                    if let Some(from) = pattern.round(rank, round).receive {
                        assert!(
                            sent.remove(&(from, rank)).is_some(),
                            "{name} {ranks} {round}"
                        );
                    }
                }
                assert!(
                    sent.is_empty() || !pattern.has_receives(),
                    "{name} {ranks}: unreceived"
                );
            }
            assert_eq!(pattern.messages(), total, "{name} over {ranks}");
        }
    }
}

#[test]
fn all_to_all_reaches_everyone_once() {
    for (name, ranks) in [
        ("all-to-all:simple-spread", 12),
        ("all-to-all:simple-spread-2d", 16),
        ("all-to-all", 8),
    ] {
        let pattern = Pattern::parse(name, ranks, 1.0).unwrap();
        for rank in 0..ranks {
            let mut to: Vec<u32> = (0..pattern.rounds())
                .map(|round| pattern.round(rank, round).send.unwrap().0)
                .collect();
            to.sort_unstable();
            let others: Vec<u32> = (0..ranks).filter(|&r| r != rank).collect();
            assert_eq!(to, others, "{name}");
        }
    }
}

#[test]
fn each_expert_gets_its_part_and_sends_it_back() {
    let ranks = 5;
    let pattern = Pattern::parse("moe:3:7", ranks, 100.0).unwrap();
    let harmonic = 1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0 + 1.0 / 5.0;
    assert_eq!(pattern.messages(), 3 * 2 * 5 * 4);
    let mut firsts = Vec::new();
    for layer in 0..3 {
        let mut sizes: HashMap<(u32, u32), [f64; 2]> = HashMap::new();
        for exchange in 0..2 {
            let rounds = (2 * layer + exchange) * 8..(2 * layer + exchange + 1) * 8;
            let mut received = Vec::new();
            for (rank, round) in (0..ranks).flat_map(|r| rounds.clone().map(move |k| (r, k))) {
                let round = pattern.round(rank, round);
                if let Some((to, bytes)) = round.send {
                    sizes.entry((rank, to)).or_default()[exchange as usize] = bytes;
                }
                received.extend(round.receive.map(|from| (from, rank)));
            }
            received.sort_unstable();
            let mut sent: Vec<(u32, u32)> = sizes.keys().copied().collect();
            sent.sort_unstable();
            assert_eq!((received, sizes.len()), (sent, 20));
        }
        for (&(rank, to), [there, _]) in &sizes {
            assert_eq!(*there, sizes[&(to, rank)][1], "{rank} to {to}");
        }
        let part = |expert: u32| sizes[&((expert + 1) % ranks, expert)][0] * harmonic / 100.0;
        let mut parts: Vec<f64> = (0..ranks).map(part).collect();
        firsts.push((0..ranks).find(|&expert| part(expert) > 0.9).unwrap());
        parts.sort_by(|a, b| b.total_cmp(a));
        for (k, part) in (1..).zip(parts) {
            assert!((part - 1.0 / f64::from(k)).abs() < 1e-12, "{k}: {part}");
        }
    }
    assert!(firsts.iter().any(|first| *first != firsts[0]), "{firsts:?}");
}

#[test]
fn sizes_of_alltoallv_have_their_mean_and_depend_on_the_seed() {
    let sizes = |spec| -> Vec<f64> {
        let pattern = Pattern::parse(spec, 40, 10.0).unwrap();
        let all = (0..40).flat_map(|rank| (0..39).map(move |round| (rank, round)));
        all.map(|(rank, round)| pattern.round(rank, round).send.unwrap().1)
            .collect()
    };
    let one = sizes("all-to-allv:1");
    let mean = one.iter().sum::<f64>() / one.len() as f64;
    assert!((mean - 10.0).abs() < 0.5, "{mean}");
    assert!(one.iter().all(|size| (0.0..20.0).contains(size)));
    assert_eq!(one, sizes("all-to-allv:1"));
    assert_ne!(one, sizes("all-to-allv:2"));
}

/// Bytes per rank and total volumes that the algorithms are known to move.
#[test]
fn volumes_match_the_literature() {
    let volume = |name: &str, ranks: u32, size: f64| -> f64 {
        let pattern = Pattern::parse(name, ranks, size).unwrap();
        let sends = (0..ranks).flat_map(|rank| {
            let pattern = &pattern;
            (0..pattern.rounds()).filter_map(move |round| pattern.round(rank, round).send)
        });
        sends.map(|(_, bytes)| bytes).sum()
    };
    assert_eq!(
        volume("allreduce:ring", 8, 64.0),
        8.0 * 2.0 * 7.0 / 8.0 * 64.0
    );
    assert_eq!(
        volume("allreduce:recursive-doubling", 8, 64.0),
        8.0 * 3.0 * 64.0
    );
    assert_eq!(
        volume("allreduce:recursive-doubling", 6, 64.0),
        (4.0 * 2.0 + 4.0) * 64.0
    );
    // Each rank moves 3/4 of the vector twice in its group, and 1/8 twice between the two groups.
    assert_eq!(
        volume("allreduce:hierarchical:4", 8, 64.0),
        8.0 * (2.0 * 48.0 + 2.0 * 8.0)
    );
    assert_eq!(volume("pipeline:3", 8, 1.0), 21.0);
    for ranks in [5, 8] {
        assert_eq!(
            volume("allreduce:tree", ranks, 1.0),
            2.0 * f64::from(ranks - 1)
        );
        let all = f64::from(ranks * (ranks - 1));
        assert_eq!(volume("allgather:bruck", ranks, 1.0), all);
        assert_eq!(volume("allgather:ring", ranks, 1.0), all);
        assert_eq!(
            volume("broadcast:binomial", ranks, 1.0),
            f64::from(ranks - 1)
        );
    }
    assert_eq!(volume("all-to-all:bruck", 8, 1.0), 8.0 * 3.0 * 4.0);
    // Scatter: each of the 8 blocks crosses as many edges as the depth of its owner, 12 in total.
    // Then the ring follows.
    assert_eq!(
        volume("broadcast:scatter-allgather", 8, 8.0),
        12.0 + 8.0 * 7.0
    );
}

#[test]
fn errors_of_patterns_list_the_alternatives() {
    for (spec, ranks, part) in [
        ("alltoall", 4, "all-to-all:pairwise"),
        ("all-to-all:pairwise", 6, "power of two"),
        ("all-to-all:simple-spread-2d", 6, "square"),
        ("exchange:3x3", 8, "has 9 ranks, but the pattern is for 8"),
        ("exchange:0x3", 8, "exchange:16x16"),
        ("goal:x.goal", 8, "is a file"),
        ("allreduce:hierarchical:3", 8, "do not divide"),
        ("allreduce:hierarchical:0", 8, "do not divide"),
        ("allreduce:hierarchical:x", 8, "ranks of a group"),
        ("pipeline:", 8, "number of batches"),
    ] {
        let error = Pattern::parse(spec, ranks, 1.0).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(Pattern::parse("ring", 4, f64::NAN).is_err());
}
