//! One connector process, and the messages to and from it. Each answer must come within a time, and
//! the process ends with this object. `server-proto::source` reads and checks the answers.

use super::Allowed;
use farcall_rpc_proto::Failure;
use farcall_server_proto::source::{self, Answer, Go, SourceWritten};
use farcall_worker::FileStamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Bytes of the pipe through which arrays come.
const PIPE_BYTES: usize = 1 << 20;
/// Variables of the server's environment that a connector sees: those that say where programs and
/// packages are, and which language and time zone to use. Credentials come by message.
const VARIABLES: [&str; 10] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "LLVM_PROFILE_FILE",
];

/// A connector.
pub(super) struct Connector {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// The files with the credentials that it knows.
    stamps: Vec<Option<FileStamp>>,
}

impl Drop for Connector {
    fn drop(&mut self) {
        // It has ended by itself, or it is ended now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Connector {
    /// Starts a connector and tells it what it may read. It loads its packages with the rights of
    /// the server, which it gives up before it opens anything. `temporary` is the folder for
    /// sources that are being read. `stamps` are those of the files with credentials.
    pub(super) fn start(
        temporary: &Path,
        allowed: &Allowed,
        stamps: Vec<Option<FileStamp>>,
        until: Instant,
    ) -> io::Result<Connector> {
        let (program, arguments) = farcall_library::python_connector();
        let program = match Path::new(&program).components().count() {
            1 => program,
            _ => std::path::absolute(program)?.into(),
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(variables(temporary));
        // It has no terminal: signals from there do not reach it, nor what is typed there. It ends
        // when its input does.
        // SAFETY: a plain system call.
        unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        command.current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        // A shorter pipe is slower and does the same.
        let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
        let mut connector = Connector {
            process,
            input,
            output,
            stamps,
        };
        let flags = rustix::fs::fcntl_getfl(&connector.input)?;
        rustix::fs::fcntl_setfl(&connector.input, flags | OFlags::NONBLOCK)?;
        connector.write(&source::framed(allowed), until)?;
        Ok(connector)
    }

    /// Whether the files with credentials are those that it knows. What cannot be found now stays
    /// as it was.
    pub(super) fn knows(&self, present: &[Option<FileStamp>]) -> bool {
        let mut pairs = self.stamps.iter().zip(present);
        pairs.all(|(known, present)| present.is_none() || known == present)
    }

    /// Asks for an array, or for writing one. The outer error says that the connector does not work
    /// any more.
    pub(super) fn open(
        &mut self,
        message: &[u8],
        until: Instant,
    ) -> io::Result<Result<Answer, Failure>> {
        self.write(message, until)?;
        self.answer(until)
    }

    /// Sends the bytes of an array. Returns what was written.
    pub(super) fn put(
        &mut self,
        array: &File,
        bytes: u64,
        until: Instant,
    ) -> io::Result<Result<SourceWritten, Failure>> {
        let mut piece = vec![0; PIPE_BYTES];
        let mut sent = 0;
        while sent < bytes {
            let most = piece
                .len()
                .min(usize::try_from(bytes - sent).unwrap_or(PIPE_BYTES));
            let read = array.read_at(&mut piece[..most], sent)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.write(&piece[..read], until)?;
            sent += read as u64;
        }
        match self.answer(until)? {
            Ok(Answer::Written(written)) => Ok(Ok(written)),
            Ok(_) => Err(io::Error::other("its connector wrote no array")),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Reads the bytes of the array that was found.
    pub(super) fn take(
        &mut self,
        into: &mut [u8],
        until: Instant,
    ) -> io::Result<Result<(), Failure>> {
        self.write(&source::framed(&Go { go: true }), until)?;
        self.read(into, until)?;
        match self.answer(until)? {
            Ok(Answer::Done) => Ok(Ok(())),
            Ok(_) => Err(io::Error::other("its connector sent a second array")),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Leaves the array that was found.
    pub(super) fn leave(&mut self, until: Instant) -> io::Result<()> {
        self.write(&source::framed(&Go { go: false }), until)
    }

    fn answer(&mut self, until: Instant) -> io::Result<Result<Answer, Failure>> {
        let mut length = [0; 4];
        self.read(&mut length, until)?;
        let length = source::length(length).map_err(io::Error::other)?;
        let mut text = vec![0; length];
        self.read(&mut text, until)?;
        Ok(source::answer(&text))
    }

    /// Writes all of these bytes.
    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready(&self.input, PollFlags::OUT, until)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.ended(&error)),
            }
        }
        Ok(())
    }

    /// Reads exactly so many bytes.
    fn read(&mut self, mut into: &mut [u8], until: Instant) -> io::Result<()> {
        while !into.is_empty() {
            ready(&self.output, PollFlags::IN, until)?;
            match self.output.read(into) {
                Ok(0) => return Err(self.ended(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The error of a connector that has closed its pipes.
    fn ended(&mut self, error: &io::Error) -> io::Error {
        let _ = self.process.kill();
        let status = self.process.wait();
        let status = status.map_or_else(|_| error.to_string(), |status| status.to_string());
        io::Error::other(format!(
            "its connector has ended ({status}); the next call starts another one, and the \
             server's log may have the reason"
        ))
    }
}

/// Waits until a pipe can be read or written.
fn ready(pipe: &impl AsFd, flags: PollFlags, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = "its connector did not answer in time and was ended";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(pipe, flags)], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The environment of a connector.
fn variables(temporary: &Path) -> Vec<(OsString, OsString)> {
    let of_server = |name: &str| std::env::var_os(name);
    let known = VARIABLES.iter().filter_map(|name| {
        let value = of_server(name)?;
        Some((OsString::from(name), value))
    });
    let mut variables: Vec<(OsString, OsString)> = known.collect();
    // Packages that the server's user has installed for itself remain importable.
    if of_server("PYTHONUSERBASE").is_none()
        && let Some(home) = of_server("HOME")
    {
        let base = Path::new(&home).join(".local");
        variables.push(("PYTHONUSERBASE".into(), base.into()));
    }
    let own = [
        ("HOME", "/nonexistent".into()),
        ("TMPDIR", temporary.into()),
        ("PYTHONSAFEPATH", "1".into()),
        ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ("OPENBLAS_NUM_THREADS", "1".into()),
    ];
    variables.extend(own.map(|(name, value)| (name.into(), value)));
    variables
}
