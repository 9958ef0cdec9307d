//! `farcall record summary`: a table of the calls of each function and user, and one of the
//! placements, which the record of a metaserver has. Its memory does not grow with the record, so
//! its quantiles are right to 5 % only.

use super::Source;
use crate::failure::Failure;
use crate::form::Form;
use clap::Args;
use farcall_record::{Call, Line, Placement, Placements, QUANTILES, Spread, Together};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Parts of the calls that each of the [`QUANTILES`] stands for.
const PARTS: [f64; QUANTILES.len()] = [0.15, 0.225, 0.25, 0.225, 0.15];

/// Show a table of the calls of each function and user
///
/// Times are medians and 95th percentiles of the wait for processor elements and of the time in the
/// library, right to 5 %. Calls that were counted together are in the table, by their five
/// quantiles. The record of a metaserver gives a table of placements: predicted times, and times
/// until the client has told the end.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall record summary /var/lib/farcall
  farcall record summary day.jsonl.zst --from 2026-11-22T12:00 --json")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    form: Form,
}

/// The calls of one user of one function.
#[derive(Default)]
struct Row {
    calls: u64,
    failed: u64,
    bytes: [u64; 2],
    waits: Spread,
    execs: Spread,
}

impl Row {
    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.failed += u64::from(call.outcome != "done");
        self.add_bytes([call.sent_bytes, call.returned_bytes]);
        if let (Some(queued), Some(started)) = (call.queued, call.started) {
            self.waits.add_times(nanos(started - queued), 1);
        }
        if call.outcome == "done" {
            self.execs.add_times(nanos(call.exec_s), 1);
        }
    }

    fn add_together(&mut self, together: &Together) {
        self.calls = self.calls.saturating_add(together.calls);
        self.add_bytes([together.sent_bytes, together.returned_bytes]);
        if together.outcome != "done" {
            self.failed = self.failed.saturating_add(together.calls);
            return;
        }
        let of_both = [
            (&mut self.waits, &together.wait_quantiles_s),
            (&mut self.execs, &together.exec_quantiles_s),
        ];
        for (spread, quantiles) in of_both {
            for (seconds, part) in quantiles.iter().zip(PARTS) {
                let calls = (together.calls as f64 * part).round() as u64;
                spread.add_times(nanos(*seconds), calls);
            }
        }
    }

    fn add_bytes(&mut self, bytes: [u64; 2]) {
        for (sum, bytes) in self.bytes.iter_mut().zip(bytes) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// The placements of one user's calls of one function.
#[derive(Default)]
struct Placed {
    placements: u64,
    lost: u64,
    refused: u64,
    bytes: [u64; 2],
    /// Predicted times, and times until the client has told the end.
    predicted: Spread,
    ended: Spread,
}

impl Placed {
    fn count(&mut self, outcome: &str, placements: u64) {
        self.placements = self.placements.saturating_add(placements);
        match outcome {
            "lost" => self.lost = self.lost.saturating_add(placements),
            "no server" => self.refused = self.refused.saturating_add(placements),
            _ => {}
        }
    }

    fn add_bytes(&mut self, bytes: [u64; 2]) {
        for (sum, bytes) in self.bytes.iter_mut().zip(bytes) {
            *sum = sum.saturating_add(bytes);
        }
    }

    fn add(&mut self, line: &Placement) {
        self.count(&line.outcome, 1);
        self.add_bytes([line.sent_bytes, line.returned_bytes]);
        let parts = [line.up_s, line.wait_s, line.compute_s, line.down_s];
        if line.placed.is_some() {
            self.predicted.add(nanos(parts.into_iter().flatten().sum()));
        }
        if let (Some(placed), Some(ended)) = (line.placed, line.ended) {
            self.ended.add(nanos(ended - placed));
        }
    }

    fn add_together(&mut self, line: &Placements) {
        self.count(&line.outcome, line.placements);
        self.add_bytes([line.sent_bytes, line.returned_bytes]);
    }
}

/// What a record says, by function and user.
#[derive(Default)]
struct Tables {
    calls: BTreeMap<(String, String), Row>,
    placements: BTreeMap<(String, String), Placed>,
}

fn nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut tables = Tables::default();
    let mut span = [f64::MAX, f64::MIN];
    arguments.source.read(|told| {
        let (function, user, from, to) = match &told.line {
            Line::Call(call) => (&call.function, &call.user, call.asked, call.sent),
            Line::Together(one) => (&one.function, &one.user, one.from, one.to),
            Line::Placement(one) => (&one.function, &one.user, one.asked, one.asked),
            Line::Placements(one) => (&one.function, &one.user, one.from, one.to),
            _ => return Ok(()),
        };
        span = [span[0].min(from), span[1].max(to)];
        let key = (function.clone(), user.clone());
        match &told.line {
            Line::Call(call) => tables.calls.entry(key).or_default().add(call),
            Line::Together(one) => tables.calls.entry(key).or_default().add_together(one),
            Line::Placement(one) => tables.placements.entry(key).or_default().add(one),
            Line::Placements(one) => tables.placements.entry(key).or_default().add_together(one),
            _ => {}
        }
        Ok(())
    })?;
    arguments
        .form
        .answer(|| text(&tables), || fields(&tables, span));
    Ok(())
}

