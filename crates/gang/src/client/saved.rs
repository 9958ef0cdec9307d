//! The file of a checkpoint on disk: written under a temporary name and renamed, read only if the
//! same user has written it, and checked as a whole before a gang job begins from it.
//! `gang-proto` has the form.

use crc32fast::Hasher;
use farcall_gang_proto::checkpoint::{CHECKSUM, Head, HeadError, PREFIX, torn};
use farcall_gang_proto::{JobSpec, Lengths, Piece};
use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, linkat, memfd_create, open};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How to open a file without a name.
const NAMELESS: OFlags = OFlags::TMPFILE.union(OFlags::RDWR).union(OFlags::CLOEXEC);
/// The open files of this process.
const OWN_FILES: &str = "/proc/self/fd";

/// What errors call the file of a move, which has no name.
const OF_MOVE: &str = "of the move, in the folder for temporary files (TMPDIR)";

/// Bytes of a piece that is sent to a node.
const PIECE: usize = 256 << 10;

/// Why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("checkpoint {}: {why}", .path.display())]
pub struct FileError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(
        "it belongs to user {0}, who chose its program: copy it to a file of your own if you trust \
         that user"
    )]
    Owner(u32),
    #[error("other users can write it, so its program may be theirs: remove that permission")]
    Writable,
    #[error("it is damaged: the checksum of {0} is wrong")]
    Checksum(String),
    #[error("{0}")]
    Torn(String),
    #[error("it is not a regular file, and a checkpoint replaces the file: name another one")]
    Irregular,
}

/// A checkpoint that is being written.
pub(super) struct Writer {
    file: io::BufWriter<File>,
    hasher: Hasher,
    /// A name for a moment at the end, and the one that it gets.
    names: Option<(PathBuf, PathBuf)>,
    /// Whether it has the first of them.
    is_named: bool,
}

impl Writer {
    /// Begins a file beside `path`. It has no name, so that it vanishes with a killed process, or a
    /// temporary one where the file system knows no files without names.
    pub(super) fn create(path: &Path) -> Result<Writer, FileError> {
        let place = place(path)?;
        let mut draft = place.as_os_str().to_owned();
        draft.push(format!(".{}.part", std::process::id()));
        let draft = PathBuf::from(draft);
        let nameless = match Path::new(OWN_FILES).exists() {
            true => open(folder_of(&place), NAMELESS, Mode::RUSR | Mode::WUSR).ok(),
            false => None,
        };
        let is_named = nameless.is_none();
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = match nameless {
            Some(file) => file.into(),
            None => options.open(&draft).map_err(|error| wrong(path, error))?,
        };
        let mut writer = Writer::of(file, Some((draft, place)));
        writer.is_named = is_named;
        Ok(writer)
    }

    /// Begins a file without a name, on the disk of temporary files if possible.
    pub(super) fn unnamed() -> io::Result<Writer> {
        let mode = Mode::RUSR | Mode::WUSR;
        let file = match open(std::env::temp_dir(), NAMELESS, mode) {
            Ok(file) => file,
            Err(_) => memfd_create("farcall-move", MemfdFlags::CLOEXEC)?,
        };
        Ok(Writer::of(file.into(), None))
    }

