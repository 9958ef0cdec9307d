//! `farcall sim replay`: replays a recorded day, as it was and with changes. The crate `twin` makes
//! a scenario of the record; the Python package draws the picture.

use crate::failure::{self, Failure};
use crate::form::Form;
use crate::picture::{Painter, check_apart, check_form};
use crate::record::Source;
use crate::results::check_files;
use clap::Args;
use farcall_gridsim::Record;
use farcall_quantity::counted;
use farcall_twin::{Answer, Change, Day, Estimate, Twin};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const AFTER: &str = "\
Give the records of all servers of the day, and that of their metaserver if there is one. Calls that
a metaserver has placed are placed again; others stay at their servers. Servers are named by their
addresses, or by their hosts if these have one server each.

The replay without changes says how far the twin is from the record. A predicted figure is that of
the record, changed as it changes from the replay without changes to the replay with them. Four of
five such days lie in the interval.

Examples:
  farcall sim replay /var/lib/farcall
  farcall sim replay a/record b/record meta-record --add c=copy-of:a
  farcall sim replay day.jsonl.zst --link '10.0.0.7<->b=1Gbit/s' --policy sjf --plot day.svg
  farcall sim replay day.jsonl.zst --elements a=8 --clients x2";

/// Replay a recorded day, and predict what a change would have made of it
#[derive(Args)]
#[command(after_help = AFTER)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Add a server that is equal to one of the record
    #[arg(long, value_name = "NAME=copy-of:SERVER", value_parser = Change::add)]
    add: Vec<Change>,
    /// Remove a server; its calls go where the policy places them
    #[arg(long, value_name = "SERVER")]
    remove: Vec<String>,
    /// Give the link between a client's host and a server this rate, in both directions
    #[arg(long, value_name = "HOST<->SERVER=RATE", value_parser = Change::link)]
    link: Vec<Change>,
    /// The order in which servers start calls (fcfs, sjf, fpfs, fmpfs, at-once), or the choice of
    /// servers (completion, round-robin, least-load, load-and-throughput)
    #[arg(long, value_name = "POLICY", value_parser = Change::policy)]
    policy: Vec<Change>,
    /// Give a server another number of processor elements
    #[arg(long, value_name = "SERVER=NUMBER", value_parser = Change::elements)]
    elements: Vec<Change>,
    /// Let so many times as many clients call
    #[arg(long, value_name = "xFACTOR", value_parser = Change::clients)]
    clients: Option<Change>,
    /// Replays with drawn computing times, from which the intervals come
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Draw the calls in progress over time: .svg, .png or .pdf
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    painter: Painter,
    #[command(flatten)]
    form: Form,
}

impl Arguments {
    /// Servers that are added come first, so that other changes can name them.
    fn changes(&self) -> Vec<Change> {
        let removed = self.remove.iter().cloned().map(Change::Remove);
        let others = [&self.link, &self.policy, &self.elements];
        let added = self.add.iter().cloned().chain(removed);
        let changes = added.chain(others.into_iter().flatten().cloned());
        changes.chain(self.clients.clone()).collect()
    }
}

