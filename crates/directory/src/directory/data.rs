//! Named data in the directory: which servers hold which version.
//!
//! Only the newest version counts. The servers decide who may read data; the directory only hides
//! names.

use super::{Directory, Refusal};
use crate::message::record::{DataRecord, Key, Record};
use crate::message::{
    DataFound, DataListed, Datum, DatumName, FindData, Hold, ListedDatum, MOST_DATA, Need, Offer,
};
use farcall_schedule::placement::{Input, Origin, PathDirection};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Data in one page of a list.
const PAGE: usize = 128;
/// Most holders in a list.
const MOST_HOLDERS: usize = 8;
/// Most owners in an answer.
const MOST_OWNERS: usize = 16;
/// Most holders in an answer.
const MOST_TOLD: usize = 4;

/// The user who asks about data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer<'v> {
    /// Name of the user.
    pub user: &'v str,
    /// Whether the user sees all names, as everybody does if users do not authenticate. The servers
    /// decide who may read.
    pub sees_all: bool,
}

impl Viewer<'_> {
    fn may_see(&self, datum: &Datum) -> bool {
        self.sees_all || datum.shared || datum.owner == self.user
    }
}

/// The newest version of named data, and the servers that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The data.
    pub datum: Datum,
    /// Numbers of the servers.
    pub holders: Vec<u64>,
}

/// The named data of all servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    of_server: BTreeMap<u64, BTreeMap<DatumName, Datum>>,
    holders: BTreeMap<DatumName, BTreeSet<u64>>,
}

impl Data {
    fn put(&mut self, server: u64, datum: Datum) {
        let of_server = self.of_server.entry(server).or_default();
        let key = datum.key();
        if of_server.len() < MOST_DATA || of_server.contains_key(&key) {
            self.holders.entry(key.clone()).or_default().insert(server);
            of_server.insert(key, datum);
        }
    }

    fn remove(&mut self, server: u64, key: &DatumName) {
        if let Some(of_server) = self.of_server.get_mut(&server) {
            of_server.remove(key);
            if of_server.is_empty() {
                self.of_server.remove(&server);
            }
        }
        if let Some(holders) = self.holders.get_mut(key) {
            holders.remove(&server);
            if holders.is_empty() {
                self.holders.remove(key);
            }
        }
    }

