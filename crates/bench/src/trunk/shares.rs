//! Measures the rate of each client on each topology, under each policy and with each peer system.
//! The ideal shares come from the topology. Only the policy `max-min` has bars.

use super::{Arguments, Program, at_least, row};
use crate::failure::Failure;
use crate::table::{Better, Row};
use farcall_lab::{Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES, Topology, TrunkProcess, jain};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Required part of the ideal sum, and of a perfect Jain's index, for max-min.
const FULL: f64 = 0.97;
const FAIR: f64 = 0.98;
/// Time within which all flows connect, before any begins to send.
const CONNECT: Duration = Duration::from_millis(600);

/// The system that carries the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Trunk(&'static str),
    /// Round-robin whose frames are delivered as they arrive, in place of bonding's balance-rr.
    Unordered,
    /// Max-min with learned speeds.
    Learned,
    Mptcp,
    Tcp,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::Trunk(policy) => policy,
            System::Unordered => "round-robin, unordered",
            System::Learned => "max-min, speeds learned",
            System::Mptcp => "MPTCP",
            System::Tcp => "TCP, one link",
        }
    }
}

const OURS: System = System::Trunk("max-min");
/// Required part of the ideal sum if the configuration of the trunks has no rates.
const FULL_LEARNED: f64 = 0.95;
const OTHERS: [System; 6] = [
    System::Trunk("traffic"),
    System::Trunk("link-count"),
    System::Trunk("round-robin"),
    System::Unordered,
    System::Mptcp,
    System::Tcp,
];

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for topology in &TOPOLOGIES {
        if !arguments.begins(&format!("({})", topology.name)) {
            continue;
        }
        rows.extend(measure_system(arguments, farcall, topology, OURS)?);
        for system in OTHERS.iter().filter(|_| arguments.peers) {
            rows.extend(measure_system(arguments, farcall, topology, *system)?);
        }
    }
    for topology in &TOPOLOGIES {
        if arguments.begins(&format!("learned {}", topology.name)) {
            rows.extend(measure_system(
                arguments,
                farcall,
                topology,
                System::Learned,
            )?);
        }
    }
    if arguments.begins("change") {
        rows.extend(measure_changes(farcall)?);
    }
    Ok(rows)
}

fn measure_system(
    arguments: &Arguments,
    farcall: &Program,
    topology: &Topology,
    system: System,
) -> Result<Vec<Row>, Failure> {
    let shape = match system {
        System::Learned => Shape::FAST_ETHERNET_UNTOLD,
        _ => Shape::FAST_ETHERNET,
    };
    let lab = Lab::build(topology.links, Some(shape))?;
    let _trunks = start(&lab, farcall, system)?;
    let flows = start_flows(&lab, topology.ideal.len(), system)?;
    let (from, to) = (CONNECT, CONNECT + arguments.duration());
    std::thread::sleep(to.saturating_sub(flows[0].now()));
    let rates = rates(&flows, from, to);
    let name = format!("({}) {}", topology.name, system.name());
    let full = match system {
        OURS => Some(FULL),
        System::Learned => Some(FULL_LEARNED),
        _ => None,
    };
    let mut rows = rows(&name, &rates, topology.ideal, shape.ideal(), full);
    if matches!(system, System::Trunk("round-robin") | System::Unordered) {
        rows.extend(order(&lab, &name)?);
    }
    if matches!(system, System::Trunk("traffic" | "link-count")) {
        rows.extend(weights(&lab, farcall, &name)?);
    }
    flows.into_iter().try_for_each(Flow::stop)?;
    Ok(rows)
}

