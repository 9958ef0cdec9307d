//! A model of a disk: two logs of bytes, and files. A kill can lose any sector that was not synced,
//! and a disk that lies can lose what it said was synced. Between two servers, one log can be
//! damaged.

use farcall_random::SplitMix64;
use farcall_rpc_proto::JobId;
use farcall_server_proto::ledger::{self, Ledger, Moment, Spot, Unreadable};
use farcall_server_proto::log::{self, Merged};
use farcall_server_proto::{Content, DiskError, Event, JournalEntry, Record, Stored};
use std::collections::BTreeMap;

/// Longer arrays have files. The real limit is greater than most arrays of the simulation.
const MOST_SHORT: usize = 1000;

/// Bytes that a disk has all of, or none of, after it lost power. Real sectors are greater than
/// most records, so that few writes would have several parts.
const SECTOR: usize = 64;
/// Most entries of a write that is torn.
const TORN: usize = 6;

/// Identity of the folder.
const FOLDER: u64 = 0x5EED;

/// A file.
#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    /// The next kill loses it.
    is_forgotten: bool,
}

/// What is on the disk.
#[derive(Debug)]
pub(crate) struct Disk {
    logs: [Vec<u8>; 2],
    /// What the first log was at some time before.
    old: Vec<u8>,
    ledger: Ledger,
    files: BTreeMap<(JobId, u8), File>,
    /// Entries on their way, in their order.
    queue: Vec<JournalEntry>,
    /// How long servers had served before this one started, and when it started.
    served: u64,
    started: u64,
}

fn name(id: JobId, content: Content) -> (JobId, u8) {
    (id, content as u8)
}

impl Default for Disk {
    fn default() -> Disk {
        Disk {
            logs: [Vec::new(), Vec::new()],
            old: Vec::new(),
            ledger: Ledger::new(FOLDER),
            files: BTreeMap::new(),
            queue: Vec::new(),
            served: 0,
            started: 0,
        }
    }
}

impl Disk {
    /// Accepts an entry, to be committed later.
    pub(crate) fn append(&mut self, entry: JournalEntry) {
        self.queue.push(entry);
    }

    /// The time of a change: what the calendar shows, and how long servers have served.
    fn moment(&self, calendar: u64, now: u64) -> Moment {
        Moment {
            unix_ms: calendar,
            served: self.served + (now - self.started) / 1_000_000,
        }
    }

    /// Commits the entries so far. Returns the journal's events.
    pub(crate) fn commit(&mut self, calendar: u64, now: u64) -> Vec<Event> {
        let queue = std::mem::take(&mut self.queue);
        let now = self.moment(calendar, now);
        let said = queue
            .iter()
            .map(|entry| self.ledger.record(entry, now))
            .collect();
        let end = self.ledger.length() as usize;
        for log in &mut self.logs {
            log.truncate(end);
            log.extend_from_slice(self.ledger.batch());
        }
        self.ledger.commit();
        said
    }

    /// The disk is full: new calls are refused, the other entries wait.
    pub(crate) fn refuse(&mut self) -> Vec<Event> {
        ledger::refuse(&mut self.queue, "no room")
    }

    /// How many entries wait.
    pub(crate) fn entries(&self) -> usize {
        self.queue.len()
    }

    /// Writes an array: into a file, or to the memory of the ledger until its record is written.
    pub(crate) fn write(
        &mut self,
        id: JobId,
        content: Content,
        bytes: Vec<u8>,
        is_forgotten: bool,
    ) -> Stored {
        if content != Content::Array && bytes.len() <= MOST_SHORT {
            return self.ledger.hold(id, content, bytes);
        }
        let stored = Stored::of(&bytes);
        let file = File {
            bytes,
            is_forgotten,
        };
        self.files.insert(name(id, content), file);
        stored
    }

    /// Reads an array, if it is what was written.
    pub(crate) fn read(
        &self,
        id: JobId,
        content: Content,
        stored: Stored,
    ) -> Result<Vec<u8>, DiskError> {
        let file = self.files.get(&name(id, content));
        let bytes = match content != Content::Array && stored.bytes <= MOST_SHORT as u64 {
            true => self.read_short(id, content),
            false => file.map(|file| file.bytes.clone()),
        };
        let whole = bytes.filter(|bytes| Stored::of(bytes) == stored);
        whole.ok_or(DiskError {
            is_full: false,
            is_damage: true,
            text: "the file is not what was written".to_string(),
        })
    }

    fn read_short(&self, id: JobId, content: Content) -> Option<Vec<u8>> {
        let spots = self.ledger.spots(id).into_iter();
        let mut found = spots.filter_map(|Spot { at, bytes }| {
            let frame = self.logs[0].get(at as usize..(at + bytes) as usize)?;
            ledger::short_array(frame, content)
        });
        found.next()
    }

    /// Removes a file.
    ///
    /// # Errors
    /// There is no such file of a stored array.
    pub(crate) fn remove(&mut self, id: JobId, content: Content) -> Result<(), String> {
        self.ledger.release(id, content);
        let was_there = self.files.remove(&name(id, content)).is_some();
        match content == Content::Array && !was_there {
            true => Err(format!(
                "the file of array {id} is removed, and there is none"
            )),
            false => Ok(()),
        }
    }

    /// Number of files of that kind.
    pub(crate) fn files(&self, content: Content) -> usize {
        let kinds = self.files.keys().map(|(_, kind)| *kind);
        kinds.filter(|kind| *kind == content as u8).count()
    }

