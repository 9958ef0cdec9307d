//! The client's part of placement: whether to ask the metaserver, which server to use, and what to
//! do after a server is lost.
//!
//! Times are seconds of a monotonic clock. A call runs again only if its server has not begun with
//! it, or if its function is repeatable.

use crate::flaw::{self, Flaw};
use crate::message::{Choose, Chosen, DataFound, Found, MOST_EXCLUDED, Observe, TimeParts};
use crate::{Directory, Refusal, Settings};
use farcall_rpc_proto::FailureKind;
use std::collections::BTreeMap;

/// Time between two tries while no metaserver answers.
const RETRY_S: f64 = 1.0;
/// How long an answer about a function or about data is used.
const FRESH_S: f64 = 2.0;
/// The client's name for its own site.
const HERE: &str = "here";

/// The server chosen for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenServer {
    /// Number of the server.
    pub server: u64,
    /// Address of the server.
    pub address: String,
    /// Predicted times of the call there.
    pub terms: Option<TimeParts>,
    /// Number of the placement.
    placement: u64,
    /// Whether the client chose the server, and not the metaserver.
    is_own: bool,
}

impl ChosenServer {
    /// A server that no placement chose.
    pub fn unplaced(server: u64) -> ChosenServer {
        ChosenServer {
            server,
            address: String::new(),
            terms: None,
            placement: 0,
            is_own: false,
        }
    }

    /// The first server of an answer.
    ///
    /// # Errors
    /// The answer names none.
    pub fn of(wanted: &Choose, chosen: Chosen, is_own: bool) -> Result<ChosenServer, Refusal> {
        let offer = chosen.offers.into_iter().next();
        let offer = offer.ok_or_else(|| Refusal::NoServer {
            function: wanted.function.clone(),
            reasons: vec!["none was named".to_string()],
        })?;
        Ok(ChosenServer {
            server: offer.server,
            address: offer.address,
            terms: offer.terms,
            placement: chosen.placement,
            is_own,
        })
    }
}

/// What a client knows about the servers behind a metaserver. It uses this while no metaserver
/// answers.
#[derive(Clone, Debug)]
pub struct Known {
    directory: Directory,
    /// When the client last asked about each function.
    asked: BTreeMap<String, f64>,
    /// When the client last asked about each name of data.
    asked_data: BTreeMap<String, f64>,
    /// Until when no metaserver is asked, because none has answered.
    away_until: Option<f64>,
}

impl Default for Known {
    fn default() -> Known {
        let settings = Settings {
            forgets: false,
            ..Settings::default()
        };
        Known {
            directory: Directory::new(settings),
            asked: BTreeMap::new(),
            asked_data: BTreeMap::new(),
            away_until: None,
        }
    }
}

impl Known {
    /// The client's copy of the directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether to ask a metaserver now. The client asks twice; the second connection may lead to
    /// another metaserver.
    pub fn asks(&self, now: f64) -> bool {
        self.away_until.is_none_or(|until| now >= until)
    }

    /// Whether the last question got no answer.
    pub fn is_away(&self) -> bool {
        self.away_until.is_some()
    }

    /// Records whether a metaserver has answered.
    pub fn answered(&mut self, now: f64, answers: bool) {
        let retry_s = if flaw::has(Flaw::StaysAway) {
            1e9
        } else {
            RETRY_S
        };
        self.away_until = (!answers).then_some(now + retry_s);
    }

    /// Whether the answer about a function is recent.
    pub fn is_fresh(&self, now: f64, name: &str) -> bool {
        self.asked.get(name).is_some_and(|at| now - at < FRESH_S)
    }

    /// Records which servers have a function. Returns its qualified name.
    pub fn found(&mut self, now: f64, name: &str, found: Found) -> String {
        for record in found.records {
            self.directory.apply(now, record.at(HERE));
        }
        self.asked.insert(name.to_string(), now);
        found.function
    }

    /// Numbers and addresses of the servers that are known to have a function. With a digest, only
    /// those with that interface. Servers that no answer has named for a lease are gone, unless no
    /// metaserver answers, or none of the others is known.
    pub fn servers_with(&self, now: f64, name: &str, digest: Option<u64>) -> Vec<(u64, String)> {
        let address = |server| {
            self.directory
                .address(server)
                .unwrap_or_default()
                .to_string()
        };
        let found = self.directory.with_function(name, digest);
        let found = found.map(|(server, _)| (server, address(server)));
        let (present, gone): (Vec<_>, Vec<_>) =
            found.partition(|(server, _)| self.is_away() || self.directory.is_leased(now, *server));
        if present.is_empty() { gone } else { present }
    }

