//! The directory: servers with their leases, functions, paths and placed calls.
//!
//! It decides nothing by the clock of the machine: the caller passes the time. A server without a
//! lease gets no calls.

mod answer;
mod data;
mod placing;

pub use data::{Located, Viewer};
pub(crate) use placing::Asker;

use crate::calls::{Calls, Placed};
use crate::flaw::{self, Flaw};
use crate::message::record::{DataRecord, Key, Record, ServerRecord};
use crate::message::{Choose, Function, Join, Observe, Report, Transfer};
use crate::notes::Notes;
use crate::server::{Entry, ServerStatus, milliseconds};
use crate::servers::Servers;
use crate::traffic::Traffic;
use answer::Answer;
use data::Data;
use farcall_record::{Budget, Line, Link};
use farcall_schedule::Profile;
use farcall_schedule::forecast::{Forecast, Path};
use farcall_schedule::placement::{Placer, Policy};
use std::collections::BTreeMap;

/// Settings of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The placement policy.
    pub policy: Policy,
    /// Length of a lease in seconds.
    pub lease_s: f64,
    /// Whether a server is forgotten when its lease ends. A client that works without a metaserver
    /// forgets none, because nobody renews their leases.
    pub forgets: bool,
    /// Most servers at once.
    pub most_servers: usize,
    /// Most sites that are remembered.
    pub most_sites: usize,
    /// Most paths that are remembered, each direction counted.
    pub most_paths: usize,
    /// Most placed calls that are remembered.
    pub most_calls: usize,
    /// Number of the first placement. Metaservers start at random numbers.
    pub first_placement: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            lease_s: 10.0,
            forgets: true,
            most_servers: 4096,
            most_sites: 1024,
            most_paths: 1 << 16,
            most_calls: 1 << 14,
            first_placement: 0,
        }
    }
}

/// A doubted server counts as lost after this share of a lease without a report. A server reports
/// three times during a lease.
const OVERDUE: f64 = 0.5;

/// A name without its module.
fn plain(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, plain)| plain)
}

fn hint(closest: Option<&str>) -> String {
    match closest {
        Some(known) => format!("did you mean `{known}`?"),
        None => "`farcall ls` lists the functions".to_string(),
    }
}

/// Most functions that a refusal names.
const MOST_NAMED: usize = 16;

fn listed(found: &[String]) -> String {
    let named = found[..found.len().min(MOST_NAMED)].join(", ");
    match found.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Why a request of a peer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server has no lease. It must join again.
    #[error("the server is not known here, or its lease has ended: it must join again")]
    NotJoined,
    /// The directory has as many servers as it may have.
    #[error("{0} servers have joined, which is the limit")]
    Full(usize),
    /// No server has the function.
    #[error("no server has a function `{name}`; {}", hint(.closest.as_deref()))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// A function with a similar name.
        closest: Option<String>,
    },
    /// There is no server, so that none has the function.
    #[error(
        "no server has joined the metaserver yet, so there is no function `{0}`; start a server \
         with `farcall serve --metaserver`, or try again if the metaserver has just started"
    )]
    NobodyJoined(String),
    /// Several modules have a function with this name.
    #[error("`{name}` is several functions: {}; name one with its module", listed(.found))]
    Ambiguous {
        /// The name that was asked for.
        name: String,
        /// Qualified names.
        found: Vec<String>,
    },
    /// Servers have the function, but none can run the call.
    #[error("no server can take a call of `{function}` now: {}", .reasons.join("; "))]
    NoServer {
        /// Its qualified name.
        function: String,
        /// Each server, with its reason.
        reasons: Vec<String>,
    },
}

/// A change for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record has a new state.
    Put(Key),
    /// The record must be removed, unless another metaserver knows a lease that ends later than
    /// this, in milliseconds since 1970.
    Gone(Key, u64),
}

/// A server that has a function, as placement uses it.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) server: u64,
    /// Position of the server among all servers.
    pub(crate) place: usize,
    /// Digest of its interface.
    pub(crate) digest: u64,
    /// Learned times of the function there.
    pub(crate) profile: Option<Profile>,
}

