//! The servers of a transaction: what each one has, what runs there, and how long a call would take
//! there. The module does not choose the server; `crate::transaction` and the crate `schedule` do.
//! A server is asked about each function once.

use super::Recorded;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::remote::{Function, Server};
use farcall_schedule::Profile;
use farcall_schedule::placement::{self, Candidate, Link, PathDirection, Route, TimeParts};
use std::collections::HashMap;
use std::time::Instant;

/// One server.
pub(super) struct Site {
    pub(super) server: Server,
    /// By the texts of their interfaces, which name them.
    functions: HashMap<String, Option<Known>>,
    pub(super) is_lost: bool,
    /// How often its arrays were gone.
    losses: u32,
    /// Whether it has run a call.
    pub(super) is_used: bool,
    pes: u32,
    running: Vec<Running>,
    /// Results that are being fetched.
    pub(super) fetches: usize,
}

/// A function at a server.
struct Known {
    function: Function,
    profile: Profile,
    route: Route,
}

/// A call that runs there.
struct Running {
    call: usize,
    need: Need,
    terms: TimeParts,
    since: Instant,
}

/// What a call needs at a server.
pub(super) struct Need {
    pub(super) work: f64,
    pub(super) inputs: Vec<placement::Input>,
    pub(super) down_bytes: u64,
    pub(super) fewest: u32,
    pub(super) most: u32,
}

impl Need {
    pub(super) fn as_call(&self) -> placement::Call<'_> {
        placement::Call {
            work: self.work,
            inputs: &self.inputs,
            down_bytes: self.down_bytes,
            memory: 0,
            fewest: self.fewest,
            most: self.most,
        }
    }
}

/// What is known about a server when a call is placed.
pub(super) struct View<'s> {
    id: u64,
    known: &'s Known,
    state: placement::Server,
}

/// Calls that the only server gets at once. It queues them itself.
const ALONE: u32 = 16;

/// How often a server may lose the arrays of a transaction, because it started anew.
const MOST_LOSSES: u32 = 4;

impl Site {
    pub(super) fn new(server: Server) -> Site {
        Site {
            server,
            functions: HashMap::new(),
            is_lost: false,
            losses: 0,
            is_used: false,
            pes: 1,
            running: Vec::new(),
            fetches: 0,
        }
    }

    /// Asks the server about the function of a call, and for an estimate if there is a choice of
    /// servers. An error means that the server itself failed.
    pub(super) fn learn(&mut self, call: &Recorded, is_choice: bool) -> Result<(), Error> {
        if self.functions.contains_key(&call.text) {
            return Ok(());
        }
        let known = match call.at(&self.server) {
            Ok(function) => {
                let asked = is_choice.then(|| function.estimate(call.laid_out.clone()));
                let estimate = asked.transpose()?;
                self.pes = match &estimate {
                    Some(estimate) => estimate.pes.unwrap_or(1).max(1),
                    None => ALONE,
                };
                Some(Known::new(function, call, estimate.as_ref()))
            }
            Err(Error::Failed(_)) => None,
            Err(error) => return Err(error),
        };
        self.functions.insert(call.text.clone(), known);
        Ok(())
    }

    pub(super) fn function(&self, call: &Recorded) -> Option<&Function> {
        Some(&self.functions.get(&call.text)?.as_ref()?.function)
    }

    /// Counts a loss of all arrays at the server. A server that loses them again and again is of no
    /// use.
    pub(super) fn has_lost_arrays(&mut self) {
        self.losses += 1;
        self.is_lost |= self.losses > MOST_LOSSES;
    }

    /// Whether the server is lost, and may be of use if it comes back.
    pub(super) fn may_return(&self) -> bool {
        self.is_lost && self.losses <= MOST_LOSSES && !self.functions.is_empty()
    }

    /// Goes on with a lost server if it listens again.
    pub(super) fn come_back(&mut self) -> bool {
        self.is_lost = self.server.connection().is_err();
        !self.is_lost
    }

    /// Whether the server takes another call now. It gets one more than it computes, so that the
    /// next one is there when a call ends.
    pub(super) fn has_room(&self) -> bool {
        !self.is_lost && self.running.len() <= self.pes as usize
    }

    /// Whether nothing is under way there.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.fetches == 0
    }

    /// The path from the server to the client. It is also the guess for paths to other servers.
    pub(super) fn way_from(&self, call: &Recorded) -> Option<PathDirection> {
        Some(self.functions.get(&call.text)?.as_ref()?.route.down)
    }

    /// What is known about the server, if it has the function of a call.
    pub(super) fn view(&self, id: u64, call: &Recorded, holds: &[u64]) -> Option<View<'_>> {
        let known = self.functions.get(&call.text)?.as_ref()?;
        let route = &known.route;
        let (up, down) = (Link::new(route.up.rate), Link::new(route.down.rate));
        let mut state = placement::Server::idle(self.pes, u64::MAX, up, down);
        let mut last = None;
        for running in &self.running {
            if let Some(last) = last.replace(running.since) {
                state.elapse(running.since.saturating_duration_since(last).as_secs_f64());
            }
            state.assign(&running.need.as_call(), &running.terms);
        }
        if let Some(last) = last {
            state.elapse(last.elapsed().as_secs_f64());
        }
        state.holds.extend(holds);
        Some(View { id, known, state })
    }

    pub(super) fn begin(&mut self, call: usize, need: Need, terms: TimeParts) {
        self.is_used = true;
        self.running.push(Running {
            call,
            need,
            terms,
            since: Instant::now(),
        });
    }

    /// Records the end of a call, with its seconds in the library if it ran.
    pub(super) fn end(&mut self, number: usize, call: &Recorded, exec_s: Option<f64>) {
        let place = self
            .running
            .iter()
            .position(|running| running.call == number);
        let Some(running) = place.map(|place| self.running.remove(place)) else {
            return;
        };
        let known = self.functions.get_mut(&call.text).and_then(Option::as_mut);
        if let (Some(known), Some(exec_s)) = (known, exec_s) {
            known
                .profile
                .observe(running.need.work, running.terms.pes, exec_s);
        }
    }
}

impl View<'_> {
    pub(super) fn candidate<'v>(&'v self, unlimited: &'v Link) -> Candidate<'v> {
        Candidate {
            id: self.id,
            server: &self.state,
            now_s: self.state.at_s,
            route: &self.known.route,
            profile: &self.known.profile,
            unknown_s: placement::UNKNOWN_S,
            client_up: unlimited,
            client_down: unlimited,
        }
    }
}

impl Known {
    fn new(function: Function, call: &Recorded, estimate: Option<&Estimate>) -> Known {
        let mut profile = Profile::default();
        let most = u32::try_from(call.prepared.layout.processor_elements.unwrap_or(1)).unwrap_or(1);
        let pes = most
            .min(estimate.and_then(|estimate| estimate.pes).unwrap_or(1))
            .max(1);
        if let Some(exec) = estimate.and_then(|estimate| estimate.exec) {
            profile.observe(call.prepared.layout.cost.unwrap_or(0.0), pes, exec);
        }
        let way = |rate: Option<f64>| PathDirection {
            latency_s: estimate.map_or(PathDirection::UNKNOWN.latency_s, |estimate| {
                estimate.latency / 2.0
            }),
            rate: rate.unwrap_or(PathDirection::UNKNOWN.rate),
            factor: rate.map_or(PathDirection::UNKNOWN.factor, |_| 1.5),
        };
        let (up, down) = estimate.map_or((None, None), |estimate| estimate.rates);
        let route = Route {
            up: way(up),
            down: way(down),
        };
        Known {
            function,
            profile,
            route,
        }
    }
}
