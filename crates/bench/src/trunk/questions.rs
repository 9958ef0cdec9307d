//! Questions that the RI2N paper leaves open: bytes or packets as the measure, traffic sparser than
//! the span, several stages of switches. Also its Fig. 9, the weights during changes of the
//! topology.

use super::{Arguments, Program, at_least, row};
use crate::failure::Failure;
use crate::table::{Better, Row};
use farcall_lab::{Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES, jain};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const POLICIES: [&str; 4] = ["max-min", "traffic", "link-count", "round-robin"];
const SHAPE: Shape = Shape::FAST_ETHERNET;

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        if policy != "max-min" && !arguments.peers {
            continue;
        }
        if arguments.begins("small packets") {
            rows.push(beside_small_packets(arguments, farcall, policy)?);
        }
        if arguments.begins("sparse") {
            rows.push(sparse(farcall, policy)?);
        }
        if arguments.begins("stages") {
            rows.extend(in_stages(arguments, farcall, policy)?);
        }
        if arguments.begins(&format!("weights {policy}")) && policy != "round-robin" {
            rows.extend(weights_over_time(farcall, policy)?);
        }
    }
    Ok(rows)
}

fn none(what: &'static str, value: f64) -> ((&'static str, f64), (Better, Option<f64>)) {
    ((what, value), (Better::Higher, None))
}

/// Datagrams per second, their payload, and the bytes of each on the wire with all headers.
const SMALL: (u32, usize, f64) = (5000, 64, 64.0 + 28.0 + 12.0 + 38.0);

/// (d): B sends many small datagrams over its only link, C a stream of full frames over both.
fn beside_small_packets(
    arguments: &Arguments,
    farcall: &Program,
    policy: &str,
) -> Result<Row, Failure> {
    let lab = Lab::build(TOPOLOGIES[3].links, Some(SHAPE))?;
    let _trunks = lab.start_trunks(farcall, &["--policy", policy])?;
    let (address, end) = (
        lab.trunk_address(0),
        Instant::now() + arguments.duration() * 2,
    );
    let (send_port, port) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let sink = lab.spawn(0, move || {
        let socket = UdpSocket::bind((address, 0))?;
        let _ = send_port.send(socket.local_addr()?.port());
        // Datagrams that arrive remain in the socket's buffer. Nothing reads or answers them.
        let _ = stopped.recv_timeout(end.saturating_duration_since(Instant::now()));
        Ok(())
    })?;
    let port = port.recv().map_err(Failure::failed)?;
    let (stop_source, source_stopped) = mpsc::channel::<()>();
    let source = lab.spawn(1, move || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let begin = Instant::now();
        let mut sent = 0;
        while source_stopped.recv_timeout(Duration::from_millis(1))
            == Err(mpsc::RecvTimeoutError::Timeout)
        {
            let due = begin.elapsed().as_secs_f64() * f64::from(SMALL.0);
            while f64::from(sent) < due {
                socket.send_to(&[0; SMALL.1], (address, port))?;
                sent += 1;
            }
        }
        Ok(())
    })?;
    // The weights of the published policies need several spans to settle.
    let rate = super::single::bulk(&lab, 2, arguments.duration())?;
    drop((stop, stop_source));
    for thread in [sink, source] {
        thread
            .join()
            .map_err(|_| LabError::Late("the end of a stream"))??;
    }
    let left = 2.0 - SMALL.2 * f64::from(SMALL.0) * 8.0 / SHAPE.rate as f64;
    let (limit, (better, bar)) = at_least(95.0);
    Ok(row(
        format!("small packets beside a burst, {policy}, of what is left"),
        "%",
        vec![rate / SHAPE.ideal() / left * 100.0],
        limit,
        (better, bar.filter(|_| policy == "max-min")),
    ))
}

/// Bytes of a burst, and the pause between bursts, which is three spans.
const BURST: usize = 4 << 20;
const SPAN: &str = "0.5";
const PAUSE: Duration = Duration::from_millis(1500);
const BURSTS: usize = 8;

