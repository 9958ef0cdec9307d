//! What a client of a metaserver decides: whether it is asked, where a call goes, and what follows
//! when its server is lost.
//!
//! Times are seconds of a clock that nobody sets.

use crate::flaw::{self, Flaw};
use crate::message::{Choose, Chosen, DataFound, Found, MOST_EXCLUDED, Observe, TimeParts};
use crate::{Directory, Refusal, Settings};
use farcall_rpc_proto::FailureKind;
use std::collections::BTreeMap;

/// While no metaserver answers, it is tried again so often.
const RETRY_S: f64 = 1.0;
/// What is known of a function, or of data, is asked for again after so long.
const FRESH_S: f64 = 2.0;
/// The client's own name for where it is.
const HERE: &str = "here";

/// A server that was chosen for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenServer {
    /// Its number.
    pub server: u64,
    /// Where it is.
    pub address: String,
    /// What the call is predicted to take there.
    pub terms: Option<TimeParts>,
    /// The number of the placement.
    placement: u64,
    /// Whether the client has decided, and not the metaserver.
    is_own: bool,
}

impl ChosenServer {
    /// A server for which no call was placed.
    pub fn unplaced(server: u64) -> ChosenServer {
        ChosenServer {
            server,
            address: String::new(),
            terms: None,
            placement: 0,
            is_own: false,
        }
    }

    /// The first of the servers that a choice names.
    ///
    /// # Errors
    /// It names none.
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

/// What a client knows of the servers behind a metaserver, for the time when none answers.
#[derive(Clone, Debug)]
pub struct Known {
    directory: Directory,
    /// When each function was asked for last.
    asked: BTreeMap<String, f64>,
    /// When data of each name were asked for last.
    asked_data: BTreeMap<String, f64>,
    /// No metaserver has answered; none is asked before.
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
    /// What is known.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether a metaserver is to be asked now. It is asked twice, the second time on a new
    /// connection, which may lead to another one.
    pub fn asks(&self, now: f64) -> bool {
        self.away_until.is_none_or(|until| now >= until)
    }

    /// Whether no metaserver has answered when one was asked last.
    pub fn is_away(&self) -> bool {
        self.away_until.is_some()
    }

    /// A metaserver has answered, or none has.
    pub fn answered(&mut self, now: f64, answers: bool) {
        let retry_s = if flaw::has(Flaw::StaysAway) {
            1e9
        } else {
            RETRY_S
        };
        self.away_until = (!answers).then_some(now + retry_s);
    }

    /// Whether a function was asked for lately.
    pub fn is_fresh(&self, now: f64, name: &str) -> bool {
        self.asked.get(name).is_some_and(|at| now - at < FRESH_S)
    }

    /// The metaserver has said who has a function that was asked for by this name. Returns its
    /// qualified name.
    pub fn found(&mut self, now: f64, name: &str, found: Found) -> String {
        for record in found.records {
            self.directory.apply(now, record.at(HERE));
        }
        self.asked.insert(name.to_string(), now);
        found.function
    }

    /// Whether data of a name, with their owner where one is meant, were asked for lately.
    pub fn is_fresh_data(&self, now: f64, asked: &str) -> bool {
        let at = self.asked_data.get(asked);
        at.is_some_and(|at| now - at < FRESH_S)
    }

    /// The metaserver has said who holds data of a name, which were asked for so.
    pub fn found_data(&mut self, now: f64, (asked, name): (&str, &str), found: DataFound) {
        self.directory.forget_data(name);
        for record in found.records {
            self.directory.apply(now, record.at(HERE));
        }
        self.asked_data.retain(|_, at| now - *at < FRESH_S);
        self.asked_data.insert(asked.to_string(), now);
    }

    /// The data that are sought next are asked for, whatever is known of them.
    pub fn ask_data_anew(&mut self) {
        self.asked_data.clear();
    }

    /// The client chooses a server by what it knows.
    ///
    /// # Errors
    /// It knows of none that can have the call.
    pub fn choose(&mut self, now: f64, wanted: &Choose) -> Result<Chosen, Refusal> {
        self.directory.choose(now, HERE, wanted)
    }

    /// Takes note of what became of a call, and says what the metaserver is to be told, unless it
    /// is away.
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
    /// The server cannot be reached, or lets the client go before it begins with the call.
    NotBegun,
    /// The connection was lost with the call under way.
    Lost,
    /// The server has said so.
    Failed(FailureKind),
    /// The caller's own doing.
    Own,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call failed.
    End,
    /// It was not begun with, or may be run again.
    Elsewhere,
    /// It may have run, and may not be run again: why.
    Lost(&'static str),
}

/// One call, which goes from one server to the next until one has run it.
#[derive(Clone, Debug)]
pub struct Course {
    wanted: Choose,
    /// Whether its function may be run again.
    is_repeatable: bool,
    /// Whether results come into arrays that it reads.
    overwrites: bool,
    place: Option<ChosenServer>,
}

impl Course {
    /// A call for which a server is sought.
    pub fn new(wanted: Choose, is_repeatable: bool, overwrites: bool) -> Course {
        Course {
            wanted,
            is_repeatable,
            overwrites,
            place: None,
        }
    }

    /// What the metaserver is asked.
    pub fn wanted(&self) -> &Choose {
        &self.wanted
    }

    /// Where it is.
    pub fn place(&self) -> Option<&ChosenServer> {
        self.place.as_ref()
    }

    /// It goes there.
    pub fn goes_to(&mut self, place: ChosenServer) {
        self.place = Some(place);
    }

    /// What follows a failure: of a call that was under way, whose results had perhaps begun to
    /// come, or of one that was not begun with.
    pub fn after(&self, trouble: Trouble, returning: Option<bool>) -> Next {
        let begun = match trouble {
            Trouble::NotBegun => false,
            Trouble::Lost => true,
            Trouble::Failed(kind) => match kind {
                FailureKind::Draining
                | FailureKind::Busy
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
        let Some(returning) = returning.filter(|_| begun) else {
            return elsewhere;
        };
        if !self.is_repeatable && !flaw::has(Flaw::RunsElsewhere) {
            return Next::Lost("its interface does not declare it `Repeatable \"yes\"`");
        }
        match self.overwrites && returning {
            true => Next::Lost("results had begun to come into arrays that it reads"),
            false => elsewhere,
        }
    }

    /// The server is not asked again for this call: what others are to hear of it.
    pub fn give_away(&mut self, trouble: Trouble) -> Option<(ChosenServer, Observe)> {
        let place = self.place.take()?;
        self.wanted.exclude.push(place.server);
        let observed = Observe {
            server: place.server,
            placement: 0,
            up: None,
            down: None,
            lost: trouble != Trouble::Failed(FailureKind::Busy),
        };
        Some((place, observed))
    }
}
