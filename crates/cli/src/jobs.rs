//! Durable calls: `farcall job`, and the same commands at the top level. The modules below have the
//! commands; this one reads job ids and has what several of them print.

pub(crate) mod cancel;
pub(crate) mod fetch;
pub(crate) mod list;
pub(crate) mod submit;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_client::{CallStatus, DurableStatus, Expected, JobId};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Submit durable calls and fetch their results
///
/// `farcall submit`, `jobs`, `fetch` and `cancel` are the same commands.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall job submit ddot n=3 x=1,2,3 incx=1 y=4,5,6 incy=1
  farcall job list
  farcall job fetch 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Submit(submit::Arguments),
    List(list::Arguments),
    Fetch(fetch::Arguments),
    Cancel(cancel::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Submit(arguments) => submit::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Fetch(arguments) => fetch::run(arguments),
        Command::Cancel(arguments) => cancel::run(arguments),
    }
}

/// A job id, as `farcall submit` prints it.
fn id(text: &str) -> Result<JobId, String> {
    text.parse()
        .map_err(|error| format!("{error}; `farcall jobs` lists your durable calls"))
}

fn to_json(status: &DurableStatus) -> Value {
    let failure = status.failure.as_ref();
    json!({
        "id": status.id.to_string(),
        "function": status.function,
        "state": status.state.name(),
        "submitted": seconds(status.submitted),
        "started": status.started.map(seconds),
        "ended": status.ended.map(seconds),
        "expires": status.expires.map(seconds),
        "bytes": status.bytes,
        "failure": failure.map(|failure| &failure.message),
    })
}

/// The status of a call under way. Times are seconds from now.
fn status_json(status: &CallStatus) -> Value {
    let times = |expected: Expected| {
        json!({
            "low_s": expected.low.as_secs_f64(),
            "likely_s": expected.likely.as_secs_f64(),
            "high_s": expected.high.as_secs_f64(),
        })
    };
    json!({
        "phase": status.phase.name(),
        "reason": status.reason,
        "starts": status.starts.map(times),
        "ends": status.ends.map(times),
    })
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// A time in the past or the future, for people.
fn ago(time: SystemTime) -> String {
    let now = SystemTime::now();
    let (span, past) = match now.duration_since(time) {
        Ok(span) => (span, true),
        Err(error) => (error.duration(), false),
    };
    let seconds = span.as_secs();
    let text = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    match past {
        true => format!("{text} ago"),
        false => format!("in {text}"),
    }
}
