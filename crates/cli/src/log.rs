//! What a daemon logs, and how.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What to log, and how.
#[derive(Args)]
pub(crate) struct Log {
    /// What to log on standard error: error, warn, info, debug or trace; `info,farcall::call=debug`
    /// adds a line with its times for each call of a server
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        env = "FARCALL_LOG"
    )]
    log: String,
    /// How to log: text, or one JSON object a line
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "FARCALL_LOG_FORMAT"
    )]
    log_format: LogFormat,
}

/// How to log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Log {
    /// Logs from now on.
    pub(crate) fn init(&self) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log).map_err(Failure::usage)?;
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
        Ok(())
    }
}
