//! Arguments `filepointer` of Ninf: the caller passes a `FILE *`. A call reads and writes files by
//! their names, so a stream is copied to a private file before the call or from one after it. A
//! call that fails writes to no stream.

use crate::error::Problem;
use crate::function::Function;
use farcall_idl::{Mode, Type};
use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The streams of one call, and the folder of their files, which goes with them.
pub(super) struct Streams {
    streams: Vec<Stream>,
    _folder: Option<TempDir>,
}

struct Stream {
    mode: Mode,
    argument: String,
    stream: *mut libc::FILE,
    path: PathBuf,
    /// The name of the file, which the call reads from the caller's memory.
    name: CString,
}

// SAFETY: the streams belong to the caller, who has promised that no other thread uses them while
// the call is under way.
unsafe impl Send for Streams {}

impl Streams {
    /// Copies input streams, from where they are to their ends, and replaces each stream among the
    /// arguments by the name of a file. If there is a `refusal`, a stream is an error with that
    /// text.
    ///
    /// # Safety
    /// As for `farcall_call_array`; an argument `filepointer` points to a `FILE *`.
    pub(super) unsafe fn open(
        function: &Function,
        arguments: &[*mut c_void],
        refusal: Option<&str>,
    ) -> Result<Streams, Problem> {
        let mut streams = Streams {
            streams: Vec::new(),
            _folder: None,
        };
        for (index, argument) in arguments.iter().enumerate() {
            let param = function.param(index);
            let Some(param) = param.filter(|p| p.ty == Type::FilePointer && p.is_scalar()) else {
                continue;
            };
            if let Some(text) = refusal {
                return Err(Problem::argument(text.to_owned()));
            }
            // SAFETY: the caller's promise.
            let stream = unsafe { argument.cast::<*mut libc::FILE>().read_unaligned() };
            if stream.is_null() {
                return Err(Problem::null(&param.name));
            }
            let failed = |error| problem(&param.name, &error);
            let folder = match &mut streams._folder {
                Some(folder) => folder,
                none => none.insert(tempfile::tempdir().map_err(failed)?),
            };
            let path = folder.path().join(index.to_string());
            if param.mode.is_sent() {
                // SAFETY: the caller's promise.
                unsafe { save(stream, &path) }.map_err(failed)?;
            }
            let name = CString::new(path.as_os_str().as_encoded_bytes());
            let stream = Stream {
                mode: param.mode,
                argument: param.name.clone(),
                stream,
                name: name.map_err(|_| Problem::null("TMPDIR"))?,
                path,
            };
            // SAFETY: the caller's promise. The name does not move as long as the streams exist.
            unsafe {
                let place = argument.cast::<*const c_char>();
                place.write_unaligned(stream.name.as_ptr());
            }
            streams.streams.push(stream);
        }
        Ok(streams)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Writes the files that the call has returned to their streams.
    pub(super) fn deliver(&self) -> Result<(), Problem> {
        let returned = self.streams.iter().filter(|one| one.mode.is_returned());
        for one in returned {
            // SAFETY: the promise of `open`.
            let written = unsafe { restore(one.stream, &one.path) };
            written.map_err(|error| problem(&one.argument, &error))?;
        }
        Ok(())
    }
}

fn problem(argument: &str, error: &io::Error) -> Problem {
    Problem::argument(format!("the stream of argument `{argument}`: {error}"))
}

/// Copies the rest of a stream to a new file.
///
/// # Safety
/// `stream` is open for reading.
unsafe fn save(stream: *mut libc::FILE, path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        // SAFETY: the buffer has that many bytes.
        let read = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), stream) };
        file.write_all(&buffer[..read])?;
        if read < buffer.len() {
            break;
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { libc::ferror(stream) } {
        0 => Ok(()),
        _ => Err(io::Error::other("it cannot be read")),
    }
}

/// Writes a file to a stream, at its place.
///
/// # Safety
/// `stream` is open for writing.
unsafe fn restore(stream: *mut libc::FILE, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        // SAFETY: the buffer has that many bytes.
        let written = unsafe { libc::fwrite(buffer.as_ptr().cast(), 1, read, stream) };
        if written < read {
            return Err(io::Error::other("it cannot be written"));
        }
        if read == 0 {
            break;
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { libc::fflush(stream) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