    /// Forgets the data of a server that is gone, or that sends its list again.
    pub(crate) fn forget(&mut self, server: u64) {
        for key in self.of_server.remove(&server).unwrap_or_default().keys() {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.remove(&server);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
    }

    pub(crate) fn is_holder(&self, server: u64) -> bool {
        self.of_server.contains_key(&server)
    }

    /// Numbers of the data that a server holds.
    pub(crate) fn numbers(&self, server: u64) -> BTreeSet<u64> {
        let of_server = self.of_server.get(&server);
        of_server
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(Datum::number)
            .collect()
    }

    /// The data that a server holds.
    pub(crate) fn of_server(&self, server: u64) -> Vec<Datum> {
        let of_server = self.of_server.get(&server);
        of_server
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    fn located(&self, key: &DatumName) -> Option<Located> {
        let held = |server: &u64| Some((*server, self.of_server.get(server)?.get(key)?));
        let held: Vec<(u64, &Datum)> = self.holders.get(key)?.iter().filter_map(held).collect();
        let newest = held
            .iter()
            .map(|(_, datum)| *datum)
            .max_by_key(|datum| datum.version())?;
        let holders = held
            .iter()
            .filter(|(_, datum)| datum.version() == newest.version());
        Some(Located {
            datum: newest.clone(),
            holders: holders.map(|(server, _)| *server).collect(),
        })
    }

    /// Number of named data at all servers.
    pub(crate) fn len(&self) -> usize {
        self.holders.len()
    }
}

impl Directory {
    /// Takes a server's list of named data.
    ///
    /// # Errors
    /// The server has no lease.
    pub fn hold(&mut self, now: f64, hold: Hold) -> Result<(), Refusal> {
        self.advance(now);
        let server = hold.server;
        if !self.servers.contains_key(&server) {
            return Err(Refusal::NotJoined);
        }
        if hold.anew {
            self.data.forget(server);
        }
        for key in &hold.gone {
            self.data.remove(server, key);
        }
        for datum in hold.held {
            self.data.put(server, datum);
        }
        self.renew_holds(server);
        self.put(Key::Data(server));
        Ok(())
    }

    /// Handles a change of the data that a server holds.
    pub(crate) fn renew_holds(&mut self, server: u64) {
        let holds = self.data.numbers(server);
        if let Some(entry) = self.servers.get_mut(&server) {
            entry.state.holds = holds;
        }
    }

    /// Takes a metaserver's record of the data at a server. Returns whether it was used: what the
    /// server itself says here is newer. In a client, answers add up.
    pub(crate) fn apply_data(&mut self, record: DataRecord) -> bool {
        let (server, lease_s) = (record.server, self.settings.lease_s);
        let is_taken = match self.servers.get(&server) {
            Some(entry) => !entry.is_heard(self.now, lease_s),
            // The row of the server may come next, but a full table has no room for it.
            None => self.servers.len() < self.settings.most_servers,
        };
        if !is_taken {
            return false;
        }
        if self.settings.forgets {
            self.data.forget(server);
        }
        for datum in record.held {
            self.data.put(server, datum);
        }
        self.renew_holds(server);
        true
    }

    /// Forgets named data before a client takes a new answer about them.
    pub fn forget_data(&mut self, name: &str) {
        let first = DatumName {
            name: name.to_string(),
            owner: String::new(),
        };
        let keys = self.data.holders.range(first..).map(|(key, _)| key);
        let keys: Vec<DatumName> = keys.take_while(|key| key.name == name).cloned().collect();
        for key in keys {
            for server in self.data.holders.get(&key).cloned().unwrap_or_default() {
                self.data.remove(server, &key);
                self.renew_holds(server);
            }
        }
    }

    /// The data with this name, each in its newest version with its holders: the viewer's own
    /// first, then files, then those of others by owner.
    pub fn data(&self, viewer: Viewer<'_>, name: &str, owner: Option<&str>) -> Vec<Located> {
        let first = DatumName {
            name: name.to_string(),
            owner: String::new(),
        };
        let keys = self.data.holders.range(first..).map(|(key, _)| key);
        let keys = keys.take_while(|key| key.name == name);
        let keys = keys.filter(|key| owner.is_none_or(|owner| key.owner == owner));
        let mut keys: Vec<&DatumName> = keys.collect();
        // Before the others are cut.
        keys.sort_by_key(|key| key.owner != viewer.user);
        let located = keys.into_iter().filter_map(|key| self.located(key));
        let visible = located.filter(|one| viewer.may_see(&one.datum));
        visible.take(MOST_OWNERS).collect()
    }

    /// The newest version, and those of its holders that are believed to be reachable.
    fn located(&self, key: &DatumName) -> Option<Located> {
        let mut located = self.data.located(key)?;
        let is_there = |server: &u64| {
            let entry = self.servers.get(server);
            entry.is_some_and(|entry| !entry.lost)
        };
        let there: Vec<u64> = located.holders.iter().copied().filter(is_there).collect();
        if there.is_empty() {
            located
                .holders
                .retain(|server| self.servers.contains_key(server));
        } else {
            located.holders = there;
        }
        (!located.holders.is_empty()).then_some(located)
    }

    /// The answer to a client that asks about named data.
    pub fn find_data(&mut self, now: f64, viewer: Viewer<'_>, find: &FindData) -> DataFound {
        self.advance(now);
        let mut records = Vec::new();
        let mut told: BTreeMap<u64, Vec<Datum>> = BTreeMap::new();
        for located in self.data(viewer, &find.name, find.owner.as_deref()) {
            for server in located.holders.iter().take(MOST_TOLD) {
                told.entry(*server).or_default().push(located.datum.clone());
            }
        }
        for (server, held) in told {
            let Some(entry) = self.servers.get(&server) else {
                continue;
            };
            let record = entry.record_without_functions(now);
            let expires_ms = record.expires_ms;
            records.push(Record::Server(record));
            records.push(Record::Data(DataRecord {
                server,
                held,
                expires_ms,
            }));
        }
        let room = find.room.and_then(|bytes| self.room(bytes));
        DataFound { records, room }
    }

    /// The server with the most free memory that has room for this many bytes.
    fn room(&self, bytes: u64) -> Option<Offer> {
        let entries = self.servers.values();
        let open = entries.filter(|one| one.accepts() && one.memory_free() >= bytes);
        let best = open.max_by_key(|one| (one.memory_free(), one.join.server))?;
        Some(Offer {
            server: best.join.server,
            address: best.join.address.clone(),
            terms: None,
            refusal: None,
        })
    }

    /// A page of the data that a user may see.
    pub fn list_data(
        &mut self,
        now: f64,
        viewer: Viewer<'_>,
        after: Option<&DatumName>,
    ) -> DataListed {
        self.advance(now);
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let keys = self.data.holders.range((start, Bound::Unbounded));
        let located = keys.filter_map(|(key, _)| self.located(key));
        let visible = located.filter(|one| viewer.may_see(&one.datum));
        let listed = visible.map(|one| {
            let holders = one.holders.iter().take(MOST_HOLDERS);
            let holders = holders.filter_map(|server| self.address(*server));
            ListedDatum {
                holders: holders.map(str::to_string).collect(),
                datum: one.datum,
            }
        });
        let mut data: Vec<ListedDatum> = listed.take(PAGE + 1).collect();
        let more = data.len() > PAGE;
        data.truncate(PAGE);
        let next = data.last().filter(|_| more).map(|last| last.datum.key());
        DataListed { data, next }
    }

    /// The data that a user may see, of those whose names are wanted, by name and owner.
    pub fn visible_data<'d>(
        &'d self,
        viewer: Viewer<'d>,
        is_wanted: impl Fn(&DatumName) -> bool + 'd,
    ) -> impl Iterator<Item = Located> + 'd {
        let keys = self.data.holders.keys().filter(move |key| is_wanted(key));
        let located = keys.filter_map(|key| self.located(key));
        located.filter(move |one| viewer.may_see(&one.datum))
    }

    /// Number of named data.
    pub fn data_count(&self) -> usize {
        self.data.len()
    }

    /// The named data that a call reads, as placement needs them. A holder needs no transfer; other
    /// servers read from a holder.
    pub(crate) fn inputs(&self, needs: &[Need]) -> Vec<Input> {
        let input = |need: &Need| {
            let holders = self.servers.values();
            let holders = holders.filter(|one| one.state.holds.contains(&need.number));
            let rates = holders.map(|one| one.rates[1]).reduce(f64::max);
            let way = |rate: f64| match rate > 0.0 {
                true => PathDirection {
                    rate,
                    ..PathDirection::UNKNOWN
                },
                false => PathDirection::UNKNOWN,
            };
            Input {
                bytes: need.bytes,
                data: Some(need.number),
                origin: rates.map_or(Origin::Client, |rate| Origin::Holder(way(rate))),
            }
        };
        needs.iter().map(input).collect()
    }
}
