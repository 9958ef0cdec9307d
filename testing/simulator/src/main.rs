//! `cargo xtask simulate`: plays seeds, and prints those that break an invariant. `minimise`
//! shortens their histories first. With `--flaws`, each deliberate fault must be found.

use clap::Parser;
use farcall_simulator::{Flaw, Options, minimise, simulate};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Simulates servers in virtual time, with clients, workers and disks that fail.
///
/// A seed that breaks an invariant is printed with the shortest history that was found.
#[derive(Parser)]
#[command(
    name = "cargo xtask simulate",
    after_help = "Example:\n  cargo xtask simulate --seconds 60"
)]
struct Arguments {
    /// Play only this seed.
    #[arg(long, conflicts_with_all = ["metaservers", "flaws", "flaw"])]
    seed: Option<u64>,
    /// Play new seeds for this many seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The first of the new seeds.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play only seeds with metaservers.
    #[arg(long, conflicts_with_all = ["flaws", "flaw"])]
    metaservers: bool,
    /// Look for each of the deliberate faults, each for the time of `--seconds`.
    #[arg(long)]
    flaws: bool,
    /// With `--flaws`, look only for the deliberate fault of this name.
    #[arg(long, value_parser = flaw)]
    flaw: Option<Flaw>,
    /// Most lines of a history that are printed.
    #[arg(long, default_value_t = 60)]
    lines: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.flaws || arguments.flaw.is_some() {
        return find_flaws(&arguments);
    }
    let (seeds, until) = match arguments.seed {
        Some(seed) => (seed..=seed, None),
        None => {
            let until = Instant::now() + Duration::from_secs(arguments.seconds);
            (arguments.from..=u64::MAX, Some(until))
        }
    };
    let start = on_core();
    let (mut histories, mut calls, mut faults, mut seconds) = (0u64, 0u64, 0u64, 0.0);
    for seed in seeds {
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let options = Options::of_seed(seed);
        if arguments.metaservers && options.metaservers == 0 {
            continue;
        }
        let outcome = simulate(&options);
        (histories, calls) = (histories + 1, calls + outcome.calls);
        (faults, seconds) = (faults + outcome.faults, seconds + outcome.seconds);
        if let Some(violation) = outcome.violation {
            println!("seed {seed} breaks a promise: {violation}");
            show(&options, arguments.lines);
            return ExitCode::FAILURE;
        }
    }
    let took = on_core() - start;
    println!(
        "{histories} histories, {:.1} simulated hours, {calls} calls ({:.0} an hour of one core), \
         {faults} faults ({:.1} per 100 calls): no promise was broken",
        seconds / 3600.0,
        calls as f64 / took * 3600.0,
        100.0 * faults as f64 / calls.max(1) as f64
    );
    ExitCode::SUCCESS
}

/// Processor time of this process, in seconds. Other processes may use the cores meanwhile.
fn on_core() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanos.unwrap_or_default() * 1e-9
}

/// The deliberate fault of this name.
fn flaw(name: &str) -> Result<Flaw, String> {
    let all = || Flaw::all().map(|flaw| (format!("{flaw:?}"), flaw));
    let known = all().find(|(known, _)| known == name);
    known.map(|(_, flaw)| flaw).ok_or_else(|| {
        let names: Vec<String> = all().map(|(known, _)| known).collect();
        format!("no such fault; use one of {}", names.join(", "))
    })
}

/// Looks for each deliberate fault.
fn find_flaws(arguments: &Arguments) -> ExitCode {
    let mut all = true;
    let time = Duration::from_secs(arguments.seconds);
    let is_wanted = |flaw: &Flaw| arguments.flaw.is_none_or(|wanted| wanted == *flaw);
    for flaw in Flaw::all().filter(is_wanted) {
        let start = Instant::now();
        let mut seeds = (arguments.from..).take_while(|_| start.elapsed() < time);
        let found = seeds.find_map(|seed| {
            let violation = simulate(&flaw.options(seed)).violation;
            Some((seed, violation?))
        });
        let took = start.elapsed().as_secs_f64();
        match found {
            Some((seed, violation)) => {
                println!("{flaw:?}: seed {seed} finds it within {took:.1} s: {violation}");
            }
            None => {
                all = false;
                println!("{flaw:?}: not found within {took:.1} s");
            }
        }
    }
    match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Shows the shortest history that was found.
fn show(options: &Options, lines: usize) {
    let short = minimise(options);
    let outcome = simulate(&short);
    println!(
        "shortest: {} clients with {} wishes, {} servers, {} metaservers{}, subjects: {}, \
         faults: {}",
        short.clients,
        short.wishes,
        short.servers,
        short.metaservers,
        if short.stores { " with a store" } else { "" },
        short.subjects.names().join(", "),
        [
            short.faults.names(),
            short.system_faults.names(),
            short.grid_faults.names()
        ]
        .concat()
        .join(", ")
    );
    let skipped = outcome.history.len().saturating_sub(lines);
    if skipped > 0 {
        println!("({skipped} lines before)");
    }
    for line in &outcome.history[skipped..] {
        println!("{line}");
    }
    if let Some(violation) = outcome.violation {
        println!("{violation}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that plays nothing breaks no promise.
    #[test]
    fn what_would_play_nothing_or_something_else_is_refused() {
        let parsed = |words: &[&str]| Arguments::try_parse_from([&["simulate"], words].concat());
        for words in [
            &["--seed", "1", "--metaservers"][..],
            &["--seed", "1", "--flaws"],
            &["--metaservers", "--flaws"],
            &["--seconds", "0"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
        assert!(parsed(&["--seed", "1"]).is_ok());
        assert!(parsed(&["--seconds", "1", "--metaservers"]).is_ok());
    }
}
