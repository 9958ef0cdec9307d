//! Measures how long an application waits when a link fails silently, and how soon the trunk uses a
//! repaired link. `farcall_lab` breaks and repairs the links. A link that carries no traffic in
//! time counts with the longest wait.

use super::{Arguments, Program, at_most, row};
use crate::disturbance::Disturbance;
use crate::failure::Failure;
use crate::table::Row;
use farcall_lab::{Direction, Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Bars in milliseconds: median and 95th percentile of the stall, the latter also beside other
/// work, and the recovery.
const STALL: f64 = 60.0;
const STALL_LONG: f64 = 100.0;
const STALL_LONG_DISTURBED: f64 = 120.0;
const RECOVERY: f64 = 200.0;

const DIRECTIONS: [(&str, Direction); 3] = [
    ("in", Direction::In),
    ("out", Direction::Out),
    ("both ways", Direction::Both),
];

/// Time before the first failure, and between a repair and the next failure.
const SETTLE: Duration = Duration::from_millis(1500);
/// Duration of a link failure.
const BROKEN: Duration = Duration::from_millis(700);
/// Longest wait for a repaired link to carry traffic. A link that carries none counts with this
/// time.
const PATIENCE: Duration = Duration::from_secs(6);

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for disturbance in [Disturbance::Loops, Disturbance::Bursts] {
        let name = format!("working links taken out {}", disturbance.name());
        if arguments.begins(&name) {
            rows.push(links_taken_out(name, farcall, disturbance)?);
        }
    }
    for disturbance in Disturbance::ALL {
        for (name, direction) in DIRECTIONS {
            let name = match disturbance {
                Disturbance::None => format!("failure {name}"),
                other => format!("failure {name} {}", other.name()),
            };
            let peer = format!("{name}, MPTCP");
            let mut measure = |name: &str, ours| -> Result<(), Failure> {
                let times = measure_direction(arguments, farcall, direction, disturbance, ours)?;
                rows.extend(rows_of(name, &times, disturbance, ours));
                Ok(())
            };
            if arguments.begins(&name) {
                measure(&name, true)?;
            }
            if arguments.peers && arguments.begins(&peer) {
                measure(&peer, false)?;
            }
        }
    }
    Ok(rows)
}

/// Milliseconds of each trial.
struct Times {
    stalls: Vec<f64>,
    recoveries: Vec<f64>,
}

fn rows_of(name: &str, times: &Times, disturbance: Disturbance, ours: bool) -> Vec<Row> {
    let mut sorted = times.stalls.clone();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let late = sorted
        .get((last as f64 * 0.95).ceil() as usize)
        .copied()
        .unwrap_or(f64::NAN);
    let long = match disturbance {
        Disturbance::None => STALL_LONG,
        _ => STALL_LONG_DISTURBED,
    };
    let figures = [
        ("stall, median", sorted.clone(), STALL),
        ("stall, 95 %", vec![late], long),
        (
            "repaired link used after",
            times.recoveries.clone(),
            RECOVERY,
        ),
    ];
    let one = |(what, values, limit): (&str, Vec<f64>, f64)| {
        let (peer, (better, bar)) = at_most(limit);
        row(
            format!("{name}: {what}"),
            "ms",
            values,
            peer,
            (better, bar.filter(|_| ours)),
        )
    };
    figures.into_iter().map(one).collect()
}

fn measure_direction(
    arguments: &Arguments,
    farcall: &Program,
    direction: Direction,
    disturbance: Disturbance,
    ours: bool,
) -> Result<Times, Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, Some(Shape::FAST_ETHERNET))?;
    let (_trunks, kind) = match ours {
        true => (
            lab.start_trunks(farcall, &[])?,
            FlowKind::Tcp(lab.trunk_address(0)),
        ),
        false => (
            super::shares::start_mptcp(&lab)?,
            FlowKind::Mptcp(lab.link_address(0, 0)),
        ),
    };
    disturbance.during(1, || break_and_repair(arguments, &lab, kind, direction))
}

