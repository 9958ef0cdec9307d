//! Clients that make calls, each a thread with its own connection. `problem` has the functions and
//! checks their results. Without steps, only calls that end within the window count for a rate. A
//! client that fails does not keep the others waiting.

use super::problem::{Arrays, Problem, System};
use super::server::ServerCall;
use crate::failure::Failure;
use farcall_client::{Options, Server, Times};
use farcall_lab::Lab;
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The times at which clients call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Duration of the case in seconds.
    seconds: f64,
    /// Seconds of a step, and the probability of a call in it. `None` makes one call after the
    /// other.
    steps: Option<(f64, f64)>,
}

impl Pace {
    /// One call after the other.
    pub(crate) fn always(seconds: f64) -> Pace {
        Pace {
            seconds,
            steps: None,
        }
    }

    /// A call with this probability at every step (section 4.1 of the first Ninf paper). A step
    /// that begins during a call is left out.
    pub(crate) fn steps(step: f64, probability: f64, count: usize) -> Pace {
        Pace {
            seconds: step * count as f64,
            steps: Some((step, probability)),
        }
    }
}

/// The measurements of all clients.
pub(crate) struct Run {
    problem: Problem,
    /// Times of the calls of each client that ended within the window.
    clients: Vec<Vec<Times>>,
    /// Length of the window in seconds.
    window: f64,
    /// Number of calls that the server saw, including the warm-up.
    pub(crate) all_calls: usize,
    /// Number of warm-up calls.
    warm: usize,
    /// Seconds from acceptance to start, for each call that the server saw.
    waits: Vec<f64>,
}

/// The host of a client, and the server's address from there.
#[derive(Clone)]
pub(crate) struct ClientSite<'l> {
    pub(crate) address: String,
    /// The host in a lab; `None` is this host.
    pub(crate) host: Option<(&'l Lab, usize)>,
}

impl ClientSite<'_> {
    /// A client on this host.
    pub(crate) fn here(address: &str) -> ClientSite<'static> {
        ClientSite {
            address: address.to_string(),
            host: None,
        }
    }

    /// Moves this thread to the host for good, and connects.
    pub(crate) fn connect(&self) -> Result<Server, Failure> {
        let mut options = Options::default();
        if let Some((lab, host)) = self.host {
            lab.enter(host)?;
            options.same_host = false;
        }
        Ok(Server::connect(&self.address, options)?)
    }

    /// Whether the client makes warm-up calls. A distant client does not: over a long link the
    /// first call is like the others.
    fn warms_up(&self) -> bool {
        self.host.is_none()
    }
}

/// Runs one client at each of these places.
pub(crate) fn run(places: &[ClientSite<'_>], problem: Problem, pace: Pace) -> Result<Run, Failure> {
    let count = places.len();
    let barrier = Barrier::new(count);
    let system = System::new(problem);
    let client = |seed: usize| -> Result<(Vec<Times>, usize), Failure> {
        let ready = prepare(&places[seed], &system);
        // A client that fails must not keep the others waiting.
        barrier.wait();
        let (function, mut arrays) = ready?;
        work(&function, &mut arrays, pace, seed as u64)
    };
    let client = &client;
    let results: Vec<Result<(Vec<Times>, usize), Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|seed| scope.spawn(move || client(seed)))
            .collect();
        let failed = || Err(Failure::failed("a client panicked"));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| failed()))
            .collect()
    });
    let mut run = Run {
        problem,
        clients: Vec::new(),
        window: pace.seconds,
        all_calls: 0,
        warm: places.iter().filter(|place| place.warms_up()).count(),
        waits: Vec::new(),
    };
    run.all_calls = run.warm;
    for result in results {
        let (times, calls) = result?;
        run.all_calls += calls;
        run.clients.push(times);
    }
    Ok(run)
}

