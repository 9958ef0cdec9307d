//! The status of a metaserver, as a JSON object and as metrics. It only reads the directory. The
//! number of servers and paths in it is bounded.

use crate::Shared;
use farcall_directory::ServerStatus;
use farcall_metrics::Text;
use farcall_otlp::Exporter;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Largest number of servers, and of paths, in a status.
const MOST: usize = 1000;
/// Largest number of servers that have metric series of their own.
const MOST_SERIES: usize = 100;

pub(crate) fn text(shared: &Shared) -> String {
    let mut directory = shared.directory();
    directory.advance(shared.now());
    let servers: Vec<Value> = directory
        .servers()
        .take(MOST)
        .map(|one| server(&one))
        .collect();
    let paths = directory
        .paths()
        .take(MOST)
        .map(|(site, server, [up, down])| {
            let value = |forecast: Option<farcall_schedule::forecast::Forecast>| {
                forecast.map(|one| json!({ "value": one.value, "factor": one.factor }))
            };
            json!({
                "site": site,
                "server": format!("{server:016x}"),
                "up": { "latency_s": value(up[0]), "bytes_per_s": value(up[1]) },
                "down": { "latency_s": value(down[0]), "bytes_per_s": value(down[1]) },
            })
        });
    let paths: Vec<Value> = paths.collect();
    let functions = directory.functions().count();
    let placed = directory.calls();
    let data = directory.data_count();
    drop(directory);
    let store = shared.store.as_ref().map(|store| {
        json!({ "address": store.to_string(), "answers": shared.stored.load(Ordering::Relaxed) })
    });
    json!({
        "schema": 1,
        "kind": "metaserver",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": shared.start.elapsed().as_secs_f64(),
        "connections": shared.connections.load(Ordering::Relaxed),
        "lease_s": shared.lease_s,
        "store": store,
        "functions_served": functions,
        "calls_placed": placed,
        "data": data,
        "servers": servers,
        "paths": paths,
    })
    .to_string()
}

/// The metrics for Prometheus.
pub(crate) fn metrics(shared: &Shared) -> Text {
    let mut text = Text::new("farcall_meta");
    if shared.ends.load(Ordering::Relaxed) {
        text.not_ready("the metaserver is stopping");
    } else if let Some(store) = &shared.store
        && !shared.has_read.load(Ordering::Relaxed)
    {
        text.not_ready(format!("the metaserver has not read {store} yet"));
    }
    let mut directory = shared.directory();
    directory.advance(shared.now());
    let mut states = [("serving", 0u64), ("draining", 0), ("lost", 0)];
    let mut backlogs = Vec::new();
    for one in directory.servers() {
        let name = state(&one);
        let counts = states.iter_mut().filter(|(state, _)| *state == name);
        counts.for_each(|(_, count)| *count += 1);
        if backlogs.len() < MOST_SERIES {
            backlogs.push((vec![("server", one.join.address.clone())], one.backlog_s));
        }
    }
    let functions = directory.functions().count();
    let (placed, data) = (directory.calls(), directory.data_count());
    drop(directory);
    let states = states.map(|(state, count)| (vec![("state", state.to_string())], count));
    text.gauges("servers", "Servers by status.", states);
    let help = "Predicted time of the calls that a server has.";
    text.gauges("server_backlog_seconds", help, backlogs);
    text.gauge("functions", "Functions that can be called.", functions);
    let help = "Placed calls that have not ended, as far as the metaserver knows.";
    text.gauge("placed_calls", help, placed);
    text.gauge("data", "Named data in the directory.", data);
    let connections = shared.connections.load(Ordering::Relaxed);
    text.gauge("connections", "Open connections.", connections);
    let answers = u64::from(shared.stored.load(Ordering::Relaxed));
    let help = "1 if the store answers or if there is no store.";
    text.gauge("store_answers", help, answers);
    let spans = shared.spans.as_ref().map(Exporter::counts);
    let spans = spans.unwrap_or_default();
    let help = "Spans that the collector has taken.";
    text.counter("spans_sent", help, spans.sent);
    let help = "Spans that were lost because the collector was slow or away.";
    text.counter("spans_lost", help, spans.lost);
    text
}

pub(crate) fn state(one: &ServerStatus<'_>) -> &'static str {
    match (one.lost, one.accepts) {
        (true, _) => "lost",
        (false, true) => "serving",
        (false, false) => "draining",
    }
}

fn server(one: &ServerStatus<'_>) -> Value {
    let calls = one.report.map_or(0, |report| report.calls);
    let memory = one.report.map_or(one.join.memory, |report| report.memory);
    json!({
        "server": format!("{:016x}", one.join.server),
        "address": one.join.address,
        "agent": one.join.agent,
        "state": state(one),
        "pes": one.join.pes,
        "pes_reserved": one.booked,
        "calls": calls,
        "backlog_s": one.backlog_s,
        "memory_free": memory,
        "memory": one.join.memory,
        "functions": one.functions.len(),
        "learned": one.learned,
        "reported_s": one.reported_s,
        "lease_s": one.lease_s,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Config, Metaserver};

    #[test]
    fn metrics_cover_servers_calls_and_the_store() {
        let metaserver = Metaserver::bind(Config::default()).unwrap();
        let text = metaserver.readings()().encode();
        for line in [
            "farcall_meta_servers{state=\"serving\"} 0",
            "farcall_meta_placed_calls 0",
            "farcall_meta_store_answers 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
