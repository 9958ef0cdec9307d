//! What a placement costs where there are many servers.

use farcall_directory::message::{
    Choose, Function, Job, Join, Observe, Phase, Rate, Report, Times, Transfer,
};
use farcall_directory::{Directory, Settings, digest};
use std::collections::VecDeque;
use std::time::Instant;

const T0: f64 = 1.7e9;
const SERVERS: u64 = 1000;
const FUNCTION: &str = "linpack/linpack";

fn join(server: u64) -> Join {
    Join {
        server,
        address: format!("farcall://host{server}:3717"),
        agent: "test".into(),
        pes: 1 + (server % 16) as u32,
        memory: 1 << 40,
        functions: ["bench/null", FUNCTION]
            .map(|name| Function {
                name: name.into(),
                title: String::new(),
                digest: digest(name),
                repeatable: true,
                library: None,
            })
            .into(),
    }
}

/// A server with some jobs under way; each has learned the function and differs from the others.
fn report(server: u64) -> Report {
    let jobs = (0..server % 5).map(|job| Job {
        phase: [Phase::Running, Phase::Waiting, Phase::Coming][job as usize % 3],
        pes: 1,
        seconds: 10.0 + job as f64,
        up: 1 << 24,
        down: 1 << 20,
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
        jobs: jobs.collect(),
        learned: vec![Times {
            function: FUNCTION.into(),
            rates: (20..40).map(rate).collect(),
        }],
    }
}

fn directory() -> Directory {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=SERVERS {
        directory.join(T0, join(server)).unwrap();
        directory.report(T0, report(server)).unwrap();
        let transfer = |bytes, rate: f64| Transfer {
            bytes,
            seconds: bytes as f64 / rate,
        };
        for bytes in [64, 1 << 20] {
            let observed = Observe {
                server,
                placement: 0,
                up: Some(transfer(bytes, 1e7 + 1e5 * (server % 71) as f64)),
                down: Some(transfer(bytes, 1e7)),
                lost: false,
            };
            directory.observe(T0, "site", &observed);
        }
    }
    directory
}

fn end(directory: &mut Directory, now: f64, (server, placement): (u64, u64)) {
    let observed = Observe {
        server,
        placement,
        up: Some(Transfer {
            bytes: 1 << 20,
            seconds: 0.1,
        }),
        down: None,
        lost: false,
    };
    directory.observe(now, "site", &observed);
}

/// In a release build some tens of microseconds; the bound only tells that nothing is made anew for
/// each of the servers.
#[test]
fn a_placement_among_a_thousand_servers_is_cheap() {
    let mut directory = directory();
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
    };
    let mut under_way = VecDeque::new();
    let mut times: Vec<f64> = (0..401)
        .map(|round| {
            let now = T0 + 0.01 * f64::from(round);
            // Between two calls some servers report, and one of ten calls ends.
            if under_way.len() == 10 {
                end(&mut directory, now, under_way.pop_front().unwrap());
            }
            for server in 0..3 {
                let server = 1 + (u64::from(7 * round as u32) + server * 311) % SERVERS;
                directory.report(now, report(server)).unwrap();
            }
            let start = Instant::now();
            let chosen = directory.choose(now, "site", &wanted).unwrap();
            let seconds = start.elapsed().as_secs_f64();
            under_way.push_back((chosen.offers[0].server, chosen.placement));
            seconds * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("a placement among {SERVERS} servers: {median:.1} us");
    let bound = if cfg!(debug_assertions) { 20e3 } else { 1e3 };
    assert!(median < bound, "{median} us");
}
