//! `farcall bench twin`: whether the twin is right. A load is run and recorded, and replayed. Then
//! a random change is really made, and what the twin had predicted is compared with what came.
//! `world` runs loads; this module chooses the changes and prints the errors.

mod world;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::table::{Better, Row, report};
use clap::Args;
use farcall_random::SplitMix64;
use farcall_schedule::placement;
use farcall_schedule::queue;
use farcall_twin::{Change, Figures, Twin};
use std::path::{Path, PathBuf};
use world::{Load, Setup};

/// Changes to each recorded load.
const CHANGES: u64 = 5;
const QUICK_CHANGES: u64 = 2;
const LOADS: u64 = 2;
/// How far a prediction may be from what came.
const NEAR: f64 = 0.15;

/// Compare what the twin predicts with what a changed grid does
///
/// Two servers of different speed, behind different links, are called through a metaserver by loops
/// of calls and at random times, from two hosts. The calls sleep and move arrays. The record is
/// replayed; then, time after time, the same load runs with a random change: a third server, a link
/// of another rate, another policy, or other processor elements. The run creates and removes
/// network namespaces for the hosts, so it needs root. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench twin --check
  sudo farcall bench twin --quick")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// One load and two changes
    #[arg(long)]
    quick: bool,
    /// Folder with bench.idl and its library
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Keep the records of all runs in folders there
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Seed of the loads and the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The errors of all runs. Where there are two figures, that of the worse one.
#[derive(Default)]
struct Errors {
    /// Of replays without changes.
    makespan: Vec<f64>,
    mean: Vec<f64>,
    /// Of predicted changes.
    changes: Vec<f64>,
    /// How far the same load is from itself when it runs again.
    again: Vec<f64>,
}

/// A load whose first run was recorded.
struct Course<'a> {
    arguments: &'a Arguments,
    interface: &'a Path,
    load: Load,
    twin: Twin,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::watch();
    let interface = crate::program::interface_file(&arguments.libraries, "bench.idl")?;
    let (loads, changes) = match arguments.quick {
        true => (1, QUICK_CHANGES),
        false => (LOADS, CHANGES),
    };
    let mut errors = Errors::default();
    for number in 0..loads {
        let seed = arguments.seed.wrapping_mul(1000).wrapping_add(number);
        let course = Course::begin(arguments, &interface, seed)?;
        course.replay(&mut errors)?;
        let random = &mut SplitMix64::new(seed);
        for turn in 0..changes {
            let error = course.change(turn, random)?;
            errors.changes.push(error);
        }
        errors.again.push(course.again()?);
    }
    let near = errors.changes.iter().filter(|error| **error <= NEAR);
    let share = near.count() as f64 / errors.changes.len() as f64;
    let rows = rows(errors, share);
    report(&rows, machine.end(), arguments.json, arguments.check)
}