/// Servers, paths to them, and placed calls. See the crate documentation.
#[derive(Clone, Debug)]
pub struct Directory {
    pub(crate) settings: Settings,
    pub(crate) now: f64,
    /// Seconds by which the calendar is ahead of `now`.
    calendar_s: f64,
    pub(crate) servers: Servers,
    /// Servers that have each function, by qualified name.
    pub(crate) functions: BTreeMap<String, Vec<Holder>>,
    pub(crate) traffic: Traffic,
    pub(crate) calls: Calls,
    pub(crate) data: Data,
    pub(crate) placer: Placer,
    /// The connection through which each server has joined.
    pub(crate) joined: BTreeMap<u64, u64>,
    /// Servers that a client has lost, and when. See [`Directory::doubt`].
    doubted: BTreeMap<u64, f64>,
    changed: BTreeMap<Key, Change>,
    /// The record, if there is one.
    pub(crate) notes: Option<Box<Notes>>,
}

impl Directory {
    /// An empty directory.
    pub fn new(settings: Settings) -> Directory {
        Directory {
            now: 0.0,
            calendar_s: 0.0,
            servers: Servers::default(),
            functions: BTreeMap::new(),
            traffic: Traffic::new(settings.most_sites, settings.most_paths),
            calls: Calls::new(settings.first_placement, settings.most_calls),
            data: Data::default(),
            placer: Placer::new(settings.policy),
            joined: BTreeMap::new(),
            doubted: BTreeMap::new(),
            changed: BTreeMap::new(),
            notes: None,
            settings,
        }
    }

    /// Says by how many seconds the calendar is ahead of the clock of this directory, which goes
    /// steadily. Leases go by the clock, so that none ends or begins anew when the calendar is set.
    /// The records that metaservers exchange, and the lines of the record, have dates of the
    /// calendar.
    pub fn set_calendar(&mut self, ahead_s: f64) {
        self.calendar_s = ahead_s;
    }

    /// The date of a moment, in milliseconds since 1970.
    pub(crate) fn date(&self, moment: f64) -> u64 {
        milliseconds(moment + self.calendar_s)
    }

    /// Keeps a record of what happens, with so many lines. [`Directory::take_lines`] has them.
    pub fn keep_record(&mut self, budget: Budget) {
        self.notes = Some(Box::new(Notes::new(budget)));
    }

    /// The lines of the record since the last question. At the end of the program, nothing is left.
    pub fn take_lines(&mut self, is_end: bool) -> Vec<Line> {
        let (now, ahead_s) = (self.now, self.calendar_s);
        let notes = self.notes.as_mut();
        notes.map_or_else(Vec::new, |notes| notes.take(now, ahead_s, is_end))
    }

    /// Notes that placed calls will have no outcome.
    fn note_gone(&mut self, gone: Vec<Placed>) {
        gone.into_iter()
            .for_each(|placed| self.note_end(placed, "unknown"));
    }

    /// Notes what a client says of a placed call.
    pub(crate) fn note_outcome(&mut self, placed: Option<Placed>, observed: &Observe) {
        if let Some(placed) = placed {
            self.note_end(placed, if observed.lost { "lost" } else { "done" });
        }
    }

    fn note_end(&mut self, placed: Placed, outcome: &'static str) {
        if let Some(notes) = &mut self.notes {
            let site = self.traffic.site_name(placed.site).unwrap_or_default();
            notes.ended(self.now, outcome, site, placed);
        }
    }

    /// Notes that a call could not be placed.
    pub(crate) fn note_refusal(&mut self, asker: Asker<'_>, wanted: &Choose) {
        if let Some(notes) = &mut self.notes {
            let site = (crate::digest(asker.site), asker.site);
            let note = asker.note(&wanted.function, "", wanted);
            notes.refused(self.now, site, note, wanted);
        }
    }

    /// Notes that a server has come or gone.
    fn note_server(&mut self, event: &str, server: u64) {
        if let (Some(notes), Some(entry)) = (&mut self.notes, self.servers.get(&server)) {
            notes.server(self.now, event, &entry.join);
        }
    }

    /// Notes what is known of the paths between a site and a server, once in a while.
    fn note_paths(&mut self, site: u64, server: u64) {
        let Some(notes) = &mut self.notes else { return };
        if !notes.is_due((site, server), self.now) {
            return;
        }
        let (Some(host), Some(entry)) = (self.traffic.site_name(site), self.servers.get(&server))
        else {
            return;
        };
        let value = |forecast: Option<Forecast>| forecast.map(|forecast| forecast.value);
        let paths = self.traffic.paths(site, server);
        let [up, down] = paths.map(|path| path.and_then(|path| value(path.rate())));
        let latency = paths.map(|path| path.and_then(|path| value(path.latency())));
        notes.link(Link {
            time: self.now,
            server: entry.join.address.clone(),
            host: host.to_owned(),
            up_bytes_per_s: up,
            down_bytes_per_s: down,
            latency_s: latency[0].zip(latency[1]).map(|(up, down)| [up, down]),
        });
    }

