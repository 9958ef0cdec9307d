//! The calls of the scenario: their functions, times and results. `round` decides when they are
//! made. The same seed gives the same plan.

use super::world::{CLIENT, Grid, LINKS, World};
use crate::failure::Failure;
use crate::load::problem::{Arrays, Problem, System};
use crate::table::median;
use farcall_client::{Function, Offer, Options, Scalar, Server, TimeParts, Times};
use farcall_flow::SplitMix64;
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

/// Orders of Linpack's matrices, and logarithms of EP's trials: the least value, and the number of
/// values.
const ORDERS: (usize, u64) = (100, 400);
const TRIALS: (usize, u64) = (20, 6);
/// Problems that measure the speed of a server and its link in advance.
pub(super) const PROBES: [Problem; 2] = [Problem::Unblocked(600), Problem::Ep(24)];
/// Number of calls of each of [`PROBES`].
const PROBED: usize = 4;
/// Longer than any call takes, and than any server needs to join.
const PATIENCE: Duration = Duration::from_secs(150);

/// A planned call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    /// Time of the call, as a part of the window.
    pub(super) at: f64,
    pub(super) problem: Problem,
}

/// Plans this number of calls, on average half of them Linpack and half EP, in the order of their
/// times.
pub(super) fn plan(calls: usize, seed: u64) -> Vec<Planned> {
    let random = &mut SplitMix64::new(seed);
    let mut plan: Vec<Planned> = (0..calls)
        .map(|_| {
            let at = random.below(1 << 20) as f64 / f64::from(1 << 20);
            let mut size = |(least, count): (usize, u64)| least + random.below(count) as usize;
            let (order, trials) = (size(ORDERS), size(TRIALS));
            let problem = match random.below(2) {
                0 => Problem::Unblocked(order),
                _ => Problem::Ep(trials),
            };
            Planned { at, problem }
        })
        .collect();
    plan.sort_by(|one, other| one.at.total_cmp(&other.at));
    plan
}

/// The result of a call. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// Index of the server that ran the call.
    pub(super) server: usize,
    pub(super) predicted: TimeParts,
    /// Duration, including the request to the metaserver.
    pub(super) seconds: f64,
    /// End, from the beginning of the window.
    pub(super) done_s: f64,
    pub(super) times: Times,
    /// Time from the last argument to the start of the library.
    pub(super) wait_s: f64,
}

impl Made {
    /// Error of the prediction.
    pub(super) fn error(&self) -> f64 {
        (self.predicted.seconds() / self.seconds - 1.0).abs()
    }
}

/// Makes all calls at their times, and waits for them.
pub(super) fn make(
    world: &World,
    grid: &Grid,
    plan: &[Planned],
    window_s: f64,
    bar: &ProgressBar,
) -> Result<Vec<Made>, Failure> {
    on_client(world, || {
        let server = connect(&grid.address)?;
        let mut functions = Vec::new();
        for problem in PROBES {
            functions.push(joined(&server, problem.function(), grid.servers.len())?);
        }
        let numbers = numbers(&functions[0], grid)?;
        become_known(&functions[0], grid)?;
        let systems: Vec<System> = plan.iter().map(|one| System::new(one.problem)).collect();
        let mut arrays: Vec<Arrays<'_>> = systems.iter().map(Arrays::new).collect();
        let start = Instant::now() + Duration::from_millis(100);
        let call = |one: &Planned, arrays: &mut Arrays<'_>| -> Result<Made, Failure> {
            let is_it = |function: &&Function| function.qualified_name() == one.problem.function();
            let function = functions.iter().find(is_it);
            let function = function.ok_or_else(|| Failure::failed("a function is missing"))?;
            let at = start + Duration::from_secs_f64(one.at * window_s);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let begun = Instant::now();
            let outcome = arrays.call(function)?;
            let seconds = begun.elapsed().as_secs_f64();
            bar.inc(1);
            let placement = outcome.placement;
            let placement = placement.ok_or_else(|| Failure::failed("a call was not placed"))?;
            let predicted = placement.terms;
            let server = numbers.iter().position(|one| *one == placement.server);
            Ok(Made {
                server: server.ok_or_else(|| Failure::failed("a call went to a third server"))?,
                predicted: predicted.ok_or_else(|| Failure::failed("nothing was predicted"))?,
                seconds,
                done_s: start.elapsed().as_secs_f64(),
                times: outcome.times,
                wait_s: outcome.wait,
            })
        };
        let call = &call;
        std::thread::scope(|scope| {
            let calls = plan.iter().zip(&mut arrays);
            let threads = calls.map(|(one, arrays)| scope.spawn(move || call(one, arrays)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(joined_thread).collect()
        })
    })
}

/// Speed of a server and its link: operations per second of each of [`PROBES`], and bytes per
/// second to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub(super) operations: [f64; PROBES.len()],
    pub(super) up: f64,
}

