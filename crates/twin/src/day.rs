//! Collects the calls, servers and links of a record. Lines may come in any order and from several
//! records. `twin` makes a scenario of what was collected.

use farcall_random::SplitMix64;
use farcall_record::{Call, Line, Link, Placement, QUANTILES, Server, Together};
use farcall_schedule::MOST_PES;
use farcall_schedule::queue::Policy;
use std::collections::{BTreeMap, BTreeSet};

/// The most calls that are replayed.
pub(crate) const MOST_CALLS: usize = 1_000_000;
/// The longest record that is replayed.
const LONGEST_S: f64 = 100.0 * 86_400.0;

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum DayError {
    /// No call has started.
    #[error(
        "the record has no calls that started; give the records of servers, and of their \
         metaserver if there is one"
    )]
    NoCalls,
    /// Too many calls.
    #[error(
        "the record has more than {MOST_CALLS} calls; choose a part with --from and --to, or cut \
         it with `farcall record cut`"
    )]
    TooMany,
    /// Too long.
    #[error(
        "the calls of the record lie more than 100 days apart; choose a part with --from and --to"
    )]
    TooLong,
}

/// A call of the record. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Past {
    pub(crate) user: String,
    pub(crate) host: String,
    /// The client, if the record tells it.
    pub(crate) client: String,
    pub(crate) server: String,
    pub(crate) function: String,
    pub(crate) work: f64,
    /// Bytes to the server and back.
    pub(crate) bytes: [u64; 2],
    pub(crate) pes: u32,
    /// Predicted time in the library.
    pub(crate) predicted_s: Option<f64>,
    pub(crate) asked: f64,
    pub(crate) granted: f64,
    pub(crate) queued: f64,
    pub(crate) started: f64,
    pub(crate) ended: f64,
    /// When its results were at the client, as far as the record tells.
    pub(crate) sent: f64,
    /// Whether it has a line of its own.
    pub(crate) is_single: bool,
}

/// What the record says of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) pes: Option<u32>,
    pub(crate) policy: Option<Policy>,
    /// Its numbers: each start gives it another one.
    ids: BTreeSet<String>,
    /// When it came (`true`) and went, in the order of the record.
    pub(crate) events: Vec<(f64, bool)>,
}

/// What was learned about the path between a server and a client's host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Rates in bytes per second, from the server to the client.
    pub(crate) down: Vec<f64>,
}

/// The lines of some records.
#[derive(Debug, Default)]
pub struct Day {
    pub(crate) calls: Vec<Past>,
    pub(crate) hosts: BTreeMap<String, Host>,
    /// By server and host.
    pub(crate) paths: BTreeMap<(String, String), Path>,
    /// Functions and servers of calls that a metaserver has placed.
    pub(crate) placed: BTreeSet<(String, String)>,
    /// Calls that no function computed to its end.
    pub(crate) unfinished: u64,
    /// Calls of several functions that are counted in one line.
    pub(crate) unknown: u64,
    /// Calls whose moments are not in order, or whose work or processor elements are impossible.
    pub(crate) unsound: u64,
    too_many: bool,
}

impl Day {
    /// Takes the next line of a record.
    pub fn take(&mut self, line: &Line) {
        match line {
            Line::Call(call) => self.call(call),
            Line::Together(together) => self.together(together),
            Line::Placement(placement) => self.placement(placement),
            Line::Placements(placements) => {
                let key = (placements.function.clone(), placements.server.clone());
                self.placed.insert(key);
            }
            Line::Link(link) => self.link(link),
            Line::Server(server) => self.server(server),
            Line::Record(_) | Line::Other => {}
        }
    }

    /// Whether there are calls to replay.
    ///
    /// # Errors
    /// There are none, or too many.
    pub(crate) fn check(&self) -> Result<(), DayError> {
        let first = self
            .calls
            .iter()
            .map(|past| past.asked)
            .fold(f64::MAX, f64::min);
        let last = self
            .calls
            .iter()
            .map(|past| past.sent)
            .fold(f64::MIN, f64::max);
        match (self.too_many, self.calls.is_empty()) {
            (true, _) => Err(DayError::TooMany),
            (_, true) => Err(DayError::NoCalls),
            _ if last - first > LONGEST_S => Err(DayError::TooLong),
            _ => Ok(()),
        }
    }

    /// Gives each server one name everywhere: the address by which a metaserver knows it and
    /// clients reach it, if there is one, else that of its own record.
    pub(crate) fn rename(&mut self) {
        let own: BTreeSet<&String> = self.calls.iter().map(|past| &past.server).collect();
        let others = self.hosts.iter().filter(|(name, _)| !own.contains(name));
        let mut names = BTreeMap::new();
        for (other, host) in others {
            let same = |own: &&&String| {
                let known = self.hosts.get(**own);
                known.is_some_and(|known| !known.ids.is_disjoint(&host.ids))
            };
            names.extend(
                own.iter()
                    .find(same)
                    .map(|own| ((*own).clone(), other.clone())),
            );
        }
        let of = |name: &mut String| {
            if let Some(other) = names.get(name) {
                name.clone_from(other);
            }
        };
        self.calls.iter_mut().for_each(|past| of(&mut past.server));
        for ((mut server, host), path) in std::mem::take(&mut self.paths) {
            of(&mut server);
            let known = self.paths.entry((server, host)).or_default();
            known.down.extend(path.down);
        }
        for (mut name, host) in std::mem::take(&mut self.hosts) {
            of(&mut name);
            let known = self.hosts.entry(name).or_default();
            known.pes = known.pes.or(host.pes);
            known.policy = known.policy.or(host.policy);
            known.events.extend(host.events);
        }
    }

