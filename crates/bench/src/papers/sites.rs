//! The first Ninf paper's experiments over long links: many clients at one site, and four sites.
//! `links` has the shapes of the links. The ratio of pauses to calls is that of the paper, even if
//! the links are faster.

use super::links::{Link, SITES};
use super::one_host::{PROBABILITY, STEP_S, STEPS};
use super::statistics::Chance;
use crate::failure::Failure;
use crate::load::clients::{self, ClientSite, Pace};
use crate::load::machine::Machine;
use crate::load::problem::Problem;
use crate::load::server::LoadServer;
use crate::load::{Arguments, Case, ServeOptions, cores, show, tell};
use farcall_lab::{LineShape, Sites};
use std::ops::Range;

const SIZES: [usize; 3] = [600, 1000, 1400];

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

/// Fig. 8: each of four sites alone, then all at once, with one or four clients at each.
pub(crate) fn sites(arguments: &Arguments) -> Result<(), Failure> {
    const ALONE: [&str; 4] = ["ocha-u", "u-tokyo", "nitech", "titech"];
    const TOGETHER: [&str; 4] = ["ocha-u/4", "u-tokyo/4", "nitech/4", "titech/4"];
    let counts = match arguments.clients.is_empty() {
        true => vec![1, 4],
        false => arguments.clients.clone(),
    };
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
    pace: Pace,
    server: LoadServer,
    sites: Sites,
}

impl Lab {
    fn start(
        arguments: &Arguments,
        links: &[Link],
        problem: Problem,
        way: &ServeOptions,
    ) -> Result<Lab, Failure> {
        let faster = arguments.faster();
        let mut chance = Chance(1);
        let shapes: Vec<LineShape> = links
            .iter()
            .map(|link| link.shape(faster, &mut chance))
            .collect();
        let sites = Sites::build(&shapes)?;
        let server = LoadServer::start_far(&sites, &arguments.libraries, problem, &way.options)?;
        Ok(Lab {
            problem,
            // The ratio of the pace to the duration of a call is that of the paper.
            pace: Pace::steps(STEP_S / faster, PROBABILITY, STEPS),
            server,
            sites,
        })
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
        let machine = Machine::watch();
        let mut run = clients::run(&places, self.problem, self.pace)?;
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