fn break_and_repair(
    arguments: &Arguments,
    lab: &Lab,
    kind: FlowKind,
    direction: Direction,
) -> Result<Times, Failure> {
    let shape = Shape::FAST_ETHERNET;
    let start = || {
        let origin = Instant::now();
        Flow::start(lab, (1, 0), kind, origin, origin)
    };
    let mut flow = start()?;
    let mut times = Times {
        stalls: Vec::new(),
        recoveries: Vec::new(),
    };
    for trial in 0..arguments.trials {
        if flow.now() > Duration::from_secs(90) {
            flow.stop()?;
            flow = start()?;
        }
        std::thread::sleep(SETTLE + Duration::from_millis(trial as u64 * 7 % 13));
        lab.fail(1, 1, direction)?;
        let failed = flow.now();
        std::thread::sleep(BROKEN);
        let stall =
            flow.longest_pause(failed.saturating_sub(Duration::from_millis(20)), flow.now());
        times.stalls.push(stall.as_secs_f64() * 1e3);
        lab.repair(1, 1, direction)?;
        times
            .recoveries
            .push(recovery(&flow, shape)?.as_secs_f64() * 1e3);
        if !flow.is_alive() {
            return Err(Failure::failed("the connection broke"));
        }
    }
    flow.stop()?;
    Ok(times)
}

/// Time from now until the rate exceeds that of one link.
fn recovery(flow: &Flow, shape: Shape) -> Result<Duration, LabError> {
    let repaired = flow.now();
    let window = Duration::from_millis(40);
    let both = shape.ideal() * 1.4 * window.as_secs_f64();
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = flow.now();
        if flow.bytes(now.saturating_sub(window), now) as f64 > both {
            return Ok(now - repaired);
        }
        if now - repaired > PATIENCE {
            return Ok(PATIENCE);
        }
    }
}

/// How often links failed; without links this is not known.
fn failures_of(links: &Value) -> f64 {
    let failures = |link: &Value| link["failures"].as_f64().unwrap_or(f64::NAN);
    let links = links.as_array().filter(|links| !links.is_empty());
    links.map_or(f64::NAN, |links| links.iter().map(failures).sum())
}

/// Time beside each kind of other work.
const BESIDE: Duration = Duration::from_secs(300);

/// Measures whether the trunk declares links dead while other work uses the processors.
fn links_taken_out(
    name: String,
    farcall: &Program,
    disturbance: Disturbance,
) -> Result<Row, Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, Some(Shape::FAST_ETHERNET))?;
    let _trunks = lab.start_trunks(farcall, &[])?;
    let origin = Instant::now();
    let kind = FlowKind::Tcp(lab.trunk_address(0));
    let flow = Flow::start(&lab, (1, 0), kind, origin, origin)?;
    let threads = if disturbance == Disturbance::Loops {
        2
    } else {
        1
    };
    disturbance.during(threads, || {
        std::thread::sleep(BESIDE);
        Ok(())
    })?;
    flow.stop()?;
    let mut failures = 0.0;
    for host in 0..2 {
        let text = lab.output(
            host,
            &farcall.to_string_lossy(),
            &["trunk", "status", "--json"],
        )?;
        let status: Value = serde_json::from_str(&text).map_err(Failure::failed)?;
        failures += failures_of(&status["peers"][0]["links"]);
    }
    // The limit is half a failure, because a ratio needs a limit above 0.
    let (limit, bar) = at_most(0.5);
    Ok(row(name, "", vec![failures], limit, bar))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn links_that_nobody_knows_are_not_without_failures() {
        let links = json!([{ "failures": 0 }, { "failures": 2 }]);
        assert_eq!(failures_of(&links), 2.0);
        for unknown in [json!(null), json!([]), json!([{}])] {
            assert!(failures_of(&unknown).is_nan(), "{unknown}");
        }
    }
}
