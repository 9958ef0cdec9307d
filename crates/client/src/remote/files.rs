//! Files that arguments name.
//!
//! The server asks for pieces of an input file while the call runs. An output file is written
//! in the folder of its place, without a name where the system has such files, and replaces the old
//! file after the call has succeeded, all at once. A failed call changes no file, and a client that
//! is killed leaves none.

use crate::error::Error;
use crate::progress::Progress;
use farcall_idl::{Interface, Mode, Scalar};
use farcall_rpc_proto::{self as proto, CallbackAnswer, FileRequest};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Characters of a file's name that the server is told, counted from the end.
const NAME_CHARACTERS: usize = 60;

/// The files of one call.
#[derive(Default)]
pub(crate) struct Files(Mutex<Vec<NamedFile>>);

/// A file that an argument names.
struct NamedFile {
    /// Its number in [`Interface::file_names`].
    param: usize,
    /// The name of the argument.
    argument: String,
    /// The path as the caller wrote it.
    given: PathBuf,
    /// The input file, until the output file replaces it.
    source: Option<File>,
    /// The length of the input file.
    source_bytes: u64,
    /// Bytes sent to the server.
    sent: u64,
    target: Option<Target>,
}

/// An output file. Until it is complete, it is in the folder of the file that it will replace.
struct Target {
    file: File,
    /// Its name until it is in its place; none if it has no name yet.
    temporary: Option<PathBuf>,
    /// Its place, without links.
    path: PathBuf,
    received: u64,
    total: Option<u64>,
    /// Bytes for which disk space is allocated.
    reserved: u64,
    is_placed: bool,
}

/// Disk space that is allocated ahead of the received bytes. It is bounded because only the server
/// says how long the file is.
const RESERVED: u64 = 64 << 20;

/// A file that cannot be read or written, and the argument that names it.
struct Problem {
    argument: String,
    given: PathBuf,
    source: io::Error,
}

impl Problem {
    fn of(self, function: &str) -> Error {
        Error::File {
            function: function.to_string(),
            argument: self.argument,
            path: self.given,
            source: self.source,
        }
    }
}

impl Files {
    /// Opens the files that `scalars` name. Replaces each path by the file's name without its
    /// folder, which is what the server is told.
    pub(crate) fn open(
        function: &str,
        interface: &Interface,
        scalars: &mut [Option<Scalar>],
    ) -> Result<Files, Error> {
        let mut files: Vec<NamedFile> = Vec::new();
        for (number, param, text) in interface.file_names(scalars) {
            let opened = NamedFile::open(number, &param.name, param.mode, Path::new(&*text));
            let opened = opened.map_err(|problem| problem.of(function))?;
            if files
                .iter()
                .any(|other| other.replaces_the_file_of(&opened))
            {
                let text = "the call writes another result to this file; name one file for each";
                let error = io::Error::new(io::ErrorKind::InvalidInput, text);
                return Err(opened.problem(error).of(function));
            }
            files.push(opened);
            let name = Path::new(&*text).file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            let skipped = name.chars().count().saturating_sub(NAME_CHARACTERS);
            *text = name.chars().skip(skipped).collect();
        }
        Ok(Files(Mutex::new(files)))
    }

