//! Checks named data of one server: a name leads to the newest version, for the users who can read
//! it. It allows for what a user cannot know, such as data that have just expired.

use crate::interfaces::{Contents, user_name};
use farcall_random::SplitMix64;
use farcall_rpc_proto::{DataName, DataVersion, HandleId, NamePage, NameRecord};
use std::collections::BTreeMap;

/// Data to which a user gives a name, or a file of the data folder.
#[derive(Clone, Debug)]
struct Datum {
    life: u64,
    /// 0 is the data folder.
    owner: u8,
    name: String,
    id: HandleId,
    contents: Contents,
    is_shared: bool,
    /// When its user learned that the data have the name.
    told: Option<u64>,
    version: Option<DataVersion>,
    /// Its user has dropped it.
    is_dropped: bool,
    /// It was used at this time or later.
    used: u64,
}

/// What a server knows of a file of its data folder.
#[derive(Clone, Debug)]
struct File {
    name: String,
    /// `None` if the file is gone.
    contents: Option<Contents>,
    /// When it was changed, in milliseconds.
    written: u64,
    told: u64,
}

/// All named data.
#[derive(Debug, Default)]
pub(crate) struct Names {
    data: Vec<Datum>,
    files: BTreeMap<u64, Vec<File>>,
    /// The time in nanoseconds for which unused data certainly remain.
    pub(crate) lasts: u64,
}

impl Names {
    /// A server learns the contents of its data folder: names, contents and times of change.
    pub(crate) fn folder(&mut self, life: u64, files: &[(String, Contents, u64)], now: u64) {
        let known = self.files.entry(life).or_default();
        let mut told = Vec::new();
        for (name, contents, written) in files {
            let before = known.iter().rev().find(|file| file.name == *name);
            if before.is_none_or(|file| file.written != *written || file.contents.is_none()) {
                told.push(File {
                    name: name.clone(),
                    contents: Some(*contents),
                    written: *written,
                    told: now,
                });
            }
        }
        let mut names: Vec<String> = known.iter().map(|file| file.name.clone()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let is_there = files.iter().any(|(known, ..)| *known == name);
            let before = known.iter().rev().find(|file| file.name == name);
            if !is_there && before.is_some_and(|file| file.contents.is_some()) {
                told.push(File {
                    name,
                    contents: None,
                    written: 0,
                    told: now,
                });
            }
        }
        known.extend(told);
    }

    /// The states of a file since then.
    fn file_since(&self, life: u64, name: &str, since: u64) -> std::vec::IntoIter<&File> {
        let files = self.files.get(&life).into_iter().flatten();
        let mut files: Vec<&File> = files.filter(|file| file.name == name).collect();
        let before = files.iter().filter(|file| file.told <= since).count();
        files.drain(..before.saturating_sub(1));
        files.into_iter()
    }

    /// A user is about to give an array a name.
    pub(crate) fn publishes(
        &mut self,
        (life, owner): (u64, u8),
        name: &str,
        id: HandleId,
        (contents, is_shared): (Contents, bool),
        (since, _): (u64, u64),
    ) {
        self.data.push(Datum {
            life,
            owner,
            name: name.to_string(),
            id,
            contents,
            is_shared,
            told: None,
            version: None,
            is_dropped: false,
            used: since,
        });
    }

    fn get(&mut self, life: u64, id: HandleId) -> Option<&mut Datum> {
        let mut data = self.data.iter_mut().rev();
        data.find(|datum| datum.life == life && datum.id == id)
    }

    /// The user drops data. The data that they have replaced went before them: the name can begin
    /// again with any version.
    pub(crate) fn drops(&mut self, life: u64, id: HandleId) {
        let Some(last) = self.get(life, id).cloned() else {
            return;
        };
        for datum in &mut self.data {
            let is_same =
                (datum.life, datum.owner) == (life, last.owner) && datum.name == last.name;
            if datum.id == id || (is_same && datum.version < last.version) {
                datum.is_dropped = true;
            }
        }
    }

    /// Data were used, at that time or later.
    pub(crate) fn used(&mut self, life: u64, id: HandleId, since: u64) {
        if let Some(datum) = self.get(life, id) {
            datum.used = datum.used.max(since);
        }
    }

