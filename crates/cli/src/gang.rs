//! `farcall gang`: parallel jobs that share a cluster.

mod daemon;
mod gantt;
mod jobs;
mod run;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_gang::DEFAULT_CONTROL;
use farcall_gang::client::{Client, ClientError};

/// Run parallel jobs that share the processors by the tenth of a second
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
    Gantt(gantt::Arguments),
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
        Command::Gantt(arguments) => gantt::run(&arguments),
    }
}

/// Which daemon a command talks to.
#[derive(Args)]
struct Control {
    /// Control socket of the daemon at the root: a path, or an abstract name after `@`
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL, env = "FARCALL_GANG")]
    control: String,
    /// Daemon at the root by TCP instead, with the same FARCALL_TOKEN; its --tcp-user is the user
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
    let listed = || {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let is_meant = fields.next() == Some(text);
            let numbers = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            is_meant.then_some(numbers)
        })
    };
    numbers
        .or_else(listed)
        .ok_or_else(|| format!("no user `{text}` in /etc/passwd: write a name there, or UID:GID"))
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::failed(error)
    }
}

/// Reads `100ms`, `0.1s` or `2s`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is no time: write 100ms or 0.5s");
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1.0),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    std::time::Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

/// Reads `512`, `64KB`, `2MB` or `1GB` (of 1000).
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write 65536, 64KB, 2MB or 1GB");
    let units = [
        ("GB", 1_000_000_000u64),
        ("MB", 1_000_000),
        ("KB", 1000),
        ("B", 1),
    ];
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.trim_end_matches(unit), *factor),
        None => (text, 1),
    };
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["100", "-1s", "ms", "1e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("64KB"), Ok(64_000));
        assert_eq!(bytes("65536"), Ok(65_536));
        for wrong in ["", "KB", "1TB", "99999999999999GB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
