//! Files of the state folder: arguments and results of durable calls, and stored arrays, written
//! and read by threads.
//!
//! A file appears completely or not at all: it is written under another name, synced, renamed, and
//! the folder is synced. Its length and checksum are in the journal.

use super::Reply;
use crc32fast::Hasher;
use farcall_rpc_proto::{JobId, Pieces};
use farcall_server_proto::{Content, Stored, Transfer};
use farcall_worker::MemoryObject;
use rustix::fd::OwnedFd;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Number of threads that write and read.
const THREADS: usize = 2;
/// Bytes of the disk that data leave free for the journal.
const RESERVE: u64 = 16 << 20;
/// Bytes of one write when pieces are smaller.
const BUFFER_BYTES: usize = 256 << 10;
/// File extension while a file is being written.
const PARTIAL: &str = "partial";

/// The file extension.
fn extension(content: Content) -> &'static str {
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
}

impl Folder {
    pub(super) fn open(path: PathBuf) -> io::Result<Folder> {
        fs::create_dir_all(&path)?;
        let fd = Arc::new(File::open(&path)?);
        Ok(Folder { path, fd })
    }

    fn file(&self, id: JobId, content: Content) -> PathBuf {
        self.path.join(format!("{id}.{}", extension(content)))
    }

    fn sync(&self) -> io::Result<()> {
        self.fd.sync_all()
    }

    /// Removes every file that `is_needed` does not name, and incomplete files. Returns how many
    /// there were.
    pub(super) fn sweep(&self, is_needed: impl Fn(JobId, Content) -> bool) -> io::Result<usize> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let id = name.and_then(|name| name.parse().ok());
            let extension = path.extension().and_then(|extension| extension.to_str());
            let content = [Content::Arguments, Content::Result, Content::Array]
                .into_iter()
                .find(|content| Some(self::extension(*content)) == extension);
            if let (Some(id), Some(content)) = (id, content)
                && is_needed(id, content)
            {
                continue;
            }
            // Files with other names do not belong to the server.
            let is_ours = content.is_some() || extension == Some(PARTIAL);
            if is_ours {
                fs::remove_file(&path)?;
                removed += 1;
            }
        }
        self.sync()?;
        Ok(removed)
    }

    fn write(&self, stream: &Stream, room: Option<u64>) -> io::Result<Stored> {
        let pieces = stream.transfer.pieces.clone();
        let bytes: u64 = walk(pieces).map(|piece| piece.length).sum();
        if let Some(room) = room {
            self.check_room(bytes.saturating_add(room))?;
        }
        let path = self.file(stream.transfer.id, stream.transfer.content);
        let partial = path.with_extension(PARTIAL);
        let stored = write_stream(&partial, stream).and_then(|stored| {
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

    fn check_room(&self, bytes: u64) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(self.fd.as_fd())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match free >= bytes.saturating_add(RESERVE) {
            true => Ok(()),
            false => {
                let text = format!("{bytes} bytes are needed, and {free} bytes are free");
                Err(io::Error::new(io::ErrorKind::StorageFull, text))
            }
        }
    }

    /// Reads a stream into memory, and compares its checksum.
    fn read(&self, stream: &Stream, stored: Stored) -> io::Result<()> {
        let damaged = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text);
        let file = File::open(self.file(stream.transfer.id, stream.transfer.content))?;
        if file.metadata()?.len() != stored.bytes {
            return Err(damaged(
                "the length of the file differs from the recorded one",
            ));
        }
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
                "the checksum of the file differs from the recorded one",
            )),
        }
    }
}

fn write_stream(path: &Path, stream: &Stream) -> io::Result<Stored> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
    let (mut sum, mut bytes) = (Hasher::new(), 0);
    for piece in walk(stream.transfer.pieces.clone()) {
        // SAFETY: nobody else uses the buffer while it is here; the pieces lie within it.
        let memory = unsafe { stream.object.part(piece.offset, piece.length) };
        file.write_all(memory)?;
        sum.update(memory);
        bytes += piece.length;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    let sum = sum.finalize();
    Ok(Stored { bytes, sum })
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
        replies: &Sender<Reply>,
        doorbell: &Arc<OwnedFd>,
    ) -> io::Result<Files> {
        let (tasks, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..THREADS).map(|_| {
            let (folder, queue) = (folder.clone(), queue.clone());
            let (replies, doorbell) = (replies.clone(), doorbell.clone());
            std::thread::Builder::new()
                .name("farcall-files".into())
                .spawn(move || serve(&folder, &queue, &replies, &doorbell))
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
                let stored = folder.write(&stream, room);
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
                let memory = (stream.transfer.memory, stream.object);
                Reply::Read {
                    ticket,
                    memory,
                    read,
                }
            }
            Task::Remove { id, content } => {
                // A file that cannot be removed now is removed at the next start.
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
        let folder = Folder::open(temporary.path().to_path_buf()).unwrap();
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
        for damaged in [
            &contents[..contents.len() - 1],
            &[],
            &[&contents[..], &[0]].concat(),
        ] {
            fs::write(&path, damaged).unwrap();
            assert!(folder.read(&read, stored).is_err());
        }
    }

    #[test]
    fn what_nobody_needs_is_swept_away() {
        let (temporary, folder) = folder();
        let needed = stream(10);
        folder.write(&needed, Some(0)).unwrap();
        let mut orphan = stream(10);
        orphan.transfer.id = JobId([8; 16]);
        folder.write(&orphan, None).unwrap();
        fs::write(temporary.path().join("x.partial"), "").unwrap();
        fs::write(temporary.path().join("notes.txt"), "").unwrap();
        let keep = |id, content| (id, content) == (needed.transfer.id, Content::Result);
        assert_eq!(folder.sweep(keep).unwrap(), 2);
        let left = fs::read_dir(temporary.path()).unwrap().count();
        assert_eq!(left, 2);
    }

    #[test]
    fn more_than_the_disk_has_is_refused() {
        let (temporary, folder) = folder();
        let error = folder.write(&stream(10), Some(u64::MAX / 2)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}
