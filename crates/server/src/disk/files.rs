//! Files of the state folder: arguments and results of durable calls, and stored arrays, written
//! and read by threads.
//!
//! A file appears completely or not at all: it is written under another name, synced, renamed, and
//! the folder is synced. Its length and checksum are in the journal. Behind the arguments or
//! results of a call, the file has the record of the call, so that it tells what it is. Arguments
//! and results of at most [`MOST_SHORT`] bytes have no file: they are in the logs.

use super::guard::{inner_folder, private_file};
use super::logs::Shelf;
use super::quarantine::Quarantine;
use super::{Reply, Trouble, problem};
use crc32fast::Hasher;
use farcall_rpc_proto::{JobId, Pieces};
use farcall_server_proto::ledger::{described, trailer};
use farcall_server_proto::log::{TRAILER_BYTES, trailer_bytes};
use farcall_server_proto::{Content, MOST_SHORT, Record, Stored, Transfer};
use farcall_worker::MemoryObject;
use rustix::fd::OwnedFd;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Number of threads that write and read.
const THREADS: usize = 2;
/// Bytes of one write when pieces are smaller.
const BUFFER_BYTES: usize = 256 << 10;
/// File extension while a file is being written.
const PARTIAL: &str = "partial";

/// The file extension.
pub(crate) fn extension(content: Content) -> &'static str {
    match content {
        Content::Arguments => "arguments",
        Content::Result => "result",
        Content::Array => "array",
    }
}

/// A stream on its way between memory and the disk.
pub(crate) struct Stream {
    pub(crate) transfer: Transfer,
    pub(crate) object: MemoryObject,
}

pub(crate) enum Task {
    /// Write the stream, if this much of the disk then remains free. `None` may fill the disk.
    Write {
        ticket: u64,
        stream: Stream,
        room: Option<u64>,
    },
    Read {
        ticket: u64,
        stream: Stream,
        stored: Stored,
    },
    Remove {
        id: JobId,
        content: Content,
    },
}

/// The folder with the data.
#[derive(Clone)]
pub(super) struct Folder {
    path: PathBuf,
    /// The open folder, to sync the names in it.
    fd: Arc<File>,
    /// Bytes of the disk that data leave free for the logs.
    reserve: u64,
    /// The logs, for short arrays, and the identity of the folder; `None` without a state folder.
    logs: Option<(Shelf, u64)>,
}

impl Folder {
    pub(super) fn open(path: PathBuf, reserve: u64) -> io::Result<Folder> {
        inner_folder(&path)?;
        let fd = Arc::new(File::open(&path)?);
        Ok(Folder {
            path,
            fd,
            reserve,
            logs: None,
        })
    }

    /// The folder of a server with these logs.
    pub(super) fn with_logs(mut self, shelf: Shelf, folder: u64) -> Folder {
        self.logs = Some((shelf, folder));
        self
    }

    fn file(&self, id: JobId, content: Content) -> PathBuf {
        Folder::named(&self.path, id, content)
    }

    /// The name of an array in a folder.
    pub(super) fn named(folder: &Path, id: JobId, content: Content) -> PathBuf {
        folder.join(format!("{id}.{}", extension(content)))
    }

    fn sync(&self) -> io::Result<()> {
        self.fd.sync_all()
    }

    /// Takes the array of a call from the folder of an earlier version, and writes the record of
    /// the call behind it. An array that is gone or damaged is found when it is read.
    pub(super) fn adopt(
        &self,
        from: &Path,
        content: Content,
        record: &Record,
        folder: u64,
    ) -> io::Result<()> {
        let from = Folder::named(from, record.id, content);
        let mut file = match File::options().append(true).open(&from) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() == record.stored(content).bytes {
            file.write_all(&trailer(folder, content, record))?;
            file.sync_all()?;
        }
        fs::rename(&from, self.file(record.id, content))?;
        self.sync()
    }

