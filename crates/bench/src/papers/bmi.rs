//! The second Ninf paper's branch and bound: eight unlike servers behind lines of their own, and
//! one of them alone. The client and the servers are those of examples/bmi.

use crate::failure::Failure;
use crate::load::server::{LoadServer, ServerCall};
use crate::load::{Arguments, cores};
use crate::table::{Better, Row, bars};
use farcall_lab::{Daemon, LineShape, Quota, Sites};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Table 1. The first one is the server that solves the problems alone.
const MHZ: [f64; 8] = [550.0, 500.0, 500.0, 450.0, 800.0, 800.0, 800.0, 800.0];
/// Processors of all servers together. The client and the lines need the rest.
const PROCESSORS: f64 = 1.0;
/// The domestic link of Fig. 2.
const ROUND_TRIP: Duration = Duration::from_millis(30);
/// The host of the client and of the metaserver. Each server is at a site.
const CLIENT: usize = 0;
const EXAMPLE: &str = "examples/bmi";
const PYTHON: &str = ".venv/bin/python";
/// Largest delay of the servers' logs after the client.
const PATIENCE: Duration = Duration::from_secs(10);

/// A problem of Table 5, and its figures in Tables 6 and 7.
struct Problem {
    nx: usize,
    ny: usize,
    m: usize,
    /// Which problem of these sizes is solved here, and how exactly.
    seed: usize,
    tolerance: f64,
    /// Table 6.
    calls: usize,
    compute_s: f64,
    communicate_s: f64,
    /// Table 7, on eight servers and on one: the whole time, and communication in it.
    all_s: [f64; 2],
    all_communicate_s: [f64; 2],
}

const PROBLEMS: [Problem; 3] = [
    Problem {
        nx: 4,
        ny: 5,
        m: 12,
        seed: 2,
        tolerance: 0.3,
        calls: 8673,
        compute_s: 0.14,
        communicate_s: 0.40,
        all_s: [3581.0, 2365.0],
        all_communicate_s: [441.0, 0.42],
    },
    Problem {
        nx: 2,
        ny: 6,
        m: 24,
        seed: 2,
        tolerance: 0.2,
        calls: 1529,
        compute_s: 0.40,
        communicate_s: 0.97,
        all_s: [834.0, 1636.0],
        all_communicate_s: [186.0, 0.83],
    },
    Problem {
        nx: 2,
        ny: 3,
        m: 60,
        seed: 1,
        tolerance: 0.06,
        calls: 209,
        compute_s: 2.87,
        communicate_s: 2.74,
        all_s: [247.0, 708.0],
        all_communicate_s: [74.0, 1.50],
    },
];

impl Problem {
    /// Bytes of the arguments and the results of a call with one box.
    fn bytes(&self) -> f64 {
        let n = (self.nx + self.ny) as f64;
        let matrices = ((self.nx + 1) * (self.ny + 1) * self.m * self.m) as f64;
        8.0 * (matrices + 2.0 * n) + 8.0 * (n + 2.0)
    }

    /// The line over which a call travels for so long.
    fn line(&self, seconds: f64) -> LineShape {
        let rate = self.bytes() / (seconds - ROUND_TRIP.as_secs_f64()).max(1e-3);
        LineShape {
            up: rate,
            down: rate,
            round_trip: ROUND_TRIP,
        }
    }

    fn entries(&self, call: &ServerCall) -> u64 {
        call.returned_bytes / (8 * (self.nx + self.ny + 2)) as u64
    }
}

/// What the client found, and the calls of the servers.
struct Run {
    seconds: f64,
    lower: f64,
    upper: f64,
    boxes: u64,
    calls: Vec<ServerCall>,
}

impl Run {
    fn mean(&self, seconds: impl Fn(&ServerCall) -> f64) -> f64 {
        self.calls.iter().map(seconds).sum::<f64>() / self.calls.len() as f64
    }

    fn compute_s(&self) -> f64 {
        self.mean(|call| call.exec_s)
    }

    /// Transfers and the latency of the line, without waits for other calls.
    fn communicate_s(&self) -> f64 {
        self.mean(|call| call.send_s + call.recv_s) + ROUND_TRIP.as_secs_f64()
    }

    fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds, "lower": self.lower, "upper": self.upper,
            "boxes": self.boxes, "calls": self.calls.len(),
            "compute_s": self.compute_s(), "communicate_s": self.communicate_s(),
        })
    }
}

/// The runs of a problem.
struct Solved {
    problem: &'static Problem,
    /// Our computing time relative to the paper's.
    scale: f64,
    /// One box in each call, as in the paper.
    single: Run,
    auto: Run,
    /// All on one server, in one call.
    alone: Run,
}

