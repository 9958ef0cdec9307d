//! `farcall bench grid`: where a metaserver sends calls, beside simple policies and beside the best
//! assignment.

mod best;
mod calls;
mod cost;
pub(super) mod world;

use super::load::problem::Problem;
use super::table::{Better, Row, median, report};
use crate::failure::Failure;
use best::{Simulated, simulated};
use calls::{Made, PROBES, Planned, Speed};
use clap::Args;
use farcall_gridsim::Outcome;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use world::World;

/// Calls after which predictions are judged.
const LEARNED: usize = 50;
/// Steps of the search for the best assignment, for each of the two figures.
const STEPS: usize = 4000;
const QUICK_STEPS: usize = 400;
const CALLS: usize = 200;
const QUICK_CALLS: usize = 60;
/// The default policy comes first.
const POLICIES: [&str; 3] = ["completion", "round-robin", "least-load"];

/// Placement of calls on two unequal servers behind unequal links
///
/// A server with half a processor is behind a link of 100 Mbit/s, one with a whole behind 10
/// Mbit/s. Linpack and EP are called at random moments of a fixed seed, under one policy of the
/// metaserver after the other. Hosts are network namespaces, and quotas control groups, that the
/// run makes and removes; it needs root. benches/METHOD.md says how the figures are made.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench grid --check
  sudo farcall bench grid --quick")]
pub(crate) struct Arguments {
    /// Exit with status 1 where a bar is missed
    #[arg(long)]
    check: bool,
    /// Fewer calls and a shorter search
    #[arg(long)]
    quick: bool,
    /// Calls under each policy [default: 200, with --quick 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    calls: Option<u64>,
    /// Seed of the calls' moments and sizes
    #[arg(long, default_value_t = 5)]
    seed: u64,
    /// Part of what both servers can do that the calls ask for
    #[arg(long, value_name = "PART", default_value_t = 0.7, value_parser = part)]
    load: f64,
    /// Folder with linpack.idl, ep.idl and their libraries
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Print what each call was predicted to take, and what it took
    #[arg(long, conflicts_with = "json")]
    each: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A part of a whole.
fn part(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .ok()
        .filter(|value| (0.01..=1.0).contains(value));
    value.ok_or_else(|| "a number from 0.01 to 1 is expected".to_string())
}

impl Arguments {
    fn calls(&self) -> usize {
        let default = if self.quick { QUICK_CALLS } else { CALLS };
        self.calls.map_or(default, |calls| calls as usize)
    }