    /// Advances the time and ends leases. A clock that was set back has no effect.
    pub fn advance(&mut self, now: f64) {
        if !now.is_finite() || now <= self.now {
            return;
        }
        self.now = now;
        let gone = self.calls.expire(now);
        self.note_gone(gone);
        self.confirm_losses();
        if !self.settings.forgets || flaw::has(Flaw::KeepsDead) {
            return;
        }
        for server in self.servers.ended(now) {
            let claimed_ms = self
                .servers
                .get(&server)
                .map_or(0, |entry| entry.claimed_ms);
            self.note_server("expired", server);
            self.remove(server, claimed_ms.max(self.date(now)));
        }
    }

    /// Lets a server join, or updates its record. If another server had the same address, that one
    /// was restarted, and is removed.
    ///
    /// # Errors
    /// There are too many servers.
    pub fn join(&mut self, now: f64, join: Join) -> Result<(), Refusal> {
        self.advance(now);
        let same_place =
            |entry: &&Entry| entry.join.address == join.address && entry.join.server != join.server;
        let before: Vec<u64> = self
            .servers
            .values()
            .filter(same_place)
            .map(|e| e.join.server)
            .collect();
        for server in before {
            self.note_server("replaced", server);
            self.remove(server, u64::MAX);
        }
        let most = self.settings.most_servers;
        if self.servers.len() >= most && !self.servers.contains_key(&join.server) {
            return Err(Refusal::Full(most));
        }
        let known = self.servers.get(&join.server);
        let (server, is_new) = (join.server, known.is_none_or(|entry| entry.lost));
        let profiles = known
            .map(|entry| entry.profiles.clone())
            .unwrap_or_default();
        let expires = self.now + self.settings.lease_s;
        let mut entry = Entry::new(join, self.now, expires);
        (entry.profiles, entry.heard_at) = (profiles, self.now);
        self.insert(entry);
        if is_new {
            self.note_server("joined", server);
        }
        Ok(())
    }

    fn insert(&mut self, mut entry: Entry) {
        let server = entry.join.server;
        self.forget_functions(server);
        entry.rates = self.traffic.rates_of_server(server);
        let place = self.servers.insert(entry);
        self.traffic.settle(place, server);
        for (name, function) in &self.servers.at(place).functions {
            let holder = Holder {
                server,
                place,
                digest: function.digest,
                profile: self.servers.at(place).profiles.get(name).cloned(),
            };
            let holders = self.functions.entry(name.clone()).or_default();
            let at = holders.partition_point(|one| one.server < server);
            holders.insert(at, holder);
        }
        self.renew_holds(server);
        self.put(Key::Server(server));
    }

    /// Takes a status report, which renews the lease.
    ///
    /// # Errors
    /// The server has no lease and must join.
    pub fn report(&mut self, now: f64, report: Report) -> Result<(), Refusal> {
        self.advance(now);
        let (now, lease_s) = (self.now, self.settings.lease_s);
        let server = report.server;
        if flaw::has(Flaw::TakesStrangers) && !self.servers.contains_key(&server) {
            return Ok(());
        }
        let entry = self.servers.change(server).ok_or(Refusal::NotJoined)?;
        let was_lost = entry.lost;
        let learned = entry.take(report, now);
        let is_back = was_lost && !entry.lost;
        entry.heard_at = now;
        entry.expires = now + lease_s;
        self.servers.ends_at(now + lease_s);
        for name in &learned {
            self.renew_profile(name, server);
        }
        if is_back {
            self.note_server("back", server);
        }
        self.put(Key::Server(server));
        if self.data.is_holder(server) {
            // The list of data is valid as long as the lease.
            self.put(Key::Data(server));
        }
        Ok(())
    }

    /// Handles new times that a server has learned about a function.
    fn renew_profile(&mut self, function: &str, server: u64) {
        let Some(holders) = self.functions.get_mut(function) else {
            return;
        };
        if let Ok(at) = holders.binary_search_by_key(&server, |one| one.server) {
            let known = &self.servers.at(holders[at].place).profiles;
            holders[at].profile = known.get(function).cloned();
        }
    }

