//! Named data: which array has a name, who owns it, and who may read it.
//!
//! Named data do not change: calls read them, and a new version replaces the old one. So the same
//! version at two servers is the same bytes.

use crate::flaw::{Flaw, has};
use crate::map::Map;
use farcall_directory::message::Datum;
use farcall_rpc_proto::{
    ArrayForm, DataName, DataVersion, Failure, FailureKind, HandleId, NamePage, NameRecord, User,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Names in one page of a list.
const PAGE: usize = 128;
/// Most arrays that are remembered after a newer version has replaced them.
const MOST_REPLACED: usize = 256;
/// The owner of files in the data folder: nobody.
const FOLDER: &str = "";

/// A file of the data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Its path in the folder.
    pub name: String,
    /// Type, shape and order.
    pub form: ArrayForm,
    /// Offset of its elements.
    pub offset: u64,
    /// Whether its elements are in the other byte order.
    pub is_swapped: bool,
    /// Length of the file. If it changes, the file is a new version.
    pub length: u64,
    /// Time of its last change, in nanoseconds since 1970. If it changes, the file is a new
    /// version.
    pub changed: u64,
}

impl DataFile {
    fn version(&self, number: u64) -> DataVersion {
        DataVersion {
            written: self.changed / 1_000_000,
            stamp: farcall_directory::digest(&format!("{} {}", self.changed, self.length)),
            number,
        }
    }
}

/// One named array or file.
#[derive(Clone, Debug)]
struct NamedData {
    version: DataVersion,
    shared: bool,
    form: ArrayForm,
    id: Option<HandleId>,
    file: Option<Arc<DataFile>>,
}

/// The array of a name.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: NameRecord,
    /// The file, if it is one.
    pub(crate) file: Option<Arc<DataFile>>,
}

/// Name and owner.
type Key = (String, String);

/// All named data of this server.
#[derive(Debug)]
pub(crate) struct Names {
    held: BTreeMap<Key, NamedData>,
    by_id: Map<HandleId, Key>,
    /// Arrays that a newer version has replaced, the oldest first.
    replaced: VecDeque<(HandleId, Key)>,
    most: usize,
    /// Counts changes that metaservers must hear of.
    changes: u64,
}

impl Names {
    /// No names yet, and at most `most`.
    pub(crate) fn new(most: usize) -> Names {
        Names {
            held: BTreeMap::new(),
            by_id: Map::default(),
            replaced: VecDeque::new(),
            most,
            changes: 0,
        }
    }

