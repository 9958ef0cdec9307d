//! The experiments of the second Ninf paper: parallel functions called over three networks.
//! `statistics` draws the rate of the link for each call. Both functions and all sizes get the same
//! links.

use super::links::{Link, NETWORKS};
use super::statistics::{Chance, Spread};
use crate::failure::Failure;
use crate::load::clients::ClientSite;
use crate::load::problem::{Arrays, Problem, System};
use crate::load::server::LoadServer;
use crate::load::{Arguments, cores};
use farcall_client::Times;
use farcall_lab::{LineShape, Sites};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// Number of calls of each function and size.
const CALLS: usize = 24;
const QUICK_CALLS: usize = 6;
const SIZES: [usize; 4] = [200, 500, 700, 1000];
/// Number of processes that compute. The paper had four at one server and two at the other.
const ELEMENTS: &str = "2";

/// A call, and the rate of its link.
struct Called {
    network: &'static str,
    problem: Problem,
    line: LineShape,
    times: Times,
}

/// Figs. 5 to 8, Tables 2 and 4.
pub(crate) fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let far = &arguments.far;
    let sizes = arguments.sizes(&SIZES);
    let count = far
        .calls
        .unwrap_or(if arguments.quick { QUICK_CALLS } else { CALLS });
    let networks: Vec<&Link> = NETWORKS
        .iter()
        .filter(|link| far.wants_link(link.name))
        .collect();
    let problems: Vec<Problem> = [Problem::Posv, Problem::Syev]
        .iter()
        .flat_map(|of| sizes.iter().map(|n| of(*n)))
        .filter(|problem| far.wants_function(problem.function()))
        .collect();
    let bar = progress(networks.len() * problems.len() * count)?;
    let mut calls = Vec::new();
    for link in networks {
        for problem in &problems {
            calls.extend(series(arguments, link, *problem, count, &bar)?);
        }
    }
    bar.finish_and_clear();
    match arguments.json {
        true => println!("{}", to_json(&calls, arguments.faster())),
        false => print(&calls),
    }
    Ok(())
}

/// Makes this number of calls of one function over one network, one after the other. The rate of
/// the link is drawn anew for each call.
fn series(
    arguments: &Arguments,
    link: &Link,
    problem: Problem,
    count: usize,
    bar: &ProgressBar,
) -> Result<Vec<Called>, Failure> {
    let faster = arguments.faster();
    // Both functions and all sizes get the same links.
    let mut chance = Chance(1);
    let shapes: Vec<LineShape> = (0..count)
        .map(|_| link.shape(faster, &mut chance))
        .collect();
    let first = shapes.first().copied().into_iter().collect::<Vec<_>>();
    let sites = Sites::build(&first)?;
    let options = ["--pes", ELEMENTS].map(String::from);
    let server = LoadServer::start_far(&sites, &arguments.libraries, problem, &options)?;
    let place = server.seen_from(&sites, 0);
    bar.set_message(format!("{} {}", link.name, problem.function()));
    let client = || calls(&sites, &place, problem, &shapes, bar);
    // The client needs its own thread, because the thread moves to the host of its site.
    let times = std::thread::scope(|scope| scope.spawn(client).join())
        .unwrap_or_else(|_| Err(Failure::failed("the client panicked")))?;
    let called = times.into_iter().zip(shapes).map(|(times, line)| Called {
        network: link.name,
        problem,
        line,
        times,
    });
    Ok(called.collect())
}

fn calls(
    sites: &Sites,
    place: &ClientSite<'_>,
    problem: Problem,
    shapes: &[LineShape],
    bar: &ProgressBar,
) -> Result<Vec<Times>, Failure> {
    let function = place.connect()?.function(problem.function())?;
    let system = System::new(problem);
    let mut arrays = Arrays::new(&system);
    let call = |shape: &LineShape| {
        sites.shape(0, *shape)?;
        arrays.refill();
        let outcome = arrays.call(&function)?;
        bar.inc(1);
        Ok(outcome.times)
    };
    shapes.iter().map(call).collect()
}

/// A progress bar on standard error, if that is a terminal.
fn progress(steps: usize) -> Result<ProgressBar, Failure> {
    let style = "{bar:30} {pos}/{len}, {elapsed}, {msg}";
    let style = ProgressStyle::with_template(style).map_err(Failure::failed)?;
    Ok(ProgressBar::new(steps as u64).with_style(style))
}

/// The calls of each network, function and size, in the order in which they were measured.
fn groups(calls: &[Called]) -> impl Iterator<Item = &[Called]> {
    calls.chunk_by(|one, other| one.network == other.network && one.problem == other.problem)
}

