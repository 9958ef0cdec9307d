//! The two logs of a state folder: how they are read at the start, repaired, and appended to.
//!
//! Both logs have the same bytes. A record is confirmed after both have it on the disk. A damaged
//! log is kept in the quarantine, and written anew from the other one.
//! [`Batch`] appends.

use super::batch::{Batch, ROOM, Room, stays_in_place};
use super::guard::{private_file, sync_folder};
use super::quarantine::Quarantine;
use super::{ARRAYS, DiskError, problem};
use farcall_rpc_proto::JobId;
use farcall_server_proto::ledger::{self, Damage, Ledger, Moment, Rebuilt, Spot};
use farcall_server_proto::log::{self, Found, Merged, Place, Scanner, Verdict, merge};
use farcall_server_proto::{Content, Event, JournalEntry as Entry, Record};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of the logs.
pub(crate) const NAMES: [&str; 2] = ["calls.a.log", "calls.b.log"];
/// Name of the file with the identity of the folder.
const IDENTITY: &str = "identity";
/// Bytes of one read.
const CHUNK: usize = 1 << 20;
/// Bytes of a sector: after an error, reading continues behind it.
const SECTOR: usize = 4096;

/// What the logs of a folder say, before anything was changed.
pub(crate) struct Logs {
    path: PathBuf,
    files: [Option<File>; 2],
    merged: Merged,
    /// Calls, and what is damaged in both logs.
    pub(crate) rebuilt: Rebuilt,
    /// The problems that were found, for people.
    pub(crate) problems: Vec<String>,
    has_identity: bool,
}

