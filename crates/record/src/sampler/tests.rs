//! The sampler in virtual time. A reader counts what the lines tell.

use super::*;
use farcall_random::SplitMix64;

const BUDGET: Budget = Budget {
    lasting: 10.0,
    saved: 1000.0,
    peak: 200.0,
    kinds: 16,
};

/// Lines and calls, as a reader of the record counts them.
#[derive(Debug, Default, PartialEq)]
struct Read {
    alone: u64,
    together: u64,
    lines: u64,
    /// Calls as the shares of the single ones tell.
    estimated: f64,
}

/// Runs calls of kinds at a rate for some seconds.
fn run(sampler: &mut Sampler<u64>, from: u64, rate: u64, seconds: u64, kinds: u64) -> Read {
    let (mut read, mut random) = (Read::default(), SplitMix64::new(7));
    for call in 0..rate * seconds {
        let now = from + call * SECOND / rate;
        if sampler.deadline().is_some_and(|at| at <= now) {
            take(sampler, &mut read);
        }
        let measured = Measured {
            exec: 1000,
            ..Measured::default()
        };
        if let Fate::Alone { share } = sampler.count(now, random.below(kinds), false, &measured) {
            read.alone += 1;
            read.lines += 1;
            read.estimated += 1.0 / share;
        }
    }
    take(sampler, &mut read);
    read
}

fn take(sampler: &mut Sampler<u64>, read: &mut Read) {
    for (_, tally) in sampler.take() {
        read.together += tally.calls;
        read.lines += 1;
    }
}

#[test]
fn few_calls_have_a_line_each() {
    let mut sampler = Sampler::new(BUDGET);
    let read = run(&mut sampler, 0, 4, 10_000, 3);
    assert_eq!((read.alone, read.together), (40_000, 0));
}

#[test]
fn a_burst_is_recorded_whole_after_a_quiet_time() {
    let mut sampler = Sampler::new(BUDGET);
    let read = run(&mut sampler, 0, 100, 2, 3);
    assert_eq!((read.alone, read.together), (200, 0));
}

#[test]
fn every_call_is_counted_once_and_lines_are_bounded() {
    for (rate, kinds) in [(50, 2), (1000, 1), (10_000, 4), (1000, 500)] {
        let mut sampler = Sampler::new(BUDGET);
        let seconds = 200;
        let read = run(&mut sampler, 0, rate, seconds, kinds);
        assert_eq!(read.alone + read.together, rate * seconds, "{rate}");
        // What was saved up, what comes in this time, and the debt of the last counts.
        let most = BUDGET.saved + BUDGET.lasting * seconds as f64 + BUDGET.kinds as f64 + 1.0;
        assert!(read.lines as f64 <= most, "{rate}: {read:?}");
        assert!(read.alone > seconds, "{rate}: {read:?}");
    }
}

#[test]
fn shares_tell_how_many_calls_there_were() {
    let mut sampler = Sampler::new(BUDGET);
    let read = run(&mut sampler, 0, 2000, 300, 2);
    let calls = 2000.0 * 300.0;
    assert!((read.estimated / calls - 1.0).abs() < 0.1, "{read:?}");
}

#[test]
fn a_second_of_ten_thousand_calls_has_few_lines() {
    let mut sampler = Sampler::new(Budget::of_day(100_000_000));
    let read = run(&mut sampler, 0, 10_000, 1, 1);
    assert!(read.lines <= 1800, "{read:?}");
    let next = run(&mut sampler, SECOND, 10_000, 10, 1);
    assert!(next.lines <= 6000, "{next:?}");
}

#[test]
fn the_lines_of_a_day_fit() {
    let budget = Budget::of_day(100_000_000);
    let most = budget.lasting * 86_400.0 + budget.saved;
    assert!(most * Budget::LINE < 110e6, "{most}");
}

#[test]
fn failures_have_lines_among_many_calls() {
    let mut sampler = Sampler::new(BUDGET);
    run(&mut sampler, 0, 5000, 20, 1);
    let quiet = 25 * SECOND;
    for call in 0..5 {
        let fate = sampler.count(quiet + call, 99, true, &Measured::default());
        assert_eq!(fate, Fate::Alone { share: 1.0 });
    }
}

#[test]
fn kinds_beyond_their_number_are_counted_as_one() {
    let mut sampler = Sampler::new(Budget {
        saved: 0.0,
        ..BUDGET
    });
    for kind in 0..100 {
        let fate = sampler.count(kind, kind, false, &Measured::default());
        assert_eq!(fate, Fate::Together);
    }
    let counted = sampler.take();
    assert_eq!(counted.len(), BUDGET.kinds + 1);
    let others = counted.iter().find(|(kind, _)| kind.is_none());
    assert_eq!(others.unwrap().1.calls, 100 - BUDGET.kinds as u64);
    assert_eq!(sampler.deadline(), None);
}

#[test]
fn calls_of_a_quiet_time_do_not_count_later() {
    let mut sampler = Sampler::new(BUDGET);
    for kind in 0..100 {
        let fate = sampler.count(kind * 10 * SECOND, kind, false, &Measured::default());
        assert_eq!(fate, Fate::Alone { share: 1.0 });
    }
    for call in 0..5000 {
        sampler.count(2000 * SECOND + call, 99, false, &Measured::default());
    }
    let counted = sampler.take();
    let [(Some(99), tally)] = &counted[..] else {
        panic!("{counted:?}");
    };
    assert_eq!(tally.alone + tally.calls, 5000);
}

#[test]
fn counts_are_due_sooner_the_fewer_kinds_there_are() {
    let mut sampler = Sampler::new(Budget {
        saved: 0.0,
        ..BUDGET
    });
    sampler.count(0, 0, false, &Measured::default());
    assert_eq!(sampler.deadline(), Some(SECOND));
    for kind in 1..10 {
        sampler.count(0, kind, false, &Measured::default());
    }
    assert_eq!(sampler.deadline(), Some(2 * SECOND));
}

#[test]
fn the_operations_of_calls_that_are_counted_together_stay_a_number() {
    let mut sampler = Sampler::new(Budget {
        saved: 0.0,
        ..BUDGET
    });
    let measured = Measured {
        operations: 1.5e308,
        placed: u64::MAX,
        ..Measured::default()
    };
    for now in 0..3 {
        let fate = sampler.count(now, 1_u64, false, &measured);
        assert_eq!(fate, Fate::Together);
    }
    let [(_, tally)] = &sampler.take()[..] else {
        panic!("calls of one kind were counted");
    };
    let line = crate::Line::Together(Box::new(crate::Together {
        operations: tally.operations,
        placed_bytes: tally.placed,
        ..crate::Together::default()
    }));
    let mut text = Vec::new();
    line.write(&mut text);
    assert_eq!(crate::Line::read(text.trim_ascii_end()).unwrap(), line);
}
