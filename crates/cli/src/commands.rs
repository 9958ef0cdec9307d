//! The names of the commands: where old names are now, and how the help groups them. Each command
//! is described in its own module. Old names keep working and do not appear in the help.

use clap::{Arg, Command};
use std::ffi::OsString;

/// Old names of commands, and the commands that have taken their place.
const MOVED: &[(&str, &[&str])] = &[
    ("put", &["data", "put"]),
    ("get", &["data", "get"]),
    ("drop", &["data", "drop"]),
    ("new", &["object", "new"]),
    ("objects", &["object", "list"]),
    ("reserve", &["reservation", "make"]),
    ("reservations", &["reservation", "list"]),
    ("release", &["reservation", "release"]),
    ("transaction", &["plan", "run"]),
    ("drain", &["server", "drain"]),
    ("token", &["access", "token"]),
    ("certificate", &["access", "certificate"]),
];

/// The commands of each part of the help.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Call functions",
        &["ls", "describe", "call", "plan", "offload"],
    ),
    (
        "Durable calls",
        &["submit", "jobs", "fetch", "cancel", "job"],
    ),
    ("Use a server", &["data", "object", "reservation"]),
    (
        "Run servers",
        &[
            "serve", "register", "meta", "up", "gateway", "status", "top", "server", "state",
            "record", "access", "idl", "library", "relay", "doctor",
        ],
    ),
    ("Networks and parallel programs", &["trunk", "gang"]),
    ("Simulate and measure", &["flow", "sim", "bench"]),
    ("This program", &["completions", "manual"]),
];

/// The words of a command line, with the present name of the command in place of an old one.
pub(crate) fn with_present_name(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let at = match words.get(1) {
        Some(word) if word == "help" => 2,
        _ => 1,
    };
    let moved = words.get(at).and_then(|word| {
        let (_, present) = MOVED.iter().find(|(old, _)| word == old)?;
        Some(present.iter().map(OsString::from))
    });
    if let Some(present) = moved {
        words.splice(at..=at, present);
    }
    words
}

/// The command, for which an empty environment variable counts as unset.
pub(crate) fn without_empty_variables(command: Command) -> Command {
    let given = |arg: &Arg| arg.get_env().and_then(std::env::var_os);
    let command = command.mut_args(|arg| match given(&arg) {
        Some(value) if value.is_empty() => arg.env(None::<&'static str>),
        _ => arg,
    });
    command.mut_subcommands(without_empty_variables)
}

/// The command, whose options take negative numbers, so that each can say what it wants instead.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    let takes_value = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    let command = command.mut_args(|arg| match takes_value(&arg) {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// The command with its subcommands in groups.
pub(crate) fn in_groups(command: Command) -> Command {
    let heading = *command.get_styles().get_header();
    let name = *command.get_styles().get_literal();
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (title, members) in GROUPS {
        text += &format!("\n{heading}{title}:{heading:#}\n");
        for member in *members {
            let about = command.find_subcommand(member).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name}{member:11}{name:#}  {about}\n");
        }
    }
    text += &format!(
        "\n{heading}Options:{heading:#}\n{{options}}\n\n`farcall COMMAND --help` describes a \
         command, with examples.\n"
    );
    command.help_template(text)
}

#[cfg(test)]
mod tests;
