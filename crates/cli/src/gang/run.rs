//! `farcall gang run`: asks the root daemon to run a gang job, and waits for its end.
//! `farcall_gang::Client` passes output and signals. The exit status of the command is that of the
//! gang job.

use super::Control;
use crate::failure::{self, Failure};
use clap::{Args, ValueEnum};
use farcall_gang::{Ended, FARCALL_FAILED, JobSpec, told};
use farcall_quantity::bytes;
use rustix::fs::{Access, Mode, access};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The most channels of a gang job.
const MAX_CHANNELS: u8 = 8;

/// Run a program as a gang job
///
/// The command prints the output of all processes, whose standard input is empty. Ctrl-C, Ctrl-Z,
/// fg and bg act on the whole job. The exit status is the highest of all processes: 128 + signal
/// for a process that a signal ended, and 125 if Farcall itself failed.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gang run -n 2 ./solver --size 1000
  farcall gang run -n 8 --tree -- make -j2 all")]
pub(crate) struct Arguments {
    /// Number of processes
    #[arg(short = 'n', long = "processes", alias = "elements", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    processes: u16,
    #[command(flatten)]
    control: Control,
    /// Run programs that know nothing of Farcall, with all processes that they start: a control
    /// group stops them between slices. They have no channels
    #[arg(long, conflicts_with_all = ["channels", "send_fifo", "receive_fifo", "partitions",
          "detect_termination"])]
    tree: bool,
    /// Channels that each process may open
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=8))]
    channels: u8,
    /// Send FIFO of a process, for other nodes [default: 49152 bytes, 512 messages]
    #[arg(long, value_name = "BYTES[,MESSAGES]", value_parser = fifo)]
    send_fifo: Option<(u32, u32)>,
    /// Receive FIFO of a process [default: 65536 bytes, 4096 messages]
    #[arg(long, value_name = "BYTES[,MESSAGES]", value_parser = fifo)]
    receive_fifo: Option<(u32, u32)>,
    /// Sizes of the groups of ranks that may send to each other, such as 2,2
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    partitions: Vec<u16>,
    /// Memory that each process may need
    #[arg(long, value_name = "BYTES", default_value = "64MB", value_parser = bytes)]
    memory: u64,
    /// End the job when it has terminated as a whole, or is in a deadlock. A deadlock of MPI
    /// processes is only suspected, and printed
    #[arg(long)]
    detect_termination: bool,
    /// Interfaces for processes of MPI: PMI-1 for MPICH and Intel MPI, and PMIx for Open MPI if
    /// libpmix is installed (any), or none
    #[arg(long, value_enum, default_value = "any")]
    mpi: Mpi,
    /// Network of MPI: its own, or the channels of the job (farcall), which are saved and restored
    /// with the job. This is for MPIs that use libfabric: MPICH 5, Intel MPI and Open MPI
    #[arg(long, value_enum, default_value = "own", conflicts_with = "tree")]
    network: Network,
    /// Run only while there is work, but then before other jobs (within --interactive-share of the
    /// daemon): this descriptor gives a `1` when there is work and a `0` when there is none, and
    /// the job ends with it. Without a program, the job only keeps its processors free of others
    #[arg(long, value_name = "DESCRIPTOR", value_parser = clap::value_parser!(i32).range(3..))]
    interactive: Option<i32>,
    /// User of the job, by name or as UID:GID, if root submits it
    #[arg(long, value_name = "USER", value_parser = super::user)]
    user: Option<(u32, u32)>,
    /// Do not print a line about the resources that the job has used
    #[arg(long, short)]
    quiet: bool,
    /// Program and its arguments
    #[arg(
        required_unless_present = "interactive",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mpi {
    #[value(alias = "pmi")]
    Any,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    Own,
    Farcall,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut spec = spec(&arguments)?;
    let work = arguments.interactive.map(descriptor).transpose()?;
    if let Some(user) = arguments.user {
        farcall_gang::become_user(user)
            .map_err(|error| Failure::usage(format!("--user: {error}; only root can do this")))?;
        // Root may have started a server in a folder that the user of its functions cannot enter.
        if work.is_some() && access(spec.folder.as_str(), Access::EXEC_OK).is_err() {
            spec.folder = "/".to_owned();
        }
    }
    let client = arguments.control.connect();
    watch(arguments.quiet, |started| {
        let mut told = |job, shared: Option<u16>| {
            started(job, shared);
            let is_told = !arguments.quiet && arguments.mpi == Mpi::Any;
            if let Some(processors) = shared.filter(|_| is_told) {
                let text = format!(
                    "{} processes share {processors} processors; those of MPI yield while they \
                     wait",
                    arguments.processes
                );
                failure::say(told::line(job, &text));
            }
        };
        Ok(client?.run(spec, work, &mut told)?)
    })
}