    /// Data that a user can read.
    pub(crate) fn pick(
        &self,
        (life, reader): (u64, u8),
        random: &mut SplitMix64,
    ) -> Option<(HandleId, Contents)> {
        let data = self
            .data
            .iter()
            .rev()
            .take(24)
            .filter(|datum| datum.life == life && datum.told.is_some() && !datum.is_dropped);
        let data: Vec<_> = data
            .filter(|datum| datum.may_be_read(reader))
            .map(|datum| (datum.id, datum.contents))
            .collect();
        (!data.is_empty()).then(|| data[random.below(data.len() as u64) as usize])
    }

    /// Whether an array is a file of the data folder.
    pub(crate) fn is_file(&self, life: u64, id: HandleId) -> bool {
        let mut data = self.data.iter();
        data.any(|datum| datum.life == life && datum.id == id && datum.owner == 0)
    }

    /// A user learns that an array has its name.
    pub(crate) fn named(
        &mut self,
        who: (u64, u8),
        id: HandleId,
        record: &NameRecord,
        (since, now): (u64, u64),
    ) -> Result<(), String> {
        if record.id != Some(id) {
            return Err(format!(
                "the array {id} gets a name that leads to another array"
            ));
        }
        if let Some(datum) = self.get(who.0, id) {
            datum.told = Some(now);
        }
        self.check(who, record, (since, now))
    }

    /// Whether data are what was put, and not older than what a user learned before.
    fn check(
        &mut self,
        who: (u64, u8),
        record: &NameRecord,
        (since, now): (u64, u64),
    ) -> Result<(), String> {
        let (life, reader) = who;
        let Some(id) = record.id else {
            return Err(format!("data of the name {} are nowhere", record.name));
        };
        let Some(datum) = self.get(life, id) else {
            return Err(format!("data of the name {} were never put", record.name));
        };
        let owner = record.name.owner.clone().unwrap_or_default();
        if datum.name != record.name.name || user_name(datum.owner) != owner {
            return Err(format!("{} is what was put as {}", record.name, datum.name));
        }
        if !datum.may_be_read(reader) {
            return Err(format!(
                "user {reader} is told of {}, which is not shared",
                record.name
            ));
        }
        let is_right = record.form.shape == [datum.contents.count]
            && record.shared == datum.is_shared
            && record.own == (datum.owner == reader);
        if !is_right || datum.version.is_some_and(|known| known != record.version) {
            return Err(format!("{record:?} is not what was put"));
        }
        datum.version = Some(record.version);
        let (name, owner) = (datum.name.clone(), datum.owner);
        let newer = self.data.iter().filter(|other| {
            (other.life, other.owner) == (life, owner)
                && other.name == name
                && other.told.is_some_and(|told| told <= since)
                && other.version.is_some_and(|known| known > record.version)
                && !other.is_dropped
                && !self.may_be_expired(other, now)
        });
        match newer.count() {
            0 => Ok(()),
            _ => Err(format!(
                "{name} leads to data that were replaced before a client asked for the name"
            )),
        }
    }

    /// A user learns which data a name leads to.
    pub(crate) fn found(
        &mut self,
        who: (u64, u8),
        asked: &DataName,
        record: &NameRecord,
        (since, now): (u64, u64),
    ) -> Result<(), String> {
        if record.name.owner.as_deref() != Some("") {
            return self.check(who, record, (since, now));
        }
        let (life, reader) = who;
        let own = self.data.iter().filter(|datum| {
            datum.is_surely(life, reader, &asked.name, since)
                && !self.may_be_expired(datum, now)
                && !self.may_be_hidden(datum, reader)
        });
        if asked.owner.is_none() && own.count() > 0 {
            return Err(format!(
                "{asked} leads to a file, although the user has data of that name"
            ));
        }
        let mut files = self.file_since(life, &record.name.name, since);
        let file = files.find(|file| file.written == record.version.written);
        let contents = file.and_then(|file| file.contents);
        let (Some(contents), Some(id)) = (contents, record.id) else {
            return Err(format!("{record:?} is not a file of the data folder"));
        };
        self.data.push(Datum {
            life,
            owner: 0,
            name: record.name.name.clone(),
            id,
            contents,
            is_shared: true,
            told: Some(now),
            version: Some(record.version),
            is_dropped: false,
            used: since,
        });
        Ok(())
    }

