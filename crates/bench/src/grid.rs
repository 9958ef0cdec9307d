//! `farcall bench grid`: the placement of calls by a metaserver, compared with simple policies and
//! with the best assignment. All policies get the same calls at the same times. `best` searches for
//! the best assignment in a simulation.

mod best;
mod calls;
mod cost;
mod round;
pub(super) mod world;

use super::table::{Better, Row, median, report};
use crate::failure::Failure;
use crate::machine::Machine;
use best::{Simulated, simulated};
use calls::{Made, Planned};
use clap::Args;
use farcall_gridsim::{Outcome, Scenario};
use indicatif::{ProgressBar, ProgressStyle};
use round::{Course, Round, TOLERANCE};
use std::path::PathBuf;
use world::World;

/// Number of calls after which predictions are judged.
const LEARNED: usize = 50;
/// Steps of the search for the best assignment, for each of the two figures.
const STEPS: usize = 4000;
const QUICK_STEPS: usize = 400;
const CALLS: usize = 200;
const QUICK_CALLS: usize = 60;
const ROUNDS: u64 = 3;
const QUICK_ROUNDS: u64 = 1;
/// The default policy comes first.
const POLICIES: [&str; 3] = ["completion", "round-robin", "least-load"];

/// Measure the placement of calls on two unequal servers behind unequal links
///
/// A server with half a processor is behind a link of 100 Mbit/s, and one with a whole processor is
/// behind 10 Mbit/s. Clients call Linpack and EP at random times from a fixed seed, under one
/// policy of the metaserver after the other. The run creates and removes network namespaces for the
/// hosts and control groups for the quotas, so it needs root. benches/METHOD.md describes the
/// method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench grid --check
  sudo farcall bench grid --quick")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Make fewer calls, one round at any load, and a shorter search
    #[arg(long)]
    quick: bool,
    /// Number of calls under each policy [default: 200, with --quick 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    calls: Option<u64>,
    /// Number of rounds, each under all policies [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: Option<u64>,
    /// Seed of the times and sizes of the calls
    #[arg(long, default_value_t = 5)]
    seed: u64,
    /// Load of the calls, as a part of the capacity of both servers
    #[arg(long, value_name = "PART", default_value_t = 0.65, value_parser = part)]
    load: f64,
    /// Folder with linpack.idl, ep.idl and their libraries
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Print the predicted and the actual time of each call
    #[arg(long, conflicts_with = "json")]
    each: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Parses a part of a whole.
fn part(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value| (0.01..=1.0).contains(value));
    value.ok_or_else(|| "use a number from 0.01 to 1".to_string())
}

impl Arguments {
    fn calls(&self) -> usize {
        let default = if self.quick { QUICK_CALLS } else { CALLS };
        self.calls.map_or(default, |calls| calls as usize)
    }

    fn rounds(&self) -> usize {
        let default = if self.quick { QUICK_ROUNDS } else { ROUNDS };
        self.rounds.unwrap_or(default) as usize
    }

    fn tolerance(&self) -> f64 {
        if self.quick { f64::INFINITY } else { TOLERANCE }
    }

