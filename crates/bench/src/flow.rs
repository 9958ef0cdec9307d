//! `farcall bench flow`: the flow simulator compared with SimGrid on the same workloads.
//!
//! Each measurement runs in a separate process, so that its peak memory does not include others.
//! Times are CPU times, the median of several runs. For the flow simulator it is the time of the
//! whole process. For the peer it is the time of the simulation without building the platform.

mod rows;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use clap::Args;
use farcall_flow::{Placement, Platform};
use rows::{Bar, Row};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const DRIVER: &str = include_str!("../../../benches/flow/simgrid_driver.cpp");
const SEED: u64 = 1;

/// Measure the flow simulator, and with --peers SimGrid
#[derive(Args)]
#[command(after_help = "Example:\n  farcall bench flow --peers --check --runs 5")]
pub(crate) struct Arguments {
    /// Build a driver for SimGrid (libsimgrid-dev, g++) and run it on the same workloads
    #[arg(long)]
    peers: bool,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Runs per workload; figures are medians over them
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Runs of the peer per workload
    #[arg(long, default_value_t = 1)]
    peer_runs: usize,
    /// Run only workloads whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A workload that both simulators run.
struct Case {
    name: &'static str,
    platform: &'static str,
    /// The platform as arguments of the driver.
    peer_platform: [&'static str; 2],
    algorithm: &'static str,
    size: &'static str,
    peer_size: [&'static str; 2],
    random: bool,
    steps: u64,
    /// The `--tolerance` of our run.
    tolerance: &'static str,
    /// The required speed relative to SimGrid.
    times: Option<f64>,
    /// Whether the results must agree to nine digits. They cannot for a long contended run, which
    /// is chaotic.
    same: bool,
    /// Whether SimGrid runs it too.
    peer: bool,
    /// Bars for CPU seconds and bytes of memory, if the workload has them.
    limits: [Option<f64>; 2],
}

const FAT_TREE: Case = Case {
    name: "",
    platform: "",
    peer_platform: ["fat-tree", ""],
    algorithm: "simple-spread",
    size: "1000000",
    peer_size: ["1000000", "1e6"],
    random: false,
    steps: 0,
    tolerance: "0",
    times: None,
    same: true,
    peer: true,
    limits: [None, None],
};

const TORUS: Case = Case {
    peer_platform: ["torus", "16"],
    platform: "torus:16x16,bandwidth=1e9",
    size: "20000",
    peer_size: ["20000", "1e9"],
    ..FAT_TREE
};

const CASES: [Case; 16] = [
    Case {
        name: "fat tree 432 regular",
        platform: "fat-tree:ports=12,levels=3,bandwidth=1e6",
        peer_platform: ["fat-tree", "6"],
        times: Some(20.0),
        ..FAT_TREE
    },
    Case {
        name: "fat tree 1024 regular",
        platform: "fat-tree:ports=16,levels=3,bandwidth=1e6",
        peer_platform: ["fat-tree", "8"],
        times: Some(20.0),
        ..FAT_TREE
    },
    Case {
        name: "fat tree 432 random",
        platform: "fat-tree:ports=12,levels=3,bandwidth=1e6",
        peer_platform: ["fat-tree", "6"],
        random: true,
        times: Some(15.0),
        same: false,
        ..FAT_TREE
    },
    Case {
        name: "fat tree 1024 random, first 20",
        platform: "fat-tree:ports=16,levels=3,bandwidth=1e6",
        peer_platform: ["fat-tree", "8"],
        random: true,
        steps: 20,
        times: Some(15.0),
        ..FAT_TREE
    },
    Case {
        name: "torus 16x16 simple-spread",
        times: Some(10.0),
        same: false,
        ..TORUS
    },
    Case {
        name: "torus 16x16 simple-spread-2d",
        algorithm: "simple-spread-2d",
        times: Some(10.0),
        ..TORUS
    },
    Case {
        name: "torus 16x16 pairwise",
        algorithm: "pairwise",
        times: Some(10.0),
        ..TORUS
    },
    Case {
        name: "torus 16x16 random, first 20",
        random: true,
        steps: 20,
        times: Some(5.0),
        ..TORUS
    },
    Case {
        name: "torus 32x32 random, first 20",
        platform: "torus:32x32,bandwidth=1e9",
        peer_platform: ["torus", "32"],
        random: true,
        steps: 20,
        times: Some(5.0),
        ..TORUS
    },
    Case {
        name: "torus 64x64 random, first 20",
        platform: "torus:64x64,bandwidth=1e9",
        random: true,
        steps: 20,
        peer: false,
        // One millisecond for each of the 81,920 messages.
        limits: [Some(81.92), None],
        ..TORUS
    },
    Case {
        name: "fat tree 3456 random",
        platform: "fat-tree:ports=24,levels=3,bandwidth=1e6",
        random: true,
        peer: false,
        limits: [Some(20.0), Some(20e6)],
        ..FAT_TREE
    },
    Case {
        name: "allreduce recursive doubling 131072",
        platform: "torus:64x64x32,bandwidth=1e9",
        algorithm: "allreduce:recursive-doubling",
        peer: false,
        ..TORUS
    },
    Case {
        name: "allreduce ring 131072",
        platform: "torus:64x64x32,bandwidth=1e9",
        algorithm: "allreduce:ring",
        peer: false,
        ..TORUS
    },
    Case {
        name: "allreduce ring 101306 random",
        platform: "fat-tree:ports=74,levels=3,bandwidth=1e9",
        algorithm: "allreduce:ring",
        random: true,
        peer: false,
        limits: [Some(20.0), Some(200e6)],
        ..TORUS
    },
    Case {
        name: "allreduce recursive doubling 131072 random",
        platform: "fat-tree:ports=32,levels=4,bandwidth=1e9",
        algorithm: "allreduce:recursive-doubling",
        random: true,
        peer: false,
        limits: [Some(20.0), Some(200e6)],
        ..TORUS
    },
    Case {
        name: "exchange 48x48x48 random, tolerance 0.01",
        platform: "torus:48x48x48,bandwidth=1e9",
        algorithm: "exchange:48x48x48",
        random: true,
        tolerance: "0.01",
        peer: false,
        limits: [Some(20.0), Some(200e6)],
        ..TORUS
    },
];

/// The report of one process.
struct Measured {
    makespan: f64,
    cpu: f64,
    memory: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = crate::signals::folder()?;
    let machine = Machine::watch();
    let rows = measure_all(arguments, folder.path())?;
    let busy = machine.end();
    let missed = rows
        .iter()
        .filter(|row| row.passes() == Some(false))
        .count();
    if arguments.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let mut told = json!({ "schema": 1, "bench": "flow", "missed": missed, "rows": rows });
        busy.add_to(&mut told);
        println!("{told}");
    } else {
        println!("{busy}");
    }
    if arguments.check && missed > 0 {
        return Err(Failure::failed(format!("{missed} bars missed")));
    }
    Ok(())
}

fn measure_all(arguments: &Arguments, folder: &Path) -> Result<Vec<Row>, Failure> {
    let wanted = |case: &&Case| {
        arguments
            .only
            .as_ref()
            .is_none_or(|text| case.name.contains(text))
    };
    if let (Some(text), None) = (&arguments.only, CASES.iter().find(wanted)) {
        let names = CASES.map(|case| case.name).join("\n  ");
        return Err(Failure::usage(format!(
            "--only {text}: no workload has this in its name; they are\n  {names}"
        )));
    }
    let driver = if arguments.peers {
        Some(build_driver(folder)?)
    } else {
        None
    };
    let mut rows = Vec::new();
    for case in CASES.iter().filter(wanted) {
        progress::measuring(case.name);
        let own = median(arguments.runs, || own(case))?;
        let peer = match &driver {
            Some(driver) if case.peer => {
                Some(median(arguments.peer_runs, || peer(case, driver, folder))?)
            }
            _ => None,
        };
        progress::over();
        let first = rows.len();
        rows.extend(rows_of(case, &own, peer.as_ref()));
        if !arguments.json {
            rows[first..]
                .iter()
                .for_each(|row| println!("{}", row.line(48)));
        }
    }
    Ok(rows)
}

fn rows_of(case: &Case, own: &Measured, peer: Option<&Measured>) -> Vec<Row> {
    let row = |what: &str, value: f64, unit, peer: Option<f64>, bar| Row {
        name: format!("{}: {what}", case.name),
        value,
        unit,
        peer: peer.map(|value| ("SimGrid".to_owned(), value)),
        bar,
    };
    let time_bar = case.limits[0]
        .map(Bar::Value)
        .or(case.times.map(|t| Bar::Ratio(1.0 / t)));
    let mut rows = vec![
        row("cpu", own.cpu, "s", peer.map(|p| p.cpu), time_bar),
        row(
            "memory",
            own.memory / 1e6,
            "MB",
            peer.map(|p| p.memory / 1e6),
            case.limits[1].map(|bytes| Bar::Value(bytes / 1e6)),
        ),
        row(
            "makespan",
            own.makespan,
            "s simulated",
            peer.map(|p| p.makespan),
            None,
        ),
    ];
    if let (true, Some(peer)) = (case.same, peer) {
        let difference = (own.makespan / peer.makespan - 1.0).abs();
        let bar = Some(Bar::Value(1e-9));
        rows.push(row("difference of makespans", difference, "", None, bar));
    }
    rows
}

fn median(
    runs: usize,
    mut measure: impl FnMut() -> Result<Measured, Failure>,
) -> Result<Measured, Failure> {
    let mut all: Vec<Measured> = (0..runs.max(1))
        .map(|_| measure())
        .collect::<Result<_, _>>()?;
    all.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    Ok(all.swap_remove(all.len() / 2))
}

fn own(case: &Case) -> Result<Measured, Failure> {
    let mut command = Command::new(crate::program::farcall()?);
    let pattern = match case.algorithm {
        whole if whole.contains(':') => whole.to_owned(),
        algorithm => format!("all-to-all:{algorithm}"),
    };
    command.args([
        "flow",
        "run",
        "--json",
        "--platform",
        case.platform,
        "--size",
        case.size,
    ]);
    command.args(["--pattern", &pattern, "--tolerance", case.tolerance]);
    if case.random {
        command.args(["--placement", &format!("random:{SEED}")]);
    }
    if case.steps > 0 {
        command.args(["--steps", &case.steps.to_string()]);
    }
    report(command)
}

fn peer(case: &Case, driver: &Path, folder: &Path) -> Result<Measured, Failure> {
    let mut command = Command::new(driver);
    command
        .args(case.peer_platform)
        .arg(case.algorithm)
        .args(case.peer_size);
    command.arg(case.steps.to_string());
    if case.random {
        let file = folder.join("placement.csv");
        let nodes = Platform::parse(case.platform)
            .map_err(Failure::failed)?
            .nodes();
        let placement = Placement::random(nodes, SEED);
        let lines: String = (0..nodes as u32)
            .map(|r| format!("{}\n", placement.node(r)))
            .collect();
        std::fs::write(&file, lines)?;
        command.arg(file);
    }
    report(command)
}

/// Runs a command that prints one JSON object.
fn report(command: Command) -> Result<Measured, Failure> {
    let told = format!("{command:?}");
    let output = farcall_lab::output_of(command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = match serde_json::from_str(text.trim()) {
        Ok(value) if output.status.success() => value,
        _ => {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::failed(format!("{told}: {text} {error}")));
        }
    };
    let field = |name: &str| {
        value[name]
            .as_f64()
            .ok_or_else(|| Failure::failed(format!("{told}: no `{name}` in {text}")))
    };
    Ok(Measured {
        makespan: field("makespan")?,
        cpu: field("cpu_s")?,
        memory: field("peak_rss_bytes")?,
    })
}

fn build_driver(folder: &Path) -> Result<PathBuf, Failure> {
    let source = folder.join("simgrid_driver.cpp");
    let driver = folder.join("simgrid_driver");
    std::fs::write(&source, DRIVER)?;
    let built = Command::new("g++")
        .args(["-O2", "-std=c++17", "-o"])
        .args([&driver, &source])
        .arg("-lsimgrid")
        .output()
        .map_err(|error| Failure::failed(format!("g++: {error}: apt-get install g++")))?;
    if built.status.success() {
        return Ok(driver);
    }
    let error = String::from_utf8_lossy(&built.stderr);
    let error = error
        .lines()
        .find(|line| line.contains("error"))
        .unwrap_or("")
        .to_owned();
    let hint = "apt-get install libsimgrid-dev, or leave out --peers";
    Err(Failure::failed(format!(
        "the SimGrid driver cannot be built: {error}\n  {hint}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run without workloads would miss no bar.
    #[test]
    fn a_name_that_no_workload_has_is_refused() {
        let arguments = Arguments {
            peers: true,
            check: true,
            runs: 1,
            peer_runs: 1,
            only: Some("taurus".to_owned()),
            json: false,
        };
        let error = run(&arguments).unwrap_err().to_string();
        assert!(error.contains("torus 16x16 pairwise"), "{error}");
    }
}
