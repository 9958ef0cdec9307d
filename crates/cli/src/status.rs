//! `farcall status`: prints the status of a server, or of a metaserver and its servers. The server
//! sends it as JSON. A value that is missing is printed as a question mark.

use crate::arrays::list;
use crate::failure::Failure;
use crate::plain::one_line;
use crate::reservations::described;
use crate::target::Named;
use clap::Args;
use farcall_client::{Error, FailureKind};
use farcall_quantity::counted;
use serde_json::Value;

/// Show the status of a server or a metaserver
///
/// Of a server: queue, processor elements, memory, users, functions and reservations. Of a
/// metaserver: its servers, their load, and the latency and rate of the paths to them.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall status farcall://localhost:3717
  farcall status meta://localhost")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let text = server.status()?;
    let status: Value = serde_json::from_str(&text).map_err(|error| {
        Failure::failed(format!("the server's answer is not valid JSON: {error}"))
    })?;
    if arguments.json {
        println!("{status}");
        return Ok(());
    }
    match status["kind"].as_str() {
        Some("metaserver") => print_metaserver(&status),
        _ => print(&status),
    }
    let data = match server.list_data() {
        // An old server does not know the question.
        Err(Error::Failed(failure)) if failure.kind == FailureKind::BadArgument => Vec::new(),
        listed => listed?,
    };
    if !data.is_empty() {
        println!();
        list::print(&data);
    }
    Ok(())
}

/// A number in a unit, with decimals; `?` if it is not known.
fn number(value: &Value, unit: f64, decimals: usize) -> String {
    value.as_f64().map_or_else(
        || "?".to_owned(),
        |value| format!("{:.decimals$}", value / unit),
    )
}

/// Bytes in megabytes, with decimals where there are few.
fn megabytes(value: &Value) -> String {
    let is_small = value.as_f64().is_some_and(|bytes| bytes < 1e8);
    number(value, 1e6, if is_small { 3 } else { 0 })
}

/// The status of the servers behind a metaserver.
fn print_servers(servers: &[Value]) {
    println!(
        "\n{:30} {:9} {:>4} {:>8} {:>6} {:>10} {:>9} {:>10} {:>8}",
        "server",
        "state",
        "PEs",
        "reserved",
        "calls",
        "backlog s",
        "free MB",
        "functions",
        "lease s"
    );
    for server in servers {
        println!(
            "{:30} {:9} {:>4} {:>8} {:>6} {:>10} {:>9} {:>10} {:>8}",
            plain(&server["address"]),
            plain(&server["state"]),
            plain(&server["pes"]),
            plain(&server["pes_reserved"]),
            plain(&server["calls"]),
            number(&server["backlog_s"], 1.0, 3),
            megabytes(&server["memory_free"]),
            plain(&server["functions"]),
            number(&server["lease_s"], 1.0, 1),
        );
    }
}

fn print_metaserver(status: &Value) {
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let store = match (&status["store"], status["store"]["answers"].as_bool()) {
        (Value::Null, _) => "none".to_string(),
        (store, Some(true)) => plain(&store["address"]),
        (store, _) => format!("{} (does not answer)", plain(&store["address"])),
    };
    println!("metaserver   for {} s", number(&status["uptime_s"], 1.0, 0));
    println!("version      {}", plain(&status["version"]));
    println!("store        {store}");
    println!("functions    {}", plain(&status["functions_served"]));
    println!("named data   {}", plain(&status["data"]));
    println!("connections  {}", plain(&status["connections"]));
    let placed = status["calls_placed"].as_u64().unwrap_or(0);
    println!("under way    {} placed", counted(placed as usize, "call"));
    let servers = rows("servers");
    let address = |server: &Value| {
        let known = servers.iter().find(|one| one["server"] == *server);
        known.map_or_else(|| plain(server), |one| plain(&one["address"]))
    };
    print_servers(&servers);
    let paths = rows("paths");
    if paths.is_empty() {
        return;
    }
    println!(
        "\n{:20} {:30} {:>18} {:>18} {:>12}",
        "site", "server", "up MB/s x/", "down MB/s x/", "latency ms"
    );
    for path in &paths {
        let rate = |way: &str| {
            let rate = &path[way]["bytes_per_s"];
            match rate["value"].as_f64() {
                Some(value) => format!("{:.2} {:>5}", value / 1e6, number(&rate["factor"], 1.0, 2)),
                None => "?".to_string(),
            }
        };
        println!(
            "{:20} {:30} {:>18} {:>18} {:>12}",
            plain(&path["site"]),
            address(&path["server"]),
            rate("up"),
            rate("down"),
            number(&path["up"]["latency_s"]["value"], 1e-3, 3),
        );
    }
}

