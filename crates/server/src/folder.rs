//! The data folder: its files are named data, named by their paths in it. A thread scans it
//! repeatedly, and other threads read files into memory; the reactor never waits for the disk.
//!
//! Only regular files are data. No folder or file is reached through a symbolic link, so nothing
//! outside of the folder gets a name.

use farcall_npy::{Header, MOST_HEADER};
use farcall_rpc_proto::{ArrayForm, check_name, swap_bytes};
use farcall_server_proto::DataFile;
use farcall_worker::MemoryObject;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Most files that are data.
const MOST_FILES: usize = 4096;
/// Most entries of a scan.
const MOST_ENTRIES: usize = 65_536;
/// Most levels of folders.
const MOST_DEPTH: usize = 8;
/// Time between two scans.
const PAUSE: Duration = Duration::from_secs(1);
/// Extension of files whose header describes their array.
const NPY: &str = ".npy";

/// The folder, and the thread that scans it.
pub(crate) struct Folder {
    root: OwnedFd,
    found: Receiver<Vec<DataFile>>,
    /// Dropped with the folder, so that the thread ends.
    _ends: Sender<()>,
}

impl Folder {
    /// Scans the folder once, and then in a thread that rings the doorbell when something has
    /// changed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn open(path: &Path, doorbell: OwnedFd) -> io::Result<(Folder, Vec<DataFile>)> {
        let explain = |error: io::Error| {
            let text = format!("{}: {error} (data.folder)", path.display());
            io::Error::new(error.kind(), text)
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        let root = root.map_err(|errno| explain(errno.into()))?;
        let mut scan = Scan::new(root.try_clone().map_err(explain)?);
        let first = scan.run().map_err(explain)?;
        let (send, found) = channel();
        let (ends, ended) = channel();
        let path = path.to_path_buf();
        let (mut last, mut told) = (first.clone(), None);
        let run = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let scanned = scan.run();
                let before = told.take();
                told = scanned.as_ref().err().map(ToString::to_string);
                match scanned {
                    Ok(files) if files != last => {
                        last.clone_from(&files);
                        if send.send(files).is_err() {
                            return;
                        }
                        let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
                    }
                    Err(error) if told != before => tracing::warn!("{}: {error}", path.display()),
                    Ok(_) | Err(_) => {}
                }
            }
        };
        thread::Builder::new().name("folder".into()).spawn(run)?;
        let folder = Folder {
            root,
            found,
            _ends: ends,
        };
        Ok((folder, first))
    }

    /// The contents of the folder, if they have changed.
    pub(crate) fn changed(&self) -> Option<Vec<DataFile>> {
        self.found.try_iter().last()
    }

    /// Opens the folder once more, for a thread.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        self.root.try_clone()
    }
}

/// Reads the array of a file into memory of the same length.
///
/// # Errors
/// The file has changed since the scan.
pub(crate) fn read(root: &OwnedFd, file: &DataFile, memory: &MemoryObject) -> io::Result<()> {
    let opened = open_beneath(root, &file.name)?;
    let check = || {
        let stat = fstat(&opened)?;
        match (changed(&stat), stat.st_size as u64) == (file.changed, file.length) {
            true => Ok(()),
            false => Err(io::Error::other(
                "the file has changed; make the call again",
            )),
        }
    };
    check()?;
    let bytes = file.form.bytes().unwrap_or(0);
    // SAFETY: nobody else has the memory.
    let into = unsafe { memory.part(0, bytes) };
    opened.read_exact_at(into, file.offset)?;
    check()?;
    if file.is_swapped {
        let unit = file.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
        swap_bytes(into, unit.max(1));
    }
    Ok(())
}