/// Measures the speeds. Calls all servers at the same time, as the scenario does.
pub(super) fn speeds(world: &World, grid: &Grid) -> Result<Vec<Speed>, Failure> {
    let speed = |address: &String| -> Result<Speed, Failure> {
        let server = connect(address)?;
        let mut operations = [0.0; PROBES.len()];
        let mut up = 0.0f64;
        for (problem, operations) in PROBES.into_iter().zip(&mut operations) {
            let function = server.function(problem.function())?;
            let system = System::new(problem);
            let mut arrays = Arrays::new(&system);
            let mut rates = Vec::new();
            for _ in 0..PROBED {
                arrays.refill();
                let times = arrays.call(&function)?.times;
                rates.push(problem.operations() / times.exec);
                up = up.max(problem.ways()[0] / times.send.max(1e-9));
            }
            // The first call starts a worker.
            *operations = median(&rates[1..]);
        }
        Ok(Speed { operations, up })
    };
    std::thread::scope(|scope| {
        let servers = grid.servers.iter();
        let threads = servers.map(|address| scope.spawn(|| on_client(world, || speed(address))));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(joined_thread).collect()
    })
}

impl Speed {
    /// The same speed, with the operations per second replaced by those of the server's calls in
    /// some runs, if it had any. These are far more computations than the probes.
    pub(super) fn refined(self, server: usize, plan: &[Planned], runs: &[Vec<Made>]) -> Speed {
        let mut operations = self.operations;
        for (probe, operations) in PROBES.iter().zip(&mut operations) {
            let calls = runs.iter().flat_map(|made| plan.iter().zip(made));
            let calls = calls.filter(|(one, made)| {
                made.server == server && one.problem.function() == probe.function()
            });
            let add = |(work, seconds), (one, made): (&Planned, &Made)| {
                (work + one.problem.operations(), seconds + made.times.exec)
            };
            let (work, seconds) = calls.fold((0.0, 0.0), add);
            if seconds > 0.0 {
                *operations = work / seconds;
            }
        }
        Speed { operations, ..self }
    }
}

fn connect(address: &str) -> Result<Server, Failure> {
    let options = Options {
        same_host: false,
        timeout: Some(PATIENCE),
        ..Options::default()
    };
    Ok(Server::connect(address, options)?)
}

/// The function, after all servers have joined with it.
pub(super) fn joined(server: &Server, name: &str, servers: usize) -> Result<Function, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match server.function(name) {
            Ok(function) if function.servers()?.len() == servers => return Ok(function),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Ok(_) if Instant::now() > end => {
                return Err(Failure::failed("the servers did not join the metaserver"));
            }
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The numbers that the metaserver gives the servers.
fn numbers(function: &Function, grid: &Grid) -> Result<Vec<u64>, Failure> {
    let offers = offers(function)?;
    let number = |address: &String| {
        let offer = offers.iter().find(|offer| offer.address == *address);
        offer
            .map(|offer| offer.server)
            .ok_or_else(|| Failure::failed(format!("{address} has not joined under its address")))
    };
    grid.servers.iter().map(number).collect()
}

/// Lets each server compute a small EP and waits until the links to it are probed. `gridsim`
/// assumes that the metaserver knows both before the first call.
fn become_known(function: &Function, grid: &Grid) -> Result<(), Failure> {
    const SMALL: Problem = Problem::Ep(20);
    let system = System::new(SMALL);
    for address in &grid.servers {
        let ep = connect(address)?.function(SMALL.function())?;
        Arrays::new(&system).call(&ep)?;
    }
    let end = Instant::now() + PATIENCE;
    let bits = PROBES[0].ways()[0] * 8.0;
    loop {
        let offers = offers(function)?;
        // The metaserver assumes that an unknown path is faster than these links.
        let is_known = |(address, [up, _]): (&String, [u64; 2])| {
            let offer = offers.iter().find(|offer| offer.address == *address);
            let terms = offer.and_then(|offer| offer.terms);
            terms.is_some_and(|terms| terms.up_s > 0.5 * bits / up as f64)
        };
        if grid.servers.iter().zip(LINKS).all(is_known) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Failure::failed("the links to the servers were not probed"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The offers of all servers for a call of the first of [`PROBES`].
fn offers(function: &Function) -> Result<Vec<Offer>, Failure> {
    let size = Scalar::Int(PROBES[0].size() as i64);
    let mut scalars = vec![None; function.interface().params.len()];
    scalars[0] = Some(size);
    Ok(function.offers(&scalars, &[])?)
}

/// Runs work in a thread that has moved to the client's host, so that its sockets are there.
fn on_client<T: Send>(
    world: &World,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        joined_thread(scope.spawn(|| {
            world.lab.enter(CLIENT)?;
            work()
        }))
    })
}

fn joined_thread<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, Failure>>,
) -> Result<T, Failure> {
    let panicked = |_| Err(Failure::failed("a client panicked"));
    thread.join().unwrap_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_plan_in_order_with_both_functions() {
        let made = plan(200, 1);
        assert_eq!(made, plan(200, 1));
        assert_ne!(made, plan(200, 2));
        assert!(made.is_sorted_by(|one, other| one.at <= other.at));
        let linpack = made
            .iter()
            .filter(|one| matches!(one.problem, Problem::Unblocked(_)));
        assert!((60..140).contains(&linpack.count()));
    }
}