fn print_reservations(status: &Value) {
    let Some(reservations) = status["reservations"].as_array() else {
        return;
    };
    for (index, reservation) in reservations.iter().enumerate() {
        let seconds = |name: &str| number(&reservation[name], 1.0, 1);
        let count = |name: &str| reservation[name].as_u64().unwrap_or_default();
        let label = if index == 0 { "reserved" } else { "" };
        println!(
            "{label:12} {} from {} s to {} s from now for {}",
            described(count("pes"), count("up"), count("down")),
            seconds("begins_in_s"),
            seconds("ends_in_s"),
            plain(&reservation["user"]),
        );
    }
}

fn print(status: &Value) {
    print_summary(status);
    print_reservations(status);
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    print_users(&rows("users"));
    print_groups(&rows("groups"));
    print_functions(&rows("functions"));
}

/// The server as a whole.
fn print_summary(status: &Value) {
    let text = |name: &str| plain(&status[name]);
    println!(
        "state        {}, for {} s",
        text("state"),
        number(&status["uptime_s"], 1.0, 0)
    );
    println!("version      {}", text("version"));
    println!("policy       {}", text("policy"));
    println!(
        "PEs          {} of {} in use",
        text("pes_used"),
        text("pes")
    );
    if status["gpus"].as_u64() > Some(0) {
        println!(
            "GPUs         {} of {} in use",
            text("gpus_used"),
            text("gpus")
        );
    }
    let jobs = ["receiving", "queued", "running", "sending"];
    let jobs = jobs.map(|state| format!("{} {state}", plain(&status["jobs"][state])));
    println!("calls        {}", jobs.join(", "));
    println!("connections  {}", text("connections"));
    println!("workers      {}", text("workers"));
    let memory = |name: &str| megabytes(&status["memory"][name]);
    println!(
        "memory       {} MB of {} MB",
        memory("used"),
        memory("limit")
    );
}

/// What waits and runs for each user, and what each has used.
fn print_users(users: &[Value]) {
    if !users.is_empty() {
        println!(
            "\n{:30} {:>8} {:>8} {:>12}",
            "user", "waiting", "running", "PE seconds"
        );
    }
    for user in users {
        let [waiting, running] = ["waiting", "running"].map(|name| plain(&user[name]));
        let seconds = number(&user["pe_seconds"], 1.0, 3);
        println!(
            "{:30} {waiting:>8} {running:>8} {seconds:>12}",
            plain(&user["user"])
        );
    }
}

/// How often each function has run, and how long that took.
fn print_functions(functions: &[Value]) {
    if !functions.is_empty() {
        let [wait, exec] = ["wait ms", "exec ms"];
        println!(
            "\n{:30} {:>8} {:>8} {wait:>10} {exec:>10} {:>12}",
            "function", "done", "failed", "Mop/s"
        );
    }
    for function in functions {
        let ms = |name: &str| number(&function[name], 1e-3, 3);
        let rate = function["learned"]["operations_per_s"].as_f64();
        let rate = rate.map_or_else(String::new, |rate| format!("{:.1}", rate * 1e-6));
        println!(
            "{:30} {:>8} {:>8} {:>10} {:>10} {rate:>12}",
            plain(&function["name"]),
            plain(&function["done"]),
            plain(&function["failed"]),
            ms("wait_s"),
            ms("exec_s"),
        );
    }
}

/// What groups of users have used.
fn print_groups(groups: &[Value]) {
    if !groups.is_empty() {
        println!(
            "\n{:30} {:>8} {:>12} {:>14} {:>12}",
            "group", "calls", "PE seconds", "durable calls", "durable MB"
        );
    }
    for group in groups {
        println!(
            "{:30} {:>8} {:>12} {:>14} {:>12}",
            plain(&group["group"]),
            plain(&group["calls"]),
            number(&group["pe_seconds"], 1.0, 3),
            plain(&group["durable_calls"]),
            megabytes(&group["durable_bytes"]),
        );
    }
}

/// A value as people write it, in one line.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Null => "?".to_string(),
        other => one_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_question_mark_and_little_memory_is_not_none() {
        assert_eq!(number(&Value::Null, 1e-3, 3), "?");
        assert_eq!(number(&Value::from(0.25), 1e-3, 1), "250.0");
        assert_eq!(megabytes(&Value::from(300_000)), "0.300");
        assert_eq!(megabytes(&Value::from(12_638_000_000_u64)), "12638");
    }
}