    fn steps(&self) -> usize {
        if self.quick { QUICK_STEPS } else { STEPS }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    super::leave_no_lab()?;
    let interfaces = ["linpack.idl", "ep.idl"];
    let interfaces = interfaces.map(|name| super::interface_file(&arguments.libraries, name));
    let interfaces: Vec<PathBuf> = interfaces.into_iter().collect::<Result<_, _>>()?;
    let world = World::build()?;
    let plan = calls::plan(arguments.calls(), arguments.seed);
    let speeds = calls::speeds(&world, &world.start(POLICIES[0], &interfaces)?)?;
    let window_s = window(&plan, &speeds, world.processors()) / arguments.load;
    let bar = progress(POLICIES.len() * plan.len())?;
    let mut runs = Vec::new();
    for policy in POLICIES {
        bar.set_message(format!("{policy}, calls within {window_s:.0} s"));
        let grid = world.start(policy, &interfaces)?;
        let made = calls::make(&world, &grid, &plan, window_s, &bar)?;
        tell(arguments, policy, window_s, &plan, &made);
        runs.push(made);
    }
    let processors = world.processors();
    drop(world);
    bar.finish_and_clear();
    let mut rows = rows(arguments, &plan, window_s, (&speeds, processors), &runs)?;
    rows.push(cost::placement()?);
    rows.push(cost::question(&arguments.libraries)?);
    report(&rows, arguments.json, arguments.check)
}

/// Seconds that the calls keep all processors busy, or all links where that is longer.
fn window(plan: &[Planned], speeds: &[Speed], processors: f64) -> f64 {
    let fastest = |kind: usize| {
        let speeds = speeds.iter().map(|speed| speed.operations[kind]);
        speeds.fold(0.0, f64::max)
    };
    let of = |one: &Planned| {
        let is_it = |probe: &Problem| probe.function() == one.problem.function();
        let kind = PROBES.iter().position(is_it);
        one.problem.operations() / fastest(kind.unwrap_or(0))
    };
    let computed_s = plan.iter().map(of).sum::<f64>() / processors;
    let bytes: f64 = plan.iter().map(|one| one.problem.ways()[0]).sum();
    let sent_s = bytes / speeds.iter().map(|speed| speed.up).sum::<f64>();
    computed_s.max(sent_s)
}

/// What came of a policy: a run takes minutes.
fn tell(arguments: &Arguments, policy: &str, window_s: f64, plan: &[Planned], made: &[Made]) {
    if arguments.json {
        return;
    }
    let far = made.iter().filter(|one| one.server > 0).count();
    println!(
        "{policy:12} calls within {window_s:.1} s: all done after {:.1} s, mean {:.2} s, {far} of \
         {} far, predictions off by {:.2}",
        makespan(made),
        mean_response(made),
        made.len(),
        median(&errors(made)),
    );
    if arguments.each {
        each(plan, made);
    }
}

/// What the servers and their links could do in the runs, and how much of it was asked for.
fn tell_of_speeds(speeds: &[Speed], load: f64) {
    for (server, Speed { operations, up }) in speeds.iter().enumerate() {
        let [linpack, ep] = operations.map(|rate| rate * 1e-6);
        println!(
            "server {server}: Linpack {linpack:.0} Mflop/s, EP {ep:.1} million operations/s, {:.2} \
             MB/s to it",
            up * 1e-6
        );
    }
    println!("the calls asked for {load:.2} of what both can do");
}

/// What was predicted of each call, and what it took, in milliseconds.
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

/// A bar on standard error where that is a terminal.
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

/// How far predictions were off, of the calls after the first fifty, or of all where there are
/// fewer.
fn errors(made: &[Made]) -> Vec<f64> {
    let judged = made.get(LEARNED..).filter(|rest| !rest.is_empty());
    let judged = judged.unwrap_or(made).iter();
    judged.map(Made::error).collect()
}

/// A figure of a run, and of a simulated one.
type Figure = (&'static str, fn(&[Made]) -> f64, fn(&Outcome) -> f64);

const FIGURES: [Figure; 2] = [
    ("makespan", makespan, Outcome::makespan_s),
    ("mean response", mean_response, Outcome::mean_response_s),
];

fn rows(
    arguments: &Arguments,
    plan: &[Planned],
    window_s: f64,
    (speeds, processors): (&[Speed], f64),
    runs: &[Vec<Made>],
) -> Result<Vec<Row>, Failure> {
    let (ours, others) = (&runs[0], &runs[1..]);
    let speeds = speeds.iter().enumerate();
    let speeds = speeds.map(|(server, speed)| speed.refined(server, plan, runs));
    let speeds: Vec<Speed> = speeds.collect();
    if !arguments.json {
        tell_of_speeds(&speeds, window(plan, &speeds, processors) / window_s);
    }
    let scenario = best::scenario(plan, window_s, &speeds, ours);
    let bar = progress(FIGURES.len() * arguments.steps())?;
    bar.set_message("search for the best assignment");
    let mut rows = Vec::new();
    for (figure_name, figure, simulated_figure) in FIGURES {
        let value = figure(ours);
        for (policy, other) in POLICIES[1..].iter().zip(others) {
            rows.push(row(
                figure_name.into(),
                value,
                (policy, figure(other)),
                Some(0.75),
            ));
        }
        let Simulated {
            placed,
            policy,
            best,
        } = simulated(&scenario, ours, simulated_figure, arguments.steps(), &bar);
        rows.push(row(
            figure_name.into(),
            value,
            ("best found", best),
            Some(1.15),
        ));
        let name = format!("{figure_name}, as placed");
        rows.push(row(name, value, ("simulated", placed), None));
        let name = format!("{figure_name}, placed in simulation");
        rows.push(row(name, policy, ("best found", best), None));
    }
    bar.finish_and_clear();
    let error = median(&errors(ours));
    rows.push(Row {
        unit: "",
        ..row(
            "median error of predicted times".into(),
            error,
            ("at most", 0.15),
            Some(1.0),
        )
    });
    Ok(rows)
}

fn row(name: String, value: f64, (peer, peer_value): (&'static str, f64), bar: Option<f64>) -> Row {
    Row {
        name,
        unit: "s",
        values: vec![value],
        peer,
        peer_values: vec![peer_value],
        better: Better::Lower,
        bar,
    }
}
