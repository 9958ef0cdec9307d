//! Placement: which server a call goes to.
//!
//! The caller knows the servers, their load and the paths to them; this module only decides. The
//! papers ask for it: neither load nor speed alone says where a call ends first, because the
//! network's congestion matters too (first Ninf paper, section 4.2.3), and all of these can be
//! predicted from the interface and the arguments (section 5.1).

mod arrivals;
mod backlog;
mod link;

use crate::{Prediction, Profile};
pub use arrivals::Arrivals;
pub use backlog::{Backlog, BusyElements, Slot};
pub use link::{Link, PathDirection, Route};
use std::collections::BTreeSet;
use strum::{EnumString, IntoStaticStr};

/// A placement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Servers in turn.
    RoundRobin,
    /// The server with the fewest calls for each processor element.
    LeastLoad,
    /// The server with the least sum of the transfers, at the measured rates, and the computation,
    /// stretched by the load. The first Ninf metaserver used this policy (Nakada and others,
    /// Utilizing the Metaserver Architecture in the Ninf Global Computing System, 1998). It assumes
    /// that every link is idle.
    LoadAndThroughput,
    /// The server with the least predicted time until the results are back (transfer, wait,
    /// computation, transfer) plus the delay that the call causes to others, including later ones
    /// (Krishnan, Joining the Right Queue: a State-Dependent Decision Rule, 1990). By its own time
    /// alone, a call would take the fast processor at the slow link from calls that need no link.
    #[default]
    Completion,
}

impl Policy {
    /// The name of each on the command line and in configuration files.
    pub const NAMES: [(&'static str, Policy); 4] = [
        ("round-robin", Policy::RoundRobin),
        ("least-load", Policy::LeastLoad),
        ("load-and-throughput", Policy::LoadAndThroughput),
        ("completion", Policy::Completion),
    ];

    /// The policy with this name.
    pub fn named(name: &str) -> Option<Policy> {
        name.parse().ok()
    }

    /// The name of the policy.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A server as it is known at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Server {
    /// The time of this knowledge, in seconds on the decider's clock.
    pub at_s: f64,
    /// Whether it takes calls. A server that drains, or whose lease has ended, does not.
    pub accepts: bool,
    /// Free memory for another call, in bytes.
    pub memory: u64,
    /// Calls that are being sent to it, wait, compute, or are being returned, except those with
    /// reserved processor elements.
    pub calls: u32,
    /// When its processor elements become free.
    pub backlog: Backlog,
    /// How often calls arrive there, on the clock of [`Server::at_s`].
    pub arrivals: Arrivals,
    /// The link that its clients share on the way to it.
    pub up: Link,
    /// The link that they share on the way back.
    pub down: Link,
    /// Numbers of the named data that it holds.
    pub holds: BTreeSet<u64>,
}

impl Server {
    /// A server without load and data.
    pub fn idle(pes: u32, memory: u64, up: Link, down: Link) -> Server {
        Server {
            at_s: 0.0,
            accepts: true,
            memory,
            calls: 0,
            backlog: Backlog::new(pes),
            arrivals: Arrivals::default(),
            up,
            down,
            holds: BTreeSet::new(),
        }
    }

    /// Counts a call that was placed there, until the server reports it.
    pub fn assign(&mut self, call: &Call<'_>, terms: &TimeParts) {
        self.calls = self.calls.saturating_add(1);
        self.memory = self.memory.saturating_sub(call.memory);
        self.up.begin(call.bytes_up(self) as f64);
        self.down.begin(call.down_bytes as f64);
        self.backlog.take(terms.up_s, terms.pes, terms.compute_s);
    }

    /// Advances the server's load by this many seconds without a report.
    pub fn elapse(&mut self, seconds: f64) {
        self.at_s += seconds;
        self.backlog.elapse(seconds);
        self.up.elapse(seconds);
        self.down.elapse(seconds);
    }
}

/// Where an input comes from if the server does not hold it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// The client sends it.
    Client,
    /// A server that holds it, on this path.
    Holder(PathDirection),
}