    /// Whether the call has no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether a file has this number.
    pub(crate) fn has(&self, param: usize) -> bool {
        self.lock().iter().any(|file| file.param == param)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NamedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the bytes of the files to those of the arrays. The length of an output file is known
    /// from its first piece on.
    pub(crate) fn add_to(&self, progress: &mut Progress) {
        for file in &*self.lock() {
            progress.sent += file.sent;
            progress.to_send += file.source_bytes;
            if let Some(target) = &file.target {
                progress.received += target.received;
                progress.to_receive += target.total.unwrap_or(0);
            }
        }
    }

    /// Answers what the server asks about the file of this parameter.
    pub(crate) fn answer(
        &self,
        function: &str,
        param: usize,
        callback: proto::Callback,
    ) -> Result<CallbackAnswer, Error> {
        let mut files = self.lock();
        let request = FileRequest::from_callback(callback);
        let file = files.iter_mut().find(|file| file.param == param);
        let (Some(file), Some(request)) = (file, request) else {
            let problem = Problem {
                argument: format!("number {param}"),
                given: PathBuf::from("?"),
                source: refused("it asks for a file that no argument names"),
            };
            return Err(problem.of(function));
        };
        let done = file.handle(request);
        let data = done.map_err(|error| file.problem(error).of(function))?;
        Ok(CallbackAnswer {
            data,
            big_endian: false,
        })
    }

    /// Moves the output files of a successful call into place.
    pub(crate) fn place(&self, function: &str) -> Result<(), Error> {
        let mut files = self.lock();
        for file in &*files {
            let is_complete = |target: &Target| target.total == Some(target.received);
            if !file.target.as_ref().is_none_or(is_complete) {
                let error = refused("it did not return the whole file");
                return Err(file.problem(error).of(function));
            }
        }
        for file in &mut *files {
            // Windows may refuse to replace a file that is open.
            file.source = None;
            let placed = file.target.as_mut().map_or(Ok(()), Target::place);
            placed.map_err(|error| file.problem(error).of(function))?;
        }
        Ok(())
    }
}

fn refused(text: &str) -> io::Error {
    let text = format!("the server does not keep to the protocol: {text}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl NamedFile {
    fn open(param: usize, argument: &str, mode: Mode, given: &Path) -> Result<NamedFile, Problem> {
        let mut file = NamedFile {
            param,
            argument: argument.to_string(),
            given: given.to_owned(),
            source: None,
            source_bytes: 0,
            sent: 0,
            target: None,
        };
        let opened = (|| {
            if given.as_os_str().is_empty() {
                let text = "the name of the file is empty; name a file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            if mode.is_sent() {
                let (source, length) = source(given)?;
                (file.source, file.source_bytes) = (Some(source), length);
            }
            if mode.is_returned() {
                file.target = Some(Target::new(given)?);
            }
            Ok(())
        })();
        match opened {
            Ok(()) => Ok(file),
            Err(error) => Err(file.problem(error)),
        }
    }

    /// Whether both are output files with the same place.
    fn replaces_the_file_of(&self, other: &NamedFile) -> bool {
        let both = self.target.as_ref().zip(other.target.as_ref());
        both.is_some_and(|(one, other)| one.path == other.path)
    }

    fn problem(&self, source: io::Error) -> Problem {
        Problem {
            argument: self.argument.clone(),
            given: self.given.clone(),
            source,
        }
    }

    fn handle(&mut self, request: FileRequest) -> io::Result<Vec<u8>> {
        match (request, &mut self.source, &mut self.target) {
            (FileRequest::Length, Some(_), _) => Ok(self.source_bytes.to_le_bytes().into()),
            (FileRequest::Read { offset, length }, Some(file), _) => {
                if offset != self.sent {
                    return Err(refused("it asks for pieces in the wrong order"));
                }
                file.seek(SeekFrom::Start(offset))?;
                let mut piece = Vec::with_capacity(length as usize);
                file.take(length).read_to_end(&mut piece)?;
                self.sent += piece.len() as u64;
                Ok(piece)
            }
            (
                FileRequest::Write {
                    offset,
                    total,
                    data,
                },
                _,
                Some(target),
            ) => target.write(offset, total, &data).map(|()| Vec::new()),
            _ => Err(refused(
                "it asks for a file that the interface does not declare",
            )),
        }
    }
}

/// An input file and its length.
fn source(path: &Path) -> io::Result<(File, u64)> {
    // Checked before it is opened: opening a pipe without a writer would wait for ever.
    check_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    Ok((file, metadata.len()))
}

fn check_regular(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
    }
}

impl Target {
    /// Creates a file for the place `given`, with the permissions of the file that it will replace.
    fn new(given: &Path) -> io::Result<Target> {
        let replaced = match fs::metadata(given) {
            Ok(metadata) => {
                check_regular(&metadata)?;
                // A file that may not be written must not be replaced either.
                OpenOptions::new().write(true).open(given)?;
                Some(metadata.permissions())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // A link is followed: its target is replaced, and not the link.
        let path = match &replaced {
            Some(_) => fs::canonicalize(given)?,
            None => new_place(given)?,
        };
        let (temporary, file) = match create_unnamed(&path) {
            Some(file) => (None, file),
            None => {
                let (temporary, file) = beside(&path, |name| File::create_new(name))?;
                (Some(temporary), file)
            }
        };
        let target = Target {
            file,
            temporary,
            path,
            received: 0,
            total: None,
            reserved: 0,
            is_placed: false,
        };
        if let Some(permissions) = replaced {
            target.file.set_permissions(permissions)?;
        }
        Ok(target)
    }

    fn write(&mut self, offset: u64, total: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let known = *self.total.get_or_insert(total);
        if offset != self.received || known != total || end.is_none_or(|end| end > total) {
            return Err(refused("it sends pieces that do not follow each other"));
        }
        if end > Some(self.reserved) {
            let ahead = offset.saturating_add(RESERVED).min(total);
            reserve(&self.file, self.reserved, ahead)?;
            self.reserved = ahead;
        }
        self.file.write_all(data)?;
        self.received += data.len() as u64;
        Ok(())
    }

    fn place(&mut self) -> io::Result<()> {
        let temporary = match &self.temporary {
            Some(temporary) => temporary,
            None => {
                let (temporary, ()) = beside(&self.path, |name| give_name(&self.file, name))?;
                self.temporary.insert(temporary)
            }
        };
        fs::rename(temporary, &self.path)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_placed) {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The place of a file that does not exist: links that lead nowhere yet are followed.
fn new_place(given: &Path) -> io::Result<PathBuf> {
    /// As many as Linux follows.
    const MOST_LINKS: usize = 40;
    let mut place = given.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = place.parent().filter(|folder| *folder != Path::new(""));
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
        match fs::read_link(&place) {
            Ok(to) => place = folder.join(to),
            Err(_) => {
                let name = place.file_name().ok_or_else(no_file_name)?;
                return Ok(folder.join(name));
            }
        }
    }
    Err(io::Error::other("too many links follow each other"))
}

fn no_file_name() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file name")
}

/// Creates a file without a name in the folder of `path`, which goes with its process. `None` if
/// the file system has no such files, or if the file could not get a name.
#[cfg(target_os = "linux")]
fn create_unnamed(path: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(open(path.parent()?, flags, Mode::from_raw_mode(0o666)).ok()?);
    fs::metadata(by_number(&file)).is_ok().then_some(file)
}

/// Gives a file without a name one.
#[cfg(target_os = "linux")]
fn give_name(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};

    let link = AtFlags::SYMLINK_FOLLOW;
    Ok(linkat(CWD, by_number(file), CWD, name, link)?)
}

/// A name of an open file, by way of its number.
#[cfg(target_os = "linux")]
fn by_number(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;

    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn create_unnamed(_: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn give_name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Allocates disk space for a part of a file. Pieces are then written faster. It also saves a file
/// system such as ext4 from writing the whole file when it replaces another one.
#[cfg(target_os = "linux")]
fn reserve(file: &File, from: u64, to: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;

    if to <= from {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from) {
        // Only a full disk is an error, because then writing would fail too.
        Err(Errno::NOSPC) => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}

/// This system has no such call: it allocates the space as the pieces are written.
#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

/// Makes something under a new name in the folder of `path`.
fn beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    const TRIES: usize = 1000;
    let name = path.file_name().ok_or_else(no_file_name)?;
    // Bounds the length of the name, which the system limits.
    let name: String = name.to_string_lossy().chars().take(40).collect();
    for _ in 0..TRIES {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let own = format!(".{name}.farcall-{}-{number}", std::process::id());
        let temporary = path.with_file_name(own);
        match make(&temporary) {
            Ok(made) => return Ok((temporary, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests;