/// Segments that arrived out of order at the server, and those that the clients sent again. Each
/// of the former makes the server send a duplicate acknowledgement (RFC 5681).
fn order(lab: &Lab, name: &str) -> Result<Vec<Row>, LabError> {
    let count = |host: usize, counter: &str| -> Result<f64, LabError> {
        let counters = lab.output(host, "nstat", &["-asz", counter])?;
        let line = counters.lines().find(|line| line.starts_with(counter));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(number.unwrap_or(f64::NAN))
    };
    let sum = |counter: &str| -> Result<f64, LabError> {
        (1..lab.hosts()).map(|client| count(client, counter)).sum()
    };
    let sent = sum("TcpOutSegs")?;
    let late = count(0, "TcpExtTCPOFOQueue")?;
    let again = sum("TcpRetransSegs")?;
    let parts = [("out of order", late), ("sent again", again)];
    let part = |(what, segments): (&str, f64)| {
        let name = format!("{name}, segments {what}");
        let none = (("none", 0.0), (Better::Lower, None));
        row(name, "%", vec![segments / sent * 100.0], none.0, none.1)
    };
    Ok(parts.map(part).into())
}

/// Tables 6 and 7 of the paper: each client's weight of link 1 with that of link 0 set to 1, and
/// the sums on the two switches with each client's largest weight set to 1.
fn weights(lab: &Lab, farcall: &Program, name: &str) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut load = [0.0; 2];
    let none = || (("equal", 1.0), (Better::Lower, None));
    let farcall = farcall.to_string_lossy();
    for (client, letter) in (1..lab.hosts()).zip('B'..) {
        let status = lab.output(client, &farcall, &["trunk", "status", "--json"])?;
        let status: Value = serde_json::from_str(&status).map_err(Failure::failed)?;
        let sent = |peer: &&Value| peer["links"][0]["sent"].as_u64();
        let server = status["peers"]
            .as_array()
            .and_then(|peers| peers.iter().max_by_key(sent));
        if let [only] = lab.switches_of(client) {
            load[*only] += 1.0;
            continue;
        }
        let weight = |link: usize| server.and_then(|peer| peer["links"][link]["weight"].as_f64());
        let (first, second) = (weight(0).unwrap_or(f64::NAN), weight(1).unwrap_or(f64::NAN));
        load[0] += first / first.max(second);
        load[1] += second / first.max(second);
        let (peer, bar) = none();
        let name = format!("{name}, weight of link 1, {letter}");
        rows.push(row(name, "", vec![second / first], peer, bar));
    }
    let (peer, bar) = none();
    let ratio = vec![load[0] / load[1]];
    rows.push(row(
        format!("{name}, load of switch 0 to 1"),
        "",
        ratio,
        peer,
        bar,
    ));
    Ok(rows)
}

/// Starts the processes that the system needs on every host.
fn start(lab: &Lab, farcall: &Program, system: System) -> Result<Vec<TrunkProcess>, LabError> {
    match system {
        System::Trunk(policy) => lab.start_trunks(farcall, &["--policy", policy]),
        System::Unordered => {
            lab.start_trunks(farcall, &["--policy", "round-robin", "--order", "off"])
        }
        System::Learned => lab.start_trunks(farcall, &[]),
        System::Tcp => Ok(Vec::new()),
        System::Mptcp => start_mptcp(lab),
    }
}

/// Lets the kernel use every link to the server for multipath TCP.
pub(super) fn start_mptcp(lab: &Lab) -> Result<Vec<TrunkProcess>, LabError> {
    for host in 0..lab.hosts() {
        let limits = [
            "mptcp",
            "limits",
            "set",
            "subflow",
            "7",
            "add_addr_accepted",
            "7",
        ];
        lab.output(host, "ip", &limits)?;
    }
    for switch in lab.switches_of(0) {
        let (address, link) = (
            lab.link_address(0, *switch).to_string(),
            format!("link{switch}"),
        );
        let endpoint = ["mptcp", "endpoint", "add", &address, "dev", &link, "signal"];
        lab.output(0, "ip", &endpoint)?;
    }
    Ok(Vec::new())
}