/// An argument that must be at the server before the call can start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Size in bytes.
    pub bytes: u64,
    /// Number of the data, if it is named data or a stored array. A holder needs no transfer.
    pub data: Option<u64>,
    /// Who sends it to other servers.
    pub origin: Origin,
}

/// A call that needs a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// Operations by `CalcOrder`, or bytes if the interface states none.
    pub work: f64,
    /// The inputs that it reads.
    pub inputs: &'a [Input],
    /// Bytes that return to the client; 0 for results that stay at the server.
    pub down_bytes: u64,
    /// Bytes of memory that it needs at the server.
    pub memory: u64,
    /// Fewest processor elements it can compute on; more than there are means all.
    pub fewest: u32,
    /// Most processor elements that it can use.
    pub most: u32,
}

impl Call<'_> {
    /// Bytes that must be sent to this server.
    pub fn bytes_up(&self, server: &Server) -> u64 {
        let missing = self.inputs.iter().filter(|input| !input.is_at(server));
        missing.fold(0, |sum, input| sum.saturating_add(input.bytes))
    }

    /// Bytes that the client must send to a server that holds nothing.
    fn bytes_from_client(&self) -> u64 {
        let from_client = self.inputs.iter();
        let from_client = from_client.filter(|input| input.origin == Origin::Client);
        from_client.fold(0, |sum, input| sum.saturating_add(input.bytes))
    }
}

impl Input {
    fn is_at(&self, server: &Server) -> bool {
        self.data.is_some_and(|data| server.holds.contains(&data))
    }
}

/// The inputs that a server lacks.
struct Missing {
    from_client: u64,
    /// Bytes from the client and from holders.
    bytes: u64,
    /// Seconds until the last input from a holder arrives.
    slowest_s: f64,
}

/// A server that has the function, and what is known about the pair.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Number of the server.
    pub id: u64,
    /// The server.
    pub server: &'a Server,
    /// Time of the decision, on the clock of [`Server::at_s`].
    pub now_s: f64,
    /// The paths between the server and the client.
    pub route: &'a Route,
    /// Learned times of the function there.
    pub profile: &'a Profile,
    /// Assumed seconds of the computation if the profile knows nothing: from other functions at
    /// this server, or from this function at other servers. A guess that is too low draws many
    /// calls to a new server before the first one has ended.
    pub unknown_s: f64,
    /// The client's own outgoing link, shared by everything that it sends. It is the same for all
    /// candidates.
    pub client_up: &'a Link,
    /// The client's own incoming link.
    pub client_down: &'a Link,
}

/// Least assumed seconds of a call that no server has ever run.
pub const UNKNOWN_S: f64 = 0.1;

/// Least assumed seconds of a call at a server that has never run its function: those of the
/// fastest server that has. `profiles` are the learned times of the function everywhere. See
/// [`Candidate::unknown_s`].
///
/// With those of the slowest server, a fast new one is hardly tried: over 120 random scenarios of
/// `farcall sim`, all calls together then took 4 % longer.
pub fn unknown_seconds<'p>(profiles: impl Iterator<Item = &'p Profile>, work: f64) -> f64 {
    let known = profiles.filter_map(|profile| profile.seconds(work, 1));
    let known = known.filter(|seconds| *seconds > 0.0);
    known.min_by(f64::total_cmp).unwrap_or(UNKNOWN_S)
}

/// The parts of a call's time at a server, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeParts {
    /// Transfer of the inputs.
    pub up_s: f64,
    /// Wait for its turn after that.
    pub wait_s: f64,
    /// The computation.
    pub compute_s: f64,
    /// Transfer of the results.
    pub down_s: f64,
    /// Delay that the call causes to all other calls together.
    pub others_s: f64,
    /// Processor elements that it would get.
    pub pes: u32,
    /// Bytes to send to the server.
    pub up_bytes: u64,
    /// Spread: two thirds of such calls take between the sum divided by this and the sum times
    /// this.
    pub factor: f64,
    /// Whether a call of the function was ever observed there.
    pub learned: bool,
}

