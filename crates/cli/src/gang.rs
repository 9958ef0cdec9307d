//! `farcall gang`: gang jobs that share a cluster. The modules below have its commands; this one
//! connects to the root daemon, which decides everything.

mod checkpoint;
mod daemon;
mod gantt;
mod jobs;
mod run;

use crate::failure::{self, Failure};
use clap::{Args, Subcommand};
use farcall_gang::DEFAULT_CONTROL;
use farcall_gang::client::{Client, ClientError};
use serde_json::Value;

/// Run parallel programs that share the processors of a cluster in time slices
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang ps")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Daemon(daemon::Arguments),
    Run(run::Arguments),
    Ps(jobs::PsArguments),
    Stop(jobs::StopArguments),
    Cont(jobs::ContArguments),
    Kill(jobs::KillArguments),
    State(jobs::StateArguments),
    Checkpoint(checkpoint::CheckpointArguments),
    Restart(checkpoint::RestartArguments),
    Move(checkpoint::MoveArguments),
    Gantt(gantt::Arguments),
    /// Serve the processes of a gang job by PMIx; the gang daemon starts this command
    #[command(hide = true)]
    Pmix,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Daemon(arguments) => daemon::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Ps(arguments) => jobs::ps(&arguments),
        Command::Stop(arguments) => jobs::stop(&arguments),
        Command::Cont(arguments) => jobs::cont(&arguments),
        Command::Kill(arguments) => jobs::kill(&arguments),
        Command::State(arguments) => jobs::state(&arguments),
        Command::Checkpoint(arguments) => checkpoint::checkpoint(&arguments),
        Command::Restart(arguments) => checkpoint::restart(arguments),
        Command::Move(arguments) => checkpoint::move_job(&arguments),
        Command::Gantt(arguments) => gantt::run(&arguments),
        Command::Pmix => pmix(),
    }
}

/// Reads the number of a job.
fn job(text: &str) -> Result<u64, String> {
    let wrong = |_| "a job has a number; `farcall gang ps` lists them".to_string();
    text.parse().map_err(wrong)
}

fn pmix() -> Result<(), Failure> {
    let Err(error) = farcall_gang::pmix::serve() else {
        return Ok(());
    };
    let status = error.status();
    // Without the library this is a machine without Open MPI.
    if status == 1 {
        failure::print(Failure::failed(error));
    }
    std::process::exit(status.into())
}

/// The jobs of the gang daemon of this machine as one JSON object; `None` if there is no daemon.
pub(crate) fn jobs_here() -> Option<Value> {
    let named = std::env::var("FARCALL_GANG").ok();
    let named = named.filter(|control| !control.is_empty());
    let control = named.unwrap_or_else(|| DEFAULT_CONTROL.to_owned());
    let rows = Client::connect(&control).ok()?.jobs().ok()?;
    Some(jobs::listed(&rows))
}

/// Which daemon a command talks to.
#[derive(Args)]
struct Control {
    /// Control socket of the root daemon: a path, or `@` and an abstract name
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL, env = "FARCALL_GANG")]
    control: String,
    /// Use TCP to reach the root daemon, which needs the same FARCALL_TOKEN. The jobs belong to the
    /// user of its --tcp-user
    #[arg(long, value_name = "ADDR")]
    daemon: Option<String>,
}

impl Control {
    fn connect(&self) -> Result<Client, Failure> {
        let Some(address) = &self.daemon else {
            return Ok(Client::connect(&self.control)?);
        };
        let address = daemon::resolve("--daemon", address)?;
        let token = std::env::var("FARCALL_TOKEN").unwrap_or_default();
        Ok(Client::connect_tcp(address, &token)?)
    }
}

/// Reads a user's name, or `UID:GID`.
fn user(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(user, group)| {
        let (user, group) = (user.parse().ok()?, group.parse().ok()?);
        Some((user, group))
    });
    let listed =
        || farcall_access::host_user(text).map_err(|error| format!("user `{text}`: {error}"));
    match numbers {
        Some(numbers) => Ok(numbers),
        None => listed()?.ok_or_else(|| {
            format!("this machine has no user `{text}`; name another, or write UID:GID")
        }),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::failed(error)
    }
}