/// Refuses two changes of the same thing: one of them would have no effect.
fn check_changes(changes: &[Change]) -> Result<(), Failure> {
    let any = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
    let subject = |change: &Change| match change {
        Change::Queue(_) => Some("--policy: two orders in which servers start calls".to_owned()),
        Change::Placement(_) => Some("--policy: two ways to choose servers".to_owned()),
        Change::Elements { server, .. } => Some(format!("--elements: two numbers for {server}")),
        Change::Link { host, server, .. } => Some(format!(
            "--link: two rates for {}<->{}",
            any(host),
            any(server)
        )),
        Change::Add { .. } | Change::Remove(_) | Change::Clients(_) => None,
    };
    let mut subjects = BTreeSet::new();
    for subject in changes.iter().filter_map(subject) {
        if let Some(twice) = subjects.replace(subject) {
            return Err(Failure::usage(format!("{twice}; give one")));
        }
    }
    Ok(())
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let changes = arguments.changes();
    check_changes(&changes)?;
    if let Some(picture) = &arguments.plot {
        check_form("--plot", picture)?;
        check_files([picture])?;
        check_apart("--plot", picture, arguments.source.files()?)?;
    }
    let mut day = Day::default();
    arguments.source.read(|told| {
        day.take(&told.line);
        Ok(())
    })?;
    let twin = Twin::new(day).map_err(Failure::failed)?;
    let wrong = |error| Failure::failed(error).into_usage();
    let changed = twin.with(&changes).map_err(wrong)?;
    let bar = ProgressBar::with_draw_target(Some(arguments.runs + 1), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} replay {pos} of {len}, {eta} left")
    {
        bar.set_style(style);
    }
    let answer = twin
        .ask(&changes, arguments.runs, || bar.inc(1))
        .map_err(wrong)?;
    bar.finish_and_clear();
    let without_effect = changed.without_effect(&changes);
    arguments.form.answer(
        || text(&twin, &changes, (&answer, without_effect)),
        || to_json(&twin, (&answer, without_effect)),
    );
    match &arguments.plot {
        Some(picture) => plot(arguments, picture, &twin, &changed, changes.is_empty()),
        None => Ok(()),
    }
}