    /// Whether the answer about named data is recent. `asked` includes the owner if the client
    /// named one.
    pub fn is_fresh_data(&self, now: f64, asked: &str) -> bool {
        let at = self.asked_data.get(asked);
        at.is_some_and(|at| now - at < FRESH_S)
    }

    /// Records which servers hold named data.
    pub fn found_data(&mut self, now: f64, (asked, name): (&str, &str), found: DataFound) {
        self.directory.forget_data(name);
        for record in found.records {
            self.directory.apply(now, record.at(HERE));
        }
        self.asked_data.retain(|_, at| now - *at < FRESH_S);
        self.asked_data.insert(asked.to_string(), now);
    }

    /// Forgets which answers about data are recent, so that the next question is asked again.
    pub fn ask_data_anew(&mut self) {
        self.asked_data.clear();
    }

    /// Chooses a server by the client's own directory.
    ///
    /// # Errors
    /// No known server can run the call.
    pub fn choose(&mut self, now: f64, wanted: &Choose) -> Result<Chosen, Refusal> {
        self.directory.choose(now, HERE, wanted)
    }

    /// Records the outcome of a call. Returns what the metaserver must hear, unless it is away.
    pub fn observe(
        &mut self,
        now: f64,
        place: &ChosenServer,
        observed: &Observe,
    ) -> Option<Observe> {
        let placed = |is_it: bool| Observe {
            server: place.server,
            placement: if is_it { place.placement } else { 0 },
            ..observed.clone()
        };
        self.directory.observe(now, HERE, &placed(place.is_own));
        (!self.is_away()).then(|| placed(!place.is_own))
    }
}

/// What kept a call from its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server cannot be reached, or released the client before it began with the call.
    NotBegun,
    /// The connection was lost while the call was under way.
    Lost,
    /// The server reported a failure.
    Failed(FailureKind),
    /// The caller caused it.
    Own,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Report the failure to the caller.
    End,
    /// Begin the call at another server: it has not run, or may run again.
    Elsewhere,
    /// Report the loss, with the reason: the call may have run, and must not run again.
    Lost(&'static str),
}

/// The course of one call, from one server to the next until one has run it.
#[derive(Clone, Debug)]
pub struct Course {
    wanted: Choose,
    /// Whether its function may run again.
    is_repeatable: bool,
    /// Whether its results overwrite arrays that it reads.
    overwrites: bool,
    place: Option<ChosenServer>,
}

impl Course {
    /// A call without a server yet.
    pub fn new(wanted: Choose, is_repeatable: bool, overwrites: bool) -> Course {
        Course {
            wanted,
            is_repeatable,
            overwrites,
            place: None,
        }
    }

    /// The question for the metaserver.
    pub fn wanted(&self) -> &Choose {
        &self.wanted
    }

    /// The current server.
    pub fn place(&self) -> Option<&ChosenServer> {
        self.place.as_ref()
    }

    /// Sets the current server.
    pub fn goes_to(&mut self, place: ChosenServer) {
        self.place = Some(place);
    }

    /// What to do after a failure. `changed` is `None` if the call was not begun; otherwise it says
    /// whether results may be in arrays of the caller.
    pub fn after(&self, trouble: Trouble, changed: Option<bool>) -> Next {
        let begun = match trouble {
            Trouble::NotBegun => false,
            Trouble::Lost => true,
            Trouble::Failed(kind) => match kind {
                FailureKind::Draining
                | FailureKind::Busy
                | FailureKind::NotFree
                | FailureKind::UnknownFunction
                | FailureKind::StaleInterface => false,
                FailureKind::ServerStopping => true,
                _ => return Next::End,
            },
            Trouble::Own => return Next::End,
        };
        let elsewhere = match self.wanted.exclude.len() < MOST_EXCLUDED {
            true => Next::Elsewhere,
            false => Next::End,
        };
        let Some(changed) = changed.filter(|_| begun) else {
            return elsewhere;
        };
        if !self.is_repeatable && !flaw::has(Flaw::RunsElsewhere) {
            return Next::Lost("its interface does not declare it `Repeatable \"yes\"`");
        }
        match self.overwrites && changed {
            true => Next::Lost("its results may have changed arrays that it reads"),
            false => elsewhere,
        }
    }

    /// Excludes the current server for this call. Returns what the directories must hear about it.
    pub fn give_away(&mut self, trouble: Trouble) -> Option<(ChosenServer, Observe)> {
        let place = self.place.take()?;
        self.wanted.exclude.push(place.server);
        let observed = Observe {
            server: place.server,
            placement: 0,
            up: None,
            down: None,
            lost: !matches!(
                trouble,
                Trouble::Failed(FailureKind::Busy | FailureKind::NotFree)
            ),
        };
        Some((place, observed))
    }
}