impl TimeParts {
    /// Time until the results are back: the sum of the parts.
    pub fn seconds(&self) -> f64 {
        self.up_s + self.wait_s + self.compute_s + self.down_s
    }

    /// The quantity that the default policy minimizes: the call's own time, and the delay of
    /// others.
    pub fn cost_s(&self) -> f64 {
        self.seconds() + self.others_s
    }
}

/// Why a server cannot run a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It takes no calls now.
    Refuses,
    /// It has too little memory.
    Memory {
        /// Bytes that the call needs.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
}

/// Spread of a computation about which nothing is known.
const UNKNOWN_FACTOR: f64 = 3.0;

impl Candidate<'_> {
    /// Checks whether the server can run the call at all.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn fits(&self, call: &Call<'_>) -> Result<(), Unfit> {
        let free = self.server.memory;
        match self.server.accepts {
            false => Err(Unfit::Refuses),
            true if call.memory > free => Err(Unfit::Memory {
                wanted: call.memory,
                free,
            }),
            true => Ok(()),
        }
    }

    /// The predicted times of the call at this server.
    pub fn terms(&self, call: &Call<'_>) -> TimeParts {
        let missing = self.missing(call);
        let sharing_s = self.sharing(&missing);
        let up_s = self.up(&missing, sharing_s);
        let slot = self.slot(call, up_s);
        let (compute, learned) = self.compute(call, slot.pes);
        let mut terms = TimeParts {
            up_s,
            wait_s: (slot.start_s - up_s).max(0.0),
            compute_s: compute.seconds,
            down_s: self.down(call, slot.start_s + compute.seconds),
            others_s: self.others(sharing_s, up_s, &slot, compute.seconds),
            pes: slot.pes,
            up_bytes: missing.bytes,
            factor: 1.0,
            learned,
        };
        // The parts err independently of each other; a wait errs like the computations before it.
        let off = [
            up_s * (self.route.up.factor - 1.0),
            (terms.wait_s + terms.compute_s) * (compute.factor - 1.0),
            terms.down_s * (self.route.down.factor - 1.0),
        ];
        let all = off.map(|off| off * off).iter().sum::<f64>().sqrt();
        terms.factor = 1.0 + all / terms.seconds().max(1e-9);
        terms
    }

    /// A lower bound of the call's cost that does not depend on the server's load. The client needs
    /// `own_s` seconds to send `bytes` bytes.
    #[inline]
    fn least_s(&self, call: &Call<'_>, (bytes, own_s): (u64, f64)) -> f64 {
        let back_s = self.route.down.seconds(call.down_bytes as f64);
        let missing = self.missing(call);
        let own_s = match missing.from_client == bytes {
            true => self.route.up.latency_s + own_s,
            false => 0.0,
        };
        let sent_s = self.sent_alone(&missing).max(own_s);
        // It is not known how many processor elements a call with a choice will get.
        let single_s = match call.fewest.max(call.most) {
            0..=1 => self.seconds(call, 1),
            _ => 0.0,
        };
        sent_s + single_s + back_s
    }

    /// The cost, if it is below `bound_s`. Expensive parts are not computed if the cheap ones
    /// already exceed the bound.
    fn cost_below(&self, call: &Call<'_>, bound_s: f64) -> Option<f64> {
        let missing = self.missing(call);
        let sharing_s = self.sharing(&missing);
        let up_s = self.up(&missing, sharing_s);
        let slot = self.slot(call, up_s);
        let compute_s = self.seconds(call, slot.pes);
        let back_s = self.route.down.seconds(call.down_bytes as f64);
        let end_s = slot.start_s + compute_s;
        let is_below = |cost_s: f64| (cost_s < bound_s).then_some(cost_s);
        is_below(end_s + back_s)?;
        let others_s = self.others(sharing_s, up_s, &slot, compute_s);
        is_below(end_s + others_s + back_s)?;
        is_below(end_s + others_s + self.down(call, end_s))
    }

    /// Delay that the call causes to all other calls together: to transfers on the way to the
    /// server, to calls whose inputs arrive later than its own, and to calls that arrive before it
    /// ends. A call that arrives while it computes waits for half of its time on average.
    fn others(&self, sharing_s: f64, up_s: f64, slot: &Slot, compute_s: f64) -> f64 {
        let (server, since_s) = (self.server, self.since_s());
        let held_s = compute_s * f64::from(slot.pes) / f64::from(server.backlog.pes());
        let later = server.backlog.later(since_s + up_s) as f64;
        let wait_s = (slot.start_s - up_s).max(0.0);
        let stay_s = wait_s + compute_s;
        let coming = server.arrivals.expected(self.now_s, stay_s);
        let part = (wait_s + compute_s / 2.0) / stay_s.max(f64::MIN_POSITIVE);
        sharing_s + held_s * (later + coming * part)
    }

    /// The inputs that must be sent to the server.
    #[inline]
    fn missing(&self, call: &Call<'_>) -> Missing {
        let mut missing = Missing {
            from_client: 0,
            bytes: 0,
            slowest_s: 0.0,
        };
        for input in call.inputs.iter().filter(|input| !input.is_at(self.server)) {
            missing.bytes = missing.bytes.saturating_add(input.bytes);
            match input.origin {
                Origin::Client => {
                    missing.from_client = missing.from_client.saturating_add(input.bytes);
                }
                Origin::Holder(way) => {
                    missing.slowest_s = missing.slowest_s.max(way.seconds(input.bytes as f64));
                }
            }
        }
        missing
    }

    /// Seconds until all inputs have arrived, if nothing else is sent.
    fn sent_alone(&self, missing: &Missing) -> f64 {
        let sent_s = self.route.up.seconds(missing.from_client as f64);
        sent_s.max(missing.slowest_s)
    }

    /// Seconds until all inputs have arrived. Inputs from the client and from holders travel at the
    /// same time and share the server's link.
    fn up(&self, missing: &Missing, sharing_s: f64) -> f64 {
        let shared = self.server.up.alone(missing.bytes as f64) + sharing_s;
        let own = self.client_up.seconds(missing.from_client as f64, 0.0);
        let latency_s = self.route.up.latency_s;
        self.sent_alone(missing).max(latency_s + own.max(shared))
    }

    /// How much the inputs and the other transfers to the server delay each other.
    fn sharing(&self, missing: &Missing) -> f64 {
        self.server.up.delay(missing.bytes as f64, self.since_s())
    }

    fn since_s(&self) -> f64 {
        (self.now_s - self.server.at_s).max(0.0)
    }

    /// When the call would start if its inputs arrive in this many seconds.
    fn slot(&self, call: &Call<'_>, ready_s: f64) -> Slot {
        let backlog = &self.server.backlog;
        let wanted = (call.fewest, call.most);
        let seconds = |pes| self.seconds(call, pes);
        let slot = backlog.slot(self.since_s() + ready_s, wanted, seconds);
        Slot {
            start_s: slot.start_s - self.since_s(),
            ..slot
        }
    }

    fn down(&self, call: &Call<'_>, from_s: f64) -> f64 {
        let bytes = call.down_bytes as f64;
        let shared = self.server.down.seconds(bytes, self.since_s() + from_s);
        let own = self.client_down.seconds(bytes, from_s);
        let way = &self.route.down;
        way.latency_s + (bytes / way.rate).max(shared).max(own)
    }

    fn compute(&self, call: &Call<'_>, pes: u32) -> (Prediction, bool) {
        let learned = self.profile.predict(call.work, pes);
        let unknown = || Prediction {
            seconds: self.unknown_s,
            factor: UNKNOWN_FACTOR,
        };
        (learned.unwrap_or_else(unknown), learned.is_some())
    }

    /// The seconds of [`Candidate::compute`], at a lower cost.
    fn seconds(&self, call: &Call<'_>, pes: u32) -> f64 {
        let learned = self.profile.seconds(call.work, pes);
        learned.unwrap_or(self.unknown_s)
    }

    /// Calls for each processor element. A reserved element counts like one that has a call.
    fn load(&self) -> f64 {
        let backlog = &self.server.backlog;
        let kept = backlog.kept(self.since_s());
        (f64::from(self.server.calls) + f64::from(kept)) / f64::from(backlog.pes())
    }

    fn load_and_throughput(&self, call: &Call<'_>) -> f64 {
        let pes = self.server.backlog.pes().min(call.most.max(1));
        let (compute, _) = self.compute(call, pes);
        let up = call.bytes_up(self.server) as f64 / self.route.up.rate;
        let down = call.down_bytes as f64 / self.route.down.rate;
        up + down + compute.seconds * (1.0 + self.load())
    }
}