/// Tables 6 and 7.
pub(crate) fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let idl = crate::program::interface_file(Path::new(EXAMPLE), "bmi.idl")?;
    let missing = |file: &str, make| {
        let text = format!("{file} is not there: run `{make}` in the folder of the project");
        Err(Failure::usage(text))
    };
    if !idl.with_file_name("libbmi.so").exists() {
        return missing("examples/bmi/libbmi.so", "make -C examples/bmi");
    }
    if !Path::new(PYTHON).exists() {
        return missing(PYTHON, "make build");
    }
    let grid = Grid::start(&idl)?;
    let mut solved = Vec::new();
    let count = if arguments.quick { 1 } else { PROBLEMS.len() };
    for problem in &PROBLEMS[..count] {
        let one = grid.solve(problem)?;
        if !arguments.json {
            print(&one, solved.is_empty());
        }
        solved.push(one);
    }
    if arguments.json {
        println!("{}", to_json(&solved));
    }
    match arguments.check {
        true => bars(&rows(&solved)),
        false => Ok(()),
    }
}

/// A metaserver at the client's host, and a server at each site.
struct Grid {
    meta: Daemon,
    servers: Vec<LoadServer>,
    // The processes in the quotas end before the quotas are dropped.
    _quotas: Vec<Quota>,
    sites: Sites,
}

impl Grid {
    fn start(idl: &Path) -> Result<Grid, Failure> {
        let fast = LineShape {
            up: 1e8,
            down: 1e8,
            round_trip: ROUND_TRIP,
        };
        let sites = Sites::build(&[fast; MHZ.len()])?;
        let program = crate::program::farcall()?;
        let program = program.to_string_lossy();
        let mut meta = sites.lab().command(CLIENT, &program);
        meta.args(["meta", "--listen", "0.0.0.0:0", "--store", "none"])
            .args(["--log", "error"]);
        let meta = Daemon::start(meta)?;
        let (mut servers, mut quotas) = (Vec::new(), Vec::new());
        for (site, mhz) in MHZ.iter().enumerate() {
            let quota = Quota::new(PROCESSORS * mhz / MHZ.iter().sum::<f64>())?;
            let host = Sites::host(site);
            let command = sites.lab().command_within(&quota, host, &program);
            let meta = format!("meta://{}:{}", Sites::address(site), meta.port()?);
            let options = ["--pes", "1", "--metaserver", &meta].map(String::from);
            servers.push(LoadServer::run(command, idl, "0.0.0.0:0", &options)?);
            quotas.push(quota);
        }
        let grid = Grid {
            meta,
            servers,
            _quotas: quotas,
            sites,
        };
        grid.wait_until_joined(&program)?;
        Ok(grid)
    }

    fn meta_address(&self) -> Result<String, Failure> {
        Ok(format!(
            "meta://{}:{}",
            Sites::address(0),
            self.meta.port()?
        ))
    }

    fn wait_until_joined(&self, program: &str) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        let address = self.meta_address()?;
        while Instant::now() < end {
            let lab = self.sites.lab();
            let status = lab.output(CLIENT, program, &["status", &address, "--json"])?;
            let status: Value = serde_json::from_str(&status).map_err(Failure::failed)?;
            let joined = status["servers"].as_array().map_or(0, Vec::len);
            if joined == MHZ.len() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Failure::failed("the servers have not joined in time"))
    }

    /// Solves a problem in each manner, behind lines that are as slow as in the paper.
    fn solve(&self, problem: &'static Problem) -> Result<Solved, Failure> {
        let eight = self.meta_address()?;
        let first = &self.servers[0];
        let one = format!("farcall://{}:{}", Sites::site_address(0), first.port());
        self.shape(problem.line(0.0))?;
        let scale = self.run(&eight, "measure", problem)?.compute_s() / problem.compute_s;
        let wanted_s = problem.communicate_s * scale;
        self.shape(problem.line(wanted_s))?;
        // TCP does not reach the rate of the line at once, so a call takes longer.
        let longer = self.run(&eight, "measure", problem)?.communicate_s() / wanted_s;
        self.shape(problem.line(wanted_s / longer))?;
        Ok(Solved {
            problem,
            scale,
            single: self.run(&eight, "1", problem)?,
            auto: self.run(&eight, "auto", problem)?,
            alone: self.run(&one, "one-call", problem)?,
        })
    }

    fn shape(&self, line: LineShape) -> Result<(), Failure> {
        for site in 0..MHZ.len() {
            self.sites.shape(site, line)?;
        }
        Ok(())
    }

    fn run(&self, address: &str, how: &str, problem: &Problem) -> Result<Run, Failure> {
        let [nx, ny, m, seed] =
            [problem.nx, problem.ny, problem.m, problem.seed].map(|number| number.to_string());
        let tolerance = problem.tolerance.to_string();
        let python = std::fs::canonicalize(".")?.join(PYTHON);
        let words = [
            "benches/load/bmi.py",
            address,
            how,
            &nx,
            &ny,
            &m,
            &seed,
            &tolerance,
        ];
        let lab = self.sites.lab();
        let printed = lab.output(CLIENT, &python.to_string_lossy(), &words)?;
        let found: Value = serde_json::from_str(&printed).map_err(Failure::failed)?;
        let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        let boxes = number("boxes") as u64;
        Ok(Run {
            seconds: number("seconds"),
            lower: number("lower"),
            upper: number("upper"),
            boxes,
            calls: self.calls(problem, boxes)?,
        })
    }

    /// The calls of the servers since the last run, which bounded so many boxes.
    fn calls(&self, problem: &Problem, boxes: u64) -> Result<Vec<ServerCall>, Failure> {
        let end = Instant::now() + PATIENCE;
        let (mut calls, mut bounded) = (Vec::new(), 0);
        while Instant::now() < end {
            for call in self.servers.iter().flat_map(LoadServer::new_calls) {
                match call.function.as_str() {
                    "bmi/bound" => bounded += problem.entries(&call),
                    "bmi/solve" => bounded = boxes,
                    _ => continue,
                }
                calls.push(call);
            }
            if bounded >= boxes {
                return Ok(calls);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::failed(
            "the logs of the servers do not report all calls",
        ))
    }
}

