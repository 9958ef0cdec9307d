//! `farcall gang ps`, `stop`, `cont`, `kill` and `state`. Each sends one request to the root
//! daemon, which decides whether the user may do it.

use super::Control;
use crate::failure::Failure;
use crate::form::Form;
use crate::plain::one_line;
use clap::Args;
use farcall_gang::JobRow;
use serde_json::{Value, json};

/// List the gang jobs
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang ps --json")]
pub(crate) struct PsArguments {
    #[command(flatten)]
    control: Control,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Stop a gang job until `farcall gang cont`
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang stop 3")]
pub(crate) struct StopArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    #[command(flatten)]
    control: Control,
}

/// Continue a stopped gang job
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang cont 3")]
pub(crate) struct ContArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    #[command(flatten)]
    control: Control,
}

/// Kill a gang job, or send a signal to all its processes
#[derive(Args)]
#[command(after_help = "Examples:\n  farcall gang kill 3\n  farcall gang kill 3 --signal 10")]
pub(crate) struct KillArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    /// Number of the signal
    #[arg(long, short, value_name = "N", default_value_t = libc::SIGKILL,
          value_parser = signal_number)]
    signal: i32,
    #[command(flatten)]
    control: Control,
}

/// Show the state of a gang job as a whole: running, idle, terminated, deadlocked or stalled
///
/// MPI programs with `--network farcall` can also be in a suspected deadlock, which takes about a
/// second to see. What MPI programs with their own transport wait for is unknown.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall gang state 3")]
pub(crate) struct StateArguments {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = super::job)]
    job: u64,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    form: Form,
}

fn signal_number(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(number) if (1..=64).contains(&number) => Ok(number),
        _ => Err(
            "a signal has a number from 1 to 64, such as 15 for SIGTERM; `kill -l` lists them"
                .to_string(),
        ),
    }
}

pub(crate) fn ps(arguments: &PsArguments) -> Result<(), Failure> {
    let rows = arguments.control.connect()?.jobs()?;
    if arguments.json {
        println!("{}", listed(&rows));
        return Ok(());
    }
    println!("  JOB STATE      N   SLICES  US/SWITCH  NODES             COMMAND");
    for row in &rows {
        println!(
            "{:5} {:8} {:3} {:8} {:10.1}  {:16}  {}",
            row.id,
            one_line(&row.state),
            row.processes,
            row.slices,
            row.lost_us_per_switch,
            one_line(&row.nodes.join(",")),
            // A script has several lines, and root sees the commands of all users.
            one_line(&row.command)
        );
    }
    Ok(())
}

/// Gang jobs as one JSON object.
pub(crate) fn listed(rows: &[JobRow]) -> Value {
    let job = |row: &JobRow| {
        json!({
            "id": row.id,
            "state": row.state,
            "nodes": row.nodes,
            "elements": row.processes,
            "slices": row.slices,
            "lost_us_per_switch": row.lost_us_per_switch,
            "user": row.user,
            "command": row.command,
        })
    };
    json!({ "schema": 1, "jobs": rows.iter().map(job).collect::<Vec<_>>() })
}

pub(crate) fn stop(arguments: &StopArguments) -> Result<(), Failure> {
    signal(&arguments.control, arguments.job, libc::SIGSTOP)
}

pub(crate) fn cont(arguments: &ContArguments) -> Result<(), Failure> {
    signal(&arguments.control, arguments.job, libc::SIGCONT)
}

pub(crate) fn kill(arguments: &KillArguments) -> Result<(), Failure> {
    signal(&arguments.control, arguments.job, arguments.signal)
}

fn signal(control: &Control, job: u64, signal: i32) -> Result<(), Failure> {
    Ok(control.connect()?.signal(job, signal)?)
}

pub(crate) fn state(arguments: &StateArguments) -> Result<(), Failure> {
    let (word, text) = arguments.control.connect()?.state(arguments.job)?;
    let fields = || json!({ "state": word, "detail": text });
    arguments.form.answer(|| format!("{word}: {text}"), fields);
    Ok(())
}