/// The times of the last of several calls of one client.
pub(crate) fn few(address: &str, problem: Problem, calls: usize) -> Result<Times, Failure> {
    let system = System::new(problem);
    let (function, mut arrays) = prepare(&ClientSite::here(address), &system)?;
    let mut last = None;
    for _ in 0..calls.max(1) {
        arrays.refill();
        last = Some(arrays.call(&function)?.times);
    }
    last.ok_or_else(|| Failure::failed("no call was made"))
}

fn prepare<'s>(
    place: &ClientSite<'_>,
    system: &'s System,
) -> Result<(farcall_client::Function, Arrays<'s>), Failure> {
    let server = place.connect()?;
    let function = server.function(system.problem.function())?;
    let mut arrays = Arrays::new(system);
    if place.warms_up() {
        // The first call maps memory and starts workers.
        arrays.call(&function)?;
    }
    Ok((function, arrays))
}

/// Makes calls until the time is over. Returns the times of the calls that ended before that, and
/// the number of calls.
fn work(
    function: &farcall_client::Function,
    arrays: &mut Arrays<'_>,
    pace: Pace,
    seed: u64,
) -> Result<(Vec<Times>, usize), Failure> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(pace.seconds);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let (mut times, mut calls) = (Vec::new(), 0);
    while Instant::now() < end {
        if let Some((step, probability)) = pace.steps {
            let passed = start.elapsed().as_secs_f64();
            let next = (passed / step).floor() * step + step;
            std::thread::sleep(Duration::from_secs_f64(next - passed));
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            if (state >> 11) as f64 / (1u64 << 53) as f64 >= probability {
                continue;
            }
        }
        arrays.refill();
        let took = arrays.call(function)?.times;
        calls += 1;
        // With steps all calls count. Otherwise a rate is measured.
        if Instant::now() < end || pace.steps.is_some() {
            times.push(took);
        }
    }
    Ok((times, calls))
}

impl Run {
    /// The measurements of some of the clients. Waits are still those of all clients.
    pub(crate) fn of(&self, clients: Range<usize>) -> Run {
        Run {
            clients: self.clients[clients].to_vec(),
            waits: self.waits.clone(),
            ..*self
        }
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &Times> {
        self.clients.iter().flatten()
    }

    /// Adds the waits that the server reports.
    pub(crate) fn take_waits(&mut self, calls: Vec<ServerCall>) {
        let warm = self.warm.min(calls.len());
        self.waits = calls[warm..].iter().map(|call| call.wait_s).collect();
    }

    /// Operations per second of each call.
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> {
        self.calls()
            .map(|times| self.problem.operations() / times.total)
    }

    /// Bytes per second of each call during its transfers.
    pub(crate) fn throughputs(&self) -> impl Iterator<Item = f64> {
        let bytes = self.problem.bytes();
        self.calls()
            .map(move |times| bytes / (times.send + times.recv).max(1e-6))
    }

    /// Operations per second of all clients together.
    pub(crate) fn aggregate(&self) -> f64 {
        self.calls().count() as f64 * self.problem.operations() / self.window
    }

    /// Mean seconds from acceptance to start, as the server reports them.
    pub(crate) fn wait(&self) -> f64 {
        mean(&self.waits)
    }

    /// Mean seconds from submission to acceptance: the time in which a call neither waits nor
    /// computes nor transfers data.
    pub(crate) fn response(&self) -> f64 {
        let others: Vec<f64> = self.calls().map(|times| times.other).collect();
        (mean(&others) - self.wait()).max(0.0)
    }

    /// The least and the greatest mean time of a client, relative to the mean of all.
    pub(crate) fn unfairness(&self) -> (f64, f64) {
        let of_clients: Vec<f64> = self
            .clients
            .iter()
            .map(|times| mean(&times.iter().map(|times| times.total).collect::<Vec<f64>>()))
            .collect();
        let all = mean(&of_clients);
        let relative = of_clients.iter().map(|time| time / all);
        relative.fold((f64::INFINITY, 0.0), |(least, most), time| {
            // A client without a completed call counts as infinitely slow.
            let time = if time.is_nan() { f64::INFINITY } else { time };
            (least.min(time), most.max(time))
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
