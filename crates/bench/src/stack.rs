//! `farcall bench stack`: whether the parts of Farcall work together, and how well `farcall sim`
//! predicts it. The scenario's calls are really made: on two sites with trunks, gangs and servers
//! behind a metaserver, while a link is cut, a node is killed and a server drains.
//!
//! `calls` makes the calls, and `timeline` writes down what happened when.

mod calls;
mod timeline;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::table::{Better, Row, report};
use calls::{Fate, Made, Plan};
use clap::Args;
use farcall_lab::stack::{SITES, Stack, StackShape, head, name_of, node_name};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;
use timeline::Timeline;

/// The site whose second node is killed and whose server drains.
const LEAVING: usize = 1;
/// When a link of the other site is cut and repaired, and when the node is killed: as shares of the
/// time at which the server drains.
const CUT: f64 = 0.25;
const REPAIR: f64 = 0.45;
const KILL: f64 = 0.7;
/// How far throughput may be from the prediction.
const NEAR: f64 = 0.10;

/// Run users' calls on a whole grid while parts of it fail, and compare it with its prediction
///
/// `farcall sim` predicts the scenario. Then the same calls are made on the grid of `farcall up
/// --lab`: two sites of four nodes with trunks and gangs, each with a batch job on all nodes, and a
/// client behind a long line. A link is cut and repaired, a node is killed, and the server of one
/// site drains. Every call must return the right result, or its failure must be told. The calls
/// sleep as long as the scenario says. The run creates and removes network namespaces, so it needs
/// root. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench stack --check
  sudo farcall bench stack --timeline out
  python benches/stack/timeline.py out stack.svg")]
pub(crate) struct Arguments {
    /// Scenario of two servers with four processor elements, one of which drains
    #[arg(long, value_name = "FILE", default_value = "examples/sim/stack.toml")]
    scenario: PathBuf,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Folder with bench.idl, stack.idl and their libraries
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Write the faults, links, gang slices and calls with their times to files in this folder
    #[arg(long, value_name = "DIR")]
    timeline: Option<PathBuf>,
    /// What the parts log on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    log: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let interface = |name| crate::program::interface_file(&arguments.libraries, name);
    let interfaces = [interface("bench.idl")?, interface("stack.idl")?];
    let interfaces = interfaces.map(|file| file.to_string_lossy().into_owned());
    let farcall = crate::program::farcall()?;
    let plan = Plan::read(&farcall, &arguments.scenario)?;
    let folder = crate::signals::folder()?;
    let shape = StackShape {
        farcall: &farcall,
        folder: folder.path(),
        interfaces: &interfaces,
        allow_code: false,
        secret: "the secret of a benchmark",
        log: &arguments.log,
    };
    let quiet = arguments.json;
    let mut tell = |line: &str| {
        if !quiet {
            println!("{line}");
        }
    };
    let mut stack = Stack::start(&shape, &mut tell).map_err(Failure::failed)?;
    let batch = batch_jobs(&stack, &farcall)?;
    let machine = Machine::watch();
    let start = Instant::now();
    let line = Timeline::begin(&stack, &farcall, start)?;
    let made = std::thread::scope(|scope| {
        let (calls, lab) = (&plan.calls, stack.lab().clone());
        let at = stack.metaserver().to_owned();
        let making = scope.spawn(move || calls::make_all(calls, &lab, &at, start));
        disturb(&mut stack, &farcall, plan.drains_s, &line, &mut tell)?;
        let panicked = |_| Err(Failure::failed("the client panicked"));
        making.join().unwrap_or_else(panicked)
    })?;
    let busy = machine.end();
    batch.into_iter().for_each(end);
    if let Some(folder) = &arguments.timeline {
        line.write(folder, &stack, &farcall, &made)?;
    }
    drop(stack);
    let told = made.iter().filter_map(|made| match &made.fate {
        Fate::Told(error) => Some(error),
        _ => None,
    });
    told.for_each(|error| tell(&format!("a failure that was told: {error}")));
    report(&rows(&plan, &made), busy, arguments.json, arguments.check)?;
    match made.iter().any(|made| matches!(made.fate, Fate::Wrong)) {
        true => Err(Failure::failed("a call returned a wrong result")),
        false => Ok(()),
    }
}