    /// The server is killed. The first `committed` entries in the queue are committed nevertheless.
    /// The next ones are torn: each log has other sectors of them, and zeros elsewhere. Files that
    /// a lying disk forgets are truncated.
    pub(crate) fn killed(
        &mut self,
        committed: usize,
        (calendar, now): (u64, u64),
        random: &mut SplitMix64,
    ) {
        let torn: Vec<JournalEntry> = self
            .queue
            .iter()
            .skip(committed)
            .take(TORN)
            .cloned()
            .collect();
        self.queue.truncate(committed);
        self.commit(calendar, now);
        self.served = self.moment(calendar, now).served;
        self.started = now;
        let moment = self.moment(calendar, now);
        for entry in &torn {
            self.ledger.record(entry, moment);
        }
        let end = self.ledger.length() as usize;
        for log in &mut self.logs {
            log.truncate(end);
            log.extend_from_slice(self.ledger.batch());
            let room = log.len() + random.below(10 * SECTOR as u64) as usize;
            log.resize(room, 0);
            let starts = (0..room).step_by(SECTOR);
            for start in starts.filter(|start| start + SECTOR > end) {
                if random.chance(0.3) {
                    log[start.max(end)..room.min(start + SECTOR)].fill(0);
                }
            }
        }
        self.ledger.roll_back();
        for file in self.files.values_mut() {
            if std::mem::take(&mut file.is_forgotten) {
                let half = file.bytes.len() / 2;
                file.bytes.truncate(half);
            }
        }
    }

    /// Damages one of the logs while no server runs.
    pub(crate) fn rot(&mut self, random: &mut SplitMix64) {
        let log = &mut self.logs[random.below(2) as usize];
        let length = log.len() as u64;
        if length == 0 {
            return;
        }
        let at = random.below(length) as usize;
        match random.below(7) {
            0..=1 => log[at] ^= 1 << random.below(8),
            2 => log.truncate(at),
            3 => log[at..].fill(0),
            4 => log.clear(),
            5 => log.clone_from(&self.old),
            _ => {
                let end = at + random.below(length - at as u64 + 1) as usize;
                log[at..end].fill_with(|| random.next_u64() as u8);
            }
        }
    }

    /// The records that a server finds when it starts, changed as a restart requires, and how long
    /// servers have served. Removes files that no record needs.
    ///
    /// # Errors
    /// Something is damaged in both logs.
    pub(crate) fn open(
        &mut self,
        calendar: u64,
        now: u64,
    ) -> Result<(Vec<Record>, u64), Vec<ledger::Damage>> {
        self.started = now;
        let found = [0, 1].map(|log| log::scan(&self.logs[log]));
        let merged = log::merge(FOLDER, [&found[0], &found[1]]);
        self.served = merged.served;
        let frame = |place: &log::Place| {
            let log = usize::from(place.at[0].is_none());
            let at = place.at[log].unwrap_or_default() as usize;
            let bytes = &self.logs[log][at..at + place.head.bytes() as usize];
            Ok::<_, Unreadable>(bytes.to_vec())
        };
        let Ok(mut rebuilt) = ledger::rebuild(FOLDER, &merged, frame) else {
            return Err(Vec::new());
        };
        if !rebuilt.damages.is_empty() {
            return Err(rebuilt.damages);
        }
        let moment = self.moment(calendar, now);
        if !rebuilt.is_sound || rebuilt.ledger.is_long() {
            rebuilt.ledger = self.rewrite(&rebuilt.ledger, rebuilt.is_sound, &merged, moment);
        }
        self.ledger = rebuilt.ledger;
        self.queue = rebuilt.changes;
        let mut records: BTreeMap<JobId, Record> = rebuilt
            .records
            .into_iter()
            .map(|record| (record.id, record))
            .collect();
        for event in self.commit(calendar, now) {
            if let Event::Changed(id, Some(changed)) = event
                && let Some(record) = records.get_mut(&id)
            {
                record.apply(&changed);
            }
        }
        let contents = [Content::Arguments, Content::Result, Content::Array];
        self.files.retain(|(id, kind), _| {
            let content = contents.into_iter().find(|content| *content as u8 == *kind);
            let record = records.get(id);
            content.is_some_and(|content| record.is_some_and(|record| record.needs(content)))
        });
        let mut all: Vec<Record> = records.into_values().collect();
        all.sort_by_key(|record| record.number);
        Ok((all, self.served))
    }

    fn rewrite(&mut self, known: &Ledger, is_sound: bool, merged: &Merged, now: Moment) -> Ledger {
        let read = |spot: Spot| {
            let is_it = |place: &&log::Place| place.head.seq == spot.at;
            let place = merged.frames.iter().find(is_it).filter(|_| !is_sound);
            let (log, at) = match place {
                None => (0, spot.at),
                Some(place) => {
                    let log = usize::from(place.at[0].is_none());
                    (log, place.at[log].unwrap_or_default())
                }
            };
            let bytes = &self.logs[log][at as usize..(at + spot.bytes) as usize];
            Ok::<_, Unreadable>(bytes.to_vec())
        };
        let mut new = Vec::new();
        let write = |bytes: &[u8]| {
            new.extend_from_slice(bytes);
            Ok(())
        };
        let Ok(ledger) = known.rewrite(now, read, write) else {
            return Ledger::new(FOLDER);
        };
        self.old.clone_from(&self.logs[0]);
        self.logs = [new.clone(), new];
        ledger
    }
}
