//! Compares a trunk with plain TCP over the same links: the rate, while other work disturbs the
//! machine and with each congestion control, and the processor time of the whole machine for each
//! byte. Plain TCP has a flow of its own on each link. The two take turns in one lab, so that what
//! else disturbs the machine disturbs both.

use super::{Arguments, Program, row};
use crate::disturbance::Disturbance;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::table::{Better, Row};
use farcall_lab::{Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES};
use std::time::{Duration, Instant};

/// Required part of the rate of plain TCP, and the most processor time for a byte in its unit.
const FULL: f64 = 0.98;
const COST: f64 = 1.5;
const ROUNDS: usize = 5;
/// Time before a round counts: the flows have reached their rate.
const SETTLE: Duration = Duration::from_millis(500);
const CONGESTION_CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for disturbance in Disturbance::ALL {
        for control in CONGESTION_CONTROLS {
            let name = format!("beside TCP, {}, {control}", disturbance.name());
            if arguments.begins(&name) {
                let measured = compare(arguments, farcall, disturbance, control)?;
                rows.extend(rows_of(&name, &measured, disturbance));
            }
        }
    }
    Ok(rows)
}

/// The figures of a round.
struct Round {
    /// Mbit/s of payload.
    rate: f64,
    /// Nanoseconds of processor time for each byte.
    cost: f64,
}

fn rows_of(name: &str, [trunk, tcp]: &[Vec<Round>; 2], disturbance: Disturbance) -> Vec<Row> {
    let of = |rounds: &[Round], figure: fn(&Round) -> f64| rounds.iter().map(figure).collect();
    let rate: fn(&Round) -> f64 = |round| round.rate;
    let cost: fn(&Round) -> f64 = |round| round.cost;
    let one = |what, unit, figure, better, bar| Row {
        peer_values: of(tcp, figure),
        ..row(
            format!("{name}: {what}"),
            unit,
            of(trunk, figure),
            ("TCP on each link", 0.0),
            (better, Some(bar)),
        )
    };
    let mut rows = vec![one("sum", "Mb/s", rate, Better::Higher, FULL)];
    // Disturbances use the processors themselves.
    if disturbance == Disturbance::None {
        rows.push(one("processor", "ns/byte", cost, Better::Lower, COST));
    }
    rows
}

/// The rounds of the trunk, and those of plain TCP.
fn compare(
    arguments: &Arguments,
    farcall: &Program,
    disturbance: Disturbance,
    control: &'static str,
) -> Result<[Vec<Round>; 2], Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, Some(Shape::FAST_ETHERNET))?;
    let _trunks = lab.start_trunks(farcall, &[])?;
    let trunk = [FlowKind::TcpBy(lab.trunk_address(0), control)];
    let links = [0, 1].map(|switch| FlowKind::TcpBy(lab.link_address(0, switch), control));
    let duration = arguments.duration().min(Duration::from_secs(3));
    let mut rounds = [Vec::new(), Vec::new()];
    disturbance.during(1, || {
        for _ in 0..ROUNDS {
            rounds[0].push(round(&lab, &trunk, duration)?);
            rounds[1].push(round(&lab, &links, duration)?);
        }
        Ok(())
    })?;
    Ok(rounds)
}

fn round(lab: &Lab, kinds: &[FlowKind], duration: Duration) -> Result<Round, Failure> {
    let origin = Instant::now();
    let start = |kind: &FlowKind| Flow::start(lab, (1, 0), *kind, origin, origin);
    let flows = kinds
        .iter()
        .map(start)
        .collect::<Result<Vec<_>, LabError>>()?;
    std::thread::sleep(SETTLE);
    let (from, machine) = (flows[0].now(), Machine::watch());
    std::thread::sleep(duration);
    let (to, used) = (flows[0].now(), machine.end());
    let bytes: u64 = flows.iter().map(|flow| flow.bytes(from, to)).sum();
    flows.into_iter().try_for_each(Flow::stop)?;
    let seconds = (to - from).as_secs_f64();
    let cores = std::thread::available_parallelism()?.get() as f64;
    let busy = (used.cpu_percent - used.stolen_percent) / 100.0 * cores * seconds;
    Ok(Round {
        rate: bytes as f64 * 8.0 / seconds / 1e6,
        cost: busy * 1e9 / bytes.max(1) as f64,
    })
}
