//! The options of a daemon about its log, and the writer of the log. The levels and texts are
//! chosen where something happens. A message cannot begin a new line: control characters, which can
//! come from peers, are escaped.

use crate::plain::OneLine;
use clap::{Args, ValueEnum};
use std::fmt::{self, Debug, Write};
use std::io::{IsTerminal, Stderr};
use std::str::FromStr;
use tracing::field::Field;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{self, DefaultFields, Format, Full, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

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
pub(crate) struct Filter(Box<Targets>);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Filter, String> {
        let targets = text.parse::<Targets>().map_err(|error| error.to_string())?;
        // The filter takes an unknown level for a target, and would log nothing.
        let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
        let other = |word: &&str| !word.contains(['=', '[']) && !is_level(word);
        match text.split(',').find(other) {
            None => Ok(Filter(Box::new(targets))),
            Some(word) => Err(format!(
                "`{word}` is not a level: write error, warn, info, debug, trace, or TARGET=LEVEL"
            )),
        }
    }
}

type Plain = SubscriberBuilder<DefaultFields, Format<Full>, LevelFilter, fn() -> Stderr>;

impl Filter {
    /// Logs as text from now on.
    pub(crate) fn init(&self) {
        let log = self.log().fmt_fields(format::debug_fn(write_field));
        log.finish().with(self.0.clone()).init();
    }

    fn log(&self) -> Plain {
        let most = Layer::<Registry>::max_level_hint(&self.0);
        tracing_subscriber::fmt()
            // It would print, and so panic, where the log cannot be written: on a full disk.
            .log_internal_errors(false)
            .with_max_level(most.unwrap_or(LevelFilter::TRACE))
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr as fn() -> Stderr)
    }
}

/// Writes a message or a field without control characters: a message has parts that come from
/// peers, and a line break in one of them must not begin another line.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(OneLine(writer), "{value:?}"),
        name => write!(OneLine(writer), " {name}={value:?}"),
    }
}

/// How to log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Log {
    /// Logs from now on. The daemon goes on if its log has no reader any more.
    pub(crate) fn init(&self) {
        crate::outlive_the_reader();
        match self.log_format {
            LogFormat::Text => self.log.init(),
            LogFormat::Json => {
                let log = self.log.log().json().flatten_event(true);
                log.finish().with(self.log.0.clone()).init();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_peers_stays_on_its_line() {
        let mut line = String::new();
        let said = "\u{e4}peer: bye\nINFO forged \x1b[31m\r\u{7}";
        write!(OneLine(&mut line), "{said}").unwrap();
        assert_eq!(line, "äpeer: bye\\nINFO forged \\u{1b}[31m\\r\\u{7}");
    }

    #[test]
    fn an_unknown_level_is_refused() {
        for text in ["info", "off", "info,farcall::call=debug", "WARN"] {
            assert!(text.parse::<Filter>().is_ok(), "{text}");
        }
        for text in ["foo", "info,verbose", "info=x"] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }
}
