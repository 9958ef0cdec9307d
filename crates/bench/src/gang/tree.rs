//! Gang switches over a tree of daemons on 2 to 32 hosts in network namespaces, one process on
//! each. The hosts share the processors of this machine, so the processes of EP sleep instead of
//! computing, and messages between hosts take a fixed time: the rounds over the tree decide.

use super::element::now;
use super::lost::{Load, breakdown};
use super::rows::Row;
use crate::failure::Failure;
use crate::program;
use farcall_lab::{Daemon, LineShape, Sites};
use std::time::Duration;

const NODES: [u16; 5] = [2, 4, 8, 16, 32];
/// The time that a message takes from one host to another.
const HOP: Duration = Duration::from_micros(500);
const LINE: LineShape = LineShape {
    up: 1.25e7,
    down: 1.25e7,
    round_trip: HOP,
};
const END: Duration = Duration::from_secs(10);

pub(super) fn rows(seconds: f64) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for nodes in NODES {
        let sites = Sites::build(&vec![LINE; nodes.into()]).map_err(Failure::failed)?;
        sites.join().map_err(Failure::failed)?;
        for program in ["nap", "bar"] {
            let load = Load {
                program,
                elements: nodes,
                slice_ms: 100,
                form: "two",
                seconds,
            };
            rows.extend(measure(&sites, &load)?);
        }
    }
    Ok(rows)
}

/// The rows of one program on all hosts.
fn measure(sites: &Sites, load: &Load) -> Result<Vec<Row>, Failure> {
    let farcall = program::farcall()?;
    let farcall = farcall.to_string_lossy();
    let control = format!("@farcall-bench-{}-{}", std::process::id(), now());
    let trace = crate::signals::file()?;
    let mut daemons: Vec<Daemon> = Vec::new();
    for node in 0..usize::from(load.elements) {
        let mut command = sites.lab().command(Sites::host(node), &farcall);
        let listen = format!("{}:0", Sites::site_address(node));
        command
            .args([
                "gang",
                "daemon",
                "--switch-alone",
                "--slots",
                "1",
                "--log",
                "error",
            ])
            .args(["--node", &format!("node{node}"), "--listen", &listen])
            .args(["--form", load.form, "--control", &control])
            .args(["--slice", &format!("{}ms", load.slice_ms)])
            .env("FARCALL_TOKEN", "the token of this measurement");
        match node.checked_sub(1).map(|above| above / 2) {
            // A binary tree.
            Some(above) => {
                let port = daemons[above].port()?;
                let parent = format!("{}:{port}", Sites::site_address(above));
                command.args(["--parent", &parent]);
            }
            None => {
                command.arg("--trace").arg(trace.path());
            }
        }
        daemons.push(Daemon::start(command)?);
    }
    let mut command = sites.lab().command(Sites::host(0), &farcall);
    command
        .args([
            "gang",
            "run",
            "--quiet",
            "--memory",
            "1MB",
            "--control",
            &control,
        ])
        .args(["-n", &load.elements.to_string(), "--"])
        .arg(std::env::current_exe()?)
        .args(load.arguments());
    let output = farcall_lab::output_of(command)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::failed(format!("the measured job failed: {text}")));
    }
    let sums = load.sums(&String::from_utf8_lossy(&output.stdout))?;
    for daemon in daemons.iter_mut().rev() {
        daemon.stop(END)?;
    }
    let switches = breakdown(&std::fs::read_to_string(trace.path())?, &sums);
    let name = format!("tree of {} nodes, {}", load.elements, load.program);
    let slice = f64::from(load.slice_ms) * 1e3;
    let one_way = f64::from(load.elements.ilog2()) * HOP.as_secs_f64() * 1e6;
    let figure = |what: &str, value, unit| Row::new(format!("{name}, {what}"), value, unit);
    Ok(vec![
        figure("switch", switches.median, "us").beside("one way over the tree", one_way),
        figure("of a slice of 100 ms", switches.median / slice * 100.0, "%"),
        figure("switches", switches.switches, "").higher(),
    ])
}