impl Logs {
    /// Reads both logs. `None` if the folder has none: it is new.
    pub(crate) fn read(path: &Path) -> Result<Option<Logs>, DiskError> {
        let mut problems = Vec::new();
        let mut files = [None, None];
        let mut found = [Vec::new(), Vec::new()];
        let mut are_absent = 0;
        for (log, name) in NAMES.into_iter().enumerate() {
            match File::open(path.join(name)) {
                Ok(file) => {
                    found[log] = scan(&file)?;
                    files[log] = Some(file);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => are_absent += 1,
                Err(error) => return Err(problem(&path.join(name), &error).into()),
            }
        }
        let identity = read_identity(path);
        if are_absent == 2 && identity.is_none() {
            return Ok(None);
        }
        for found in found.iter().flatten() {
            if let Found::Newer(newer) = found {
                return Err(DiskError::Newer(newer.0.into()));
            }
        }
        let folder = whose(path, &found, identity)?;
        let merged = merge(folder, [&found[0], &found[1]]);
        for (log, verdict) in merged.verdicts.iter().enumerate() {
            match verdict {
                Verdict::Damaged(_) if files[log].is_none() => {
                    problems.push(format!("{} is missing", NAMES[log]));
                }
                Verdict::Damaged(how) => problems.push(format!("{}: {how}", NAMES[log])),
                Verdict::Whole | Verdict::Torn => {}
            }
        }
        if identity != Some(folder) {
            problems.push(format!("{IDENTITY} is missing or damaged"));
        }
        let read = |place: &Place| frame_of(&files, place);
        let rebuilt = ledger::rebuild(folder, &merged, read)?;
        Ok(Some(Logs {
            path: path.to_path_buf(),
            files,
            merged,
            rebuilt,
            problems,
            has_identity: identity == Some(folder),
        }))
    }

    /// How long servers have served with the folder, in milliseconds.
    pub(crate) fn served(&self) -> u64 {
        self.merged.served
    }

    /// Damage that hides a call. A server does not start with it.
    pub(crate) fn losses(&self) -> impl Iterator<Item = &Damage> {
        let damages = self.rebuilt.damages.iter();
        damages.filter(|damage| !matches!(damage, Damage::State(_)))
    }

    /// Repairs the logs, and opens them for a server. Damaged logs are copied into the quarantine
    /// first.
    pub(crate) fn repair(
        self,
        quarantine: &Quarantine,
        now: Moment,
    ) -> Result<(Book, Vec<Record>, Vec<Entry>), DiskError> {
        let Logs {
            path,
            files,
            merged,
            rebuilt,
            ..
        } = self;
        let mut ledger = rebuilt.ledger;
        if !self.has_identity {
            write_identity(&path, ledger.folder())?;
        }
        if !rebuilt.is_sound {
            for (log, verdict) in merged.verdicts.iter().enumerate() {
                let is_damaged = matches!(verdict, Verdict::Damaged(_));
                if (is_damaged || !merged.missing.is_empty()) && files[log].is_some() {
                    quarantine.copy(&path.join(NAMES[log]), now.served)?;
                }
            }
            let places: BTreeMap<u64, &Place> = merged
                .frames
                .iter()
                .map(|place| (place.head.seq, place))
                .collect();
            let read = |spot: Spot| match places.get(&spot.at) {
                Some(place) => frame_of(&files, place),
                None => Err(io::Error::other("there is no such record")),
            };
            ledger = write_anew(&path, &ledger, now, read)?.0;
            put_in_place(&path)?;
        }
        let book = Book::open(path, ledger)?;
        Ok((book, rebuilt.records, rebuilt.changes))
    }
}

/// The identity of the folder: what two of the logs and the file of the identity agree about.
fn whose(path: &Path, found: &[Vec<Found>; 2], known: Option<u64>) -> Result<u64, DiskError> {
    let [a, b] = found.each_ref().map(|found| {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for found in found {
            if let Found::Frame(head, _, true) = found {
                *counts.entry(head.folder).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(folder, _)| folder)
    });
    match (a, b, known) {
        (Some(a), Some(b), _) if a == b => Ok(a),
        (Some(folder), _, Some(known)) | (_, Some(folder), Some(known)) if folder == known => {
            Ok(known)
        }
        (Some(folder), None, None) | (None, Some(folder), None) => Ok(folder),
        // The file of the identity is the damaged object, or the logs are.
        (Some(folder), None, Some(_)) | (None, Some(folder), Some(_)) => Ok(folder),
        _ => Err(DiskError::Lost(path.to_path_buf())),
    }
}

/// An identity for a new folder.
pub(crate) fn new_identity() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_identity(path: &Path) -> Option<u64> {
    let text = fs::read(path.join(IDENTITY)).ok()?;
    let text = std::str::from_utf8(&text).ok()?.trim();
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

fn write_identity(path: &Path, folder: u64) -> io::Result<()> {
    let new = path.join(format!("{IDENTITY}.new"));
    let mut file = private_file(&new)?;
    writeln!(file, "{folder:016x}")?;
    file.sync_all()?;
    fs::rename(&new, path.join(IDENTITY))?;
    sync_folder(path)
}

/// Finds all frames of a file. A part that cannot be read counts as zeros.
fn scan(file: &File) -> io::Result<Vec<Found>> {
    let (mut scanner, mut all) = (Scanner::default(), Vec::new());
    let length = file.metadata()?.len();
    let (mut chunk, mut at) = (vec![0; CHUNK], 0);
    while at < length {
        let read = match file.read_at(&mut chunk, at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                let sector = SECTOR - at as usize % SECTOR;
                let read = file.read_at(&mut chunk[..sector], at).unwrap_or(0);
                chunk[read..sector].fill(0);
                sector.min((length - at) as usize)
            }
        };
        scanner.feed(&chunk[..read]);
        at += read as u64;
        all.extend(std::iter::from_fn(|| scanner.next(false)));
    }
    all.extend(std::iter::from_fn(|| scanner.next(true)));
    Ok(all)
}

/// The bytes of a frame with its head, from a log that has it.
fn frame_of(files: &[Option<File>; 2], place: &Place) -> io::Result<Vec<u8>> {
    let mut last = io::Error::other("neither log has the record");
    for (file, at) in files.iter().zip(place.at) {
        if let (Some(file), Some(at)) = (file, at) {
            match read_frame(file, at, place.head.bytes()) {
                Ok(frame) => return Ok(frame),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

/// Reads a frame with its head, and compares its checksums.
fn read_frame(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; bytes as usize];
    file.read_exact_at(&mut frame, at)?;
    match log::decode(&frame) {
        Some(Ok(head)) if log::is_payload(&head, &frame[log::HEAD_BYTES..]) => Ok(frame),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a record differs from its checksum",
        )),
    }
}

/// The names of logs that are being written anew.
fn new_names(path: &Path) -> [PathBuf; 2] {
    NAMES.map(|name| path.join(format!("{name}.new")))
}

/// Gives back the room of logs that were not written to their end.
fn remove_new(path: &Path) {
    // If one cannot be removed, the next try replaces it.
    let _ = new_names(path).map(fs::remove_file);
}

/// Writes both logs anew, beside the old ones. After an error, the disk has no more of them.
fn write_anew(
    path: &Path,
    ledger: &Ledger,
    now: Moment,
    read: impl FnMut(Spot) -> io::Result<Vec<u8>>,
) -> io::Result<(Ledger, [File; 2])> {
    let written = write_both(path, ledger, now, read);
    written.inspect_err(|_| remove_new(path))
}

fn write_both(
    path: &Path,
    ledger: &Ledger,
    now: Moment,
    read: impl FnMut(Spot) -> io::Result<Vec<u8>>,
) -> io::Result<(Ledger, [File; 2])> {
    let new = new_names(path);
    let [first, second] = &new;
    let mut file = BufWriter::new(private_file(first)?);
    let ledger = ledger.rewrite(now, read, |bytes| file.write_all(bytes))?;
    let a = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    a.sync_all()?;
    let mut b = private_file(second)?;
    io::copy(&mut File::open(first)?, &mut b)?;
    b.sync_all()?;
    Ok((ledger, [a, b]))
}

/// Puts new logs into the place of the old ones. One log is always whole.
fn put_in_place(path: &Path) -> io::Result<()> {
    for (new, name) in new_names(path).iter().zip(NAMES) {
        // An earlier try may have come as far as this.
        if new.try_exists()? {
            fs::rename(new, path.join(name))?;
        }
        sync_folder(path)?;
    }
    Ok(())
}

/// The open logs of a server, with the ledger of what they have.
pub(crate) struct Book {
    path: PathBuf,
    pub(crate) ledger: Ledger,
    files: [Arc<File>; 2],
    room: Room,
    /// Whether the logs may have bytes behind their end, after an error.
    is_dirty: bool,
    /// Whether the new logs are not all in their place, after an error.
    is_astray: bool,
}

impl Book {
    /// The logs of a new folder.
    pub(crate) fn create(path: &Path, folder: u64, now: Moment) -> Result<Book, DiskError> {
        let none = |_| Err(io::Error::other("there are no records"));
        let (ledger, _) = write_anew(path, &Ledger::new(folder), now, none)?;
        put_in_place(path)?;
        write_identity(path, folder)?;
        Book::open(path.to_path_buf(), ledger)
    }

    fn open(path: PathBuf, ledger: Ledger) -> Result<Book, DiskError> {
        // A server was killed while it wrote them.
        remove_new(&path);
        let open = |name: &str| {
            let file = File::options().read(true).write(true).open(path.join(name));
            file.map(Arc::new)
        };
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        let room = Room {
            // A copied folder may have holes in the place of zeros.
            end: ledger.length(),
            stays_in_place: stays_in_place(&files),
        };
        Ok(Book {
            path,
            ledger,
            files,
            room,
            is_dirty: false,
            is_astray: false,
        })
    }

    /// Records entries, and returns what the server is told after they are on the disk.
    pub(crate) fn append(&mut self, entries: &[Entry], now: Moment) -> io::Result<Vec<Event>> {
        let told = self.record(entries, now);
        self.write_batch()?;
        Ok(told)
    }

    /// Adds entries to the batch of the ledger. Returns what the server is told after it is on the
    /// disk.
    fn record(&mut self, entries: &[Entry], now: Moment) -> Vec<Event> {
        let told = entries.iter().map(|entry| self.ledger.record(entry, now));
        told.collect()
    }

    /// Writes the batch of the ledger.
    pub(crate) fn write_batch(&mut self) -> io::Result<()> {
        let written = self.settle_names().and_then(|()| self.batch().write());
        self.settle(written)
    }

    /// Whether the logs that are open here are those in the folder. One of them is enough for a
    /// start.
    ///
    /// # Errors
    /// The folder has others, or none.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.settle_names()?;
        let is_there = |(name, file): (&str, &Arc<File>)| {
            let place = |known: fs::Metadata| (known.dev(), known.ino());
            let found = fs::metadata(self.path.join(name)).map(place);
            found.is_ok_and(|found| file.metadata().is_ok_and(|open| place(open) == found))
        };
        match NAMES.into_iter().zip(&self.files).any(is_there) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the open logs are not in it any more",
            )),
        }
    }

    /// Tries whether the disk has room for more records. Nothing of the try remains, and nothing is
    /// synced.
    ///
    /// # Errors
    /// It has none, or cannot be written.
    pub(super) fn try_room(&self) -> io::Result<()> {
        let mut nameless = tempfile::tempfile_in(self.path.join(ARRAYS))?;
        let zeros = vec![0; 2 * ROOM];
        nameless.write_all(&zeros)
    }

    /// Nothing is recorded while a start would not find the logs that have it.
    fn settle_names(&mut self) -> io::Result<()> {
        if self.is_astray {
            put_in_place(&self.path)?;
            self.is_astray = false;
        }
        Ok(())
    }

    /// The batch of the ledger. Its end is told to [`Book::settle`] before the next one is taken.
    fn batch(&mut self) -> Batch {
        Batch {
            files: self.files.clone(),
            at: self.ledger.length(),
            bytes: self.ledger.batch().to_vec(),
            room: self.room,
            is_dirty: std::mem::take(&mut self.is_dirty),
        }
    }

    /// Takes the end of a batch, and the room of the files after it. After an error, nothing of
    /// it was recorded.
    fn settle(&mut self, written: io::Result<Room>) -> io::Result<()> {
        match written {
            Ok(room) => {
                self.room = room;
                self.ledger.commit();
                Ok(())
            }
            Err(error) => {
                self.is_dirty = true;
                self.ledger.roll_back();
                Err(error)
            }
        }
    }

    /// Gives back the room for records that will not come.
    pub(super) fn trim(&mut self) -> io::Result<()> {
        self.room.end = self.ledger.length();
        let mut files = self.files.iter();
        files.try_for_each(|file| file.set_len(self.room.end))
    }

    /// Writes the logs anew if most of their bytes are no longer needed.
    pub(super) fn shorten(&mut self, now: Moment) -> io::Result<()> {
        if !self.ledger.is_long() {
            return Ok(());
        }
        let files = &self.files;
        let read = |spot: Spot| read_spot(files, spot);
        let (ledger, files) = write_anew(&self.path, &self.ledger, now, read)?;
        let placed = put_in_place(&self.path);
        if placed.is_err() && new_names(&self.path)[0].try_exists().unwrap_or(false) {
            remove_new(&self.path);
            return placed;
        }
        // A start now reads the first new log, whose numbers go on where those of the old ones end.
        // So what comes next belongs into the new ones, also if the second has no place yet.
        self.is_astray = placed.is_err();
        tracing::debug!(
            "the logs of durable calls were written anew: {} bytes before, {} now",
            self.ledger.length(),
            ledger.length()
        );
        self.room.end = ledger.length();
        self.ledger = ledger;
        self.files = files.map(Arc::new);
        placed
    }
}

