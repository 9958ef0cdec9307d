//! `farcall status`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use serde_json::Value;

/// Show how a server stands: queue, processor elements, memory, users, functions
#[derive(Args)]
#[command(after_help = "Example:\n  farcall status farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let text = server.status()?;
    let status: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::failed(format!("the server's answer is no JSON: {error}")))?;
    if arguments.json {
        println!("{status}");
        return Ok(());
    }
    print(&status);
    Ok(())
}

fn print(status: &Value) {
    let text = |name: &str| plain(&status[name]);
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    println!(
        "state        {}, for {:.0} s",
        text("state"),
        number(&status["uptime_s"])
    );
    println!("version      {}", text("version"));
    println!("policy       {}", text("policy"));
    println!(
        "PEs          {} of {} in use",
        text("pes_used"),
        text("pes")
    );
    let jobs = ["receiving", "queued", "running", "sending"];
    let jobs = jobs.map(|state| format!("{} {state}", plain(&status["jobs"][state])));
    println!("calls        {}", jobs.join(", "));
    println!("connections  {}", text("connections"));
    println!("workers      {}", text("workers"));
    let memory = |name: &str| number(&status["memory"][name]) / 1e6;
    println!(
        "memory       {:.0} MB of {:.0} MB",
        memory("used"),
        memory("limit")
    );
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let users = rows("users");
    if !users.is_empty() {
        println!(
            "\n{:30} {:>8} {:>8} {:>12}",
            "user", "waiting", "running", "PE seconds"
        );
    }
    for user in users {
        let [waiting, running] = ["waiting", "running"].map(|name| plain(&user[name]));
        let seconds = number(&user["pe_seconds"]);
        println!(
            "{:30} {waiting:>8} {running:>8} {seconds:>12.3}",
            plain(&user["user"])
        );
    }
    let functions = rows("functions");
    if !functions.is_empty() {
        let [wait, exec] = ["wait ms", "exec ms"];
        println!(
            "\n{:30} {:>8} {:>8} {wait:>10} {exec:>10} {:>12}",
            "function", "done", "failed", "Mop/s"
        );
    }
    for function in functions {
        let ms = |name: &str| number(&function[name]) * 1e3;
        let rate = function["learned"]["operations_per_s"].as_f64();
        let rate = rate.map_or_else(String::new, |rate| format!("{:.1}", rate * 1e-6));
        println!(
            "{:30} {:>8} {:>8} {:>10.3} {:>10.3} {rate:>12}",
            plain(&function["name"]),
            plain(&function["done"]),
            plain(&function["failed"]),
            ms("wait_s"),
            ms("exec_s"),
        );
    }
}

/// A value as people write it, without what a terminal would act on.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "?".to_string(),
        other => other.to_string(),
    };
    text.chars()
        .filter(|character| !character.is_control())
        .collect()
}
