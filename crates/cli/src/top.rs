//! `farcall top`: shows in the terminal what a server or metaserver does, once a second. The server
//! makes the snapshots, for this user alone. `tables` turns them into rows, `view` draws these and
//! reads keys, and `terminal` owns the terminal.

mod tables;
mod terminal;
mod view;

use crate::failure::{self, Failure};
use crate::plain;
use crate::target::Named;
use clap::Args;
use farcall_client::{AskSnapshot, Server};
use farcall_snapshot::Snapshot;
use serde_json::Value;
use std::io::IsTerminal;
use tables::{Tab, heading, table};
use view::View;

/// Watch a server or a metaserver in the terminal
///
/// Of a server, it shows the calls under way with their reasons and predicted starts, the calls
/// that ended last, users, reservations, links and named data. Of a metaserver, it shows its
/// servers.
///
/// Keys: Tab shows another list, the arrows and Page Up and Page Down scroll, `s` sorts by the next
/// column, `r` turns the order round, `/` searches, `q` or Ctrl-C ends.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall top farcall://localhost:3717
  farcall top meta://localhost --search node7
  farcall top --once --list users")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// Print the list once, as plain text
    #[arg(long)]
    once: bool,
    /// Print one snapshot, as a JSON object
    #[arg(long, conflicts_with_all = ["once", "list"])]
    json: bool,
    /// Which list comes first [default: the calls of a server, the servers of a metaserver]
    #[arg(long, value_name = "LIST", value_enum)]
    list: Option<Tab>,
    /// Show only calls, users, servers and data whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    search: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let asked = AskSnapshot {
        from: 0,
        most: tables::MOST,
        search: arguments.search.clone(),
    };
    let text = server.snapshot(&asked)?;
    if arguments.json {
        let snapshot: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::failed(format!("the server's answer is not valid JSON: {error}"))
        })?;
        println!("{snapshot}");
        return Ok(());
    }
    let snapshot = Snapshot::parse(&text).map_err(Failure::failed)?;
    let tab = arguments.list.unwrap_or(Tab::first(&snapshot));
    if !tab.is_of(&snapshot) {
        let lists = Tab::all(&snapshot).iter().map(|tab| tab.name());
        return Err(Failure::usage(format!(
            "--list {}: a {} has no such list; use one of {}",
            tab.name(),
            snapshot.kind,
            lists.collect::<Vec<&str>>().join(", ")
        )));
    }
    if arguments.once {
        print(&snapshot, tab);
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "the output is not a terminal: add --once or --json",
        ));
    }
    let view = View::new(tab, arguments.search.clone(), snapshot);
    terminal::show(view, move |asked| ask(&server, asked)).map_err(Failure::failed)
}

/// A snapshot, or why there is none.
fn ask(server: &Server, asked: &AskSnapshot) -> Result<Snapshot, String> {
    let text = server.snapshot(asked).map_err(|error| error.to_string())?;
    Snapshot::parse(&text)
}

/// Prints a list, with columns as wide as they need up to a bound, and says if rows are missing.
fn print(snapshot: &Snapshot, tab: Tab) {
    for line in heading(snapshot) {
        plain::say(line);
    }
    let table = table(snapshot, tab);
    let rows = table.rows.iter();
    let rows = rows.map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
    let titles = table.columns.iter().map(|column| column.title).collect();
    let lines: Vec<Vec<&str>> = [titles].into_iter().chain(rows).collect();
    let wide = |place: usize| plain::width(lines.iter().map(|line| line[place].chars().count()));
    let widths: Vec<usize> = (0..table.columns.len()).map(wide).collect();
    println!();
    for line in &lines {
        let cells = line.iter().zip(&widths).zip(&table.columns);
        let cells = cells.map(|((text, width), column)| match column.is_number {
            true => format!("{text:>width$}"),
            false => format!("{text:width$}"),
        });
        println!("{}", cells.collect::<Vec<String>>().join("  ").trim_end());
    }
    if table.missing > 0 {
        let shown = table.rows.len() as u64;
        failure::say(format_args!(
            "warning: these are {shown} of {} rows; --search TEXT shows others",
            shown.saturating_add(table.missing)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_snapshot::{Call, List};

    #[test]
    fn a_text_of_any_length_is_printed() {
        let snapshot = Snapshot {
            calls: List::of(0..1, 1, |_| Call {
                function: "f".repeat(70_000),
                ..Call::default()
            }),
            ..Snapshot::default()
        };
        print(&snapshot, Tab::Calls);
    }
}