    /// A count that grows with each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether an array has a name.
    pub(crate) fn is_named(&self, id: HandleId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Whether a user may read an array of another user.
    pub(crate) fn is_shared(&self, id: HandleId) -> bool {
        let held = self.by_id.get(&id).and_then(|key| self.held.get(key));
        held.is_some_and(|held| held.shared)
    }

    /// Why a user who may read the data of another one, or a file, cannot drop it.
    pub(crate) fn read_only(&self, id: HandleId) -> Option<Failure> {
        let key = self.by_id.get(&id)?;
        let held = self.held.get(key).filter(|held| held.shared)?;
        let (name, owner) = key;
        let text = match held.file {
            Some(_) => format!("`{name}@{owner}` is a file of the data folder: users only read it"),
            None => format!("`{name}@{owner}` belongs to {owner}: only {owner} can drop it"),
        };
        Some(Failure::new(FailureKind::NotAllowed, text))
    }

    /// Why an array is gone, if a newer version replaced it.
    pub(crate) fn replaced(&self, id: HandleId) -> Option<Failure> {
        let (_, (name, _)) = self.replaced.iter().rev().find(|(old, _)| *old == id)?;
        let text = format!(
            "`{name}` has a new version since its array {id} was looked up; make the call again"
        );
        Some(Failure::new(FailureKind::NotFound, text))
    }

    /// The array of a name, as a user sees it.
    ///
    /// # Errors
    /// There is no such name that the user may read, or several other users share one.
    pub(crate) fn find(&self, name: &DataName, user: &User) -> Result<Found, Failure> {
        name.check()
            .map_err(|error| Failure::new(FailureKind::BadArgument, error.to_string()))?;
        let user = user.to_string();
        let of = |owner: &str| (name.name.clone(), owner.to_string());
        if let Some(owner) = &name.owner {
            let key = of(owner);
            let held = self
                .held
                .get(&key)
                .filter(|held| held.shared || *owner == user || has(Flaw::ShowsPrivateNames));
            return held
                .map(|held| found(&key, held, &user))
                .ok_or_else(|| absent(name));
        }
        for owner in [user.as_str(), FOLDER] {
            let key = of(owner);
            if let Some(held) = self.held.get(&key) {
                return Ok(found(&key, held, &user));
            }
        }
        let of_all = self.held.range(of("")..);
        let of_all = of_all.take_while(|((other, _), _)| *other == name.name);
        let shared: Vec<_> = of_all.filter(|(_, held)| held.shared).collect();
        match &shared[..] {
            [] => Err(absent(name)),
            [(key, held)] => Ok(found(key, held, &user)),
            several => {
                let owners = several
                    .iter()
                    .map(|((name, owner), _)| format!("{name}@{owner}"));
                let owners: Vec<String> = owners.take(8).collect();
                let text = format!(
                    "several users share data named `{name}`: {}; add the owner, as in NAME@USER",
                    owners.join(", ")
                );
                Err(Failure::new(FailureKind::BadArgument, text))
            }
        }
    }

    /// Gives a user's array a name and a version. Returns the array that had the name before; it
    /// must be dropped. A copy of the current version or an older one changes nothing.
    ///
    /// # Errors
    /// The name is invalid, or there are too many.
    pub(crate) fn put(
        &mut self,
        user: &User,
        name: &str,
        (id, form): (HandleId, &ArrayForm),
        (version, shared): (DataVersion, bool),
    ) -> Result<Option<HandleId>, Failure> {
        let bad = |text: String| Failure::new(FailureKind::BadArgument, text);
        farcall_rpc_proto::check_name(name).map_err(|error| bad(error.to_string()))?;
        if self.is_named(id) {
            return Err(bad(format!("the array {id} already has a name")));
        }
        let key = (name.to_string(), user.to_string());
        let known = self.held.get(&key);
        if known.is_some_and(|known| known.version >= version || has(Flaw::KeepsOldVersions)) {
            return Ok(None);
        }
        if known.is_none() && self.held.len() >= self.most {
            let text = format!(
                "{} names are in use, which is the limit (data.names in the server's \
                 configuration); drop some data",
                self.most
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        let held = NamedData {
            version,
            shared,
            form: form.clone(),
            id: Some(id),
            file: None,
        };
        self.changes += 1;
        self.by_id.insert(id, key.clone());
        let before = self
            .held
            .insert(key.clone(), held)
            .and_then(|before| before.id);
        if let Some(before) = before {
            self.by_id.remove(&before);
            self.note_replaced(before, key);
        }
        Ok(before)
    }

    /// Remembers that a newer version has replaced an array.
    fn note_replaced(&mut self, id: HandleId, key: Key) {
        self.replaced.push_back((id, key));
        if self.replaced.len() > MOST_REPLACED {
            self.replaced.pop_front();
        }
    }

    /// The version that follows the current one and that of another server.
    pub(crate) fn next(
        &self,
        user: &User,
        name: &str,
        after: u64,
        now: u64,
        stamp: u64,
    ) -> DataVersion {
        let key = (name.to_string(), user.to_string());
        let known = self
            .held
            .get(&key)
            .map(|held| held.version)
            .unwrap_or_default();
        // A version is never older than the one it replaces, even if the clock was set back. A
        // client chooses the version of a copy.
        let written = now.max(known.written.saturating_add(1));
        let least = match written > known.written {
            true => 0,
            false => known.stamp.saturating_add(1),
        };
        DataVersion {
            written,
            stamp: stamp.max(least),
            number: known.number.max(after).saturating_add(1),
        }
    }

    /// Links a data file with its place among the arrays.
    pub(crate) fn attach(&mut self, name: &DataName, id: HandleId) {
        let key = (name.name.clone(), name.owner.clone().unwrap_or_default());
        if let Some(held) = self.held.get_mut(&key) {
            held.id = Some(id);
            self.by_id.insert(id, key);
        }
    }

    /// Forgets an array that is gone, with its name. A file keeps its name.
    pub(crate) fn forget(&mut self, id: HandleId) {
        let Some(key) = self.by_id.remove(&id) else {
            return;
        };
        match self.held.get_mut(&key) {
            Some(held) if held.file.is_some() => held.id = None,
            Some(held) if held.id == Some(id) => {
                self.held.remove(&key);
                self.changes += 1;
            }
            _ => {}
        }
    }

    /// Sets the contents of the data folder. Returns arrays that are no longer its files.
    pub(crate) fn set_files(&mut self, files: Vec<DataFile>) -> Vec<HandleId> {
        let is_file = |held: &NamedData| held.file.is_some();
        let mut before: BTreeMap<Key, NamedData> = BTreeMap::new();
        let keys: Vec<Key> = self
            .held
            .iter()
            .filter(|(_, held)| is_file(held))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            before.extend(self.held.remove_entry(&key));
        }
        let mut gone = Vec::new();
        let room = self.most.saturating_sub(self.held.len());
        for file in files.into_iter().take(room) {
            let key = (file.name.clone(), FOLDER.to_string());
            let known = before.remove(&key);
            let same = |held: &NamedData| held.file.as_deref() == Some(&file);
            let held = match known {
                Some(held) if same(&held) => held,
                known => {
                    self.changes += 1;
                    let number = known.as_ref().map_or(0, |held| held.version.number);
                    if let Some(id) = known.and_then(|held| held.id) {
                        gone.push(id);
                        self.note_replaced(id, key.clone());
                    }
                    NamedData {
                        version: file.version(number + 1),
                        shared: true,
                        form: file.form.clone(),
                        id: None,
                        file: Some(Arc::new(file)),
                    }
                }
            };
            self.held.insert(key, held);
        }
        self.changes += before.len() as u64;
        gone.extend(before.into_values().filter_map(|held| held.id));
        for id in &gone {
            self.by_id.remove(id);
        }
        gone
    }

    /// The data that a user may read, by name, after `after`.
    pub(crate) fn page(&self, user: &User, after: Option<&DataName>) -> NamePage {
        let user = user.to_string();
        let after = after.map(|name| (name.name.clone(), name.owner.clone().unwrap_or_default()));
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.held.range((start, Bound::Unbounded));
        let readable = all.filter(|((_, owner), held)| held.shared || *owner == user);
        let records = readable.map(|(key, held)| found(key, held, &user).record);
        let mut names: Vec<NameRecord> = records.take(PAGE + 1).collect();
        let more = names.len() > PAGE;
        names.truncate(PAGE);
        let next = names.last().filter(|_| more).map(|last| last.name.clone());
        NamePage { names, next }
    }

    /// The names, owners and forms of the data that a user may read, and whether they are shared.
    pub(crate) fn seen_by(
        &self,
        user: &User,
    ) -> impl Iterator<Item = (&str, &str, &ArrayForm, bool)> {
        let readable = self
            .held
            .iter()
            .filter(|((_, owner), held)| held.shared || owner == user.name());
        readable
            .map(|((name, owner), held)| (name.as_str(), owner.as_str(), &held.form, held.shared))
    }

    /// All named data, for a metaserver.
    pub(crate) fn all(&self) -> Vec<Datum> {
        let datum = |((name, owner), held): (&Key, &NamedData)| Datum {
            name: name.clone(),
            owner: owner.clone(),
            written: held.version.written,
            stamp: held.version.stamp,
            number: held.version.number,
            shared: held.shared,
            element: held.form.element.clone(),
            shape: held.form.shape.clone(),
            bytes: held.form.bytes().unwrap_or(0),
        };
        self.held.iter().map(datum).collect()
    }
}

fn found((name, owner): &Key, held: &NamedData, user: &str) -> Found {
    Found {
        record: NameRecord {
            name: DataName {
                name: name.clone(),
                owner: Some(owner.clone()),
            },
            version: held.version,
            shared: held.shared,
            id: held.id,
            form: held.form.clone(),
            own: owner == user,
        },
        file: held.file.clone(),
    }
}

fn absent(name: &DataName) -> Failure {
    let text = format!(
        "there is no data named `{name}` here, or another user owns it and does not share it; \
         `farcall ls --data` lists named data"
    );
    Failure::new(FailureKind::NotFound, text)
}

#[cfg(test)]
mod tests;