/// A batch job at each site that fills all nodes. It rests while parallel calls run.
fn batch_jobs(stack: &Stack, farcall: &Path) -> Result<Vec<Child>, Failure> {
    let job = |site: usize| {
        let mut command = stack.lab().command(head(site), &farcall.to_string_lossy());
        command.args(["gang", "run", "--quiet", "-n", "8", "--"]);
        command.args(["sh", "-c", "while sleep 0.05; do :; done"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(farcall_child::spawn(command)?)
    };
    (0..SITES).map(job).collect()
}

fn end(mut job: Child) {
    // It may have ended with its node.
    let _ = job.kill();
    let _ = job.wait();
}

/// Makes parts of the grid fail, each at its time.
fn disturb(
    stack: &mut Stack,
    farcall: &Path,
    drains_s: f64,
    line: &Timeline,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let (cut, killed) = (head(1 - LEAVING) + 1, head(LEAVING) + 1);
    let mut at = |stack: &Stack, share: f64, what: String| {
        line.wait(drains_s * share);
        tell(&format!("{:5.1} s: {what}", line.now()));
        line.fault(what);
        line.look(stack, farcall)
    };
    at(stack, CUT, format!("a link of {} is cut", node_name(cut)))?;
    stack.cut(cut, true).map_err(Failure::failed)?;
    at(
        stack,
        REPAIR,
        format!("the link of {} is repaired", node_name(cut)),
    )?;
    stack.cut(cut, false).map_err(Failure::failed)?;
    at(stack, KILL, format!("node {} is killed", node_name(killed)))?;
    stack.kill_node(killed).map_err(Failure::failed)?;
    at(
        stack,
        1.0,
        format!("the server of site {} drains", name_of(LEAVING)),
    )?;
    let words = ["server", "drain", stack.server(LEAVING)];
    let program = farcall.to_string_lossy();
    let drained = stack.lab().output(head(LEAVING), &program, &words);
    drained.map_err(Failure::failed)?;
    Ok(())
}

fn rows(plan: &Plan, made: &[Made]) -> Vec<Row> {
    let count = |is: fn(&Fate) -> bool| made.iter().filter(|made| is(&made.fate)).count() as f64;
    // Calls that fail count as time too: until the last right result, a grid that breaks for good
    // has the predicted rate.
    let last = made.iter().map(|made| made.end_s).fold(0.0, f64::max);
    let rate = count(|fate| matches!(fate, Fate::Right)) / last;
    let predicted = plan.calls.len() as f64 / plan.makespan_s;
    let row = |name: &str, value: f64, peer: &'static str, other: f64, bar: Option<f64>| Row {
        name: name.to_owned(),
        unit: "",
        values: vec![value],
        peer,
        peer_values: vec![other],
        better: Better::Lower,
        bar,
    };
    let wrong = count(|fate| matches!(fate, Fate::Wrong));
    let told = count(|fate| matches!(fate, Fate::Told(_)));
    let off = (rate / predicted - 1.0).abs();
    vec![
        Row {
            unit: "/s",
            better: Better::Higher,
            ..row("right results", rate, "predicted", predicted, None)
        },
        row(
            "  how far from the prediction",
            off,
            "allowed",
            NEAR,
            Some(1.0),
        ),
        row("wrong results", wrong, "allowed", 0.0, None),
        row(
            "failures that were told",
            told,
            "of calls",
            made.len() as f64,
            None,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_breaks_for_good_is_not_near_its_prediction() {
        let call = r#"{"at_s": 0, "computing_s": 1, "up_bytes": 8, "down_bytes": 8, "pes": 1}"#;
        let call: calls::Call = serde_json::from_str(call).unwrap();
        let plan = Plan {
            calls: vec![call; 10],
            makespan_s: 10.0,
            drains_s: 5.0,
        };
        let misses = |right: usize| {
            let made = |number: usize| Made {
                pes: 1,
                at_s: number as f64,
                start_s: number as f64,
                end_s: (number + 1) as f64,
                server: None,
                fate: match number < right {
                    true => Fate::Right,
                    false => Fate::Told("the grid is broken".to_owned()),
                },
            };
            let made: Vec<Made> = (0..10).map(made).collect();
            let rows = rows(&plan, &made);
            rows.iter().any(|row| row.to_json()["missed"] == true)
        };
        assert!(!misses(10) && misses(5) && misses(0));
    }
}
