//! Files that arguments name. The server asks for what it needs of them while the call runs; what
//! comes back takes the place of a file when the call has succeeded, all at once.

use crate::error::Error;
use crate::progress::Progress;
use farcall_idl::{Interface, Mode, Scalar};
use farcall_rpc_proto::{self as proto, CallbackAnswer, FileRequest};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Characters of a file's own name that the server is told, its end first.
const NAME_CHARACTERS: usize = 60;

/// The files of one call.
#[derive(Default)]
pub(crate) struct Files(Mutex<Vec<NamedFile>>);

/// A file that an argument names.
struct NamedFile {
    param: usize,
    /// Name of the argument.
    argument: String,
    /// As the caller wrote it.
    given: PathBuf,
    /// What is read, and its length.
    source: Option<(File, u64)>,
    /// Bytes that the server was given.
    sent: u64,
    target: Option<Target>,
}

/// A file that comes back: beside the file whose place it takes, until it is complete.
struct Target {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    received: u64,
    total: Option<u64>,
    /// Bytes that have their place on the disk.
    reserved: u64,
    is_placed: bool,
}

/// What comes back has its place on the disk so far ahead of it: no more, for the server alone says
/// how much is to come.
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
    /// Opens the files that `scalars` name, and leaves of each name there what the server is told:
    /// the name of the file in its folder.
    pub(crate) fn open(
        function: &str,
        interface: &Interface,
        scalars: &mut [Option<Scalar>],
    ) -> Result<Files, Error> {
        let mut files = Vec::new();
        for (index, param) in interface.params.iter().enumerate() {
            let Some(Scalar::Text(text)) = &mut scalars[index] else {
                continue;
            };
            if !param.is_file() {
                continue;
            }
            let opened = NamedFile::open(index, &param.name, param.mode, Path::new(&*text));
            files.push(opened.map_err(|problem| problem.of(function))?);
            let name = Path::new(&*text).file_name().unwrap_or_default();
            let name = name.to_string_lossy();
            let skipped = name.chars().count().saturating_sub(NAME_CHARACTERS);
            *text = name.chars().skip(skipped).collect();
        }
        Ok(Files(Mutex::new(files)))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether this parameter names one.
    pub(crate) fn has(&self, param: usize) -> bool {
        self.lock().iter().any(|file| file.param == param)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NamedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the bytes of the files to those of the arrays. How long a file is that comes back is
    /// known with its first piece.
    pub(crate) fn add_to(&self, progress: &mut Progress) {
        for file in &*self.lock() {
            progress.sent += file.sent;
            progress.to_send += file.source.as_ref().map_or(0, |(_, length)| *length);
            if let Some(target) = &file.target {
                progress.received += target.received;
                progress.to_receive += target.total.unwrap_or(0);
            }
        }
    }

    /// Does what the server asks of the file that this parameter names.
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
                source: refused("it asks for what no argument names"),
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

    /// The call has succeeded: what came back takes the place of the files.
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
            sent: 0,
            target: None,
        };
        let opened = (|| {
            if mode.is_sent() {
                file.source = Some(source(given)?);
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

    fn problem(&self, source: io::Error) -> Problem {
        Problem {
            argument: self.argument.clone(),
            given: self.given.clone(),
            source,
        }
    }

    fn handle(&mut self, request: FileRequest) -> io::Result<Vec<u8>> {
        match (request, &mut self.source, &mut self.target) {
            (FileRequest::Length, Some((_, length)), _) => Ok(length.to_le_bytes().into()),
            (FileRequest::Read { offset, length }, Some((file, _)), _) => {
                if offset != self.sent {
                    return Err(refused("it asks for pieces out of their order"));
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
            _ => Err(refused("it asks for what the interface does not say")),
        }
    }
}

/// An input file and its length.
fn source(path: &Path) -> io::Result<(File, u64)> {
    // Before it is opened: to open a pipe that nobody writes to would wait for ever.
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
    /// Makes a file beside `given`, with the permissions of the file that it will replace.
    fn new(given: &Path) -> io::Result<Target> {
        let replaced = match fs::metadata(given) {
            Ok(metadata) => {
                check_regular(&metadata)?;
                // One that may not be written to may not be replaced either.
                OpenOptions::new().write(true).open(given)?;
                Some(metadata.permissions())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Behind a link lies what is to be replaced, and not the link.
        let path = match &replaced {
            Some(_) => fs::canonicalize(given)?,
            None => given.to_owned(),
        };
        let (temporary, file) = create_beside(&path)?;
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
            return Err(refused("it sends pieces that do not fit together"));
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
        fs::rename(&self.temporary, &self.path)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Gives a part of a file its place on the disk. Pieces are then written faster, and a file system
/// that writes all of a file when it takes the place of another (ext4) has nothing left to do.
fn reserve(file: &File, from: u64, to: u64) -> io::Result<()> {
    if to <= from {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from) {
        // Only what would fail to be written, too, is an error.
        Err(Errno::NOSPC) => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}

/// A new file in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    const TRIES: usize = 1000;
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "it is not the name of a file")
    })?;
    // A longer name than any file may have would be refused.
    let name: String = name.to_string_lossy().chars().take(40).collect();
    for _ in 0..TRIES {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let own = format!(".{name}.farcall-{}-{number}", std::process::id());
        let temporary = path.with_file_name(own);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests;
