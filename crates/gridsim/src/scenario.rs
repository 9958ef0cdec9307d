//! The input of a simulation: servers, sites, and the calls with their times. `simulation` runs it.
//! A random scenario depends only on its seed and the number of servers.

use farcall_random::SplitMix64;
use farcall_schedule::queue::Policy as QueuePolicy;

/// A host's connection to the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    /// Bytes per second in the direction from clients to servers: out of a site, into a server.
    pub up: f64,
    /// Bytes per second in the other direction.
    pub down: f64,
    /// Seconds to the middle of the network.
    pub latency_s: f64,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of processor elements.
    pub pes: u32,
    /// The order in which its calls start.
    pub policy: QueuePolicy,
    /// Operations per second of each processor element, by function in the order of
    /// [`Function::ALL`].
    pub speeds: [f64; Function::ALL.len()],
    /// Its connection.
    pub port: Port,
}

/// A site: a place whose clients share a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// Their connection.
    pub port: Port,
}

/// The functions that clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The papers' Linpack: it sends a matrix and a vector, and returns a vector.
    Linpack,
    /// The papers' EP: it has no array data.
    Ep,
    /// A product of matrices: it sends two and returns one.
    Product,
}

impl Function {
    /// All functions.
    pub const ALL: [Function; 3] = [Function::Linpack, Function::Ep, Function::Product];
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Time of the call, in seconds.
    pub at_s: f64,
    /// Index of the client's site.
    pub site: usize,
    /// The function that is called.
    pub function: Function,
    /// Number of operations.
    pub work: f64,
    /// Bytes of its arguments.
    pub up_bytes: u64,
    /// Bytes of its results.
    pub down_bytes: u64,
    /// Smallest number of processor elements on which the call can compute.
    pub fewest: u32,
    /// Largest number of processor elements that the call can use.
    pub most: u32,
    /// Ratio of its computing time to that of other calls with the same work.
    pub noise: f64,
}

impl Arrival {
    /// A call with a problem of size n: the order of the matrices, or the logarithm of EP's trials
    /// (first Ninf paper, sections 3.1 and 4.3).
    pub fn new(function: Function, n: u32) -> Arrival {
        let (size, bytes) = (f64::from(n), u64::from(n));
        let (work, up_bytes, down_bytes, most) = match function {
            Function::Linpack => {
                let work = 2.0 / 3.0 * size.powi(3) + 2.0 * size.powi(2);
                (work, 8 * bytes * bytes + 8 * bytes, 12 * bytes, 4)
            }
            Function::Ep => ((size + 1.0).exp2(), 100, 100, 1),
            Function::Product => (2.0 * size.powi(3), 16 * bytes * bytes, 8 * bytes * bytes, 4),
        };
        Arrival {
            at_s: 0.0,
            site: 0,
            function,
            work,
            up_bytes,
            down_bytes,
            fewest: 1,
            most,
            noise: 1.0,
        }
    }
}

/// A simulation's input.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The servers.
    pub machines: Vec<Machine>,
    /// The sites of the clients.
    pub sites: Vec<Site>,
    /// The calls, in the order of their times.
    pub arrivals: Vec<Arrival>,
}

impl Scenario {
    /// A random scenario with this number of servers.
    ///
    /// Servers have one to eight processor elements. Their speeds differ by a factor of 20, and by
    /// another 2 from function to function. Bandwidths differ by a factor of 100 and are different
    /// up and down. There are one to four sites. There are 200 calls, or 10 for each server if that
    /// is more. They are made within half to all of the time that all processor elements together
    /// need for them.
    pub fn random(seed: u64, servers: usize) -> Scenario {
        let random = &mut SplitMix64::new(seed);
        let machines: Vec<Machine> = (0..servers).map(|_| machine(random)).collect();
        let sites: Vec<Site> = (0..1 + random.below(4))
            .map(|_| Site {
                port: port(random, 1.25e7, 1.25e9),
            })
            .collect();
        let calls = 200.max(10 * servers);
        let mut arrivals: Vec<Arrival> = (0..calls).map(|_| arrival(random, &sites)).collect();
        let work: f64 = arrivals.iter().map(|one| one.work).sum();
        let speed: f64 = machines
            .iter()
            .map(|one| f64::from(one.pes) * one.speeds.iter().sum::<f64>() / 3.0)
            .sum();
        let window_s = work / speed * between(random, 0.5, 1.0);
        for one in &mut arrivals {
            one.at_s = random.unit() * window_s;
        }
        arrivals.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        Scenario {
            machines,
            sites,
            arrivals,
        }
    }
}

fn machine(random: &mut SplitMix64) -> Machine {
    let speed = between(random, 2e8, 4e9);
    Machine {
        pes: 1 << random.below(4),
        policy: QueuePolicy::default(),
        speeds: Function::ALL.map(|_| speed * between(random, 0.7, 1.4)),
        port: port(random, 1.25e6, 1.25e8),
    }
}

fn arrival(random: &mut SplitMix64, sites: &[Site]) -> Arrival {
    let function = Function::ALL[random.below(3) as usize];
    let n = match function {
        Function::Ep => 24 + random.below(9) as u32,
        Function::Linpack | Function::Product => between(random, 200.0, 2000.0) as u32,
    };
    Arrival {
        site: random.below(sites.len() as u64) as usize,
        noise: between(random, 0.8, 1.25),
        ..Arrival::new(function, n)
    }
}

fn port(random: &mut SplitMix64, low: f64, high: f64) -> Port {
    let up = between(random, low, high);
    Port {
        up,
        down: up * between(random, 1.0 / 3.0, 3.0),
        latency_s: between(random, 1e-4, 2e-2),
    }
}

/// A random number between `low` and `high`, uniform on a logarithmic scale.
fn between(random: &mut SplitMix64, low: f64, high: f64) -> f64 {
    low * (high / low).powf(random.unit())
}
