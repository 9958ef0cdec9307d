//! Measures one client of a trunk: beside a quiet neighbour, with random loss, and on unshaped
//! links. `shares` measures several clients at once.

use super::{Arguments, Program, at_least, at_most, row};
use crate::failure::Failure;
use crate::machine::cpu_seconds;
use crate::table::{Row, median};
use farcall_lab::{Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    if arguments.begins("ping") {
        rows.push(beside_a_ping(arguments, farcall, "max-min")?);
        for policy in ["traffic", "link-count", "round-robin"] {
            if arguments.peers {
                rows.push(beside_a_ping(arguments, farcall, policy)?);
            }
        }
    }
    if arguments.begins("loss") {
        rows.push(with_loss(arguments, farcall)?);
    }
    if arguments.begins("speed") {
        rows.extend(unshaped(arguments, farcall)?);
    }
    Ok(rows)
}

/// Bytes per second of one flow, from its start.
pub(super) fn bulk(lab: &Lab, client: usize, duration: Duration) -> Result<f64, LabError> {
    let origin = Instant::now();
    let kind = FlowKind::Tcp(lab.trunk_address(0));
    let flow = Flow::start(lab, (client, 0), kind, origin, origin)?;
    let from = flow.now();
    std::thread::sleep(duration);
    let bytes = flow.bytes(from, from + duration);
    flow.stop()?;
    Ok(bytes as f64 / duration.as_secs_f64())
}

/// Table 8 of the paper: in (d), B pings once per second and C sends as much as it can.
fn beside_a_ping(arguments: &Arguments, farcall: &Program, policy: &str) -> Result<Row, Failure> {
    let shape = Shape::FAST_ETHERNET;
    let lab = Lab::build(TOPOLOGIES[3].links, Some(shape))?;
    let _trunks = lab.start_trunks(farcall, &["--policy", policy])?;
    let seconds = arguments.seconds.to_string();
    let address = lab.trunk_address(0).to_string();
    let mut ping = lab.command(1, "ping");
    ping.args(["-q", "-i", "1", "-w", &seconds, &address])
        .stdout(Stdio::null());
    let mut ping = farcall_child::spawn(ping)?;
    let rate = bulk(&lab, 2, arguments.duration())? / shape.ideal() / 2.0;
    let pinged = ping.wait()?;
    if !pinged.success() {
        return Err(Failure::failed(format!(
            "the ping beside the burst has no answer: {pinged}"
        )));
    }
    let (limit, (better, bar)) = at_least(97.0);
    let bar = bar.filter(|_| policy == "max-min");
    let name = format!("ping beside a burst, {policy}, of ideal");
    Ok(row(name, "%", vec![rate * 100.0], limit, (better, bar)))
}

/// (b) with random loss on one of the client's links.
fn with_loss(arguments: &Arguments, farcall: &Program) -> Result<Row, Failure> {
    let shape = Shape::FAST_ETHERNET;
    let lab = Lab::build(TOPOLOGIES[1].links, Some(shape))?;
    let _trunks = lab.start_trunks(farcall, &["--fault", "link1:loss=0.5%,seed=1"])?;
    let rate = bulk(&lab, 1, arguments.duration())? / shape.ideal() / 2.0;
    let (limit, bar) = at_least(90.0);
    Ok(row(
        "loss of 0.5 % on a link, sum of ideal".into(),
        "%",
        vec![rate * 100.0],
        limit,
        bar,
    ))
}

/// Number of alternating measurements of the round trips over a link and over the trunk.
const ROUNDS: usize = 5;

/// (b) with unshaped links, which are as fast as the machine.
fn unshaped(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, None)?;
    let trunks = lab.start_trunks(farcall, &[])?;
    let added = (0..ROUNDS).map(|_| {
        let direct = round_trip(&lab, &lab.link_address(0, 0).to_string())?;
        Ok(round_trip(&lab, &lab.trunk_address(0).to_string())? - direct)
    });
    let added = added.collect::<Result<Vec<f64>, Failure>>()?;
    let rate = bulk(&lab, 1, arguments.duration().min(Duration::from_secs(5)))? * 8.0 / 1e9;
    // Heartbeats slow down one second after the last frame.
    std::thread::sleep(Duration::from_millis(1500));
    let before = cpu_seconds(trunks[0].id())?;
    let idle = Duration::from_secs(3);
    std::thread::sleep(idle);
    let busy = (cpu_seconds(trunks[0].id())? - before) / idle.as_secs_f64() * 100.0;
    let (fast, slow) = (at_least(7.0), at_most(150.0));
    let quiet = at_most(1.0);
    Ok(vec![
        row(
            "speed of unshaped links, one TCP".into(),
            "Gb/s",
            vec![rate],
            fast.0,
            fast.1,
        ),
        row(
            "speed: added round trip".into(),
            "us",
            added,
            slow.0,
            slow.1,
        ),
        row(
            "speed: processor when idle".into(),
            "%",
            vec![busy],
            quiet.0,
            quiet.1,
        ),
    ])
}

/// Median round-trip time in microseconds.
fn round_trip(lab: &Lab, address: &str) -> Result<f64, Failure> {
    let out = lab.output(1, "ping", &["-c", "500", "-i", "0.002", address])?;
    let times = out.split("time=").skip(1);
    let times = times.filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let times: Vec<f64> = times.collect();
    match times.is_empty() {
        true => Err(Failure::failed(format!("ping said: {out}"))),
        false => Ok(median(&times) * 1000.0),
    }
}