/// One flow from each client to the server.
fn start_flows(lab: &Lab, clients: usize, system: System) -> Result<Vec<Flow>, LabError> {
    let origin = Instant::now();
    let start = origin + CONNECT;
    (1..=clients)
        .map(|client| {
            let first = lab.link_address(0, lab.switches_of(client)[0]);
            let kind = match system {
                System::Trunk(_) | System::Unordered | System::Learned => {
                    FlowKind::Tcp(lab.trunk_address(0))
                }
                System::Mptcp => FlowKind::Mptcp(first),
                System::Tcp => FlowKind::Tcp(first),
            };
            Flow::start(lab, (client, 0), kind, origin, start)
        })
        .collect()
}

/// Bytes per second of each flow between two times.
fn rates(flows: &[Flow], from: Duration, to: Duration) -> Vec<f64> {
    let seconds = (to - from).as_secs_f64();
    flows
        .iter()
        .map(|flow| flow.bytes(from, to) as f64 / seconds)
        .collect()
}

/// The rows of a topology. `full` is the required part of the ideal sum.
fn rows(name: &str, rates: &[f64], ideal: &[f64], link: f64, full: Option<f64>) -> Vec<Row> {
    let mbit = |bytes: f64| bytes * 8.0 / 1e6;
    let sum: f64 = rates.iter().sum();
    let all: f64 = ideal.iter().sum::<f64>() * link;
    let ideal_sum = ("ideal", mbit(all));
    let mut rows = vec![row(
        format!("{name}, sum"),
        "Mb/s",
        vec![mbit(sum)],
        ideal_sum,
        (Better::Higher, full),
    )];
    let fairness = vec![jain(rates, ideal)];
    rows.push(row(
        format!("{name}, Jain"),
        "",
        fairness,
        ("equal", 1.0),
        (Better::Higher, full.map(|_| FAIR)),
    ));
    for ((rate, ideal), letter) in rates.iter().zip(ideal).zip('B'..) {
        let share = ("max-min share", mbit(ideal * link));
        let name = format!("{name}, client {letter}");
        rows.push(row(
            name,
            "Mb/s",
            vec![mbit(*rate)],
            share,
            (Better::Higher, None),
        ));
    }
    rows
}

/// Time within which the shares must settle after a change.
const SETTLED: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_millis(500);

/// Changes (e) to (f), and then to (h), during traffic.
fn measure_changes(farcall: &Program) -> Result<Vec<Row>, Failure> {
    let shape = Shape::FAST_ETHERNET;
    let lab = Lab::build(TOPOLOGIES[4].links, Some(shape))?;
    let _trunks = start(&lab, farcall, OURS)?;
    let flows = start_flows(&lab, 3, OURS)?;
    let mut rows = Vec::new();
    std::thread::sleep((CONNECT + Duration::from_secs(2)).saturating_sub(flows[0].now()));
    for (name, host, topology) in [("(e) to (f)", 1, 5), ("(f) to (h)", 3, 7)] {
        lab.set_carrier(host, 1, false)?;
        let changed = flows[0].now();
        std::thread::sleep(SETTLED + WINDOW);
        let rates = rates(&flows, changed + SETTLED, changed + SETTLED + WINDOW);
        let ideal = TOPOLOGIES[topology].ideal;
        // Relative to what a trunk can carry apart from its overhead, which the bar of the sum
        // judges.
        let carried: f64 = rates.iter().sum::<f64>() / ideal.iter().sum::<f64>();
        let off = |(rate, ideal): (&f64, &f64)| (rate / (ideal * carried) - 1.0).abs() * 100.0;
        let worst = rates.iter().zip(ideal).map(off).fold(0.0, f64::max);
        let (limit, bar) = super::at_most(5.0);
        rows.push(row(
            format!("change {name}, off after 300 ms"),
            "%",
            vec![worst],
            limit,
            bar,
        ));
        let full = carried / shape.ideal() * 100.0;
        let (limit, bar) = at_least(95.0);
        rows.push(row(
            format!("change {name}, sum of ideal"),
            "%",
            vec![full],
            limit,
            bar,
        ));
    }
    flows.into_iter().try_for_each(Flow::stop)?;
    Ok(rows)
}