    /// Why a file that a call needs cannot be right, as far as its length tells.
    pub(super) fn problem(&self, id: JobId, content: Content, stored: Stored) -> Option<String> {
        match fs::metadata(self.file(id, content)) {
            Ok(known) if known.len() >= stored.bytes => None,
            Ok(known) => Some(format!(
                "their file has {} bytes, and {} were written",
                known.len(),
                stored.bytes
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("their file is missing".to_string())
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Moves files that `is_needed` does not name into quarantine. Removes stored arrays and
    /// incomplete files, which do not outlive a server. Returns how many are in quarantine now.
    pub(super) fn sweep(
        &self,
        quarantine: &Quarantine,
        served: u64,
        is_needed: impl Fn(JobId, Content) -> bool,
    ) -> io::Result<usize> {
        let mut moved = 0;
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let done = match named(&path) {
                Some((id, content)) if is_needed(id, content) => Ok(()),
                Some((_, Content::Array)) => fs::remove_file(&path),
                Some(_) => {
                    moved += 1;
                    quarantine.take(&path, served)
                }
                None if path.extension().is_some_and(|end| end == PARTIAL) => {
                    fs::remove_file(&path)
                }
                // Files with other names do not belong to the server.
                None => Ok(()),
            };
            done.map_err(|error| problem(&path, &error))?;
        }
        self.sync()?;
        Ok(moved)
    }

    fn write(&self, stream: &Stream, room: Option<u64>) -> io::Result<Stored> {
        let pieces = stream.transfer.pieces.clone();
        let bytes: u64 = walk(pieces).map(|piece| piece.length).sum();
        if let Some(room) = room {
            self.check_room(bytes, room)?;
        }
        let content = stream.transfer.content;
        if let Some((shelf, _)) = &self.logs
            && is_short(content, bytes)
        {
            let bytes = gathered(stream, bytes);
            let mut book = shelf.lock();
            return Ok(book.ledger.hold(stream.transfer.id, content, bytes));
        }
        let path = self.file(stream.transfer.id, stream.transfer.content);
        let partial = path.with_extension(PARTIAL);
        let folder = self.logs.as_ref().map_or(0, |(_, folder)| *folder);
        let stored = write_stream(&partial, stream, folder).and_then(|stored| {
            fs::rename(&partial, &path)?;
            self.sync()?;
            Ok(stored)
        });
        if stored.is_err() {
            let _ = fs::remove_file(&partial);
            let _ = fs::remove_file(&path);
        }
        stored
    }

    fn check_room(&self, bytes: u64, room: u64) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(self.fd.as_fd())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let kept = self.reserve.saturating_add(room);
        match free >= bytes.saturating_add(kept) {
            true => Ok(()),
            false => {
                let text = format!(
                    "{bytes} bytes are needed in {} and {free} are free, but {} must stay free for \
                     the logs (jobs.reserve) and {room} for the results of accepted calls",
                    self.path.display(),
                    self.reserve
                );
                Err(io::Error::new(io::ErrorKind::StorageFull, text))
            }
        }
    }

    /// Reads a stream into memory, and compares its checksum.
    fn read(&self, stream: &Stream, stored: Stored) -> io::Result<()> {
        let damaged = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let (id, content) = (stream.transfer.id, stream.transfer.content);
        if let Some((shelf, _)) = &self.logs
            && is_short(content, stored.bytes)
        {
            let bytes = shelf.read_short(id, content)?;
            if Stored::of(&bytes) != stored {
                return Err(damaged(
                    "their checksum differs from the recorded one".into(),
                ));
            }
            scatter(stream, &bytes);
            return Ok(());
        }
        if let Some(problem) = self.problem(id, content, stored) {
            return Err(damaged(problem));
        }
        let file = File::open(self.file(id, content))?;
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let (mut sum, mut bytes) = (Hasher::new(), 0);
        for piece in walk(stream.transfer.pieces.clone()) {
            // SAFETY: nobody else uses the buffer while it is here; the pieces lie within it.
            let memory = unsafe { stream.object.part(piece.offset, piece.length) };
            file.read_exact(memory)?;
            sum.update(memory);
            bytes += piece.length;
        }
        match bytes == stored.bytes && sum.finalize() == stored.sum {
            true => Ok(()),
            false => Err(damaged(
                "the checksum of their file differs from the recorded one".into(),
            )),
        }
    }
}

fn is_short(content: Content, bytes: u64) -> bool {
    content != Content::Array && bytes <= MOST_SHORT
}

/// The bytes of a short stream.
fn gathered(stream: &Stream, bytes: u64) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes as usize);
    for piece in walk(stream.transfer.pieces.clone()) {
        // SAFETY: nobody else uses the buffer while it is here; the pieces lie within it.
        all.extend_from_slice(unsafe { stream.object.part(piece.offset, piece.length) });
    }
    all
}

