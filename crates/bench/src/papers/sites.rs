//! The first Ninf paper's experiments over long links: many clients at one site, and four sites.
//! `links` has the shapes of the links. The ratio of pauses to calls is that of the paper, even if
//! the links are faster.

use super::links::{Link, SHARED, SITES};
use super::one_host::{PROBABILITY, STEP_S, STEPS};
use super::statistics::Chance;
use crate::failure::Failure;
use crate::load::clients::{self, ClientSite, Pace};
use crate::load::problem::Problem;
use crate::load::server::LoadServer;
use crate::load::{Arguments, Case, ServeOptions, cores, show, tell};
use crate::machine::Machine;
use crate::table::{Better, Row, median};
use farcall_gridsim::{Arrival, Crowd, Function, Host, Load, Port, Repeated, simulate_load};
use farcall_lab::{LineShape, Sites};
use farcall_schedule::queue::Policy;
use std::ops::Range;

const SIZES: [usize; 3] = [600, 1000, 1400];
/// Steps of a case with a shared line: its figures are means over many calls.
const SHARED_STEPS: usize = 5 * STEPS;
const SIMULATED_CALLS: usize = 3000;

/// Tables 6 and 7: Linpack of three orders from one site, on one processor element or on all.
pub(crate) fn wan(arguments: &Arguments) -> Result<(), Failure> {
    let ways = [
        ServeOptions::new("1 PE", &[("--threads", 1)], "fcfs"),
        all_elements(),
    ];
    let mut cases = Vec::new();
    begin(arguments);
    for n in arguments.sizes(&SIZES) {
        for way in &ways {
            let lab = Lab::start(arguments, &SITES[..1], Problem::Linpack(n), way)?;
            for count in arguments.counts(16) {
                let case = lab.measure("wan", &[0], count, &[way.name])?;
                case.iter().for_each(|case| tell(arguments, case));
                cases.extend(case);
            }
        }
    }
    show(arguments, &cases, &[])
}

const ALONE: [&str; 4] = ["ocha-u", "u-tokyo", "nitech", "titech"];
const TOGETHER: [&str; 4] = ["ocha-u/4", "u-tokyo/4", "nitech/4", "titech/4"];

/// Numbers of clients at each site.
fn site_counts(arguments: &Arguments) -> Vec<usize> {
    match arguments.clients.is_empty() {
        true => vec![1, 4],
        false => arguments.clients.clone(),
    }
}

/// Fig. 8 with lines that meet before the server: each site alone, then all at once, beside the
/// same in the grid simulator.
pub(crate) fn shared(arguments: &Arguments) -> Result<(), Failure> {
    let (mut cases, mut rows) = (Vec::new(), Vec::new());
    begin(arguments);
    for n in arguments.sizes(&SIZES[..1]) {
        let lab = Lab::start_shared(arguments, Problem::Linpack(n), &all_elements())?;
        for count in site_counts(arguments) {
            let mut compare = |sites: &[usize], names: &[&'static str]| -> Result<(), Failure> {
                let real = lab.measure("shared", sites, count, names)?;
                real.iter().for_each(|case| tell(arguments, case));
                let simulated = lab.simulate(sites, count, &real);
                rows.extend(real.iter().zip(&simulated).map(|(real, simulated)| Row {
                    name: format!("n = {n}, c = {count}, {}", real.way),
                    unit: "MB/s",
                    values: vec![mean(real.run.throughputs()) * 1e-6],
                    peer: "simulated",
                    peer_values: vec![simulated * 1e-6],
                    better: Better::Higher,
                    bar: None,
                }));
                cases.extend(real);
                Ok(())
            };
            for site in 0..SITES.len() {
                compare(&[site], &ALONE[site..=site])?;
            }
            compare(&[0, 1, 2, 3], &TOGETHER)?;
        }
    }
    show(arguments, &cases, &rows)
}

/// Fig. 8: each of four sites alone, then all at once, with one or four clients at each.
pub(crate) fn sites(arguments: &Arguments) -> Result<(), Failure> {
    let counts = site_counts(arguments);
    let mut cases = Vec::new();
    begin(arguments);
    for n in arguments.sizes(&SIZES[..1]) {
        let lab = Lab::start(arguments, &SITES, Problem::Linpack(n), &all_elements())?;
        for count in &counts {
            for site in 0..SITES.len() {
                cases.extend(lab.measure("sites", &[site], *count, &ALONE[site..=site])?);
            }
            cases.extend(lab.measure("sites", &[0, 1, 2, 3], *count, &TOGETHER)?);
            let last = &cases[cases.len() - 2 * SITES.len()..];
            last.iter().for_each(|case| tell(arguments, case));
        }
    }
    show(arguments, &cases, &[])
}

