//! `farcall gang checkpoint`, `restart` and `move`: the state of a gang job goes into a file, comes
//! back from it, or goes to other nodes. `farcall_gang::client` talks to the root daemon and checks
//! files.

use super::{Control, run};
use crate::failure::Failure;
use crate::plain;
use clap::Args;
use farcall_gang::client::{SavedJob, Taken};
use farcall_quantity::duration;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// States of at least this many bytes have their progress shown.
const LARGE: u64 = 32 << 20;

/// Write the state of a gang job to a file, from which it can be restarted
///
/// The program must have registered its state: see the guide to channels. The job goes on.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gang checkpoint 3 heat.saved
  farcall gang restart heat.saved")]
pub(crate) struct CheckpointArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    /// File to write; it appears when it is complete, and only you can read it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    catch: Catch,
    #[command(flatten)]
    control: Control,
}

/// Run a gang job again from a checkpoint
///
/// The job has the program, the arguments, the environment and the number of processes that it had.
/// The command does for it what `farcall gang run` does.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gang restart heat.saved
  farcall gang restart heat.saved --to node2,node3")]
pub(crate) struct RestartArguments {
    /// File of `farcall gang checkpoint`, which you have written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Names of the nodes on which it runs [default: those with the least load]
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    to: Option<Vec<String>>,
    /// Do not print a line about the resources that the job has used
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    control: Control,
}

/// Move a gang job to other nodes
///
/// The program must have registered its state: see the guide to channels. The job keeps its number,
/// and its output still comes from the command that has started it.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang move 3 --to node2,node3")]
pub(crate) struct MoveArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    /// Names of the nodes [default: those with the least load]
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    to: Vec<String>,
    #[command(flatten)]
    catch: Catch,
    #[command(flatten)]
    control: Control,
}

/// How long a job has to come to rest.
#[derive(Args)]
struct Catch {
    /// Time in which all processes must come to the end of a step
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
}

pub(crate) fn checkpoint(arguments: &CheckpointArguments) -> Result<(), Failure> {
    let (job, path) = (arguments.job, &arguments.file);
    let start = Instant::now();
    let mut client = arguments.control.connect()?;
    let within = arguments.catch.within;
    let taken = client.checkpoint(job, within, path, &mut progress)?;
    report(job, &taken, &format!("in {}", path.display()), start);
    Ok(())
}

pub(crate) fn restart(arguments: RestartArguments) -> Result<(), Failure> {
    let saved = SavedJob::open(&arguments.file).map_err(Failure::failed);
    let client = arguments.control.connect();
    run::watch(arguments.quiet, |started| {
        let saved = saved?;
        Ok(client?.restart(saved, arguments.to, started)?)
    })
}

pub(crate) fn move_job(arguments: &MoveArguments) -> Result<(), Failure> {
    let (job, to) = (arguments.job, &arguments.to);
    let start = Instant::now();
    let mut client = arguments.control.connect()?;
    let within = arguments.catch.within;
    let taken = client.move_job(job, within, to, &mut progress)?;
    let place = match &taken.elsewhere {
        Some(why) => format!("moved to other nodes than {}, because {why}", to.join(", ")),
        None if to.is_empty() => "moved".to_string(),
        None => format!("moved to {}", to.join(", ")),
    };
    report(job, &taken, &place, start);
    Ok(())
}

fn report(job: u64, taken: &Taken, place: &str, start: Instant) {
    let processes = match taken.processes {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    plain::say(format_args!(
        "gang job {job}: {processes}, {:.1} MB, {place} ({:.2} s)",
        taken.bytes as f64 / 1e6,
        start.elapsed().as_secs_f64()
    ));
}

/// Shows the progress of large states on a terminal.
fn progress(what: &'static str, done: u64, bytes: u64) {
    if bytes >= LARGE && std::io::stderr().is_terminal() {
        let end = if done == bytes { "\n" } else { "" };
        let percent = done * 100 / bytes;
        let mut terminal = std::io::stderr();
        let _ = write!(
            terminal,
            "\r{what} {percent} % of {:.1} MB{end}",
            bytes as f64 / 1e6
        );
    }
}
