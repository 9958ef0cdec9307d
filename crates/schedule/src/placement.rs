//! Which server a call goes to.
//!
//! Which servers there are, what they do and what the ways to them carry is the caller's to know;
//! here is only the decision. The papers ask for it: neither the load alone nor the servers' speed
//! says where a call ends first, the congestion of the network does as well (first Ninf paper,
//! section 4.2.3), and all can be predicted from the interface and the arguments (section 5.1).

mod arrivals;
mod backlog;
mod link;

use crate::{Prediction, Profile};
pub use arrivals::Arrivals;
pub use backlog::{Backlog, BusyElements, Slot};
pub use link::{Link, PathDirection, Route};
use std::collections::BTreeSet;
use strum::{EnumString, IntoStaticStr};

/// How a server is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The fewest calls for each processor element.
    LeastLoad,
    /// The least sum of the transfers, at the rates measured, and the computation, stretched by the
    /// load: what the first Ninf metaserver went by (Nakada and others, Utilizing the Metaserver
    /// Architecture in the Ninf Global Computing System, 1998). It takes every link to be idle.
    LoadAndThroughput,
    /// The least predicted time until the results are there, up, wait, compute and down, with that
    /// by which the call delays others, those to come as well (Krishnan, Joining the Right Queue: a
    /// State-Dependent Decision Rule, 1990). By its own time alone a call takes the fast processor
    /// at the slow link from those that need no link.
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

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Policy> {
        name.parse().ok()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What is known of a server at the moment of a decision.
#[derive(Clone, Debug)]
pub struct Server {
    /// The moment at which it stands so, in seconds on the clock of whoever decides.
    pub at_s: f64,
    /// Whether it takes calls: one that drains, or whose lease has ended, does not.
    pub accepts: bool,
    /// Bytes it has for another call.
    pub memory: u64,
    /// Calls that are sent to it, wait, compute, or are sent back, but those that have processor
    /// elements of their own.
    pub calls: u32,
    /// When its processor elements become free.
    pub backlog: Backlog,
    /// How often calls come to it, on the clock of [`Server::at_s`].
    pub arrivals: Arrivals,
    /// What its clients share on the way to it.
    pub up: Link,
    /// And on the way back.
    pub down: Link,
    /// Numbers of the data that it holds.
    pub holds: BTreeSet<u64>,
}

impl Server {
    /// A server that does nothing yet and holds nothing.
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

    /// A call was given to it: what the next decision has to reckon with until the server reports.
    pub fn assign(&mut self, call: &Call<'_>, terms: &TimeParts) {
        self.calls = self.calls.saturating_add(1);
        self.memory = self.memory.saturating_sub(call.memory);
        self.up.begin(call.bytes_up(self) as f64);
        self.down.begin(call.down_bytes as f64);
        self.backlog.take(terms.up_s, terms.pes, terms.compute_s);
    }

    /// So many seconds have gone by without a report.
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
    /// A server that holds it does, on this way out of it.
    Holder(PathDirection),
}

/// An argument that must be at the server before the call can start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Its size.
    pub bytes: u64,
    /// Its number where it is data with a name or a handle: whoever holds it needs no transfer.
    pub data: Option<u64>,
    /// Who sends it otherwise.
    pub origin: Origin,
}

/// A call for which a server is sought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// CalcOrder's operations, or bytes where the interface states none.
    pub work: f64,
    /// What it reads.
    pub inputs: &'a [Input],
    /// Bytes that go back to the client; nothing for results that stay.
    pub down_bytes: u64,
    /// Bytes of memory it takes at the server.
    pub memory: u64,
    /// Fewest processor elements it can compute on; more than there are means all.
    pub fewest: u32,
    /// Most processor elements of which it makes use.
    pub most: u32,
}

impl Call<'_> {
    /// Bytes that would have to be sent to a server.
    pub fn bytes_up(&self, server: &Server) -> u64 {
        let missing = self.inputs.iter().filter(|input| !input.is_at(server));
        missing.fold(0, |sum, input| sum.saturating_add(input.bytes))
    }

    /// Bytes that the client would have to send to a server that holds nothing.
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

/// What a server lacks of a call's inputs.
struct Missing {
    from_client: u64,
    /// From the client and from holders.
    bytes: u64,
    /// Until the last is there of what holders send.
    slowest_s: f64,
}

/// A server that has the function, and what is known about the two together.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// A number of its own.
    pub id: u64,
    /// The server.
    pub server: &'a Server,
    /// The moment of the decision, on the clock of [`Server::at_s`].
    pub now_s: f64,
    /// The ways between it and the client.
    pub route: &'a Route,
    /// How long calls of the function take there.
    pub profile: &'a Profile,
    /// Seconds the call is taken to compute where the profile knows nothing: by other functions
    /// at this server, or by this function at others. A guess that is too low draws many calls to a
    /// new server before the first has shown what it can do.
    pub unknown_s: f64,
    /// The client's own link out, shared by all that it sends: the same of all candidates.
    pub client_up: &'a Link,
    /// And its link in.
    pub client_down: &'a Link,
}

