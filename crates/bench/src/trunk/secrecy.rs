//! Measures what encryption costs, with and without a key in turns. It takes the processor time of
//! both daemons for each delivered bit over links of 1 Gbit/s together, and that of two trunks in
//! this process that pass frames of full length to each other.

use super::single::bulk;
use super::{Arguments, Program};
use crate::failure::Failure;
use crate::machine::cpu_seconds;
use crate::table::{Better, Row};
use bytes::Bytes;
use farcall_lab::{Lab, Shape, TOPOLOGIES};
use farcall_trunk_device::thread_time;
use farcall_trunk_proto::{Config, Limits, LinkConfig, Mac, Nanos, Policy, Trunk};
use std::io::Write;

/// Number of measurements with a key, and of those without one.
const ROUNDS: usize = 3;
/// Each of two links.
const HALF_A_GIGABIT: Shape = Shape {
    rate: 500_000_000,
    ..Shape::FAST_ETHERNET
};

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    if !arguments.begins("key") {
        return Ok(Vec::new());
    }
    let mut key = crate::signals::file()?;
    writeln!(key, "a key for this measurement only")?;
    let file = key.path().to_string_lossy().into_owned();
    let (mut plain, mut keyed) = (Vec::new(), Vec::new());
    let (mut open, mut sealed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        open.push(in_memory(None)?);
        sealed.push(in_memory(Some(b"a key for this measurement only"))?);
        plain.push(run(arguments, farcall, &[])?);
        keyed.push(run(arguments, farcall, &["--key-file", &file])?);
    }
    let row = |name: &str, unit, pick: fn(&(f64, f64)) -> f64, better| Row {
        name: name.to_owned(),
        unit,
        values: keyed.iter().map(pick).collect(),
        peer: "without a key",
        peer_values: plain.iter().map(pick).collect(),
        better,
        bar: None,
    };
    let cores = Row {
        name: "key: processor of the state machines for 1 Gb/s, both ends".to_owned(),
        unit: "% of a core",
        values: sealed,
        peer: "without a key",
        peer_values: open,
        better: Better::Lower,
        bar: None,
    };
    Ok(vec![
        cores,
        row(
            "key: processor for 1 Gb/s, both ends",
            "% of a core",
            |(cost, _)| *cost,
            Better::Lower,
        ),
        row("key: rate", "Mb/s", |(_, rate)| *rate, Better::Higher),
    ])
}

/// The processor time of both daemons in percent of a core for each Gbit/s, and the rate in Mbit/s.
fn run(arguments: &Arguments, farcall: &Program, options: &[&str]) -> Result<(f64, f64), Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, Some(HALF_A_GIGABIT))?;
    let trunks = lab.start_trunks(farcall, options)?;
    let busy = || -> Result<f64, Failure> {
        Ok(cpu_seconds(trunks[0].id())? + cpu_seconds(trunks[1].id())?)
    };
    let before = busy()?;
    let rate = bulk(&lab, 1, arguments.duration())? * 8.0;
    let bits = rate * arguments.duration().as_secs_f64();
    let cost = (busy()? - before) / (bits / 1e9) * 100.0;
    Ok((cost, rate / 1e6))
}

/// Payload of a frame of full length with a key, and its bytes on the wire.
const PAYLOAD: usize = 1472;
const WIRE: usize = 1538;
/// Frames of a measurement.
const FRAMES: u64 = 200_000;
/// Time between two frames.
const PAUSE: Nanos = 10_000;

/// Two trunks with one link, in virtual time.
struct Pair {
    now: Nanos,
    trunks: [Trunk; 2],
}

fn address(node: usize, link: u8) -> Mac {
    Mac([2, 0, 0, 0, link, node as u8])
}

impl Pair {
    fn new(key: Option<&[u8]>) -> Result<Pair, Failure> {
        let trunk = |node| {
            let link = LinkConfig {
                name: String::new(),
                address: address(node, 0),
                rate: 1e9,
                mtu: 1500,
            };
            let config = Config {
                node: address(node, 1),
                links: vec![link],
                policy: Policy::RoundRobin,
                repair: false,
                order: true,
                counts_only: false,
                span: 2_000_000_000,
                key: key.map(<[u8]>::to_vec),
                session: 1 + node as u32,
                seed: [node as u8; 32],
                limits: Limits::default(),
            };
            Trunk::new(config, 0).map_err(Failure::failed)
        };
        Ok(Pair {
            now: 0,
            trunks: [trunk(0)?, trunk(1)?],
        })
    }

    /// Passes all frames that wait, and returns how many were delivered.
    fn step(&mut self) -> u64 {
        self.now += PAUSE;
        let now = self.now;
        let mut delivered = 0;
        for from in 0..2 {
            if self.trunks[from].poll_timeout(now) <= now {
                self.trunks[from].handle_timeout(now);
            }
            while let Some(frame) = self.trunks[from].poll_transmit(now) {
                let payload: Bytes = [&frame.header[..], &frame.body].concat().into();
                let source = address(from, 0);
                self.trunks[1 - from].handle_frame(now, 0, source, &payload, now);
            }
        }
        for trunk in &mut self.trunks {
            while trunk.poll_deliver().is_some() {
                delivered += 1;
            }
            while trunk.poll_event().is_some() {}
        }
        delivered
    }
}

/// The processor time of two trunks in percent of a core, if their frames fill a link of 1 Gbit/s.
fn in_memory(key: Option<&[u8]>) -> Result<f64, Failure> {
    let mut pair = Pair::new(key)?;
    let mut frame = [address(1, 1).0, address(0, 1).0].concat();
    frame.extend([8, 0]);
    frame.resize(14 + PAYLOAD, 7);
    let frame = Bytes::from(frame);
    // The first frames wait until the link is up.
    for _ in 0..100_000 {
        pair.step();
    }
    let before = thread_time();
    let mut delivered = 0;
    for _ in 0..FRAMES {
        let now = pair.now;
        pair.trunks[0].handle_outgoing(now, &frame);
        delivered += pair.step();
    }
    let used = (thread_time() - before) as f64 / 1e9;
    if delivered != FRAMES {
        let text = format!("{delivered} of {FRAMES} frames were delivered");
        return Err(Failure::failed(text));
    }
    Ok(used / (FRAMES as f64 * WIRE as f64 * 8.0 / 1e9) * 100.0)
}
