//! What a daemon logs, and how.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Stderr};
use std::str::FromStr;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Full};

/// What to log, and how.
#[derive(Args)]
pub(crate) struct Log {
    /// What to log on standard error: error, warn, info, debug or trace. `info,farcall::call=debug`
    /// adds a line with the times of each call
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        env = "FARCALL_LOG"
    )]
    log: Filter,
    /// Format of the log: text, or json for one JSON object on each line
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "FARCALL_LOG_FORMAT"
    )]
    log_format: LogFormat,
}

/// What to log: levels, or targets with levels.
#[derive(Clone, Debug)]
pub(crate) struct Filter(String);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Filter, String> {
        EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        // The filter takes an unknown level for a target, and would log nothing.
        let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
        let other = |word: &&str| !word.contains(['=', '[']) && !is_level(word);
        match text.split(',').find(other) {
            None => Ok(Filter(text.to_owned())),
            Some(word) => Err(format!(
                "`{word}` is not a level: write error, warn, info, debug, trace, or TARGET=LEVEL"
            )),
        }
    }
}

type Plain = SubscriberBuilder<DefaultFields, Format<Full>, EnvFilter, fn() -> Stderr>;

impl Filter {
    /// Logs as text from now on.
    pub(crate) fn init(&self) -> Result<(), Failure> {
        self.log()?.init();
        Ok(())
    }

    fn log(&self) -> Result<Plain, Failure> {
        let filter = EnvFilter::try_new(&self.0).map_err(Failure::usage)?;
        Ok(tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr as fn() -> Stderr))
    }
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
        match self.log_format {
            LogFormat::Text => self.log.init(),
            LogFormat::Json => {
                let log = self.log.log()?.json().flatten_event(true);
                log.init();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in ["info", "off", "info,farcall::call=debug", "WARN"] {
            assert!(text.parse::<Filter>().is_ok(), "{text}");
        }
        for text in ["foo", "info,verbose", "info=x"] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }
}