/// Of what the time of a call at a server consists, all in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeParts {
    /// Until the inputs are there.
    pub up_s: f64,
    /// From then until it starts.
    pub wait_s: f64,
    /// The computation.
    pub compute_s: f64,
    /// Until the results are back.
    pub down_s: f64,
    /// By how much it delays other calls, all together.
    pub others_s: f64,
    /// Processor elements it would have.
    pub pes: u32,
    /// Bytes that would be sent to the server.
    pub up_bytes: u64,
    /// Two thirds of such calls take between the sum divided by this and multiplied by it.
    pub factor: f64,
    /// Whether a call of the function was ever observed there.
    pub learned: bool,
}

impl TimeParts {
    /// Until the results are there.
    pub fn seconds(&self) -> f64 {
        self.up_s + self.wait_s + self.compute_s + self.down_s
    }

    /// What the default policy makes least: the call's own time, and what it costs others.
    pub fn cost_s(&self) -> f64 {
        self.seconds() + self.others_s
    }
}

/// Why a server cannot have a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It takes no calls now.
    Refuses,
    /// It has not the memory.
    Memory {
        /// Bytes that the call takes.
        wanted: u64,
        /// Bytes there are.
        free: u64,
    },
}

/// The error bar of a computation of which nothing is known.
const UNKNOWN_FACTOR: f64 = 3.0;

impl Candidate<'_> {
    /// Whether the server can have the call at all.
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

    /// What the call would take here.
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
        // The terms err independently of each other; a wait errs like the computations before.
        let off = [
            up_s * (self.route.up.factor - 1.0),
            (terms.wait_s + terms.compute_s) * (compute.factor - 1.0),
            terms.down_s * (self.route.down.factor - 1.0),
        ];
        let all = off.map(|off| off * off).iter().sum::<f64>().sqrt();
        terms.factor = 1.0 + all / terms.seconds().max(1e-9);
        terms
    }

    /// What the call costs at least, by what is known without a look at how the server stands. The
    /// client needs so many seconds to send so many bytes.
    #[inline]
    fn least_s(&self, call: &Call<'_>, (bytes, own_s): (u64, f64)) -> f64 {
        let back_s = self.route.down.seconds(call.down_bytes as f64);
        let missing = self.missing(call);
        let own_s = match missing.from_client == bytes {
            true => self.route.up.latency_s + own_s,
            false => 0.0,
        };
        let sent_s = self.sent_alone(&missing).max(own_s);
        // Of a call that makes use of several processor elements it is not known how many it has.
        let single_s = match call.fewest.max(call.most) {
            0..=1 => self.seconds(call, 1),
            _ => 0.0,
        };
        sent_s + single_s + back_s
    }

    /// The cost, unless it is not below that of another server: the dearer terms are left out where
    /// the others alone say so.
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

    /// By how much the call delays others, all together: the transfers on the way to the server;
    /// the calls whose inputs are there later than its own; and those to come until it is done, of
    /// which those that come while it computes wait for half of that time on average.
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

    /// What is to be sent to the server.
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

    /// Seconds until all inputs are there if nothing else was sent.
    fn sent_alone(&self, missing: &Missing) -> f64 {
        let sent_s = self.route.up.seconds(missing.from_client as f64);
        sent_s.max(missing.slowest_s)
    }

    /// Seconds until all inputs are there. What comes from the client and from holders comes at the
    /// same time and shares the server's link.
    fn up(&self, missing: &Missing, sharing_s: f64) -> f64 {
        let shared = self.server.up.alone(missing.bytes as f64) + sharing_s;
        let own = self.client_up.seconds(missing.from_client as f64, 0.0);
        let latency_s = self.route.up.latency_s;
        self.sent_alone(missing).max(latency_s + own.max(shared))
    }

    /// By how much what is sent to the server and the transfers under way there delay each other.
    fn sharing(&self, missing: &Missing) -> f64 {
        self.server.up.delay(missing.bytes as f64, self.since_s())
    }

    fn since_s(&self) -> f64 {
        (self.now_s - self.server.at_s).max(0.0)
    }

    /// When the call would start whose inputs are there in so many seconds.
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

    /// The seconds of [`Candidate::compute`], at less expense.
    fn seconds(&self, call: &Call<'_>, pes: u32) -> f64 {
        let learned = self.profile.seconds(call.work, pes);
        learned.unwrap_or(self.unknown_s)
    }

    /// Calls for each processor element. One that is kept for others is as one that has a call.
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

/// The server that a call goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its number, as in [`Candidate::id`].
    pub id: u64,
    /// What the call is predicted to take there.
    pub terms: TimeParts,
}

/// Chooses servers by a policy.
#[derive(Clone, Debug, Default)]
pub struct Placer {
    policy: Policy,
    /// The server that had the last turn.
    last: Option<u64>,
}

impl Placer {
    /// One that goes by this policy.
    pub fn new(policy: Policy) -> Placer {
        Placer { policy, last: None }
    }

    /// Chooses among the servers that have the function; none where no server can have the call.
    /// Of equal ones the first is chosen. The cost is linear in the candidates.
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
        // Most are too dear however they stand.
        if candidate.least_s(call, (from_client, own_s)) < bound_s
            && let Some(cost_s) = candidate.cost_below(call, bound_s)
            && candidate.fits(call).is_ok()
        {
            best = Some((cost_s, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// What the call would take at every server, in the order of [`Policy::Completion`]; then those
/// that cannot have it, and why.
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
