//! One connector process, and the messages to and from it. Each answer must come within a time, and
//! the process ends with this object. `server-proto::source` reads and checks the answers.

use super::Allowed;
use farcall_rpc_proto::Failure;
use farcall_server_proto::source::{self, Answer, Go, SourceFound, SourceRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{self, Read, Write};
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
    /// sources that are being read.
    pub(super) fn start(temporary: &Path, allowed: &Allowed) -> io::Result<Connector> {
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
        // Its parents' signals from a terminal do not reach it. It ends when its input does.
        command.current_dir("/").process_group(0);
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
        };
        let told = connector.input.write_all(&source::framed(allowed));
        told.map_err(|error| connector.ended(&error))?;
        Ok(connector)
    }

    /// Opens a source. The outer error says that the connector does not work any more.
    pub(super) fn open(
        &mut self,
        wanted: &SourceRequest,
        until: Instant,
    ) -> io::Result<Result<SourceFound, Failure>> {
        let asked = self.input.write_all(&wanted.message());
        asked.map_err(|error| self.ended(&error))?;
        match self.answer(until)? {
            Ok(Answer::Found(found)) => Ok(Ok(found)),
            Ok(Answer::Done) => Err(io::Error::other("its connector sent no array")),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Reads the bytes of the array that was found.
    pub(super) fn take(
        &mut self,
        into: &mut [u8],
        until: Instant,
    ) -> io::Result<Result<(), Failure>> {
        self.input.write_all(&source::framed(&Go { go: true }))?;
        self.read(into, until)?;
        match self.answer(until)? {
            Ok(Answer::Done) => Ok(Ok(())),
            Ok(Answer::Found(_)) => Err(io::Error::other("its connector sent a second array")),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Leaves the array that was found.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.input.write_all(&source::framed(&Go { go: false }))
    }

    fn answer(&mut self, until: Instant) -> io::Result<Result<Answer, Failure>> {
        let mut length = [0; 4];
        self.read(&mut length, until)?;
        let length = source::length(length).map_err(io::Error::other)?;
        let mut text = vec![0; length];
        self.read(&mut text, until)?;
        Ok(source::answer(&text))
    }

    /// Reads exactly so many bytes.
    fn read(&mut self, mut into: &mut [u8], until: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = "its connector did not answer in time and was ended";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            let timeout = Timespec::try_from(left).ok();
            let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut ready, timeout.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
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
