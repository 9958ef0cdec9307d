//! Measures the cost of a metaserver: a decision among many servers, and the request to it before a
//! call. The decision is measured in this process, without a network. The request is compared with
//! the same call directly to the server.

use super::world::Grid;
use crate::failure::Failure;
use crate::table::{Better, Row};
use farcall_client::{Argument, Function, Options, Scalar, Server};
use farcall_directory::message::{
    Choose, Function as Served, Join, Observe, Phase, QueuedCall, Rate, Report, Times, Transfer,
};
use farcall_directory::{Directory, Settings, digest};
use farcall_lab::Daemon;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SERVERS: u64 = 1000;
/// Number of placed calls, and number of them that run at once.
const PLACED: usize = 1000;
const UNDER_WAY: usize = 10;
/// Null calls in a round, and rounds.
const CALLS: usize = 2000;
const ROUNDS: usize = 5;
const FUNCTION: &str = "linpack/linpack";
const NULL: &str = "bench/null";
const SITE: &str = "site";
/// Seconds since 1970, for a directory in virtual time.
const T0: f64 = 1.7e9;

/// The time of a placement among a thousand different servers that have up to four calls each.
/// Between two placements three servers report and calls end.
pub(super) fn placement() -> Result<Row, Failure> {
    let mut directory = directory()?;
    let wanted = Choose {
        function: FUNCTION.into(),
        digest: digest(FUNCTION),
        work: 1e9,
        up: 1 << 20,
        down: 1 << 10,
        memory: 1 << 20,
        fewest: None,
        most: None,
        exclude: Vec::new(),
        explain: false,
        data: None,
        trace: None,
    };
    let mut under_way = std::collections::VecDeque::new();
    let mut values = Vec::new();
    for round in 0..PLACED as u64 {
        let now = T0 + 0.01 * round as f64;
        if under_way.len() == UNDER_WAY
            && let Some((server, placement)) = under_way.pop_front()
        {
            let observed = observed(server, placement, (1 << 20, 1e7));
            directory.observe(now, SITE, &observed);
        }
        for server in 0..3 {
            let server = 1 + (7 * round + server * 311) % SERVERS;
            directory
                .report(now, report(server))
                .map_err(Failure::failed)?;
        }
        let start = Instant::now();
        let chosen = directory
            .choose(now, SITE, &wanted)
            .map_err(Failure::failed)?;
        values.push(start.elapsed().as_secs_f64() * 1e6);
        under_way.push_back((chosen.offers[0].server, chosen.placement));
    }
    // The figure of a round is the median of its placements.
    let rounds = values.chunks(PLACED / ROUNDS).map(super::median);
    Ok(Row {
        name: format!("placement among {SERVERS} servers"),
        unit: "us",
        values: rounds.collect(),
        peer: "at most",
        peer_values: vec![50.0],
        better: Better::Lower,
        bar: Some(1.0),
    })
}

fn directory() -> Result<Directory, Failure> {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=SERVERS {
        let join = Join {
            server,
            address: format!("farcall://host{server}:3717"),
            agent: "bench".into(),
            pes: 1 + (server % 16) as u32,
            memory: 1 << 40,
            functions: vec![Served {
                name: FUNCTION.into(),
                title: String::new(),
                digest: digest(FUNCTION),
                repeatable: true,
                library: None,
            }],
        };
        directory.join(T0, join).map_err(Failure::failed)?;
        directory
            .report(T0, report(server))
            .map_err(Failure::failed)?;
        for bytes in [64, 1 << 20] {
            let rate = 1e7 + 1e5 * (server % 71) as f64;
            directory.observe(T0, SITE, &observed(server, 0, (bytes, rate)));
        }
    }
    Ok(directory)
}

fn report(server: u64) -> Report {
    let jobs = (0..server % 5).map(|job| QueuedCall {
        phase: [Phase::Running, Phase::Waiting, Phase::Coming][job as usize % 3],
        pes: 1,
        seconds: 10.0 + job as f64,
        up: 1 << 24,
        down: 1 << 20,
        reserved: None,
    });
    let rate = |octave| Rate {
        pes: 1,
        octave,
        mean: (1e-9 * (1.0 + (server % 97) as f64 / 97.0)).ln(),
        variance: 0.01,
        calls: 9,
    };
    Report {
        server,
        accepts: true,
        memory: 1 << 39,
        calls: (server % 5) as u32,
        queued: jobs.collect(),
        learned: vec![Times {
            function: FUNCTION.into(),
            rates: (20..40).map(rate).collect(),
        }],
        booked: None,
    }
}

fn observed(server: u64, placement: u64, (bytes, rate): (u64, f64)) -> Observe {
    let transfer = Transfer {
        bytes,
        seconds: bytes as f64 / rate,
    };
    Observe {
        server,
        placement,
        up: Some(transfer),
        down: Some(transfer),
        lost: false,
    }
}

/// A null call through a metaserver compared with the same call directly to the server, over the
/// loopback. Each round starts all processes again, because the speed of a call depends on the
/// cores where they run. A quick measurement has one round.
pub(super) fn question(libraries: &Path, quick: bool) -> Result<Row, Failure> {
    let bench = crate::program::interface_file(libraries, "bench.idl")?;
    let rounds = if quick { 1 } else { ROUNDS };
    let rounds = (0..rounds).map(|_| asked(&bench));
    let rounds: Vec<[f64; 2]> = rounds.collect::<Result<_, _>>()?;
    let figures = |which: usize| rounds.iter().map(|round| round[which]).collect();
    Ok(Row {
        name: "null call through the metaserver".into(),
        unit: "us",
        values: figures(0),
        peer: "direct",
        peer_values: figures(1),
        better: Better::Lower,
        bar: Some(3.0),
    })
}

/// One round: microseconds of a call through the metaserver, and of a direct call.
fn asked(bench: &Path) -> Result<[f64; 2], Failure> {
    let program = crate::program::farcall()?;
    let mut meta = Command::new(&program);
    meta.args(["meta", "--listen", "127.0.0.1:0", "--store", "none"])
        .args(["--log", "error"]);
    let meta = Daemon::start(meta)?;
    let address = format!("meta://127.0.0.1:{}", meta.port()?);
    let mut serve = Command::new(&program);
    serve
        .arg("serve")
        .arg(bench)
        .args(["--listen", "127.0.0.1:0", "--log", "error"])
        .args(["--metaserver", &address]);
    let server = Daemon::start(serve)?;
    let servers = vec![format!("farcall://127.0.0.1:{}", server.port()?)];
    let grid = Grid::of(address, servers, vec![meta, server]);
    let options = || Options {
        same_host: false,
        ..Options::default()
    };
    let direct = Server::connect(&grid.servers[0], options())?.function(NULL)?;
    let placed = Server::connect(&grid.address, options())?;
    let placed = super::calls::joined(&placed, NULL, 1)?;
    // The first calls open connections and start a worker.
    micros(&direct)?;
    micros(&placed)?;
    Ok([micros(&placed)?, micros(&direct)?])
}

/// The median time of several calls in microseconds.
fn micros(null: &Function) -> Result<f64, Failure> {
    let call = |_| {
        let start = Instant::now();
        null.call(&mut [Argument::Scalar(Scalar::Int(1))])?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    let times: Result<Vec<f64>, Failure> = (0..CALLS).map(call).collect();
    Ok(super::median(&times?))
}
