//! `farcall call --trace-out`: the parts of a call as a trace for Perfetto, in the form of Chrome's
//! trace events.
//!
//! The client knows how long each part took at the server, and not when, because the clocks of two
//! hosts differ. The parts follow one another, and what is left of the whole time lies half before
//! them and half after them.

use crate::failure::Failure;
use crate::replace;
use farcall_client::{Function, Outcome};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// The rows of the picture.
const ROWS: [(u64, &str); 3] = [(1, "client"), (2, "metaserver"), (3, "server")];

/// Writes the trace of a call to a file.
pub(crate) fn write(path: &Path, function: &Function, outcome: &Outcome) -> Result<(), Failure> {
    let text = trace(function, outcome).to_string();
    let written = replace::file(path, |file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::cannot("write", path.display(), error))
}

fn trace(function: &Function, outcome: &Outcome) -> Value {
    let name = function.qualified_name();
    let times = &outcome.times;
    let placement = outcome.placement.as_ref();
    let chosen = placement.map_or(0.0, |placement| placement.chosen_s);
    let known = chosen + times.send + outcome.wait + times.exec + times.recv;
    let half = (times.total - known).max(0.0) / 2.0;
    let trace = outcome.trace.map(|trace| trace.trace_hex().to_string());
    let mut events: Vec<Value> = ROWS
        .iter()
        .map(|(row, name)| {
            json!({ "ph": "M", "pid": row, "name": "process_name", "args": { "name": name } })
        })
        .collect();
    let mut add = |row: u64, name: &str, from: f64, seconds: f64| {
        events.push(json!({
            "ph": "X",
            "pid": row,
            "tid": row,
            "cat": "farcall",
            "name": name,
            "ts": from * 1e6,
            "dur": seconds.max(0.0) * 1e6,
            "args": { "seconds": seconds },
        }));
    };
    add(1, &format!("call {name}"), 0.0, times.total);
    if placement.is_some() {
        add(2, "placement", 0.0, chosen);
    }
    let parts = [
        ("transfer arguments", times.send),
        ("wait", outcome.wait),
        ("compute", times.exec),
        ("transfer results", times.recv),
    ];
    let mut at = chosen + half;
    for (part, seconds) in parts {
        add(3, part, at, seconds);
        at += seconds;
    }
    json!({
        "displayTimeUnit": "ms",
        "otherData": { "trace_id": trace, "server": server(function, outcome) },
        "traceEvents": events,
    })
}

/// The number of the server that was chosen, or the address of the only one.
fn server(function: &Function, outcome: &Outcome) -> String {
    match &outcome.placement {
        Some(placement) => format!("{:016x}", placement.server),
        None => function.server().address().to_string(),
    }
}
