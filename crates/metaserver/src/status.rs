//! How a metaserver stands, as a JSON object.

use crate::{Shared, now};
use farcall_directory::Standing;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Servers and paths of which a status tells.
const MOST: usize = 1000;

pub(crate) fn text(shared: &Shared) -> String {
    let mut directory = shared.directory();
    directory.advance(now());
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

fn server(one: &Standing<'_>) -> Value {
    let state = match (one.lost, one.accepts) {
        (true, _) => "lost",
        (false, true) => "serving",
        (false, false) => "draining",
    };
    let calls = one.report.map_or(0, |report| report.calls);
    let memory = one.report.map_or(one.join.memory, |report| report.memory);
    json!({
        "server": format!("{:016x}", one.join.server),
        "address": one.join.address,
        "agent": one.join.agent,
        "state": state,
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