    fn steps(&self) -> usize {
        if self.quick { QUICK_STEPS } else { STEPS }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::watch();
    let interfaces = ["linpack.idl", "ep.idl"];
    let interfaces =
        interfaces.map(|name| crate::program::interface_file(&arguments.libraries, name));
    let interfaces: Vec<PathBuf> = interfaces.into_iter().collect::<Result<_, _>>()?;
    let world = World::build()?;
    let plan = calls::plan(arguments.calls(), arguments.seed);
    let bar = progress(arguments.rounds() * POLICIES.len() * plan.len())?;
    let course = Course {
        world: &world,
        interfaces: &interfaces,
        plan: &plan,
        load: arguments.load,
        tolerance: arguments.tolerance(),
        each: arguments.each,
        quiet: arguments.json,
        bar: &bar,
    };
    let rounds = course.rounds(arguments.rounds())?;
    drop(world);
    bar.finish_and_clear();
    let mut rows = rows(arguments, &plan, &rounds)?;
    rows.push(cost::placement()?);
    rows.push(cost::question(&arguments.libraries, arguments.quick)?);
    report(&rows, machine.end(), arguments.json, arguments.check)
}

/// Prints the results of a policy at once, because a run takes minutes.
fn tell(policy: &str, window_s: f64, plan: &[Planned], made: &[Made], with_each: bool) {
    let far = made.iter().filter(|one| one.server > 0).count();
    println!(
        "{policy:12} calls within {window_s:.1} s: all done after {:.1} s, mean {:.2} s, {far} of \
         {} far, predictions off by {:.2}",
        makespan(made),
        mean_response(made),
        made.len(),
        median(&errors(made)),
    );
    if with_each {
        each(plan, made);
    }
}

/// Prints the predicted and the actual time of each call, in milliseconds.
fn each(plan: &[Planned], made: &[Made]) {
    let header = |names: [&str; 5]| names.map(|name| format!("{name:>6}")).join(" ");
    let said = header(["up", "wait", "comp", "down", "all"]);
    let took = header(["up", "wait", "comp", "rest", "all"]);
    println!(
        "{:>8} {:14} server  predicted {said}  took {took}",
        "at", "call"
    );
    for (planned, one) in plan.iter().zip(made) {
        let (said, times) = (one.predicted, one.times);
        let rest_s = one.seconds - times.send - one.wait_s - times.exec;
        let all_s = said.seconds();
        let said = [said.up_s, said.wait_s, said.compute_s, said.down_s, all_s];
        let took = [times.send, one.wait_s, times.exec, rest_s, one.seconds];
        let text = |all: [f64; 5]| {
            all.map(|seconds| format!("{:6.0}", seconds * 1e3))
                .join(" ")
        };
        println!(
            "{:8.3} {:14} {:6}            {}       {}",
            planned.at,
            format!("{:?}", planned.problem),
            one.server,
            text(said),
            text(took)
        );
    }
}

/// A progress bar on standard error, if that is a terminal.
fn progress(steps: usize) -> Result<ProgressBar, Failure> {
    let style = "{bar:30} {pos}/{len}, {elapsed}, {msg}";
    let style = ProgressStyle::with_template(style).map_err(Failure::failed)?;
    Ok(ProgressBar::new(steps as u64).with_style(style))
}

fn makespan(made: &[Made]) -> f64 {
    made.iter().map(|one| one.done_s).fold(0.0, f64::max)
}

fn mean_response(made: &[Made]) -> f64 {
    made.iter().map(|one| one.seconds).sum::<f64>() / made.len() as f64
}

/// Errors of the predictions for the calls after the first fifty, or for all calls if there are
/// fewer.
fn errors(made: &[Made]) -> Vec<f64> {
    let judged = made.get(LEARNED..).filter(|rest| !rest.is_empty());
    let judged = judged.unwrap_or(made).iter();
    judged.map(Made::error).collect()
}

/// A figure: its name, its value for a real run, and its value for a simulated one.
type Figure = (&'static str, fn(&[Made]) -> f64, fn(&Outcome) -> f64);

const FIGURES: [Figure; 2] = [
    ("makespan", makespan, Outcome::makespan_s),
    ("mean response", mean_response, Outcome::mean_response_s),
];

fn rows(arguments: &Arguments, plan: &[Planned], rounds: &[Round]) -> Result<Vec<Row>, Failure> {
    let bar = progress(rounds.len() * FIGURES.len() * arguments.steps())?;
    bar.set_message("search for the best assignment");
    let scenario = |round| best::scenario(plan, round);
    let scenarios: Vec<Scenario> = rounds.iter().map(scenario).collect();
    let mut rows = Vec::new();
    for (figure_name, figure, simulated_figure) in FIGURES {
        let of = |policy: usize| {
            rounds
                .iter()
                .map(|round| figure(&round.runs[policy]))
                .collect()
        };
        let ours: Vec<f64> = of(0);
        for (policy, name) in POLICIES.into_iter().enumerate().skip(1) {
            rows.push(row(figure_name, &ours, (name, of(policy)), Some(0.75)));
        }
        let simulated = rounds.iter().zip(&scenarios).map(|(round, scenario)| {
            let (made, steps) = (&round.runs[0], arguments.steps());
            simulated(scenario, made, simulated_figure, steps, &bar)
        });
        let simulated: Vec<Simulated> = simulated.collect();
        let of = |pick: fn(&Simulated) -> f64| simulated.iter().map(pick).collect();
        let best: Vec<f64> = of(|one| one.best);
        rows.push(row(
            figure_name,
            &ours,
            ("best found", best.clone()),
            Some(1.15),
        ));
        let name = format!("{figure_name}, as placed");
        rows.push(row(&name, &ours, ("simulated", of(|one| one.placed)), None));
        let name = format!("{figure_name}, placed in simulation");
        let policy: Vec<f64> = of(|one| one.policy);
        rows.push(row(&name, &policy, ("best found", best), None));
    }
    bar.finish_and_clear();
    let off = rounds.iter().map(|round| median(&errors(&round.runs[0])));
    let off: Vec<f64> = off.collect();
    let name = "median error of predicted times";
    rows.push(Row {
        unit: "",
        ..row(name, &off, ("at most", vec![0.15]), Some(1.0))
    });
    Ok(rows)
}

fn row(
    name: &str,
    values: &[f64],
    (peer, peer_values): (&'static str, Vec<f64>),
    bar: Option<f64>,
) -> Row {
    Row {
        name: name.into(),
        unit: "s",
        values: values.to_vec(),
        peer,
        peer_values,
        better: Better::Lower,
        bar,
    }
}