    fn push(&mut self, past: Past) {
        let moments = [
            past.asked,
            past.granted,
            past.queued,
            past.started,
            past.ended,
            past.sent,
        ];
        let is_sound = moments.is_sorted() && moments.iter().all(|moment| moment.is_finite());
        let has_pes = (1..=MOST_PES).contains(&past.pes);
        match is_sound && past.work.is_finite() && has_pes {
            true if self.calls.len() < MOST_CALLS => self.calls.push(past),
            true => self.too_many = true,
            false => self.unsound = self.unsound.saturating_add(1),
        }
    }

    fn call(&mut self, call: &Call) {
        let (Some(started), Some(ended)) = (call.started, call.ended) else {
            self.unfinished = self.unfinished.saturating_add(1);
            return;
        };
        let granted = call.granted.unwrap_or(call.asked);
        let bytes = [call.sent_bytes, call.returned_bytes];
        let all = bytes[0]
            .saturating_add(bytes[1])
            .saturating_add(call.placed_bytes);
        self.push(Past {
            user: call.user.clone(),
            host: call.host.clone(),
            client: call.client.clone(),
            server: call.server.clone(),
            function: call.function.clone(),
            work: call.operations.unwrap_or(all as f64).max(1.0),
            bytes,
            pes: call.pes.max(1),
            predicted_s: call.predicted_s,
            asked: call.asked,
            granted,
            queued: call.queued.unwrap_or(granted),
            started,
            ended,
            sent: call.sent,
            is_single: true,
        });
    }

    /// Takes calls without lines of their own: as many, spread evenly over their time, with waits
    /// and computing times of the same quantiles. A failed call without a computing time is left
    /// out, as it is with a line of its own.
    fn together(&mut self, together: &Together) {
        let calls = together.calls;
        if together.function.is_empty() || calls == 0 {
            self.unknown = self.unknown.saturating_add(calls);
            return;
        }
        if calls > (MOST_CALLS - self.calls.len()) as u64 {
            self.too_many = true;
            return;
        }
        let mean = |sum: f64| sum / calls as f64;
        let bytes = [together.sent_bytes, together.returned_bytes].map(|sum| sum / calls);
        let work = match together.operations > 0.0 {
            true => mean(together.operations),
            false => bytes[0]
                .saturating_add(bytes[1])
                .saturating_add(together.placed_bytes / calls) as f64,
        };
        let pes = (together.pe_s / together.exec_s.max(1e-9)).round().max(1.0) as u32;
        let mut random = SplitMix64::new(calls);
        for number in 0..calls {
            let part = (number as f64 + 0.5) / calls as f64;
            let exec_s = quantile(&together.exec_quantiles_s, random.unit());
            let wait_s = quantile(&together.wait_quantiles_s, random.unit());
            if exec_s == 0.0 && together.outcome != "done" {
                self.unfinished = self.unfinished.saturating_add(1);
                continue;
            }
            // The line says when calls ended.
            let ended = together.from + part * (together.to - together.from);
            let started = ended - exec_s;
            let asked = started - wait_s;
            self.push(Past {
                user: together.user.clone(),
                host: together.host.clone(),
                client: String::new(),
                server: together.server.clone(),
                function: together.function.clone(),
                work: work.max(1.0),
                bytes,
                pes,
                predicted_s: None,
                asked,
                granted: asked,
                queued: asked,
                started,
                ended,
                sent: ended,
                is_single: false,
            });
        }
    }

    fn placement(&mut self, placement: &Placement) {
        if !placement.server.is_empty() {
            let key = (placement.function.clone(), placement.server.clone());
            self.placed.insert(key);
        }
    }

    fn link(&mut self, link: &Link) {
        let sound = |rate: &f64| rate.is_finite() && *rate > 0.0;
        let key = (link.server.clone(), link.host.clone());
        let path = self.paths.entry(key).or_default();
        path.down.extend(link.down_bytes_per_s.filter(sound));
    }

    fn server(&mut self, server: &Server) {
        let host = self.hosts.entry(server.server.clone()).or_default();
        let pes = Some(server.pes).filter(|pes| (1..=MOST_PES).contains(pes));
        host.pes = pes.or(host.pes);
        host.ids
            .extend(Some(server.id.clone()).filter(|id| !id.is_empty()));
        host.policy = Policy::named(&server.policy).or(host.policy);
        let comes = match server.event.as_str() {
            "started" | "joined" | "back" => true,
            "stopped" | "left" | "lost" | "expired" => false,
            _ => return,
        };
        host.events.push((server.time, comes));
    }
}

/// The value that this part of some calls does not exceed, between known quantiles.
fn quantile(values: &[f64; QUANTILES.len()], part: f64) -> f64 {
    let above = QUANTILES.iter().position(|known| *known >= part);
    let value = match above {
        Some(0) => values[0],
        None => values[QUANTILES.len() - 1],
        Some(above) => {
            let (low, high) = (QUANTILES[above - 1], QUANTILES[above]);
            let share = (part - low) / (high - low);
            values[above - 1] + share * (values[above] - values[above - 1])
        }
    };
    value.max(0.0)
}