fn all_elements() -> ServeOptions {
    let all = cores();
    ServeOptions::new("all PEs", &[("--threads", all), ("--pes", all)], "fcfs")
}

fn begin(arguments: &Arguments) {
    if !arguments.json {
        Case::print_header();
    }
}

/// A server and its sites.
struct Lab {
    problem: Problem,
    step_s: f64,
    steps: usize,
    server: LoadServer,
    sites: Sites,
    /// The lines of the sites, then the line that they share, if they do.
    lines: Vec<LineShape>,
}

impl Lab {
    fn start(
        arguments: &Arguments,
        links: &[Link],
        problem: Problem,
        way: &ServeOptions,
    ) -> Result<Lab, Failure> {
        let lines = lines(arguments, links);
        let sites = Sites::build(&lines)?;
        Lab::of(arguments, (sites, lines), problem, way, STEPS)
    }

    /// All sites, with the line that they share.
    fn start_shared(
        arguments: &Arguments,
        problem: Problem,
        way: &ServeOptions,
    ) -> Result<Lab, Failure> {
        let mut all = lines(arguments, &SITES);
        let shared = lines(arguments, &[SHARED])[0];
        let sites = Sites::build_shared(&all, shared)?;
        all.push(shared);
        Lab::of(arguments, (sites, all), problem, way, SHARED_STEPS)
    }

    fn of(
        arguments: &Arguments,
        (sites, lines): (Sites, Vec<LineShape>),
        problem: Problem,
        way: &ServeOptions,
        steps: usize,
    ) -> Result<Lab, Failure> {
        let server = LoadServer::start_far(&sites, &arguments.libraries, problem, &way.options)?;
        Ok(Lab {
            problem,
            // The ratio of the pace to the duration of a call is that of the paper.
            step_s: STEP_S / arguments.faster(),
            steps,
            server,
            sites,
            lines,
        })
    }

    /// The mean throughput of a call of each of these sites in the grid simulator, in bytes a
    /// second. The computing time is the one that was measured.
    fn simulate(&self, sites: &[usize], count: usize, real: &[Case]) -> Vec<f64> {
        let computed: Vec<f64> = real
            .iter()
            .flat_map(|case| case.run.calls().map(|call| call.exec))
            .collect();
        let crowd = |site: &usize| Crowd {
            clients: count as u32,
            line: self.lines[*site].up.max(self.lines[*site].down),
            port: port(&self.lines[*site]),
        };
        let load = Load {
            seed: 1,
            host: Host {
                pes: cores() as u32,
                policy: Policy::Fcfs,
                background: 0.0,
                byte_s: 0.0,
                startup_s: 0.0,
                port: port(&self.lines[SITES.len()]),
            },
            sites: sites.iter().map(crowd).collect(),
            repeated: Repeated {
                call: Arrival::new(Function::Linpack, self.problem.size() as u32),
                seconds: median(&computed),
                threads: cores() as u32,
                busy: 1.0,
            },
            step_s: self.step_s,
            probability: PROBABILITY,
            calls: SIMULATED_CALLS,
        };
        let figures = simulate_load(&load);
        let sites = figures.sites.iter();
        sites.map(|site| site.bytes_per_s.mean).collect()
    }

    /// Runs this number of clients at each of these sites, all at once. Returns a case for each
    /// site.
    fn measure(
        &self,
        experiment: &'static str,
        sites: &[usize],
        count: usize,
        names: &[&'static str],
    ) -> Result<Vec<Case>, Failure> {
        let mut places: Vec<ClientSite<'_>> = Vec::new();
        for site in sites {
            let place = self.server.seen_from(&self.sites, *site);
            places.extend(vec![place; count]);
        }
        let pace = Pace::steps(self.step_s, PROBABILITY, self.steps);
        let machine = Machine::watch();
        let mut run = clients::run(&places, self.problem, pace)?;
        let machine = machine.end();
        run.take_waits(self.server.calls(run.all_calls)?);
        let case = |(index, name): (usize, &&'static str)| {
            let clients: Range<usize> = index * count..(index + 1) * count;
            Case {
                experiment,
                way: name,
                n: self.problem.size(),
                clients: count,
                run: run.of(clients),
                machine,
            }
        };
        Ok(names.iter().enumerate().map(case).collect())
    }
}

/// The lines of these links, faster than the paper's.
fn lines(arguments: &Arguments, links: &[Link]) -> Vec<LineShape> {
    let mut chance = Chance(1);
    let lines = links.iter();
    lines
        .map(|link| link.shape(arguments.faster(), &mut chance))
        .collect()
}

fn port(line: &LineShape) -> Port {
    Port {
        up: line.up,
        down: line.down,
        latency_s: line.round_trip.as_secs_f64() / 2.0,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}