    /// A user lists all data.
    pub(crate) fn listed(
        &self,
        (life, reader): (u64, u8),
        page: &NamePage,
        (since, now): (u64, u64),
    ) -> Result<(), String> {
        for record in &page.names {
            let mut data = self.data.iter();
            let datum = data.find(|datum| datum.life == life && Some(datum.id) == record.id);
            if datum.is_some_and(|datum| !datum.may_be_read(reader)) {
                return Err(format!(
                    "user {reader} is told of {}, which is not shared",
                    record.name
                ));
            }
        }
        let told = self.data.iter().filter(|datum| {
            datum.owner == reader
                && datum.is_surely(life, reader, &datum.name, since)
                && !self.may_be_hidden(datum, reader)
        });
        // Expired data may be absent, and so may names that have new data.
        for datum in told.filter(|datum| !self.may_be_expired(datum, now)) {
            if !page
                .names
                .iter()
                .any(|record| record.name.name == datum.name)
            {
                return Err(format!("{} is there, and is not listed", datum.name));
            }
        }
        let is_sorted = page
            .names
            .windows(2)
            .all(|pair| pair[0].name < pair[1].name);
        match is_sorted {
            true => Ok(()),
            false => Err("names are not listed in their order".to_string()),
        }
    }

    fn may_be_expired(&self, datum: &Datum, now: u64) -> bool {
        // The server counts in milliseconds.
        now + 2_000_000 - datum.used >= self.lasts
    }

    /// Whether newer data of the same name can be hidden from a user, or can be gone.
    fn may_be_hidden(&self, datum: &Datum, reader: u8) -> bool {
        self.data.iter().any(|other| {
            (other.life, other.owner) == (datum.life, datum.owner)
                && other.name == datum.name
                && (!other.may_be_read(reader) || other.is_dropped)
        })
    }

    /// Whether the server may no longer have the data.
    pub(crate) fn may_miss(&self, life: u64, id: HandleId, now: u64) -> bool {
        let mut data = self.data.iter().rev();
        let datum = data.find(|datum| datum.life == life && datum.id == id);
        datum.is_none_or(|datum| {
            let mut others = self.data.iter();
            let is_replaced = others.any(|other| {
                (other.life, other.owner) == (life, datum.owner)
                    && other.name == datum.name
                    && other.id != id
            });
            let files = self.files.get(&life).into_iter().flatten();
            let changes = files.filter(|file| file.name == datum.name).count();
            datum.is_dropped
                || is_replaced
                || datum.owner == 0 && changes > 1
                || self.may_be_expired(datum, now)
        })
    }

    /// Whether a user may find no data of a name, or data of several owners.
    pub(crate) fn may_be_absent(
        &self,
        (life, reader): (u64, u8),
        name: &DataName,
        is_many: bool,
        (since, now): (u64, u64),
    ) -> bool {
        let of_owner = |datum: &&Datum| match &name.owner {
            Some(owner) => user_name(datum.owner) == *owner,
            None => true,
        };
        let there = self.data.iter().filter(of_owner).filter(|datum| {
            datum.owner != 0
                && datum.may_be_read(reader)
                && datum.is_surely(life, datum.owner, &name.name, since)
                && !self.may_be_expired(datum, now)
                && !self.may_be_hidden(datum, reader)
        });
        let files = self.file_since(life, &name.name, since);
        // No file of the name was made, changed or removed meanwhile.
        let has_file = name.owner.is_none()
            && files.len() == 1
            && files
                .into_iter()
                .all(|file| file.contents.is_some() && file.told <= since);
        match is_many {
            true => name.owner.is_none() && !has_file,
            false => there.count() == 0 && !has_file,
        }
    }
}

impl Datum {
    fn may_be_read(&self, reader: u8) -> bool {
        self.owner == 0 || self.is_shared || self.owner == reader
    }

    /// Whether data certainly had that name then, unless they have expired.
    fn is_surely(&self, life: u64, owner: u8, name: &str, since: u64) -> bool {
        (self.life, self.owner) == (life, owner)
            && self.name == name
            && self.told.is_some_and(|told| told <= since)
            && !self.is_dropped
    }
}