fn text(tables: &Tables) -> String {
    match (tables.calls.is_empty(), tables.placements.is_empty()) {
        (_, true) => table(&tables.calls),
        (true, false) => placements(&tables.placements),
        (false, false) => {
            let calls = table(&tables.calls);
            format!("{calls}\n\n{}", placements(&tables.placements))
        }
    }
}

fn placements(rows: &BTreeMap<(String, String), Placed>) -> String {
    let mut lines = vec![format!(
        "{:24} {:12} {:>8} {:>6} {:>9} {:>12} {:>9} {:>9} {:>9}",
        "function", "user", "placed", "lost", "no server", "predicted ms", "p95", "ended ms", "p95",
    )];
    for ((function, user), row) in rows {
        let [predicted, predicted95] = ends(&row.predicted).map(|seconds| seconds * 1e3);
        let [ended, ended95] = ends(&row.ended).map(|seconds| seconds * 1e3);
        lines.push(format!(
            "{:24} {:12} {:>8} {:>6} {:>9} {predicted:>12.3} {predicted95:>9.3} {ended:>9.3} \
             {ended95:>9.3}",
            name(function),
            name(user),
            row.placements - row.refused,
            row.lost,
            row.refused,
        ));
    }
    lines.join("\n")
}

fn table(rows: &BTreeMap<(String, String), Row>) -> String {
    let mut lines = vec![format!(
        "{:24} {:12} {:>8} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "function",
        "user",
        "calls",
        "failed",
        "wait ms",
        "p95",
        "exec ms",
        "p95",
        "MB sent",
        "MB back"
    )];
    for ((function, user), row) in rows {
        let [wait, wait95] = ends(&row.waits).map(|seconds| seconds * 1e3);
        let [exec, exec95] = ends(&row.execs).map(|seconds| seconds * 1e3);
        let [sent, returned] = row.bytes.map(|bytes| bytes as f64 / 1e6);
        lines.push(format!(
            "{:24} {:12} {:>8} {:>6} {wait:>9.3} {wait95:>9.3} {exec:>9.3} {exec95:>9.3} \
             {sent:>9.3} {returned:>9.3}",
            name(function),
            name(user),
            row.calls,
            row.failed
        ));
    }
    lines.join("\n")
}

/// The name of a function or a user. Calls of too many kinds have none.
fn name(name: &str) -> &str {
    if name.is_empty() { "(others)" } else { name }
}

fn fields(tables: &Tables, span: [f64; 2]) -> Value {
    let rows = &tables.calls;
    let placed = |((function, user), row): (&(String, String), &Placed)| {
        let ([predicted, predicted95], [ended, ended95]) = (ends(&row.predicted), ends(&row.ended));
        json!({
            "function": function,
            "user": user,
            "placements": row.placements - row.refused,
            "lost": row.lost,
            "no_server": row.refused,
            "predicted_median_s": predicted,
            "predicted_p95_s": predicted95,
            "ended_median_s": ended,
            "ended_p95_s": ended95,
            "sent_bytes": row.bytes[0],
            "returned_bytes": row.bytes[1],
        })
    };
    let to_json = |((function, user), row): (&(String, String), &Row)| {
        let ([wait, wait95], [exec, exec95]) = (ends(&row.waits), ends(&row.execs));
        json!({
            "function": function,
            "user": user,
            "calls": row.calls,
            "failed": row.failed,
            "wait_median_s": wait,
            "wait_p95_s": wait95,
            "exec_median_s": exec,
            "exec_p95_s": exec95,
            "sent_bytes": row.bytes[0],
            "returned_bytes": row.bytes[1],
        })
    };
    let span = span.map(|moment| moment.is_finite().then_some(moment));
    let is_empty = rows.is_empty() && tables.placements.is_empty();
    let span = if is_empty { [None; 2] } else { span };
    json!({
        "from": span[0],
        "to": span[1],
        "rows": rows.iter().map(to_json).collect::<Vec<_>>(),
        "placements": tables.placements.iter().map(placed).collect::<Vec<_>>(),
    })
}

/// The median, and the time below which 95 % lie.
fn ends(spread: &Spread) -> [f64; 2] {
    let quantiles = spread.quantiles_s();
    [quantiles[2], quantiles[4]]
}