    /// Removes a server that leaves.
    pub fn leave(&mut self, now: f64, server: u64) {
        self.advance(now);
        self.note_server("left", server);
        self.remove(server, u64::MAX);
    }

    /// Marks a server that cannot be reached. It gets no calls until it reports again.
    pub fn lose(&mut self, now: f64, server: u64) {
        self.advance(now);
        self.mark_lost(server);
    }

    /// Notes that a client has lost a server. The server counts as lost for all if it does not
    /// report either.
    pub(crate) fn doubt(&mut self, server: u64) {
        if flaw::has(Flaw::StaysLost) {
            self.mark_lost(server);
        }
        if self.servers.contains_key(&server) {
            self.doubted.entry(server).or_insert(self.now);
        }
    }

    /// Whether a server has not reported since a time.
    pub(crate) fn is_silent_since(&self, server: u64, when: f64) -> bool {
        let entry = self.servers.get(&server);
        entry.is_some_and(|entry| entry.reported_at <= when)
    }

    /// Marks doubted servers as lost whose reports are overdue.
    fn confirm_losses(&mut self) {
        if self.doubted.is_empty() {
            return;
        }
        let mut doubted = std::mem::take(&mut self.doubted);
        doubted.retain(|server, when| self.is_silent_since(*server, *when));
        let overdue_s = OVERDUE * self.settings.lease_s;
        for server in doubted.keys() {
            if let Some(entry) = self.servers.get(server)
                && self.now - entry.reported_at > overdue_s
                && !entry.lost
            {
                self.mark_lost(*server);
            }
        }
        self.doubted = doubted;
    }

    fn mark_lost(&mut self, server: u64) {
        if self.servers.get(&server).is_some_and(|entry| !entry.lost) {
            self.note_server("lost", server);
        }
        if let Some(entry) = self.servers.change(server) {
            entry.lost = true;
        }
    }

    fn remove(&mut self, server: u64, until_ms: u64) {
        if self.servers.contains_key(&server) {
            self.forget_functions(server);
            self.servers.remove(server);
            let mut keys = vec![Key::Server(server)];
            if self.data.is_holder(server) {
                self.data.forget(server);
                keys.push(Key::Data(server));
            }
            for key in keys {
                self.changed.insert(key, Change::Gone(key, until_ms));
            }
        }
    }

    fn forget_functions(&mut self, server: u64) {
        let Some(entry) = self.servers.get(&server) else {
            return;
        };
        for name in entry.functions.keys() {
            if let Some(holders) = self.functions.get_mut(name) {
                holders.retain(|one| one.server != server);
                if holders.is_empty() {
                    self.functions.remove(name);
                }
            }
        }
    }

    /// The outcome of a call or a probe of the owner of the directory, who is believed. What others
    /// say goes through their [`Session`](crate::session::Session).
    pub fn observe(&mut self, now: f64, site: &str, observed: &Observe) {
        self.advance(now);
        let server = observed.server;
        if observed.lost {
            self.lose(now, server);
        }
        let placed = self.end_call(observed.placement, server, 0);
        let transfers = [observed.up, observed.down];
        self.learn((site, 0), server, placed.as_ref(), transfers);
        self.note_outcome(placed, observed);
    }

    /// Ends a call that was placed for a connection.
    pub(crate) fn end_call(&mut self, number: u64, server: u64, connection: u64) -> Option<Placed> {
        let placed = self.calls.end(number, server, connection)?;
        self.servers.change(server);
        Some(placed)
    }

    /// Learns from the transfers of a call or a probe of a user at a site. `placed` is the call.
    pub(crate) fn learn(
        &mut self,
        (site, user): (&str, u64),
        server: u64,
        placed: Option<&Placed>,
        [up, down]: [Option<Transfer>; 2],
    ) {
        if !self.servers.contains_key(&server) {
            return;
        }
        let site = self.traffic.site(site);
        let (now, start) = (self.now, placed.map(|call| call.at));
        let mut learned = false;
        for (transfer, is_up) in [(up, true), (down, false)] {
            let Some(transfer) = transfer.filter(|one| one.bytes > 0 && one.seconds > 0.0) else {
                continue;
            };
            // The arguments travelled when the call was placed; the results have just arrived.
            let from = match start {
                Some(start) if is_up => start,
                _ => now - transfer.seconds,
            };
            let span = (from, from + transfer.seconds);
            learned |= self
                .traffic
                .observe((site, server, is_up), span, transfer.bytes, user);
        }
        if learned {
            self.renew_ways(site, server);
            self.note_paths(site, server);
        }
        if learned && self.traffic.site_name(site).is_some() {
            self.put(Key::Path { site, server });
        }
    }