/// The chosen server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its number, as in [`Candidate::id`].
    pub id: u64,
    /// The predicted times of the call there.
    pub terms: TimeParts,
}

/// Chooses servers by a policy.
#[derive(Clone, Debug, Default)]
pub struct Placer {
    policy: Policy,
    /// The server that was chosen last.
    last: Option<u64>,
}

impl Placer {
    /// A placer with this policy.
    pub fn new(policy: Policy) -> Placer {
        Placer { policy, last: None }
    }

    /// Chooses among the servers that have the function. `None` if no server can run the call. Of
    /// equal servers, the first is chosen. The cost is linear in the number of candidates.
    pub fn choose<'a>(
        &mut self,
        call: &Call<'_>,
        candidates: impl Iterator<Item = Candidate<'a>>,
    ) -> Option<Choice> {
        let fits = |candidate: &Candidate<'_>| candidate.fits(call).is_ok();
        let choice = match self.policy {
            Policy::RoundRobin => self.next_of(candidates.filter(fits)),
            Policy::LeastLoad => least(candidates.filter(fits), Candidate::load),
            Policy::LoadAndThroughput => {
                let cost = |one: &Candidate<'_>| one.load_and_throughput(call);
                least(candidates.filter(fits), cost)
            }
            Policy::Completion => soonest(call, candidates),
        }?;
        self.last = Some(choice.id);
        let terms = choice.terms(call);
        Some(Choice {
            id: choice.id,
            terms,
        })
    }

    fn next_of<'a>(&self, fit: impl Iterator<Item = Candidate<'a>>) -> Option<Candidate<'a>> {
        fit.min_by_key(|one| (self.last.is_some_and(|last| one.id <= last), one.id))
    }
}

