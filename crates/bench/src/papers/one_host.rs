//! The experiments of the first Ninf paper on one machine and its loopback. `sites` has those over
//! long links. Each function names the table or the figure that it repeats.

use super::local::Local;
use crate::failure::Failure;
use crate::load::clients::{self, Pace};
use crate::load::problem::Problem;
use crate::load::server::LoadServer;
use crate::load::{Arguments, Case, ServeOptions, cores, show, tell};
use crate::raw::RawPeer;
use crate::table::{Better, Row, median};

/// The model of section 4.1: steps of 3 s, each with a call with probability 1/2.
pub(super) const STEP_S: f64 = 3.0;
pub(super) const PROBABILITY: f64 = 0.5;
pub(super) const STEPS: usize = 20;
/// Shorter steps that keep a modern machine as busy in less time.
const QUICK_STEP_S: f64 = 0.1;

impl Arguments {
    fn pace(&self) -> Pace {
        match self.quick {
            true => Pace::steps(QUICK_STEP_S, PROBABILITY, STEPS),
            false => Pace::steps(STEP_S, PROBABILITY, STEPS),
        }
    }
}

/// Tables 3 to 5: Linpack of three orders, on one processor element or on all, also in the mode of
/// the first Ninf servers.
pub(crate) fn many(arguments: &Arguments) -> Result<(), Failure> {
    let ways = [
        ServeOptions::new("1 PE", &[("--threads", 1)], "fcfs"),
        ServeOptions::new(
            "all PEs",
            &[("--threads", cores()), ("--pes", cores())],
            "fcfs",
        ),
        ServeOptions::at_once(),
    ];
    if !arguments.json {
        Case::print_header();
    }
    let mut cases = Vec::new();
    for n in arguments.sizes(&[600, 1000, 1400]) {
        for way in &ways {
            let problem = Problem::Linpack(n);
            let server = LoadServer::start(&arguments.libraries, problem, &way.options)?;
            for count in arguments.counts(64) {
                let pace = arguments.pace();
                let case = Case::measure("many", way.name, &server, problem, count, pace)?;
                tell(arguments, &case);
                cases.push(case);
            }
        }
    }
    show(arguments, &cases, &[])
}

/// Fig. 6: clients times threads. Each call starts at once as in the paper, and then with a queue.
pub(crate) fn threads(arguments: &Arguments) -> Result<(), Failure> {
    const N: usize = 600;
    const NAMES: [[&str; 2]; 5] = [
        ["queue, t = 1", "at once, t = 1"],
        ["queue, t = 2", "at once, t = 2"],
        ["queue, t = 4", "at once, t = 4"],
        ["queue, t = 8", "at once, t = 8"],
        ["queue, t = 16", "at once, t = 16"],
    ];
    let seconds = if arguments.quick { 1.0 } else { 5.0 };
    if !arguments.json {
        Case::print_header();
    }
    let mut cases = Vec::new();
    for (power, [queue, at_once]) in NAMES.into_iter().enumerate() {
        let threads = 1 << power;
        let ways = [
            ServeOptions::new(queue, &[("--threads", threads)], "fcfs"),
            ServeOptions::new(at_once, &[("--pes", threads)], "at-once"),
        ];
        for way in &ways {
            let problem = Problem::Linpack(N);
            let server = LoadServer::start(&arguments.libraries, problem, &way.options)?;
            for count in arguments.counts(16) {
                let pace = Pace::always(seconds);
                let case = Case::measure("threads", way.name, &server, problem, count, pace)?;
                tell(arguments, &case);
                cases.push(case);
            }
        }
    }
    show(arguments, &cases, &[])
}

/// Table 8: EP with 2^24 trials on one processor element.
pub(crate) fn ep(arguments: &Arguments) -> Result<(), Failure> {
    let problem = Problem::Ep(24);
    if !arguments.json {
        Case::print_header();
    }
    let mut cases = Vec::new();
    for way in [ServeOptions::queue(), ServeOptions::at_once()] {
        let server = LoadServer::start(&arguments.libraries, problem, &way.options)?;
        for count in arguments.counts(16) {
            let pace = Pace::always(if arguments.quick { 8.0 } else { 30.0 });
            let case = Case::measure("ep", way.name, &server, problem, count, pace)?;
            tell(arguments, &case);
            cases.push(case);
        }
    }
    show(arguments, &cases, &[])
}

/// Figs. 3 and 4 and Table 2: one client compared with local code, and throughput compared with
/// plain TCP.
pub(crate) fn single(arguments: &Arguments) -> Result<(), Failure> {
    let sizes: Vec<usize> = match arguments.quick {
        true => vec![100, 200, 400, 800, 1600],
        false => (1..=16).map(|step| step * 100).collect(),
    };
    let rounds = if arguments.quick { 3 } else { 9 };
    let local = Local::load(&arguments.libraries)?;
    let threads = cores();
    local.use_threads(1);
    let options = ServeOptions::new(
        "all PEs",
        &[("--threads", threads), ("--pes", threads)],
        "fcfs",
    )
    .options;
    let mut rows = Vec::new();
    for n in sizes {
        let problem = Problem::Linpack(n);
        let server = LoadServer::start(&arguments.libraries, problem, &options)?;
        let [remote, unblocked, blocked, travel] = rates(&server, &local, problem, rounds)?;
        let row = |name: String, unit, values, peer, peer_values| Row {
            name,
            unit,
            values,
            peer,
            peer_values,
            better: Better::Higher,
            bar: None,
        };
        let name = |what: &str| format!("n = {n}, {what}");
        rows.push(row(
            name("call, all PEs"),
            "Mflop/s",
            remote.clone(),
            "local dgefa",
            unblocked,
        ));
        rows.push(row(
            name("call, all PEs"),
            "Mflop/s",
            remote,
            "local LAPACK",
            blocked,
        ));
        rows.push(row(
            name("call"),
            "MB/s",
            travel,
            "plain TCP",
            plain(problem, rounds)?,
        ));
    }
    show(arguments, &[], &rows)
}

/// By rounds: Mflop/s of a call, of local code without blocks and of local LAPACK, and MB/s of the
/// call.
fn rates(
    server: &LoadServer,
    local: &Local,
    problem: Problem,
    rounds: usize,
) -> Result<[Vec<f64>; 4], Failure> {
    let n = problem.size();
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let remote = clients::few(server.address(), problem, 2)?;
        let blocked = local.solve("linpack", n)?;
        let unblocked = local.solve("unblocked", n)?;
        let mflops = |seconds: f64| problem.operations() / seconds * 1e-6;
        let travel = problem.bytes() / (remote.total - remote.exec) * 1e-6;
        let of_round = [
            mflops(remote.total),
            mflops(unblocked),
            mflops(blocked),
            travel,
        ];
        figures
            .iter_mut()
            .zip(of_round)
            .for_each(|(all, figure)| all.push(figure));
    }
    Ok(figures)
}

/// Megabytes per second of plain TCP that carries as many bytes, half of them in each direction.
fn plain(problem: Problem, rounds: usize) -> Result<Vec<f64>, Failure> {
    let mut peer = RawPeer::start(problem.bytes() as usize / 2)?;
    let seconds = (0..rounds)
        .map(|_| peer.exchange())
        .collect::<Result<Vec<f64>, _>>()?;
    Ok(vec![problem.bytes() / median(&seconds) * 1e-6])
}