    /// Handles new measurements of the paths between a site and a server.
    fn renew_ways(&mut self, site: u64, server: u64) {
        let Some(place) = self.servers.place(server) else {
            return;
        };
        self.traffic.renew(site, place, server);
        let rates = self.traffic.rates_of_server(server);
        if let Some(entry) = self.servers.change(server) {
            entry.rates = rates;
        }
    }

    pub(crate) fn put(&mut self, key: Key) {
        self.changed.insert(key, Change::Put(key));
    }

    /// The changes since the last question, for [`Directory::record`].
    pub fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changed).into_values().collect()
    }

    /// The current state of a record.
    pub fn record(&self, key: Key) -> Option<Record> {
        match key {
            Key::Server(server) => {
                let entry = self.servers.get(&server)?;
                Some(Record::Server(ServerRecord {
                    expires_ms: self.date(entry.expires),
                    ..entry.record(self.now, None)
                }))
            }
            Key::Path { site, server } => self.traffic.record(site, server).map(Record::Path),
            Key::Data(server) => {
                let expires_ms = self.date(self.servers.get(&server)?.expires);
                let held = self.data.of_server(server);
                Some(Record::Data(DataRecord {
                    server,
                    held,
                    expires_ms,
                }))
            }
        }
    }

    /// Takes a record of another metaserver. Newer information from the servers themselves stays.
    pub fn apply(&mut self, now: f64, record: Record) {
        self.advance(now);
        let key = record.key();
        // The row of a server that is gone is read once more before it is removed.
        if let Some(Change::Gone(_, until_ms)) = self.changed.get(&key)
            && self.settings.forgets
            && record.expires_ms() <= *until_ms
        {
            return;
        }
        match record {
            Record::Path(record) => {
                let server = record.server;
                let site = self.traffic.apply(record);
                self.renew_ways(site, server);
            }
            Record::Data(record) => {
                if !self.apply_data(record) {
                    return;
                }
            }
            Record::Server(record) => {
                if !self.apply_server(record) {
                    return;
                }
            }
        }
        self.changed.remove(&key);
    }

    /// Takes another metaserver's record of a server. Returns whether it was used. The other
    /// metaserver's calendar may be ahead, so its record counts for one lease, and once.
    fn apply_server(&mut self, record: ServerRecord) -> bool {
        let (now, forgets) = (self.now, self.settings.forgets);
        let claimed_ms = record.expires_ms;
        let expires = claimed_ms as f64 * 1e-3 - self.calendar_s;
        let expires = expires.min(now + self.settings.lease_s);
        let server = record.join.server;
        if !forgets && !self.servers.contains_key(&server) {
            self.make_room();
        }
        let is_full = self.servers.len() >= self.settings.most_servers;
        let (mut functions, mut profiles) = Default::default();
        let mut was_lost = false;
        match self.servers.get_mut(&server) {
            None if is_full || (forgets && expires <= now) => return false,
            None => {}
            Some(entry)
                if forgets && (entry.expires >= expires || entry.claimed_ms >= claimed_ms) =>
            {
                return false;
            }
            // The server's own report is newer than the record.
            Some(entry) if entry.is_heard(now, self.settings.lease_s) => {
                (entry.expires, entry.claimed_ms) = (expires, claimed_ms);
                self.servers.ends_at(expires);
                return false;
            }
            Some(entry) => {
                (functions, profiles) = (entry.functions.clone(), entry.profiles.clone());
                was_lost = entry.lost;
            }
        }
        let mut entry = Entry::new(record.join, now, expires);
        entry.claimed_ms = claimed_ms;
        if !forgets {
            // A client asks for one function at a time, so functions add up.
            entry.functions.extend(functions);
        }
        entry.profiles = profiles;
        entry.learn(&record.learned);
        if let Some(report) = record.report {
            entry.take(report, now);
        }
        self.insert(entry);
        if was_lost {
            self.note_server("back", server);
        }
        true
    }

    /// Forgets the server whose lease has ended first, if the table is full.
    fn make_room(&mut self) {
        if self.servers.len() < self.settings.most_servers {
            return;
        }
        let ended = self.servers.values().filter(|one| one.expires <= self.now);
        let oldest = ended.min_by(|one, other| one.expires.total_cmp(&other.expires));
        if let Some(server) = oldest.map(|one| one.join.server) {
            self.remove(server, u64::MAX);
        }
    }

    /// Whether the lease of a server has not ended.
    pub(crate) fn is_leased(&self, now: f64, server: u64) -> bool {
        self.servers
            .get(&server)
            .is_some_and(|entry| entry.expires > now)
    }

    /// A known function whose name, without module, is at most two edits away.
    fn closest(&self, name: &str) -> Option<&str> {
        let known = self.functions.keys().map(|known| plain(known));
        farcall_spelling::closest(plain(name), known, 2)
    }

    /// The qualified name of a function, given with or without its module.
    ///
    /// # Errors
    /// There is no such function, or several.
    pub fn resolve(&self, name: &str) -> Result<String, Refusal> {
        if self.functions.contains_key(name) {
            return Ok(name.to_string());
        }
        let is_it = |known: &&String| known.rsplit('/').next() == Some(name);
        let mut found: Vec<String> = self.functions.keys().filter(is_it).cloned().collect();
        match (found.pop(), found.is_empty()) {
            (Some(one), true) => Ok(one),
            (None, _) if self.servers.len() == 0 => Err(Refusal::NobodyJoined(name.to_string())),
            (None, _) => Err(Refusal::Unknown {
                name: name.to_string(),
                closest: self.closest(name).map(str::to_string),
            }),
            (Some(last), false) => {
                found.push(last);
                let name = name.to_string();
                Err(Refusal::Ambiguous { name, found })
            }
        }
    }

    /// What a client at `site` needs to know about a function: its servers, and the paths to them.
    ///
    /// # Errors
    /// No server has it.
    pub fn find(
        &mut self,
        now: f64,
        site: &str,
        name: &str,
    ) -> Result<(String, Vec<Record>), Refusal> {
        self.advance(now);
        let function = self.resolve(name)?;
        let site = crate::digest(site);
        let holders = self.functions.get(&function).map_or(&[][..], |all| all);
        let mut answer = Answer::about(holders.len());
        for holder in holders {
            let record = self.servers.at(holder.place);
            let record = record.record(self.now, Some(&function));
            answer.tell(record, self.traffic.record(site, holder.server));
        }
        Ok((function, answer.records))
    }

    /// All functions by qualified name, each as described by one of its servers.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter_map(|(name, holders)| {
            let entry = self.servers.at(holders.first()?.place);
            entry.functions.get(name)
        })
    }

    /// The status of every server.
    pub fn servers(&mut self) -> impl Iterator<Item = ServerStatus<'_>> {
        self.refresh();
        self.servers.values().map(|entry| entry.status(self.now))
    }

    /// The paths between sites and servers: site, server, and the latency and rate in both
    /// directions.
    pub fn paths(&self) -> impl Iterator<Item = (&str, u64, [[Option<Forecast>; 2]; 2])> {
        let pairs = self.traffic.pairs();
        pairs.into_iter().filter_map(|(site, server)| {
            let name = self.traffic.site_name(site)?;
            self.servers.place(server)?;
            let of = |path: Option<&Path>| {
                path.map_or([None, None], |path| [path.latency(), path.rate()])
            };
            Some((name, server, self.traffic.paths(site, server).map(of)))
        })
    }

    /// Number of placed calls without a known outcome.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// The address of a server.
    pub fn address(&self, server: u64) -> Option<&str> {
        Some(&self.servers.get(&server)?.join.address)
    }

    /// The servers that have a function with this interface, and whether its calls may run again.
    pub fn with_function(
        &self,
        function: &str,
        digest: Option<u64>,
    ) -> impl Iterator<Item = (u64, &Function)> {
        let holders = self.functions.get(function).into_iter().flatten();
        let is_it = move |one: &&Holder| digest.is_none_or(|digest| digest == one.digest);
        holders.filter(is_it).filter_map(move |one| {
            let found = self.servers.at(one.place).functions.get(function)?;
            Some((one.server, found))
        })
    }
}
