//! Files of the caller that a call works on.
//!
//! They are fetched in pieces before the library runs, and returned in pieces after it. Meanwhile
//! they lie in a folder of the worker.

use crate::process::ServerLink;
use farcall_idl::{Interface, Mode, Param, Scalar};
use farcall_rpc_proto::{FILE_PIECE_BYTES, Failure, FailureKind, FileRequest};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// First part of the names of workers' folders. The server's process id follows, and where this
/// process is.
const PREFIX: &str = "farcall-files-";
/// Characters of a file's own name that are kept, counted from the end.
const NAME_CHARACTERS: usize = 60;

/// A folder in `parent` for files that end with the server. It is removed with this value;
/// [`remove_left_over`] removes folders of servers that were killed.
///
/// # Errors
/// The folder cannot be made.
pub fn temporary_folder(parent: &Path) -> io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-{}-", std::process::id(), place());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)
}

/// Where the numbers of processes mean the same as here: the host, and the PID namespace there.
/// Servers on several hosts, or in several containers, may have one folder for their workers.
fn place() -> String {
    let host = rustix::system::uname();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let mut digest = DefaultHasher::new();
    (host.nodename().to_bytes(), namespace).hash(&mut digest);
    format!("{:08x}", digest.finish() as u32)
}

/// Removes folders that killed servers have left in `parent`. Those of other places stay, because
/// nobody knows here which of their servers run.
pub fn remove_left_over(parent: &Path) {
    let here = place();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let mut parts = rest.unwrap_or_default().split('-');
        let process = parts.next().and_then(|process| process.parse::<u32>().ok());
        let process = process.filter(|_| parts.next() == Some(&here));
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // A folder of another user stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The files of one call. They are removed when this is dropped.
pub(crate) struct Files<'w> {
    line: &'w ServerLink<'w>,
    folder: PathBuf,
    /// Limit on the bytes of one call's files; 0 means none.
    limit: u64,
    files: Vec<FileArgument>,
}

struct FileArgument {
    /// Number of the parameter in callbacks.
    index: usize,
    name: String,
    mode: Mode,
    path: PathBuf,
}

impl<'w> Files<'w> {
    /// Fetches the files that `scalars` name into the worker's `folder`, and replaces the scalars
    /// by their paths there.
    pub(crate) fn fetch(
        line: &'w ServerLink<'w>,
        folder: &Path,
        limit: u64,
        interface: &Interface,
        scalars: &mut [Option<Scalar>],
    ) -> Result<Files<'w>, Failure> {
        let made = make_folder(folder).map_err(|error| {
            let text = format!("has no folder for its files on the server: {error}");
            Failure::new(FailureKind::Internal, text)
        })?;
        let mut files = Files {
            line,
            folder: made,
            limit,
            files: Vec::new(),
        };
        let mut total = 0;
        // Earlier clients send empty names, which are no files.
        let names = interface.file_names(scalars);
        for (number, Param { name, mode, .. }, text) in names.filter(|(.., text)| !text.is_empty())
        {
            let file = FileArgument {
                index: interface.callbacks.len() + number,
                name: name.clone(),
                mode: *mode,
                path: files.folder.join(format!("{number}-{}", own_name(text))),
            };
            let path = file.path.to_str().ok_or_else(|| {
                let text = "the path of the server's temporary folder is not UTF-8";
                Failure::new(FailureKind::Internal, text)
            })?;
            path.clone_into(text);
            if file.mode.is_sent() {
                total = files.read(&file, total)?;
            }
            files.files.push(file);
        }
        Ok(files)
    }

    /// Fetches one file. Returns the total bytes so far.
    fn read(&self, file: &FileArgument, others: u64) -> Result<u64, Failure> {
        let length = self.ask(file, FileRequest::Length)?;
        let length: [u8; 8] = length.try_into().map_err(|_| file.spoilt())?;
        let length = u64::from_le_bytes(length);
        let total = others.saturating_add(length);
        self.check(file, total)?;
        let disk = |error| file.no_room(length, &error);
        let mut copy = File::create_new(&file.path).map_err(disk)?;
        if length > 0 {
            // Allocates the whole file before anything travels. Some file systems cannot do this,
            // and a timer of an earlier function interrupts it.
            match fallocate(&copy, FallocateFlags::empty(), 0, length) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::INTR) => {}
                Err(error) => return Err(disk(error.into())),
            }
        }
        let mut offset = 0;
        while offset < length {
            let most = (length - offset).min(FILE_PIECE_BYTES as u64);
            let request = FileRequest::Read {
                offset,
                length: most,
            };
            let piece = self.ask(file, request)?;
            if piece.len() as u64 != most {
                return Err(file.spoilt());
            }
            copy.write_all(&piece).map_err(disk)?;
            offset += most;
        }
        Ok(total)
    }

    /// Returns the files that the library has written.
    pub(crate) fn send_back(&self) -> Result<(), Failure> {
        let mut total = 0;
        for file in self.files.iter().filter(|file| file.mode.is_returned()) {
            total = self.write(file, total)?;
        }
        Ok(())
    }

    fn write(&self, file: &FileArgument, others: u64) -> Result<u64, Failure> {
        let name = &file.name;
        let lost = |error: io::Error| {
            let text = match error.kind() {
                ErrorKind::NotFound => format!("did not write the file of argument `{name}`"),
                _ => format!("left a file of argument `{name}` that cannot be read: {error}"),
            };
            Failure::new(FailureKind::FunctionFailed, text)
        };
        let (mut written, length) = open_regular(&file.path).map_err(lost)?;
        let total = others.saturating_add(length);
        self.check(file, total)?;
        // One piece is read while the previous one travels, into memory that is reused.
        let mut next = move |offset: u64, data: &mut Vec<u8>| {
            let most = (length - offset).min(FILE_PIECE_BYTES as u64);
            data.resize(most as usize, 0);
            written.read_exact(data).map_err(lost)
        };
        let failed = |error| file.not_moved(&error);
        let (mut offset, mut data, mut message) = (0, Vec::new(), Vec::new());
        next(offset, &mut data)?;
        loop {
            let bytes = data.len() as u64;
            let request = FileRequest::Write {
                offset,
                total: length,
                data,
            };
            let callback = request.into_callback(file.index as u32);
            self.line.ask(&callback, &mut message).map_err(failed)?;
            data = callback.data;
            offset += bytes;
            if offset == length {
                self.line.answer().map_err(failed)?;
                return Ok(total);
            }
            let read = next(offset, &mut data);
            self.line.answer().map_err(failed)?;
            read?;
        }
    }

    fn check(&self, file: &FileArgument, total: u64) -> Result<(), Failure> {
        let limit = self.limit;
        if limit == 0 || total <= limit {
            return Ok(());
        }
        let name = &file.name;
        let text = format!(
            "has {total} bytes of files up to argument `{name}`, and the server allows {limit} \
             bytes (limits.files in its configuration)"
        );
        Err(Failure::new(FailureKind::TooLarge, text))
    }

    fn ask(&self, file: &FileArgument, request: FileRequest) -> Result<Vec<u8>, Failure> {
        let answer = self
            .line
            .exchange(&request.into_callback(file.index as u32));
        Ok(answer.map_err(|error| file.not_moved(&error))?.data)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("farcall: cannot delete the files of a call: {error}");
        }
    }
}

