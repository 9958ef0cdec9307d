//! `farcall trunk status`: prints the links and peers of a running trunk, once or as a live view.
//! The trunk sends the figures as JSON, and this command only lays them out.

use crate::failure::Failure;
use crate::plain::one_line;
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// Show the peers and links of a trunk: grants or weights, rates, losses and failures
#[derive(Args)]
#[command(after_help = "Examples:
  farcall trunk status
  farcall trunk status --watch
  farcall trunk status --json | jq '.peers[].links[].grant'")]
pub(crate) struct Arguments {
    /// Name of the virtual interface
    #[arg(long, value_name = "NAME", default_value = "fc0")]
    name: String,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["watch", "prometheus"])]
    json: bool,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "watch")]
    prometheus: bool,
    /// Show the status again twice a second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

const PERIOD: Duration = Duration::from_millis(500);
/// Lines of the log shown.
const EVENTS: usize = 5;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let ask = |query| farcall_trunk::ask(&arguments.name, query).map_err(Failure::failed);
    if arguments.prometheus {
        print!("{}", ask("metrics")?);
        return Ok(());
    }
    if arguments.json {
        println!("{}", ask("status")?);
        return Ok(());
    }
    let mut out = anstream::stdout();
    loop {
        let status: Value = serde_json::from_str(&ask("status")?).map_err(Failure::failed)?;
        if arguments.watch {
            write!(out, "\x1b[H\x1b[2J").map_err(Failure::unsaid)?;
        }
        write!(out, "{}", table(&status)).map_err(Failure::unsaid)?;
        out.flush().map_err(Failure::unsaid)?;
        if !arguments.watch {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default();

fn table(status: &Value) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default());
    let mut out = format!(
        "{BOLD}{}{BOLD:#}  {}  policy {}  MTU {}\n",
        text(&status["name"]),
        text(&status["address"]),
        text(&status["policy"]),
        status["mtu"],
    );
    for link in list(&status["links"]) {
        let carrier = match link["carrier"] == true {
            true => String::new(),
            false => format!("  {RED}no carrier{RED:#}"),
        };
        out += &format!(
            "  {}  line {}  carries {}{carrier}\n",
            text(&link["name"]),
            rate(&link["line_rate"]),
            rate(&link["capacity"]),
        );
    }
    for conflict in list(&status["conflicts"]) {
        out += &format!(
            "  {RED}address conflict{RED:#}  {}  {}: {}\n",
            text(&conflict["link"]),
            text(&conflict["address"]),
            text(&conflict["text"]),
        );
    }
    if list(&status["peers"]).is_empty() {
        out += "no peer found yet\n";
    }
    for peer in list(&status["peers"]) {
        out += &peer_table(peer, status["policy"] == "max-min");
    }
    let events = list(&status["events"]);
    for event in &events[events.len().saturating_sub(EVENTS)..] {
        let time = event["time"].as_f64().unwrap_or_default();
        let seconds = time as u64 % 86_400;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        out += &format!(
            "\n{hours:02}:{minutes:02}:{:06.3} UTC  {}",
            time % 60.0,
            text(&event["text"])
        );
    }
    if events.is_empty() { out } else { out + "\n" }
}

fn peer_table(peer: &Value, max_min: bool) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default());
    let mut out = format!(
        "\npeer {BOLD}{}{BOLD:#}  round trip {:.0} us  queued {} B  dropped {}  given up {}\n",
        text(&peer["address"]),
        peer["round_trip_us"].as_f64().unwrap_or_default(),
        peer["queued_bytes"],
        peer["queue_drops"],
        peer["given_up"],
    );
    if peer["encrypted"] == true {
        out.truncate(out.len() - 1);
        out += "  encrypted\n";
    }
    let share = if max_min { "granted" } else { "weight" };
    out += &format!(
        "  {:15} {:8} {:>11} {:>11} {:>11} {share:>11} {:>7} {:>7} {:>8}\n",
        "link", "state", "carries", "receives", "sends", "lost", "resent", "failures",
    );
    for link in list(&peer["links"]) {
        let colour = if link["state"] == "up" { GREEN } else { RED };
        let share = match link["grant"].is_null() {
            false => rate(&link["grant"]),
            true => link["weight"].to_string(),
        };
        out += &format!(
            "  {:15} {colour}{:8}{colour:#} {:>11} {:>11} {:>11} {:>11} {:>7} {:>7} {:>8}\n",
            text(&link["name"]),
            text(&link["state"]),
            rate(&link["capacity"]),
            rate(&link["rate"]),
            rate(&link["sent_rate"]),
            share,
            link["lost"].to_string(),
            link["resent"].to_string(),
            link["failures"].to_string(),
        );
    }
    out
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A rate in bits a second with its unit.
fn rate(value: &Value) -> String {
    let bits = value.as_f64().unwrap_or_default();
    match bits {
        bits if bits >= 1e9 => format!("{:.2} Gb/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.1} Mb/s", bits / 1e6),
        bits => format!("{:.1} kb/s", bits / 1e3),
    }
}
