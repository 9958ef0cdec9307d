//! The input of a simulation: servers, sites, and the calls with their times. `simulation` runs it.
//! A random scenario depends only on its seed and the number of servers.

use farcall_random::SplitMix64;
use farcall_schedule::Profile;
use farcall_schedule::queue::Policy as QueuePolicy;
use std::collections::BTreeMap;
use std::ops::Range;

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

/// How long a server computes a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// The server does not have the function.
    Missing,
    /// Operations per second of a processor element. Twice the elements are 1.87 times as fast.
    Rate(f64),
    /// As long as calls took from which this was learned.
    Learned(Box<Profile>),
}

impl Pace {
    /// Seconds for this much work on so many processor elements; `None` without the function.
    pub fn seconds(&self, work: f64, pes: u32) -> Option<f64> {
        match self {
            Pace::Missing => None,
            Pace::Rate(rate) => Some(work / (rate * f64::from(pes).powf(0.9))),
            Pace::Learned(profile) => profile.seconds(work, pes),
        }
    }
}

/// A call of the past that servers and clients know of when a simulation begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Number of the function.
    pub function: usize,
    /// Number of operations.
    pub work: f64,
    /// Processor elements.
    pub pes: u32,
    /// Its computing time.
    pub seconds: f64,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Number of processor elements.
    pub pes: u32,
    /// The order in which its calls start.
    pub policy: QueuePolicy,
    /// Seconds after which a user's past use counts half. With `None`, all users count as one.
    pub half_life_s: Option<f64>,
    /// Its functions, by their numbers. Those beyond the end are missing.
    pub functions: Vec<Pace>,
    /// What is known of it at the beginning.
    pub known: Vec<Known>,
    /// When calls are placed there, in seconds, unless no other server is there either.
    pub present: Range<f64>,
    /// Its connection.
    pub port: Port,
}

impl Machine {
    /// A server that is always there, with the speed of a processor element for each
    /// [`Function`]. All users count as one. It computed a small EP when it joined.
    pub fn new(pes: u32, speeds: [f64; Function::ALL.len()], port: Port) -> Machine {
        let small = Arrival::new(Function::Ep, 20);
        let known = Known {
            function: small.function,
            work: small.work,
            pes: 1,
            seconds: small.work / speeds[small.function],
        };
        Machine {
            pes,
            policy: QueuePolicy::default(),
            half_life_s: None,
            functions: speeds.map(Pace::Rate).to_vec(),
            known: vec![known],
            present: 0.0..f64::INFINITY,
            port,
        }
    }

    /// Whether it has a function.
    pub fn has(&self, function: usize) -> bool {
        let pace = self.functions.get(function);
        pace.is_some_and(|pace| *pace != Pace::Missing)
    }
}

/// A site: a place whose clients share a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// Their connection.
    pub port: Port,
}

/// Functions of the papers. In an [`Arrival`] they have the numbers 0, 1 and 2.
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

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Function::Linpack => "linpack",
            Function::Ep => "ep",
            Function::Product => "product",
        }
    }
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Time of the call, in seconds: after the results of [`Arrival::after`] if it is set.
    pub at_s: f64,
    /// An earlier call, whose results the client has before it makes this one.
    pub after: Option<usize>,
    /// Index of the client's site.
    pub site: usize,
    /// Number of the user.
    pub user: u64,
    /// The server, if the client has chosen it.
    pub server: Option<usize>,
    /// Number of the function that is called.
    pub function: usize,
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
    /// Ratio of the time of its transfers, up and down, to that of others with as many bytes.
    pub stretch: [f64; 2],
    /// Seconds for which its transfers, up and down, pause without using the links.
    pub pause_s: [f64; 2],
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
            after: None,
            site: 0,
            user: 0,
            server: None,
            function: function as usize,
            work,
            up_bytes,
            down_bytes,
            fewest: 1,
            most,
            noise: 1.0,
            stretch: [1.0; 2],
            pause_s: [0.0; 2],
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
    /// Links of their own between a site and a server, beside the connections of both.
    pub paths: BTreeMap<(usize, usize), Port>,
    /// The calls.
    pub arrivals: Vec<Arrival>,
}

impl Scenario {
    /// The link of its own between a site and a server, without limits if there is none.
    pub(crate) fn path(&self, site: usize, server: usize) -> Port {
        let own = self.paths.get(&(site, server)).copied();
        own.unwrap_or(Port {
            up: f64::INFINITY,
            down: f64::INFINITY,
            latency_s: 0.0,
        })
    }

    /// A random scenario with this number of servers.
    ///
    /// Servers have one to eight processor elements. Their speeds differ by a factor of 20, and by
    /// another 2 from function to function. Bandwidths differ by a factor of 100 and are different
    /// up and down. There are one to four sites. There are 200 calls, or 10 for each server if that
    /// is more. They are made within half to all of the time that all processor elements together
    /// need for them.
    pub fn random(seed: u64, servers: usize) -> Scenario {
        let random = &mut SplitMix64::new(seed);
        let machines: Vec<(Machine, f64)> = (0..servers).map(|_| machine(random)).collect();
        let speed: f64 = machines.iter().map(|(_, speed)| speed).sum();
        let machines: Vec<Machine> = machines.into_iter().map(|(one, _)| one).collect();
        let sites: Vec<Site> = (0..1 + random.below(4))
            .map(|_| Site {
                port: port(random, 1.25e7, 1.25e9),
            })
            .collect();
        let calls = 200.max(10 * servers);
        let mut arrivals: Vec<Arrival> = (0..calls).map(|_| arrival(random, &sites)).collect();
        let work: f64 = arrivals.iter().map(|one| one.work).sum();
        let window_s = work / speed * between(random, 0.5, 1.0);
        for one in &mut arrivals {
            one.at_s = random.unit() * window_s;
        }
        arrivals.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        Scenario {
            machines,
            sites,
            paths: BTreeMap::new(),
            arrivals,
        }
    }
}

/// A random server, and the operations per second of all its processor elements.
fn machine(random: &mut SplitMix64) -> (Machine, f64) {
    let speed = between(random, 2e8, 4e9);
    let pes = 1 << random.below(4);
    let speeds = Function::ALL.map(|_| speed * between(random, 0.7, 1.4));
    let machine = Machine::new(pes, speeds, port(random, 1.25e6, 1.25e8));
    (machine, f64::from(pes) * speeds.iter().sum::<f64>() / 3.0)
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