/// Runs a gang job, tells how it ended, and exits with its status. `run` passes on its number when
/// it has one.
pub(super) fn watch(
    is_quiet: bool,
    run: impl FnOnce(&mut dyn FnMut(u64, Option<u16>)) -> Result<Ended, Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut number = 0;
    let ended = match run(&mut |job, _| number = job) {
        Ok(ended) => ended,
        Err(failure) => end(&failure),
    };
    if let Some(cause) = &ended.cause {
        failure::say(told::line(number, cause));
    }
    if !is_quiet {
        let usage = ended.usage;
        let text = format!(
            "{:.2} s; user {:.2} s, system {:.2} s, largest process {:.1} MB",
            start.elapsed().as_secs_f64(),
            usage.user_us as f64 / 1e6,
            usage.system_us as f64 / 1e6,
            usage.peak_bytes as f64 / 1e6,
        );
        failure::say(told::line(number, &text));
    }
    std::process::exit(ended.status.into())
}

/// Ends the command with the status for failures of Farcall itself.
fn end(failure: &Failure) -> ! {
    failure::print(failure);
    std::process::exit(FARCALL_FAILED.into())
}

fn spec(arguments: &Arguments) -> Result<JobSpec, Failure> {
    let mut partitions = Vec::new();
    for (number, size) in (0..).zip(&arguments.partitions) {
        partitions.extend(std::iter::repeat_n(number, (*size).into()));
    }
    if !partitions.is_empty() && partitions.len() != usize::from(arguments.processes) {
        return Err(Failure::usage(format!(
            "--partitions has {} ranks in total, but -n is {}; make them equal",
            partitions.len(),
            arguments.processes
        )));
    }
    if arguments.network == Network::Farcall && arguments.channels == MAX_CHANNELS {
        return Err(Failure::usage(format!(
            "--network farcall takes one of the {MAX_CHANNELS} channels; set --channels to {} or \
             less",
            MAX_CHANNELS - 1
        )));
    }
    if arguments.network == Network::Farcall && arguments.mpi == Mpi::None {
        return Err(Failure::usage(
            "--network farcall is for processes of MPI; leave out --mpi none",
        ));
    }
    let folder = folder().unwrap_or_else(|failure| end(&failure));
    Ok(JobSpec {
        processes: arguments.processes,
        command: arguments.command.clone(),
        environment: environment(std::env::vars_os()),
        folder,
        channels: arguments.channels,
        send: arguments.send_fifo.unwrap_or_default(),
        receive: arguments.receive_fifo.unwrap_or_default(),
        partitions,
        memory: arguments.memory,
        is_tree: arguments.tree,
        detect_termination: arguments.detect_termination,
        owner: (0, 0),
        mpi: Some(arguments.mpi == Mpi::Any),
        interactive: arguments.interactive.map(|_| true),
        fabric: (arguments.network == Network::Farcall).then_some(true),
        restored: None,
        on: None,
        umask: Some(umask()),
    })
}

/// The current folder.
fn folder() -> Result<String, Failure> {
    let folder = std::env::current_dir();
    let folder = folder.map_err(|error| Failure::cannot("use", "the current folder", error))?;
    folder.into_os_string().into_string().map_err(|folder| {
        let why = "its name is not UTF-8; change to another one";
        Failure::cannot("use", folder.display(), why)
    })
}

/// The mask of permissions of this process. It can only be read by setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    mask.bits()
}

/// The environment of the job. Messages between daemons are text, so a variable that is no text
/// cannot go with it, and the user is told.
fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut pairs = Vec::new();
    for (name, value) in variables {
        match (name.to_str(), value.to_str()) {
            (Some(name), Some(value)) => pairs.push(format!("{name}={value}")),
            _ => failure::say(format_args!(
                "farcall: the job does not get the environment variable `{}`, which is not UTF-8",
                name.display()
            )),
        }
    }
    pairs
}

/// Takes a descriptor that this command was started with.
fn descriptor(number: i32) -> Result<OwnedFd, Failure> {
    farcall_gang::inherited(number)
        .map_err(|error| Failure::usage(format!("--interactive {number}: {error}")))
}

/// Reads `BYTES` or `BYTES,MESSAGES`.
fn fifo(text: &str) -> Result<(u32, u32), String> {
    let (size, messages) = text.split_once(',').unwrap_or((text, "0"));
    let size = bytes(size)?;
    let size = u32::try_from(size).map_err(|_| format!("`{text}` is too large"))?;
    let messages = messages.parse();
    Ok((
        size,
        messages.map_err(|_| format!("`{text}`: write BYTES,MESSAGES"))?,
    ))
}