/// The answer as a table, and why changes have no effect.
fn text(
    twin: &Twin,
    changes: &[Change],
    (answer, without_effect): (&Answer, Option<&str>),
) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!(
        "{} of {} at {}; {} of them waited for the results of others",
        counted(twin.calls(), "call"),
        counted(answer.users.len(), "user"),
        counted(twin.servers().len(), "server"),
        twin.followers(),
    ));
    let off = |one: &Estimate| one.error().map_or(String::new(), percent);
    line(format_args!(
        "the replay without changes: makespan {}, mean response {}",
        off(&answer.makespan_s),
        off(&answer.mean_s),
    ));
    for reason in &answer.reasons {
        line(format_args!("  {reason}"));
    }
    if answer.reasons.is_empty() {
        twin.notes()
            .iter()
            .for_each(|note| line(format_args!("  {note}")));
    }
    if let Some(why) = without_effect {
        line(format_args!("  {why}"));
    }
    let has_changes = !changes.is_empty();
    let titles = match has_changes {
        true => "  recorded  replayed  predicted  four of five days     change",
        false => "  recorded  replayed",
    };
    line(format_args!("\n{:<40}{titles}", "seconds"));
    let mut row = |name: &str, one: &Estimate| {
        line(format_args!("{name:<40}{}", columns(one, has_changes)));
    };
    row("makespan", &answer.makespan_s);
    row("mean response", &answer.mean_s);
    row("95 % of the calls within", &answer.p95_s);
    let groups = [("user", &answer.users), ("server", &answer.servers)];
    for (kind, groups) in groups {
        for (name, [recorded, now], one) in groups {
            let calls = match has_changes {
                true => format!("{recorded} to {}", counted(*now, "call")),
                false => counted(*recorded, "call"),
            };
            row(&format!("{kind} {name}, {calls}"), one);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// A change in percent. A small one is `+0.0 %`, also if it is negative.
fn percent(change: f64) -> String {
    format!("{:+.1} %", (1000.0 * change).round() / 10.0 + 0.0)
}

/// The numbers of a row.
fn columns(one: &Estimate, has_changes: bool) -> String {
    let known = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let mut columns = format!("{:>10}{:>10}", known(one.recorded), known(one.replayed));
    if has_changes {
        let (low, high) = one.interval;
        let interval = format!("{low:.3} to {high:.3}");
        let change = one.recorded.filter(|recorded| *recorded > 0.0);
        let change = change.map(|recorded| one.predicted / recorded - 1.0);
        let change = change.map_or("-".to_owned(), percent);
        columns += &format!("{:>11.3}{interval:>19}{change:>11}", one.predicted);
    }
    columns
}

fn to_json(twin: &Twin, (answer, without_effect): (&Answer, Option<&str>)) -> Value {
    let estimate = |one: &Estimate| {
        json!({
            "recorded_s": one.recorded,
            "replayed_s": one.replayed,
            "predicted_s": one.predicted,
            "low_s": one.interval.0,
            "high_s": one.interval.1,
        })
    };
    let groups = |groups: &[(String, [usize; 2], Estimate)]| {
        let groups = groups.iter().map(|(name, [recorded, now], one)| {
            json!({
                "name": name,
                "recorded_calls": recorded,
                "predicted_calls": now,
                "mean_response": estimate(one),
            })
        });
        groups.collect::<Vec<Value>>()
    };
    json!({
        "calls": twin.calls(),
        "following_calls": twin.followers(),
        "makespan": estimate(&answer.makespan_s),
        "mean_response": estimate(&answer.mean_s),
        "response_95": estimate(&answer.p95_s),
        "users": groups(&answer.users),
        "servers": groups(&answer.servers),
        "reasons": answer.reasons,
        "notes": twin.notes(),
        "without_effect": without_effect,
    })
}

/// Has the calls in progress drawn: of the record, and of the replays.
fn plot(
    arguments: &Arguments,
    picture: &Path,
    twin: &Twin,
    changed: &Twin,
    is_unchanged: bool,
) -> Result<(), Failure> {
    let temporary = |error| Failure::failed(format!("cannot write a temporary file: {error}"));
    let folder = tempfile::tempdir().map_err(temporary)?;
    let data = folder.path().join("progress.csv");
    let mut text = String::from("series,seconds,calls\n");
    let mut add = |series: &str, records: &[Record]| {
        for (moment_s, calls) in in_progress(records) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{series},{moment_s:.6},{calls}");
        }
    };
    add("recorded", twin.past());
    add("replayed", &twin.replay().records);
    if !is_unchanged {
        add("with the changes", &changed.replay().records);
    }
    std::fs::write(&data, text).map_err(temporary)?;
    arguments
        .painter
        .draw("farcall._replay", [data.as_path(), picture])?;
    failure::say(picture.display());
    Ok(())
}

/// The numbers of calls in progress: each moment at which it changes, and the number from then on.
fn in_progress(records: &[Record]) -> Vec<(f64, usize)> {
    let ended = records.iter().filter(|record| record.done_s.is_finite());
    let mut moments: Vec<(f64, bool)> = ended
        .flat_map(|record| [(record.at_s, true), (record.done_s, false)])
        .collect();
    moments.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    let mut calls = 0;
    let moments = moments.into_iter().map(|(moment, begins)| {
        calls = if begins { calls + 1 } else { calls - 1 };
        (moment, calls)
    });
    moments.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_changed_once() {
        let check = |texts: &[&str], read: fn(&str) -> Result<Change, String>| {
            let changes = texts.iter().map(|text| read(text));
            check_changes(&changes.collect::<Result<Vec<Change>, String>>().unwrap())
        };
        assert!(check(&["sjf", "completion"], Change::policy).is_ok());
        assert!(check(&["sjf", "fcfs"], Change::policy).is_err());
        assert!(check(&["completion", "round-robin"], Change::policy).is_err());
        assert!(check(&["a=8", "b=8"], Change::elements).is_ok());
        assert!(check(&["a=8", "a=4"], Change::elements).is_err());
        assert!(check(&["h<->a=1e9", "*<->a=1e9"], Change::link).is_ok());
        assert!(check(&["h<->a=1e9", "h<->a=2e9"], Change::link).is_err());
    }

    #[test]
    fn no_change_is_less_than_nothing() {
        let texts = [-0.0004, -0.0006, 0.0, 0.25].map(percent);
        assert_eq!(texts, ["+0.0 %", "-0.1 %", "+0.0 %", "+25.0 %"]);
    }
}
