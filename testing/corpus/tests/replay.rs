//! Replays the corpus through the bodies of the fuzz targets, unchanged and with random changes. It
//! also checks that every target has a corpus and is replayed.

use farcall_corpus::{TARGETS, inputs};
use farcall_random::SplitMix64;

#[test]
fn every_target_takes_its_corpus() {
    for (name, run) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        inputs.iter().for_each(|input| run(input));
    }
}

#[test]
fn every_target_of_the_fuzzer_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            TARGETS.iter().any(|(target, _)| *target == name),
            "{name} is not replayed"
        );
    }
}

#[test]
fn mutations_of_the_corpus_are_taken() {
    mutate(200);
}

#[test]
#[ignore = "soak"]
fn many_mutations_of_the_corpus_are_taken() {
    mutate(100_000);
}

/// Changes inputs of the corpus at random, for machines without a fuzzer.
fn mutate(rounds: usize) {
    let mut generator = SplitMix64::new(1);
    for (name, run) in TARGETS {
        let seeds = inputs(name);
        for _ in 0..rounds {
            let mut input = pick(&mut generator, &seeds).clone();
            for _ in 0..=generator.below(4) {
                change(&mut generator, &mut input, &seeds);
            }
            run(&input);
        }
    }
}

fn pick<'a, T>(generator: &mut SplitMix64, items: &'a [T]) -> &'a T {
    &items[generator.below(items.len() as u64) as usize]
}

fn change(generator: &mut SplitMix64, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    const ALPHABET: &[u8] = b"0123456789,:=x.\n-e {}";
    let at = generator.below(input.len() as u64 + 1) as usize;
    match generator.below(4) {
        0 => input.insert(at, *pick(generator, ALPHABET)),
        1 if at < input.len() => drop(input.remove(at)),
        2 if at < input.len() => input[at] = generator.below(256) as u8,
        _ => {
            let other = pick(generator, seeds);
            let from = generator.below(other.len() as u64 + 1) as usize;
            let to = (from + generator.below(20) as usize).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
    }
}
