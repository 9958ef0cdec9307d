//! `farcall relay`: the end of an `ssh://` address on the host of the server. It carries the bytes
//! of one connection between its standard input and output and the Unix socket of a server, which
//! it starts if none runs. It reads nothing of what it carries.

use crate::failure::Failure;
use crate::folders;
use crate::library;
use clap::Args;
use farcall_client::RELAY_READY;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds after which a server that was started for `ssh://` ends if nobody uses it.
const IDLE_S: u32 = 60;
/// Bytes that are carried at a time.
const PIECE: usize = 256 << 10;
/// Sockets of servers that the system starts.
const OF_THE_SYSTEM: [&str; 2] = ["/run/farcall.sock", "/run/farcall/farcall.sock"];

/// Carry one connection to a server on this host; `ssh://` addresses use it
///
/// It connects standard input and output to the Unix socket of a server: that of `--unix`, or
/// farcall.sock in $XDG_RUNTIME_DIR or /run. If no server listens there, it starts one, which ends
/// after a minute without clients.
#[derive(Args)]
#[command(after_help = "Example, on another host:
  FARCALL_SERVER=ssh://host farcall ls            # runs `ssh host farcall relay`")]
pub(crate) struct Arguments {
    /// Unix socket of the server
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Interface to serve if no server runs; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "unix")]
    serve: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let socket = match &arguments.unix {
        Some(path) => UnixStream::connect(path)
            .map_err(|error| Failure::cannot("connect to", path.display(), error))?,
        None => match running() {
            Some(socket) => socket,
            None => start(&arguments.serve)?,
        },
    };
    carry(socket)
}

/// The socket at which a server of this user listens, unless it is told otherwise.
pub(crate) fn usual_socket() -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let own = folders::variable("XDG_RUNTIME_DIR");
    let folder = own.map(PathBuf::from).or(is_root.then(|| "/run".into()))?;
    let is_writable = rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK).is_ok();
    is_writable.then(|| folder.join("farcall.sock"))
}

/// A connection to a server that runs.
fn running() -> Option<UnixStream> {
    let of_the_system = OF_THE_SYSTEM.map(PathBuf::from);
    let mut paths = usual_socket().into_iter().chain(of_the_system);
    paths.find_map(|path| UnixStream::connect(path).ok())
}

/// Starts a server with these interfaces, unless it runs already.
fn start(names: &[String]) -> Result<UnixStream, Failure> {
    if names.is_empty() {
        let text = "no server runs on this host; start one with `farcall serve`, or name \
                    interfaces: ssh://HOST?serve=lapack+blas";
        return Err(Failure::failed(text));
    }
    let find = |name: &String| library::interface(name).map_err(Failure::usage);
    let files: Vec<PathBuf> = names.iter().map(find).collect::<Result<_, _>>()?;
    let names = names.join("+").replace('/', "-");
    let base = folder()?.join(format!("farcall-{names}"));
    let socket = base.with_added_extension("sock");
    let lock = File::create(base.with_added_extension("lock"))?;
    lock.lock()?;
    if let Ok(socket) = UnixStream::connect(&socket) {
        return Ok(socket);
    }
    let log = base.with_added_extension("log");
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("serve")
        .args(files)
        .arg("--unix")
        .arg(&socket)
        .args(["--idle", &IDLE_S.to_string(), "--log", "warn"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        // It outlives the connection.
        .process_group(0);
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if !line.starts_with("listening on ") {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it said nothing").trim();
        return Err(Failure::failed(format!("the server did not start: {last}")));
    }
    UnixStream::connect(&socket)
        .map_err(|error| Failure::cannot("connect to", socket.display(), error))
}

/// A folder for sockets that nobody else can write to.
fn folder() -> Result<PathBuf, Failure> {
    if let Some(folder) = usual_socket().as_deref().and_then(Path::parent) {
        return Ok(folder.to_path_buf());
    }
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("farcall-{user}"));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Failure::cannot("make", folder.display(), error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        let text = format!(
            "{} is not a folder of this user alone; remove it, or set XDG_RUNTIME_DIR",
            folder.display()
        );
        return Err(Failure::failed(text));
    }
    Ok(folder)
}

/// Carries bytes both ways until the server ends the connection.
fn carry(socket: UnixStream) -> Result<(), Failure> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Not by way of the standard library's output, which looks for ends of lines.
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    (&output).write_all(RELAY_READY.as_bytes())?;
    let there = socket.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&input, &there);
        let _ = there.shutdown(Shutdown::Write);
    });
    // The other side has gone if this fails, so nobody is left to tell.
    let _ = copy(&socket, &output);
    Ok(())
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => to.write_all(&piece[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