fn read_spot(files: &[Arc<File>; 2], spot: Spot) -> io::Result<Vec<u8>> {
    let first = read_frame(&files[0], spot.at, spot.bytes);
    first.or_else(|error| {
        tracing::warn!("{}: {error}; the other log is read", NAMES[0]);
        read_frame(&files[1], spot.at, spot.bytes)
    })
}

/// The logs, for the threads of a server.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Mutex<Book>>);

impl Shelf {
    pub(crate) fn new(book: Book) -> Shelf {
        Shelf(Arc::new(Mutex::new(book)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records entries. The logs can be read and short arrays put down meanwhile.
    pub(super) fn record(&self, entries: &[Entry], now: Moment) -> io::Result<Vec<Event>> {
        let mut book = self.lock();
        book.settle_names()?;
        let told = book.record(entries, now);
        let batch = book.batch();
        drop(book);
        let written = batch.write();
        self.lock().settle(written)?;
        Ok(told)
    }

    /// Reads a short array.
    pub(super) fn read_short(&self, id: JobId, content: Content) -> io::Result<Vec<u8>> {
        let book = self.lock();
        let (spots, files) = (book.ledger.spots(id), book.files.clone());
        drop(book);
        for spot in spots {
            // The logs may have been written anew meanwhile; the old files are still open here.
            let frame = read_spot(&files, spot)?;
            if let Some(bytes) = ledger::short_array(&frame, content) {
                return Ok(bytes);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the logs do not have them",
        ))
    }
}