impl<'a> Course<'a> {
    /// Runs a load and records it.
    fn begin(
        arguments: &'a Arguments,
        interface: &'a Path,
        seed: u64,
    ) -> Result<Course<'a>, Failure> {
        let load = Load::random(seed);
        let twin = load.run(&Setup::default(), interface, arguments.records.as_deref())?;
        Ok(Course {
            arguments,
            interface,
            load,
            twin,
        })
    }

    /// Runs the load with another setup.
    fn run(&self, setup: &Setup) -> Result<Figures, Failure> {
        let records = self.arguments.records.as_deref();
        let twin = self.load.run(setup, self.interface, records)?;
        Ok(twin.recorded().clone())
    }

    fn tell(&self, words: &str) {
        if !self.arguments.json {
            println!("{words}");
        }
    }

    /// Replays the record without changes.
    fn replay(&self, errors: &mut Errors) -> Result<(), Failure> {
        let answer = self.twin.ask(&[], 0, || ()).map_err(Failure::failed)?;
        let off = [answer.makespan_s, answer.mean_s].map(|one| one.error().unwrap_or(f64::NAN));
        errors.makespan.push(off[0].abs());
        errors.mean.push(off[1].abs());
        self.tell(&figures("the record", self.twin.recorded()));
        self.tell(&figures("replayed", &self.twin.replayed()));
        answer
            .reasons
            .iter()
            .for_each(|reason| self.tell(&format!("  {reason}")));
        Ok(())
    }

    /// Predicts a change, makes it, and returns the error.
    fn change(&self, kind: u64, random: &mut SplitMix64) -> Result<f64, Failure> {
        let mut setup = Setup::default();
        let (words, change) = draw(kind, random, &mut setup);
        let change = change.map_err(Failure::failed)?;
        let answer = self
            .twin
            .ask(&[change], 0, || ())
            .map_err(Failure::failed)?;
        let came = self.run(&setup)?;
        let (makespan_s, mean_s) = (answer.makespan_s.predicted, answer.mean_s.predicted);
        let off = [
            makespan_s / came.makespan_s - 1.0,
            mean_s / came.mean_s - 1.0,
        ];
        self.tell(&format!(
            "{words}: makespan {makespan_s:.2} s predicted, {:.2} s seen ({:+.0} %); mean \
             {mean_s:.3} s, {:.3} s ({:+.0} %)",
            came.makespan_s,
            100.0 * off[0],
            came.mean_s,
            100.0 * off[1],
        ));
        Ok(off[0].abs().max(off[1].abs()))
    }

    /// Runs the load again without a change, and returns how far it is from the first run.
    fn again(&self) -> Result<f64, Failure> {
        let (first, again) = (self.twin.recorded(), self.run(&Setup::default())?);
        self.tell(&figures("the same load again", &again));
        let makespan = again.makespan_s / first.makespan_s - 1.0;
        let mean = again.mean_s / first.mean_s - 1.0;
        Ok(makespan.abs().max(mean.abs()))
    }
}

/// A random change: in words, for the twin, and in the setup of the next run.
fn draw(kind: u64, random: &mut SplitMix64, setup: &mut Setup) -> (String, Result<Change, String>) {
    let server = random.below(2) as usize;
    let name = world::host(server);
    match kind % 5 {
        0 => {
            setup.third = Some(server);
            let words = format!("a third server, equal to {}", server + 1);
            (words, Change::add(&format!("third=copy-of:{name}")))
        }
        1 => {
            let [up, down] = setup.links[server];
            let rate = up.min(down) / 2;
            setup.links[server] = [rate; 2];
            let rate = world::payload(rate);
            let words = format!("link {} at {:.1} MB/s", server + 1, rate / 1e6);
            (words, Change::link(&format!("*<->{name}={rate:.0}")))
        }
        2 => {
            setup.queue = queue::Policy::Sjf;
            let words = "servers start the shortest call first".to_owned();
            (words, Change::policy(setup.queue.name()))
        }
        3 => {
            let policies = [placement::Policy::RoundRobin, placement::Policy::LeastLoad];
            setup.placement = policies[random.below(2) as usize];
            let words = format!("placement {}", setup.placement.name());
            (words, Change::policy(setup.placement.name()))
        }
        _ => {
            let pes = [1, 3, 4][random.below(3) as usize];
            setup.pes[server] = pes;
            let words = format!("{pes} processor elements at server {}", server + 1);
            (words, Change::elements(&format!("{name}={pes}")))
        }
    }
}

fn figures(what: &str, figures: &Figures) -> String {
    let calls = figures.servers.values().map(|one| one.calls.to_string());
    format!(
        "{what}: makespan {:.2} s, mean response {:.3} s, calls at the servers: {}",
        figures.makespan_s,
        figures.mean_s,
        calls.collect::<Vec<String>>().join(" and "),
    )
}

fn rows(errors: Errors, near: f64) -> Vec<Row> {
    let row = |name: &str, values: Vec<f64>, allowed: f64| Row {
        name: name.to_owned(),
        unit: "",
        values,
        peer: "allowed",
        peer_values: vec![allowed],
        better: Better::Lower,
        bar: Some(1.0),
    };
    vec![
        row("error of the makespan, replayed", errors.makespan, 0.10),
        row("error of the mean response, replayed", errors.mean, 0.15),
        Row {
            bar: None,
            ..row("error of a changed day", errors.changes, NEAR)
        },
        Row {
            bar: None,
            ..row("the same load again", errors.again, NEAR)
        },
        Row {
            better: Better::Higher,
            peer: "wanted",
            ..row("changes predicted within 15 %", vec![near], 0.8)
        },
    ]
}