fn print(solved: &Solved, is_first: bool) {
    if is_first {
        println!(
            "{:12} {:10} {:>6} {:>6} {:>10} {:>12} {:>9} {:>16}",
            "problem", "", "boxes", "calls", "compute s", "communicate s", "all s", "bounds"
        );
    }
    let of = solved.problem;
    let name = format!("{},{},{}", of.nx, of.ny, of.m);
    for (how, run) in [
        ("8, 1 box", &solved.single),
        ("8, auto", &solved.auto),
        ("1, alone", &solved.alone),
    ] {
        println!(
            "{name:12} {how:10} {:>6} {:>6} {:>10.3} {:>12.3} {:>9.1} {:>7.3} .. {:.3}",
            run.boxes,
            run.calls.len(),
            run.compute_s(),
            run.communicate_s(),
            run.seconds,
            run.lower,
            run.upper
        );
    }
}

/// The problems end sooner on eight servers than on one.
fn rows(solved: &[Solved]) -> Vec<Row> {
    let row = |solved: &Solved| Row {
        name: format!("m = {}, eight servers", solved.problem.m),
        unit: "s",
        values: vec![solved.auto.seconds],
        peer: "one server",
        peer_values: vec![solved.alone.seconds],
        better: Better::Lower,
        bar: Some(1.0),
    };
    solved.iter().map(row).collect()
}

fn to_json(solved: &[Solved]) -> Value {
    let problem = |solved: &Solved| {
        let of = solved.problem;
        json!({
            "nx": of.nx, "ny": of.ny, "m": of.m, "tolerance": of.tolerance, "scale": solved.scale,
            "paper": {
                "calls": of.calls, "compute_s": of.compute_s, "communicate_s": of.communicate_s,
                "all_s": of.all_s, "all_communicate_s": of.all_communicate_s,
            },
            "single": solved.single.to_json(),
            "auto": solved.auto.to_json(),
            "alone": solved.alone.to_json(),
        })
    };
    json!({
        "schema": 1,
        "experiment": "bmi",
        "cores": cores(),
        "processors": PROCESSORS,
        "problems": solved.iter().map(problem).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(boxes: u64) -> ServerCall {
        ServerCall {
            function: "bmi/bound".into(),
            // Two bounds and a point of nine numbers for each box, and `info`.
            returned_bytes: boxes * 8 * 11 + 4,
            send_s: 0.3,
            wait_s: 9.0,
            exec_s: 0.2 * boxes as f64,
            recv_s: 0.1,
        }
    }

    #[test]
    fn a_line_carries_a_call_in_the_time_that_is_asked() {
        let problem = &PROBLEMS[0];
        assert_eq!(problem.bytes(), (30 * 144 * 8 + 18 * 8 + 11 * 8) as f64);
        let line = problem.line(0.4);
        let seconds = problem.bytes() / line.up + line.round_trip.as_secs_f64();
        assert!((seconds - 0.4).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn the_figures_of_a_run_come_from_the_calls_of_the_servers() {
        let calls = vec![call(1), call(3)];
        let boxes = calls.iter().map(|call| PROBLEMS[0].entries(call));
        assert_eq!(boxes.collect::<Vec<_>>(), [1, 3]);
        let run = Run {
            seconds: 7.0,
            lower: 1.0,
            upper: 2.0,
            boxes: 4,
            calls,
        };
        let made = run.to_json();
        assert_eq!((&made["boxes"], &made["calls"]), (&json!(4), &json!(2)));
        assert!((run.compute_s() - 0.4).abs() < 1e-9);
        // Without the wait for other calls.
        assert!((run.communicate_s() - 0.43).abs() < 1e-9);
    }
}