impl FileArgument {
    fn not_moved(&self, error: &io::Error) -> Failure {
        let text = format!("cannot move the file of argument `{}`: {error}", self.name);
        Failure::new(FailureKind::Internal, text)
    }

    fn spoilt(&self) -> Failure {
        let text = format!(
            "was given a file for argument `{}` that another program has truncated since",
            self.name
        );
        Failure::new(FailureKind::BadArgument, text)
    }

    fn no_room(&self, length: u64, error: &io::Error) -> Failure {
        let text = format!(
            "has no disk space on the server for the {length} bytes of argument `{}`: {error} \
             (workers.folder in its configuration)",
            self.name
        );
        Failure::new(FailureKind::Busy, text)
    }
}

/// Opens a file that a library has left, and tells its length. To open a pipe would wait for a
/// writer.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let no_wait = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_wait)
        .open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata.len())),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Makes a folder for the files of one call. That of an earlier call is still there if its function
/// has made something in it that nobody may delete.
fn make_folder(folder: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let made = folder.join(format!("call{number}"));
        match fs::create_dir(&made) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            result => return result.map(|()| made),
        }
    }
}

/// The end of the caller's file name, without its folder.
fn own_name(text: &str) -> String {
    let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let skipped = name.chars().count().saturating_sub(NAME_CHARACTERS);
    name.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_the_folder() {
        assert_eq!(own_name("/etc/passwd"), "passwd");
        assert_eq!(own_name("..\\..\\a.csv"), "a.csv");
        assert_eq!(own_name("data/"), "");
        let long = format!("{}.csv", "ü".repeat(300));
        assert!(own_name(&long).ends_with("ü.csv"));
        assert!(own_name(&long).len() < 200);
    }

    #[test]
    fn a_folder_that_could_not_be_deleted_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let first = make_folder(folder.path()).unwrap();
        let second = make_folder(folder.path()).unwrap();
        assert!(first.exists() && second.exists() && first != second);
        fs::remove_dir(&first).unwrap();
        assert_eq!(make_folder(folder.path()).unwrap(), first);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        let error = open_regular(&path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        assert_eq!(open_regular(&path).unwrap().1, 4);
    }

    #[test]
    fn what_a_killed_server_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let ours = temporary_folder(parent.path()).unwrap();
        let left = |place: &str| {
            let left = parent.path().join(format!("{PREFIX}4194305-{place}-x"));
            fs::create_dir(&left).unwrap();
            fs::write(left.join("file"), "text").unwrap();
            left
        };
        let (killed, elsewhere) = (left(&place()), left("01234567"));
        remove_left_over(parent.path());
        assert!(ours.path().exists());
        assert!(!killed.exists(), "no process has a number that high");
        assert!(elsewhere.exists(), "its server may run on another host");
    }
}
