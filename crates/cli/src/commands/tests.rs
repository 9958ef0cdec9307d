//! Tests of the whole command line. Every command is in one group of the help and has an example
//! that parses. Old names lead to the present commands.

use super::{GROUPS, MOVED, in_groups, with_negative_numbers, with_present_name};
use crate::Cli;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use std::ffi::OsString;

/// Calls `visit` with every visible command and its name in full.
fn visit(command: &Command, name: &str, found: &mut impl FnMut(&Command, &str)) {
    found(command, name);
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        visit(one, &format!("{name} {}", one.get_name()), found);
    }
}

/// The words of a line. Those in single quotes can contain spaces.
fn words(line: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    for (place, part) in line.split('\'').enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace().map(OsString::from)),
            _ => words.push(part.into()),
        }
    }
    words
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn an_option_says_what_it_wants_instead_of_a_negative_number() {
    let command = with_negative_numbers(Cli::command());
    command.clone().debug_assert();
    for line in [
        "farcall submit f --retention -1",
        "farcall meta --lease -0.5",
        "farcall meta --connections -1",
        "farcall reservation make --pes -1",
        "farcall flow run --resolution -1 --stored-packet 1KB",
        "farcall flow run --stored-packet -1e3",
    ] {
        let error = command.clone().try_get_matches_from(words(line));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{line}: {error}");
    }
}

#[test]
fn every_command_has_an_example() {
    let mut without = Vec::new();
    for command in Cli::command().get_subcommands() {
        if command.is_hide_set() {
            continue;
        }
        visit(command, command.get_name(), &mut |one, name| {
            let after = one.get_after_help().map(ToString::to_string);
            let after = after.unwrap_or_default();
            let is_example = |line: &str| line.trim_start().contains("farcall ");
            if !after.contains("Example") || !after.lines().any(is_example) {
                without.push(name.to_owned());
            }
        });
    }
    assert!(without.is_empty(), "no example in the help of {without:?}");
}

#[test]
fn the_examples_are_valid_command_lines() {
    visit(&Cli::command(), "farcall", &mut |one, name| {
        let after = one.get_after_help().map(ToString::to_string);
        let after = after.unwrap_or_default().replace("\\\n", " ");
        for line in after.lines() {
            let line = line.split(" # ").next().unwrap_or_default();
            let line = line.split(" > ").next().unwrap_or_default();
            let line = line.split(" | ").next().unwrap_or_default().trim();
            // What the shell makes of other lines is not known here.
            if line.starts_with("farcall ") && !line.contains('$') {
                let parsed = Cli::command().try_get_matches_from(words(line));
                if let Err(error) = parsed {
                    panic!("the help of `{name}` has an example that is wrong: {line}\n{error}");
                }
            }
        }
    });
}

#[test]
fn every_command_is_in_one_group_of_the_help() {
    let command = Cli::command();
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
    let grouped = GROUPS.iter().flat_map(|(_, members)| *members);
    let mut grouped: Vec<&str> = grouped.copied().collect();
    visible.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(visible, grouped);
    let help = in_groups(command).render_help().to_string();
    assert!(help.contains("  data         "), "{help}");
}

#[test]
fn old_names_are_taken_for_the_present_ones() {
    for (old, present) in MOVED {
        let line = with_present_name(words(&format!("farcall {old} --json")));
        let present = present.join(" ");
        assert_eq!(line, words(&format!("farcall {present} --json")));
        let mut command = Cli::command();
        let mut found = Some(&mut command);
        for name in present.split(' ') {
            found = found.and_then(|command| command.find_subcommand_mut(name));
        }
        assert!(found.is_some(), "{present}");
    }
    let line = with_present_name(words("farcall help put"));
    assert_eq!(line, words("farcall help data put"));
    let line = with_present_name(words("farcall ls put"));
    assert_eq!(line, words("farcall ls put"));
}