/// KB/s up and down during the transfers.
fn rates(call: &Called) -> [f64; 2] {
    let [up, down] = call.problem.ways();
    [up / call.times.send * 1e-3, down / call.times.recv * 1e-3]
}

fn name(problem: Problem) -> &'static str {
    let name = problem.function();
    name.rsplit('/').next().unwrap_or(name)
}

fn figures(calls: &[Called], figure: impl Fn(&Called) -> f64) -> Spread {
    Spread::of(&calls.iter().map(figure).collect::<Vec<f64>>())
}

fn print(calls: &[Called]) {
    println!(
        "{:8} {:>5} {:9} {:>7} {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7} {:>7}  {:>6} {:>7} {:>6} {:>7}",
        "",
        "n",
        "",
        "min s",
        "max s",
        "mean s",
        "sd s",
        "SEND",
        "EXEC",
        "RECV",
        "OTHER",
        "up KB/s",
        "of link",
        "down",
        "of link"
    );
    for group in groups(calls) {
        let first = &group[0];
        let total = figures(group, |call| call.times.total);
        print!(
            "{:8} {:>5} {:9} {:7.3} {:7.3} {:7.3} {:7.3} ",
            name(first.problem),
            first.problem.size(),
            first.network,
            total.min,
            total.max,
            total.mean,
            total.deviation
        );
        let parts: [fn(&Times) -> f64; 4] = [|t| t.send, |t| t.exec, |t| t.recv, |t| t.other];
        for part in parts {
            print!(" {:7.3}", figures(group, |call| part(&call.times)).mean);
        }
        for way in 0..2 {
            let line = |call: &Called| [call.line.up, call.line.down][way] * 1e-3;
            let rate = figures(group, |call| rates(call)[way]).mean;
            let part = figures(group, |call| rates(call)[way] / line(call)).mean;
            print!(" {rate:7.0} {part:7.2}");
        }
        println!();
    }
}

fn to_json(calls: &[Called], faster: f64) -> Value {
    let call = |call: &Called| {
        let [up, down] = rates(call);
        json!({
            "network": call.network, "function": name(call.problem), "n": call.problem.size(),
            "send_s": call.times.send, "exec_s": call.times.exec, "recv_s": call.times.recv,
            "other_s": call.times.other, "total_s": call.times.total,
            "up_kb_s": up, "down_kb_s": down,
            "link_up_kb_s": call.line.up * 1e-3, "link_down_kb_s": call.line.down * 1e-3,
        })
    };
    let summary = |group: &[Called]| {
        let first = &group[0];
        let way = |way: usize| figures(group, |call| rates(call)[way]).to_json();
        json!({
            "network": first.network, "function": name(first.problem),
            "n": first.problem.size(), "calls": group.len(),
            "bytes_up": first.problem.ways()[0], "bytes_down": first.problem.ways()[1],
            "total_s": figures(group, |call| call.times.total).to_json(),
            "up_kb_s": way(0), "down_kb_s": way(1),
        })
    };
    json!({
        "schema": 1,
        "experiment": "world",
        "faster": faster,
        "cores": cores(),
        "summary": groups(calls).map(summary).collect::<Vec<Value>>(),
        "calls": calls.iter().map(call).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn called(n: usize, send: f64, recv: f64) -> Called {
        Called {
            network: "lan",
            problem: Problem::Syev(n),
            line: LineShape {
                up: 2e6,
                down: 2e6,
                round_trip: Duration::ZERO,
            },
            times: Times {
                send,
                exec: 0.5,
                recv,
                other: 0.25,
                total: send + recv + 0.75,
            },
        }
    }

    #[test]
    fn tables_are_computed_from_the_calls() {
        let calls = [
            called(1000, 8.0, 10.0),
            called(1000, 4.0, 10.0),
            called(500, 1.0, 2.0),
        ];
        let sizes: Vec<usize> = groups(&calls).map(<[Called]>::len).collect();
        assert_eq!(sizes, [2, 1]);
        let made = to_json(&calls, 10.0);
        // 8 n^2 bytes in 8 s and in 4 s.
        let up = &made["summary"][0]["up_kb_s"];
        assert_eq!((&up["min"], &up["max"]), (&json!(1000.0), &json!(2000.0)));
        assert_eq!(made["summary"][0]["total_s"]["mean"], json!(16.75));
        assert_eq!(
            made["calls"][2]["down_kb_s"],
            json!((4_004_004.0 / 2.0) * 1e-3)
        );
        assert_eq!(made["calls"][0]["link_up_kb_s"], json!(2000.0));
    }
}