    fn of(file: File, names: Option<(PathBuf, PathBuf)>) -> Writer {
        Writer {
            file: io::BufWriter::with_capacity(PIECE, file),
            hasher: Hasher::new(),
            names,
            is_named: false,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.hasher.update(bytes);
        let done = self.file.write_all(bytes);
        done.map_err(|error| self.failed(error))
    }

    /// Ends the head, or a part.
    pub(super) fn end_part(&mut self) -> Result<(), FileError> {
        let sum = std::mem::take(&mut self.hasher).finalize();
        let done = self.file.write_all(&sum.to_le_bytes());
        done.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> FileError {
        let path = self.names.as_ref().map(|(_, path)| path.as_path());
        wrong(path.unwrap_or(Path::new(OF_MOVE)), error)
    }

    /// Gives the file its name. Returns it for reading.
    pub(super) fn finish(mut self) -> Result<File, FileError> {
        let flushed = self.file.flush();
        flushed.map_err(|error| self.failed(error))?;
        let Some((draft, path)) = &self.names else {
            let file = self.file.get_ref().try_clone();
            return file.map_err(|error| self.failed(error));
        };
        let kept = self.file.get_ref().sync_all();
        let kept = kept.and_then(|()| match self.is_named {
            true => Ok(()),
            false => name(self.file.get_ref(), draft),
        });
        self.is_named |= kept.is_ok();
        let kept = kept.and_then(|()| fs::rename(draft, path));
        kept.map_err(|error| self.failed(error))?;
        // The name is on the disk too, as far as its folder can be written.
        let folder = File::open(folder_of(path));
        let _ = folder.and_then(|folder| folder.sync_all());
        self.is_named = false;
        let file = self.file.get_ref().try_clone();
        file.map_err(|error| self.failed(error))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some((draft, _)) = self.names.as_ref().filter(|_| self.is_named) {
            let _ = fs::remove_file(draft);
        }
    }
}

/// The file that a checkpoint replaces: that to which a link leads. A device or a folder must not
/// be replaced, and root could replace a device.
fn place(path: &Path) -> Result<PathBuf, FileError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(wrong(path, Why::Irregular)),
        Ok(_) => fs::canonicalize(path).map_err(|error| wrong(path, error)),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Gives a file without a name this one. What has it is of a killed process with the same number.
fn name(file: &File, name: &Path) -> io::Result<()> {
    let place = format!("{OWN_FILES}/{}", file.as_raw_fd());
    let link = || linkat(CWD, &place, CWD, name, AtFlags::SYMLINK_FOLLOW);
    match link() {
        Err(Errno::EXIST) => {
            fs::remove_file(name)?;
            Ok(link()?)
        }
        linked => Ok(linked?),
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn wrong(path: &Path, why: impl Into<Why>) -> FileError {
    FileError {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// A checkpoint from which a gang job begins. It was checked as a whole.
pub struct SavedJob {
    path: PathBuf,
    file: File,
    head: Head,
    /// The rank whose state is sent, how much of it was, and its place in the file.
    rank: usize,
    offset: u64,
}

impl SavedJob {
    /// Opens a checkpoint of this user, and checks all of it.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn open(path: &Path) -> Result<SavedJob, FileError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty());
        let file = File::from(file.map_err(|error| wrong(path, io::Error::from(error)))?);
        let facts = file.metadata().map_err(|error| wrong(path, error))?;
        if facts.uid() != rustix::process::geteuid().as_raw() {
            return Err(wrong(path, Why::Owner(facts.uid())));
        }
        if facts.mode() & 0o022 != 0 {
            return Err(wrong(path, Why::Writable));
        }
        SavedJob::check(file, path)
    }

    /// Checks a whole file.
    pub(super) fn check(mut file: File, path: &Path) -> Result<SavedJob, FileError> {
        let head = check(&mut file).map_err(|why| wrong(path, why))?;
        let mut saved = SavedJob {
            path: path.to_owned(),
            file,
            head,
            rank: 0,
            offset: 0,
        };
        saved.rewind()?;
        Ok(saved)
    }

    /// Begins with the first rank again.
    pub(super) fn rewind(&mut self) -> Result<(), FileError> {
        (self.rank, self.offset) = (0, 0);
        let start = begin(&mut self.file);
        start.map_err(|why| wrong(&self.path, why))?;
        Ok(())
    }

    /// The gang job as it was started.
    pub fn spec(&self) -> &JobSpec {
        &self.head.spec
    }

    /// Bytes of the states of all processes.
    pub fn bytes(&self) -> u64 {
        self.head.ranks.iter().map(Lengths::total).sum()
    }

    /// The next piece to send; none at the end.
    pub(super) fn next_piece(&mut self) -> Result<Option<Piece>, FileError> {
        let Some(lengths) = self.head.ranks.get(self.rank).copied() else {
            return Ok(None);
        };
        let is_network = self.offset < lengths.network;
        let end = match is_network {
            true => lengths.network,
            false => lengths.total(),
        };
        let length = (end - self.offset).min(PIECE as u64);
        let mut bytes = vec![0; length as usize];
        let read = self.file.read_exact(&mut bytes);
        read.map_err(|error| wrong(&self.path, error))?;
        let piece = Piece {
            rank: self.rank as u16,
            offset: self.offset,
            lengths,
            bytes,
        };
        self.offset += length;
        // A checksum follows each part, also an empty one.
        let mut ends = i64::from(is_network && self.offset == lengths.network);
        if self.offset == lengths.total() {
            ends += 1;
            self.rank += 1;
            self.offset = 0;
        }
        let skip = SeekFrom::Current(ends * CHECKSUM as i64);
        let skipped = self.file.seek(skip);
        skipped.map_err(|error| wrong(&self.path, error))?;
        Ok(Some(piece))
    }
}

/// Reads the head, whose checksum must be right.
fn begin(file: &mut File) -> Result<(Head, u64), Why> {
    let bytes = file.metadata()?.len();
    file.rewind()?;
    let mut prefix = [0; PREFIX];
    if file.read_exact(&mut prefix).is_err() {
        return Err(HeadError::Foreign.into());
    }
    let length = Head::length(&prefix)?;
    let wants = (PREFIX + length + CHECKSUM) as u64;
    if bytes < wants {
        return Err(Why::Torn(torn(bytes, wants)));
    }
    let mut encoded = vec![0; length];
    file.read_exact(&mut encoded)?;
    let mut hasher = Hasher::new();
    hasher.update(&prefix);
    hasher.update(&encoded);
    compare(file, hasher, || "its head".to_string())?;
    Ok((Head::decode(&encoded)?, wants))
}

fn compare(file: &mut File, hasher: Hasher, what: impl Fn() -> String) -> Result<(), Why> {
    let mut sum = [0; CHECKSUM];
    file.read_exact(&mut sum)?;
    match u32::from_le_bytes(sum) == hasher.finalize() {
        true => Ok(()),
        false => Err(Why::Checksum(what())),
    }
}

/// Checks a whole file. Returns its head.
fn check(file: &mut File) -> Result<Head, Why> {
    let bytes = file.metadata()?.len();
    let (head, start) = begin(file)?;
    // The head has checked its lengths.
    let wants = start.saturating_add(head.parts().unwrap_or(u64::MAX));
    if bytes != wants {
        return Err(Why::Torn(torn(bytes, wants)));
    }
    let mut buffer = vec![0; PIECE];
    for (rank, lengths) in head.ranks.iter().enumerate() {
        for length in [lengths.network, lengths.program] {
            let (mut left, mut hasher) = (length, Hasher::new());
            while left > 0 {
                let part = &mut buffer[..left.min(PIECE as u64) as usize];
                file.read_exact(part)?;
                hasher.update(part);
                left -= part.len() as u64;
            }
            compare(file, hasher, || format!("the state of rank {rank}"))?;
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path) -> Vec<u8> {
        let head = Head {
            spec: JobSpec {
                processes: 2,
                command: vec!["solver".to_string()],
                ..JobSpec::default()
            },
            ranks: vec![
                Lengths {
                    network: 8,
                    program: 300_000,
                },
                Lengths {
                    network: 16,
                    program: 0,
                },
            ],
        };
        let mut writer = Writer::create(path).expect("a file");
        writer.write(&head.encode()).expect("written");
        writer.end_part().expect("written");
        for lengths in &head.ranks {
            for length in [lengths.network, lengths.program] {
                let part: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                writer.write(&part).expect("written");
                writer.end_part().expect("written");
            }
        }
        writer.finish().expect("named");
        fs::read(path).expect("it is there")
    }

    #[test]
    fn the_pieces_of_a_file_are_those_that_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        write(&path);
        let mode = fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let mut saved = SavedJob::open(&path).expect("sound");
        assert_eq!(saved.bytes(), 8 + 300_000 + 16);
        for _ in 0..2 {
            let mut states = [Vec::new(), Vec::new()];
            while let Some(piece) = saved.next_piece().expect("read") {
                let state = &mut states[usize::from(piece.rank)];
                assert_eq!(piece.offset, state.len() as u64);
                state.extend(piece.bytes);
            }
            assert_eq!((states[0].len(), states[1].len()), (300_008, 16));
            assert_eq!(states[0][8 + 299_999], (299_999 % 251) as u8);
            saved.rewind().expect("again");
        }
    }

    /// A command that is killed leaves nothing, also beside what one with its number has left.
    #[test]
    fn a_file_has_no_name_before_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        let count = || fs::read_dir(folder.path()).expect("a folder").count();
        let writer = Writer::create(&path).expect("a file");
        let is_named = writer.is_named;
        assert_eq!(count(), usize::from(is_named));
        drop(writer);
        assert_eq!(count(), 0);
        if is_named {
            return println!("SKIPPED: the file system knows no files without names");
        }
        let left = folder
            .path()
            .join(format!("job.{}.part", std::process::id()));
        fs::write(&left, "begun").expect("room");
        write(&path);
        assert_eq!(count(), 1);
        assert!(SavedJob::open(&path).is_ok());
    }

    #[test]
    fn a_link_leads_to_the_file_that_is_replaced_and_a_device_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, link] = ["job", "link"].map(|name| folder.path().join(name));
        fs::write(&path, "older").expect("room");
        std::os::unix::fs::symlink("job", &link).expect("a link");
        write(&link);
        assert!(link.is_symlink() && SavedJob::open(&path).is_ok());
        for other in [folder.path(), Path::new("/dev/null")] {
            let refused = Writer::create(other).err().expect("not a file");
            let told = refused.to_string();
            assert!(told.contains("not a regular file"), "{told}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        let whole = write(&path);
        let told = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            let opened = SavedJob::open(&path).map(|saved| saved.bytes());
            opened.expect_err("damaged").to_string()
        };
        let torn = told(&whole[..whole.len() - 5]);
        assert!(torn.contains("has 300"), "{torn}");
        assert!(told(b"#!/bin/sh\necho not a checkpoint").contains("not a checkpoint of"));
        assert!(told(&[]).contains("not a checkpoint of"));
        for place in (0..whole.len()).step_by(997).chain([20, whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[place] ^= 16;
            told(&bytes);
        }
        let mut flipped = whole.clone();
        flipped[200_000] ^= 1;
        assert!(told(&flipped).contains("the state of rank 0"));
        fs::write(&path, &whole).expect("written");
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o622);
        fs::set_permissions(&path, all).expect("mine");
        let opened = SavedJob::open(&path).map(|saved| saved.bytes());
        let told = opened.expect_err("not private").to_string();
        assert!(told.contains("other users can write"), "{told}");
    }
}
