//! Parses the text form of a pattern. It reads no file: for a pattern in a file, the caller reads
//! the text and parses it with `script` or `goal`. An error lists the patterns that exist.

use super::{Kind, Pattern};
use crate::error::SpecError;

/// The patterns that a specification can name.
pub const PATTERN_KINDS: [&str; 22] = [
    "all-to-all:simple-spread",
    "all-to-all:simple-spread-2d",
    "all-to-all:pairwise",
    "all-to-all:bruck",
    "all-to-allv:SEED",
    "moe:LAYERS[:SEED]",
    "ring",
    "broadcast:binomial",
    "broadcast:scatter-allgather",
    "allreduce:ring",
    "allreduce:recursive-doubling",
    "allreduce:tree",
    "allreduce:hierarchical:RANKS-OF-A-GROUP",
    "allgather:ring",
    "allgather:recursive-doubling",
    "allgather:bruck",
    "exchange:AxBxC",
    "pipeline:BATCHES",
    "file:PATTERN.csv",
    "goal:TRACE.goal",
    "chakra:PREFIX (the files PREFIX.0.et, PREFIX.1.et, ...)",
    "all-to-all (simple-spread, or pairwise if the number of ranks is a power of two)",
];

pub(super) fn parse(spec: &str, ranks: u32, size: f64) -> Result<Pattern, SpecError> {
    let fail = |reason: String| SpecError::new(spec, reason);
    let (family, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let kind = match (family, rest) {
        ("all-to-all", "simple-spread") => Kind::SimpleSpread,
        ("all-to-all", "simple-spread-2d") => Kind::SimpleSpread2d,
        ("all-to-all", "pairwise") => Kind::Pairwise,
        ("all-to-all", "bruck") => Kind::BruckAllToAll,
        ("all-to-all", "") if ranks.is_power_of_two() => Kind::Pairwise,
        ("all-to-all", "") => Kind::SimpleSpread,
        ("ring", "") => Kind::Ring,
        ("broadcast", "binomial" | "") => Kind::BinomialBroadcast,
        ("broadcast", "scatter-allgather") => Kind::ScatterAllgatherBroadcast,
        ("allreduce", "ring") => Kind::RingAllreduce,
        ("allreduce", "recursive-doubling" | "") => Kind::RecursiveDoublingAllreduce,
        ("allreduce", "tree") => Kind::TreeAllreduce,
        ("allreduce", rest) if rest.starts_with("hierarchical:") => {
            match rest["hierarchical:".len()..].parse() {
                Ok(group) => Kind::HierarchicalAllreduce { group },
                Err(_) => {
                    let reason = "expected the ranks of a group, `allreduce:hierarchical:8`";
                    return Err(fail(reason.to_owned()));
                }
            }
        }
        ("all-to-allv", seed) => match seed.parse() {
            Ok(seed) => Kind::Alltoallv { seed },
            Err(_) => return Err(fail("expected a seed, `all-to-allv:1`".to_owned())),
        },
        ("moe", rest) => {
            let (layers, seed) = rest.split_once(':').unwrap_or((rest, "1"));
            match (layers.parse(), seed.parse()) {
                (Ok(layers), Ok(seed)) => Kind::MixtureOfExperts { layers, seed },
                _ => return Err(fail("expected layers, `moe:4` or `moe:4:SEED`".to_owned())),
            }
        }
        ("pipeline", batches) => match batches.parse() {
            Ok(batches) => Kind::Pipeline { batches },
            Err(_) => {
                return Err(fail(
                    "expected a number of batches, `pipeline:8`".to_owned(),
                ));
            }
        },
        ("allgather", "ring" | "") => Kind::RingAllgather,
        ("allgather", "recursive-doubling") => Kind::RecursiveDoublingAllgather,
        ("allgather", "bruck") => Kind::BruckAllgather,
        ("exchange", dims) => {
            let dims: Result<Vec<u32>, _> = dims.split('x').map(str::parse).collect();
            match dims {
                Ok(dims) if !dims.contains(&0) && dims.len() <= 6 => Kind::Exchange { dims },
                _ => {
                    return Err(fail(
                        "expected a grid of ranks, `exchange:16x16`".to_owned(),
                    ));
                }
            }
        }
        ("file" | "goal" | "chakra", _) => return Err(fail(is_in_files(family))),
        _ => {
            let known = PATTERN_KINDS.join("\n  ");
            return Err(fail(format!("unknown pattern; write one of\n  {known}")));
        }
    };
    Pattern::new(kind, ranks, size).map_err(fail)
}

/// Why a pattern from files is no specification here.
fn is_in_files(family: &str) -> String {
    let reader = match family {
        "chakra" => "flow.read_chakra",
        _ => "flow.read_pattern",
    };
    format!("is a file: read it and parse its text, in Python with {reader}")
}