/// Opens a regular file by its path in the folder, without following links.
fn open_beneath(root: &OwnedFd, name: &str) -> io::Result<File> {
    check_name(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut folder = root.try_clone()?;
    let (folders, last) = name.rsplit_once('/').unwrap_or(("", name));
    for word in folders.split('/').filter(|word| !word.is_empty()) {
        folder = open_folder(&folder, word)?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&folder, last, flags, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

fn open_folder(within: impl AsFd, word: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(within, word, flags, Mode::empty())?)
}

/// Nanoseconds since 1970 of a file's last change.
fn changed(stat: &Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_mtime_nsec)
}

/// A scan. It does not open unchanged files again.
struct Scan {
    root: OwnedFd,
    /// Known files. `None` for files that are not data.
    known: HashMap<String, (u64, u64, Option<DataFile>)>,
    complained: bool,
}

impl Scan {
    fn new(root: OwnedFd) -> Scan {
        Scan {
            root,
            known: HashMap::new(),
            complained: false,
        }
    }

    fn run(&mut self) -> io::Result<Vec<DataFile>> {
        let mut found = Vec::new();
        let mut entries = 0;
        let root = self.root.try_clone()?;
        let before = std::mem::take(&mut self.known);
        self.walk(&root, "", 0, (&before, &mut entries, &mut found))?;
        if (entries > MOST_ENTRIES || found.len() > MOST_FILES) && !self.complained {
            self.complained = true;
            tracing::warn!(
                "the data folder has more than {MOST_FILES} files or {MOST_ENTRIES} entries; the \
                 others are ignored"
            );
        }
        found.truncate(MOST_FILES);
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    #[expect(clippy::type_complexity, reason = "what was known, and what is found")]
    fn walk(
        &mut self,
        folder: &OwnedFd,
        prefix: &str,
        depth: usize,
        (before, entries, found): (
            &HashMap<String, (u64, u64, Option<DataFile>)>,
            &mut usize,
            &mut Vec<DataFile>,
        ),
    ) -> io::Result<()> {
        for entry in Dir::read_from(folder)? {
            *entries += 1;
            if *entries > MOST_ENTRIES || found.len() > MOST_FILES {
                return Ok(());
            }
            let entry = entry?;
            let Ok(word) = entry.file_name().to_str() else {
                continue;
            };
            let name = format!("{prefix}{word}");
            if word.starts_with('.') || check_name(&name).is_err() {
                continue;
            }
            // The entry has disappeared meanwhile.
            let Ok(stat) = statat(folder, word, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth < MOST_DEPTH => {
                    if let Ok(inner) = open_folder(folder, word) {
                        let prefix = format!("{name}/");
                        self.walk(&inner, &prefix, depth + 1, (before, entries, found))?;
                    }
                }
                FileType::RegularFile => {
                    let (changed, length) = (changed(&stat), stat.st_size as u64);
                    let known = before
                        .get(&name)
                        .filter(|one| (one.0, one.1) == (changed, length));
                    let file = match known {
                        Some((_, _, file)) => file.clone(),
                        None => self.look(&name, changed, length),
                    };
                    self.known.insert(name, (changed, length, file.clone()));
                    found.extend(file);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A file as data. `None` if it cannot be read, or is not an array despite its name.
    fn look(&self, name: &str, changed: u64, length: u64) -> Option<DataFile> {
        let plain = DataFile {
            name: name.to_string(),
            form: ArrayForm {
                element: farcall_idl::Type::UnsignedChar.name().to_string(),
                shape: vec![length],
                column_major: false,
            },
            offset: 0,
            is_swapped: false,
            length,
            changed,
        };
        if !name.ends_with(NPY) {
            return Some(plain);
        }
        let read = || {
            let file = open_beneath(&self.root, name)?;
            let mut start = vec![0; MOST_HEADER.min(usize::try_from(length).unwrap_or(0))];
            file.read_exact_at(&mut start, 0)?;
            Header::read(&start).map_err(io::Error::other)
        };
        match read() {
            Ok(header) if header.offset.checked_add(header.bytes) == Some(length) => {
                Some(DataFile {
                    form: ArrayForm {
                        element: header.element.name().to_string(),
                        shape: header.shape,
                        column_major: header.column_major,
                    },
                    offset: header.offset,
                    is_swapped: header.is_swapped,
                    ..plain
                })
            }
            // The file may still be being written.
            Ok(_) => None,
            Err(error) => {
                tracing::warn!("the file `{name}` of the data folder is ignored: {error}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn npy(shape: &str, bytes: usize) -> Vec<u8> {
        let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((text.len() as u16).to_le_bytes());
        file.extend(text.as_bytes());
        file.resize(file.len() + bytes, 0);
        file
    }

    fn names(folder: &Path) -> Vec<String> {
        let root = File::open(folder).unwrap();
        let found = Scan::new(root.into()).run().unwrap();
        found.into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn only_regular_files_within_the_folder_have_names() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("runs/7")).unwrap();
        fs::write(at("runs/7/atoms.npy"), npy("(3,)", 24)).unwrap();
        fs::write(at("text"), "abc").unwrap();
        fs::write(at(".hidden"), "x").unwrap();
        fs::write(at("two words"), "x").unwrap();
        fs::write(at("short.npy"), npy("(3,)", 23)).unwrap();
        fs::write(at("none.npy"), "abc").unwrap();
        symlink(outside.path().join("secret"), at("link")).unwrap();
        symlink(outside.path(), at("linked")).unwrap();
        rustix::fs::mknodat(
            File::open(folder.path()).unwrap(),
            "fifo",
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!(names(folder.path()), ["runs/7/atoms.npy", "text"]);
        let root: OwnedFd = File::open(folder.path()).unwrap().into();
        for name in [
            "link",
            "linked/secret",
            "fifo",
            "runs",
            "../x",
            "runs/../text",
            "/etc/passwd",
        ] {
            assert!(open_beneath(&root, name).is_err(), "{name}");
        }
        assert!(open_beneath(&root, "runs/7/atoms.npy").is_ok());
    }

    #[test]
    fn a_file_that_changes_is_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        fs::write(&path, npy("(3,)", 24)).unwrap();
        let root = File::open(folder.path()).unwrap();
        let mut scan = Scan::new(root.into());
        let first = scan.run().unwrap();
        assert_eq!(first[0].form.shape, [3]);
        assert_eq!(scan.run().unwrap(), first);
        fs::write(&path, npy("(4,)", 32)).unwrap();
        let second = scan.run().unwrap();
        assert_eq!(second[0].form.shape, [4]);
        fs::remove_file(&path).unwrap();
        assert!(scan.run().unwrap().is_empty());
    }
}