fn least<'a>(
    fit: impl Iterator<Item = Candidate<'a>>,
    cost: impl Fn(&Candidate<'a>) -> f64,
) -> Option<Candidate<'a>> {
    let costs = fit.map(|one| (cost(&one), one));
    let least = costs.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(least.1)
}

fn soonest<'a>(
    call: &Call<'_>,
    candidates: impl Iterator<Item = Candidate<'a>>,
) -> Option<Candidate<'a>> {
    let mut candidates = candidates.peekable();
    let client = candidates.peek()?.client_up;
    let from_client = call.bytes_from_client();
    let own_s = client.seconds(from_client as f64, 0.0);
    let mut best: Option<(f64, Candidate<'a>)> = None;
    for candidate in candidates {
        let bound_s = best.map_or(f64::INFINITY, |(cost_s, _)| cost_s);
        // Most candidates are too expensive under any load.
        if candidate.least_s(call, (from_client, own_s)) < bound_s
            && let Some(cost_s) = candidate.cost_below(call, bound_s)
            && candidate.fits(call).is_ok()
        {
            best = Some((cost_s, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The predicted times of the call at every server, in the order of [`Policy::Completion`]. Servers
/// that cannot run it come last, with the reason.
pub fn explain<'a>(
    call: &Call<'_>,
    candidates: impl Iterator<Item = Candidate<'a>>,
) -> Vec<(u64, Result<TimeParts, Unfit>)> {
    let judged = candidates.map(|one| (one.id, one.fits(call).map(|()| one.terms(call))));
    let mut judged: Vec<_> = judged.collect();
    let cost = |of: &Result<TimeParts, Unfit>| match of {
        Ok(terms) => terms.cost_s(),
        Err(_) => f64::INFINITY,
    };
    judged.sort_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)));
    judged
}

#[cfg(test)]
mod tests;