/// Puts bytes into the pieces of a stream.
fn scatter(stream: &Stream, mut bytes: &[u8]) {
    for piece in walk(stream.transfer.pieces.clone()) {
        // SAFETY: as above.
        let memory = unsafe { stream.object.part(piece.offset, piece.length) };
        let (first, rest) = bytes.split_at(memory.len().min(bytes.len()));
        memory[..first.len()].copy_from_slice(first);
        bytes = rest;
    }
}

/// What a file name of the server says.
pub(crate) fn named(path: &Path) -> Option<(JobId, Content)> {
    let id = path.file_stem()?.to_str()?.parse().ok()?;
    let found = path.extension()?.to_str()?;
    let mut contents = [Content::Arguments, Content::Result, Content::Array].into_iter();
    let content = contents.find(|content| extension(*content) == found)?;
    Some((id, content))
}

/// The call that a file describes at its end: the identity of its state folder, the kind of the
/// array, and the record. `None` if the end is damaged or missing.
pub(crate) fn read_trailer(file: &File) -> io::Result<Option<(u64, Content, Record)>> {
    let length = file.metadata()?.len();
    let Some(end) = length.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let mut last = [0; TRAILER_BYTES];
    file.read_exact_at(&mut last, end)?;
    let start = trailer_bytes(&last).and_then(|bytes| end.checked_sub(bytes as u64));
    let Some(start) = start else { return Ok(None) };
    let mut frame = vec![0; (end - start) as usize];
    file.read_exact_at(&mut frame, start)?;
    Ok(described(&frame))
}

/// Whether a file begins with the array that was written.
pub(crate) fn has_array(file: &File, stored: Stored) -> io::Result<bool> {
    let (mut sum, mut left) = (Hasher::new(), stored.bytes);
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file.take(stored.bytes));
    while let bytes = file.fill_buf()?
        && !bytes.is_empty()
    {
        let read = bytes.len();
        sum.update(bytes);
        left -= read as u64;
        file.consume(read);
    }
    Ok(left == 0 && sum.finalize() == stored.sum)
}

fn write_stream(path: &Path, stream: &Stream, folder: u64) -> io::Result<Stored> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, private_file(path)?);
    let (mut sum, mut bytes) = (Hasher::new(), 0);
    for piece in walk(stream.transfer.pieces.clone()) {
        // SAFETY: nobody else uses the buffer while it is here; the pieces lie within it.
        let memory = unsafe { stream.object.part(piece.offset, piece.length) };
        file.write_all(memory)?;
        sum.update(memory);
        bytes += piece.length;
    }
    let sum = sum.finalize();
    let stored = Stored { bytes, sum };
    if let Some(record) = &stream.transfer.about {
        let mut record = record.clone();
        match stream.transfer.content {
            Content::Arguments => record.arguments = stored,
            _ => record.result = stored,
        }
        file.write_all(&trailer(folder, stream.transfer.content, &record))?;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(stored)
}

fn walk(mut pieces: Pieces) -> impl Iterator<Item = farcall_rpc_proto::Piece> {
    std::iter::from_fn(move || pieces.take(u64::MAX))
}

/// The threads that write and read.
pub(super) struct Files {
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
}

impl Files {
    pub(super) fn start(
        folder: &Folder,
        trouble: &Trouble,
        replies: &Sender<Reply>,
        doorbell: &Arc<OwnedFd>,
    ) -> io::Result<Files> {
        let (tasks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..THREADS).map(|_| {
            let (folder, queue, trouble) = (folder.clone(), queue.clone(), trouble.clone());
            let (replies, doorbell) = (replies.clone(), doorbell.clone());
            std::thread::Builder::new()
                .name("farcall-files".into())
                .spawn(move || serve(&folder, &trouble, &queue, &replies, &doorbell))
        });
        let threads = threads.collect::<io::Result<Vec<_>>>()?;
        let tasks = Some(tasks);
        Ok(Files { tasks, threads })
    }

