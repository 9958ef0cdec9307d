//! The corpus of the fuzz targets, through the same bodies.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/flow_goal.rs"]
mod flow_goal;
#[path = "../../../fuzz/src/flow_pattern.rs"]
mod flow_pattern;
#[path = "../../../fuzz/src/flow_platform.rs"]
mod flow_platform;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{target} has no corpus");
}

#[test]
fn flow_pattern_takes_its_corpus() {
    replay("flow_pattern", flow_pattern::run);
}

#[test]
fn flow_goal_takes_its_corpus() {
    replay("flow_goal", flow_goal::run);
}

#[test]
fn flow_platform_takes_its_corpus() {
    replay("flow_platform", flow_platform::run);
}

type Target = fn(&[u8]);

const ALPHABET: &[u8] = b"0123456789,:=x.\n-e {}";

/// Random changes of the corpus, where no fuzzer is installed.
#[test]
#[ignore = "soak"]
fn mutations_of_the_corpus_are_taken() {
    let mut generator = farcall_flow::SplitMix64::new(1);
    let targets: [(&str, Target); 3] = [
        ("flow_pattern", flow_pattern::run),
        ("flow_goal", flow_goal::run),
        ("flow_platform", flow_platform::run),
    ];
    for (target, run) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let seeds: Vec<Vec<u8>> = fs::read_dir(folder)
            .unwrap()
            .map(|e| fs::read(e.unwrap().path()).unwrap())
            .collect();
        for _ in 0..100_000 {
            let mut text = seeds[generator.below(seeds.len() as u64) as usize].clone();
            for _ in 0..=generator.below(4) {
                let at = generator.below(text.len() as u64 + 1) as usize;
                match generator.below(4) {
                    0 => text.insert(
                        at,
                        ALPHABET[generator.below(ALPHABET.len() as u64) as usize],
                    ),
                    1 if at < text.len() => drop(text.remove(at)),
                    2 if at < text.len() => text[at] = generator.below(128) as u8,
                    _ => {
                        let other = &seeds[generator.below(seeds.len() as u64) as usize];
                        let from = generator.below(other.len() as u64) as usize;
                        let to = (from + 1 + generator.below(20) as usize).min(other.len());
                        let piece = other[from..to].to_vec();
                        text.splice(at..at, piece);
                    }
                }
            }
            run(&text);
        }
    }
}