/// (h): B and D send all the time. C sends a burst from time to time and waits for an answer.
fn sparse(farcall: &Program, policy: &str) -> Result<Row, Failure> {
    let lab = Lab::build(TOPOLOGIES[7].links, Some(SHAPE))?;
    let _trunks = lab.start_trunks(farcall, &["--policy", policy, "--hbspan", SPAN])?;
    let address = lab.trunk_address(0);
    let origin = Instant::now();
    let flow = |client| Flow::start(&lab, (client, 0), FlowKind::Tcp(address), origin, origin);
    let flows = [flow(1)?, flow(3)?];
    let (send_port, port) = mpsc::channel();
    let sink = lab.spawn(0, move || {
        let listener = TcpListener::bind((address, 0))?;
        let _ = send_port.send(listener.local_addr()?.port());
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![0; BURST];
        for _ in 0..BURSTS {
            stream.read_exact(&mut buffer)?;
            stream.write_all(&[1])?;
        }
        Ok(())
    })?;
    let port = port.recv().map_err(Failure::failed)?;
    let source = lab.spawn(2, move || {
        let mut stream = TcpStream::connect((address, port))?;
        let bytes = vec![0x55; BURST];
        let mut times = Vec::new();
        for _ in 0..BURSTS {
            std::thread::sleep(PAUSE);
            let begin = Instant::now();
            stream.write_all(&bytes)?;
            stream.read_exact(&mut [0])?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    })?;
    let times = source.join().map_err(|_| LabError::Late("a burst"))??;
    sink.join().map_err(|_| LabError::Late("a burst"))??;
    flows.into_iter().try_for_each(Flow::stop)?;
    let alone = BURST as f64 / SHAPE.ideal() * 1e3;
    let (limit, (_, bar)) = none("over a link of its own", alone);
    let name = format!("sparse bursts of 4 MiB, {policy}");
    Ok(row(name, "ms", times, limit, (Better::Lower, bar)))
}

/// Rate of the line between the two stages, in bits a second.
const NARROW: u64 = 50_000_000;

/// (c) with a second switch behind switch 1 and a link of half the rate between them. Each entry
/// has the clients behind the second switch and the fair shares.
const STAGES: [(&str, &[usize], [f64; 2]); 2] = [
    ("both clients behind", &[1, 2], [0.75, 0.75]),
    ("one client behind", &[2], [1.0, 1.0]),
];

fn in_stages(arguments: &Arguments, farcall: &Program, policy: &str) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (name, behind, ideal) in STAGES {
        let lab = Lab::build(TOPOLOGIES[2].links, Some(SHAPE))?;
        lab.add_stage(1, behind, NARROW)?;
        let _trunks = lab.start_trunks(farcall, &["--policy", policy])?;
        let origin = Instant::now();
        let kind = FlowKind::Tcp(lab.trunk_address(0));
        let flow = |client| Flow::start(&lab, (client, 0), kind, origin, origin);
        let flows = [flow(1)?, flow(2)?];
        let from = flows[0].now();
        let to = from + arguments.duration();
        std::thread::sleep(arguments.duration());
        let rates = flows.each_ref().map(|flow| {
            flow.bytes(from, to) as f64 / arguments.duration().as_secs_f64() / SHAPE.ideal()
        });
        flows.into_iter().try_for_each(Flow::stop)?;
        let sum = rates.iter().sum::<f64>() / ideal.iter().sum::<f64>() * 100.0;
        let name = format!("stages, {name}, {policy}");
        let (full, better) = none("ideal", 100.0);
        rows.push(row(format!("{name}: sum"), "%", vec![sum], full, better));
        let (equal, better) = none("equal", 1.0);
        rows.push(row(
            format!("{name}: Jain"),
            "",
            vec![jain(&rates, &ideal)],
            equal,
            better,
        ));
    }
    Ok(rows)
}

/// Fig. 9: duration of each phase, (e), then (f), then (h); and the time between two samples.
const PHASE: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_secs(2);
/// Number of samples. Each is reported at the middle of its interval.
const LOOKS: u32 = (3 * PHASE.as_secs() / LOOK.as_secs()) as u32;

/// The share of link 1 in the traffic of each client, by the weights of the policy.
fn weights_over_time(farcall: &Program, policy: &str) -> Result<Vec<Row>, Failure> {
    let lab = Lab::build(TOPOLOGIES[4].links, Some(SHAPE))?;
    let _trunks = lab.start_trunks(farcall, &["--policy", policy])?;
    let origin = Instant::now();
    let kind = FlowKind::Tcp(lab.trunk_address(0));
    let flow = |client| Flow::start(&lab, (client, 0), kind, origin, origin);
    let flows = [flow(1)?, flow(2)?, flow(3)?];
    let mut rows = Vec::new();
    for look in 0..LOOKS {
        let at = LOOK * look;
        if at == PHASE {
            lab.set_carrier(1, 1, false)?;
        } else if at == PHASE * 2 {
            lab.set_carrier(3, 1, false)?;
        }
        std::thread::sleep((at + LOOK / 2).saturating_sub(origin.elapsed()));
        for (client, letter) in (1..=3).zip('B'..) {
            let seconds = (at + LOOK / 2).as_secs();
            let (half, better) = none("equal", 0.5);
            let weight = weight(&lab, farcall, client)?;
            let name = format!("weights at {seconds} s, {policy}, {letter}");
            rows.push(row(name, "", vec![weight], half, better));
        }
    }
    flows.into_iter().try_for_each(Flow::stop)?;
    Ok(rows)
}

/// Weight of link 1, with the weights of both links scaled to a sum of 1. Rates are used if there
/// are no weights.
fn weight(lab: &Lab, farcall: &Program, client: usize) -> Result<f64, Failure> {
    let farcall = farcall.to_string_lossy();
    let text = lab.output(client, &farcall, &["trunk", "status", "--json"])?;
    let status: Value = serde_json::from_str(&text).map_err(Failure::failed)?;
    let sent = |peer: &&Value| {
        let links = peer["links"].as_array().into_iter().flatten();
        links.filter_map(|link| link["sent"].as_u64()).sum::<u64>()
    };
    let server = status["peers"]
        .as_array()
        .and_then(|peers| peers.iter().max_by_key(sent));
    let Some(server) = server else {
        return Ok(f64::NAN);
    };
    let of = |link: usize| {
        let link = &server["links"][link];
        let figure = if link["weight"].is_null() {
            &link["sent_rate"]
        } else {
            &link["weight"]
        };
        figure
            .as_f64()
            .filter(|_| link["state"] == "up")
            .unwrap_or(0.0)
    };
    Ok(of(1) / (of(0) + of(1)))
}