    pub(super) fn submit(&self, task: Task) {
        if let Some(tasks) = &self.tasks {
            // The threads live as long as this does.
            let _ = tasks.send(task);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(
    folder: &Folder,
    trouble: &Trouble,
    queue: &Mutex<Receiver<Task>>,
    replies: &Sender<Reply>,
    doorbell: &OwnedFd,
) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        let reply = match task {
            Task::Write {
                ticket,
                stream,
                room,
            } => {
                let start = Instant::now();
                let stored = folder.write(&stream, room);
                trouble.took(start, stored.as_ref().map_or(0, |stored| stored.bytes));
                let stored = stored.map_err(|error| trouble.explain(error));
                let memory = (stream.transfer.memory, stream.object);
                Reply::Written {
                    ticket,
                    memory,
                    stored,
                }
            }
            Task::Read {
                ticket,
                stream,
                stored,
            } => {
                let read = folder.read(&stream, stored);
                let read = read.map_err(|error| trouble.explain(error));
                let memory = (stream.transfer.memory, stream.object);
                Reply::Read {
                    ticket,
                    memory,
                    read,
                }
            }
            Task::Remove { id, content } => {
                if let Some((shelf, _)) = &folder.logs {
                    shelf.lock().ledger.release(id, content);
                }
                // A file that cannot be removed now is moved at the next start.
                let _ = fs::remove_file(folder.file(id, content));
                continue;
            }
        };
        if replies.send(reply).is_err() {
            return;
        }
        let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_rpc_proto::JobId;
    use farcall_server_proto::{Key, MemoryKey};

    fn folder() -> (tempfile::TempDir, Folder) {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path().to_path_buf(), 16 << 20).unwrap();
        (temporary, folder)
    }

    fn stream(bytes: u64) -> Stream {
        let key = MemoryKey::new(0, 1);
        let object = MemoryObject::mapped(key.number(), bytes as usize).unwrap();
        let transfer = Transfer {
            id: JobId([7; 16]),
            content: Content::Result,
            memory: key,
            pieces: Pieces::whole(bytes),
            about: None,
        };
        Stream { transfer, object }
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_found() {
        let (_temporary, folder) = folder();
        let bytes = 300_000;
        let written = stream(bytes);
        // SAFETY: nobody else has the buffer.
        let memory = unsafe { written.object.part(0, bytes) };
        for (index, byte) in memory.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        let stored = folder.write(&written, Some(0)).unwrap();
        assert_eq!(stored.bytes, bytes);
        let read = stream(bytes);
        folder.read(&read, stored).unwrap();
        // SAFETY: likewise.
        assert_eq!(unsafe { read.object.part(0, bytes) }, memory);
        let path = folder.file(written.transfer.id, written.transfer.content);
        let mut contents = fs::read(&path).unwrap();
        for position in [0, 1000, contents.len() - 1] {
            contents[position] ^= 0x10;
            fs::write(&path, &contents).unwrap();
            let error = folder.read(&read, stored).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            contents[position] ^= 0x10;
        }
        for damaged in [&contents[..contents.len() - 1], &[]] {
            fs::write(&path, damaged).unwrap();
            assert!(folder.read(&read, stored).is_err());
        }
    }

    #[test]
    fn what_nobody_needs_is_moved_into_quarantine() {
        let (temporary, folder) = folder();
        let needed = stream(10);
        folder.write(&needed, Some(0)).unwrap();
        let mut orphan = stream(10);
        orphan.transfer.id = JobId([8; 16]);
        folder.write(&orphan, None).unwrap();
        fs::write(temporary.path().join("x.partial"), "").unwrap();
        fs::write(temporary.path().join("notes.txt"), "").unwrap();
        let keep = |id, content| (id, content) == (needed.transfer.id, Content::Result);
        let state = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::of(state.path());
        assert_eq!(folder.sweep(&quarantine, 5000, keep).unwrap(), 1);
        let left = fs::read_dir(temporary.path()).unwrap().count();
        assert_eq!(left, 2);
        let kept = quarantine.files();
        let name = format!("{}.result", orphan.transfer.id);
        assert_eq!((kept[0].0, &kept[0].1), (5, &name));
        assert_eq!(quarantine.expire(100_000, 95), 0);
        assert_eq!(quarantine.expire(101_000, 95), 1);
    }

    #[test]
    fn what_cannot_be_removed_is_named() {
        let (temporary, folder) = folder();
        let name = format!("{}.array", JobId([8; 16]));
        fs::create_dir(temporary.path().join(&name)).unwrap();
        let quarantine = Quarantine::of(temporary.path());
        let error = folder.sweep(&quarantine, 0, |_, _| false).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
    }

    #[test]
    fn more_than_the_disk_has_is_refused() {
        let (temporary, folder) = folder();
        let error = folder.write(&stream(10), Some(u64::MAX / 2)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let text = error.to_string();
        assert!(
            text.contains("16777216 must stay free") && text.contains("jobs.reserve"),
            "{text}"
        );
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}
