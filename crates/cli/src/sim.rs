//! `farcall sim`: runs a scenario under placement policies in virtual time, and prints their
//! response times. `scenario` reads the file, and the crate `gridsim` simulates. The same file
//! always gives the same output. `replay` simulates a recorded day instead.

mod replay;
mod scenario;

use crate::document;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_gridsim::{
    Figures, Function, Outcome, Rates, Scenario, Spread, simulate, simulate_load,
};
use farcall_schedule::placement::Policy;
use farcall_schedule::queue::Policy as QueuePolicy;
use scenario::{Case, Description, Named};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const AFTER: &str = "\
The scenario is a TOML file with tables [[server]], [[site]] and [[calls]]. With [[clients]] instead
of [[calls]], clients call one server again and again, as in the first Ninf paper. Rates are in
bytes/s, or have a unit. Placement, queues and estimates use the code of real servers.

Examples:
  farcall sim examples/sim/two-servers.toml
  farcall sim examples/sim/papers/table4.toml
  farcall sim examples/sim/policies.toml --queue fcfs --queue sjf --queue fpfs
  farcall sim examples/sim/two-servers.toml --policy completion --json
  farcall sim replay /var/lib/farcall --elements a=8";

/// Simulate clients, servers and networks in virtual time, and compare policies
#[derive(Args)]
#[command(after_help = AFTER)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Scenario file
    #[arg(value_name = "SCENARIO", required = true)]
    scenario: Option<PathBuf>,
    /// How to choose the server for a call: round-robin, least-load, load-and-throughput or
    /// completion; may be given several times [default: all four]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Vec<Policy>,
    /// In which order all servers start calls, instead of the scenario's policies: fcfs, sjf, fpfs
    /// or fmpfs; may be given several times
    #[arg(long, value_name = "POLICY", value_parser = queue_policy)]
    queue: Vec<QueuePolicy>,
    /// Print one JSON object, with every call
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Replay(Box<replay::Arguments>),
}

fn policy(name: &str) -> Result<Policy, String> {
    let names = Policy::NAMES.map(|(name, _)| name).join(", ");
    Policy::named(name).ok_or_else(|| format!("no such policy; use one of {names}"))
}

fn queue_policy(name: &str) -> Result<QueuePolicy, String> {
    let policy = QueuePolicy::named(name).filter(|policy| *policy != QueuePolicy::AtOnce);
    policy.ok_or_else(|| "no such policy; use one of fcfs, sjf, fpfs, fmpfs".to_string())
}

/// A simulated pair of policies: where calls go, and in which order servers start them if the
/// scenario does not say.
#[derive(Clone, Copy)]
struct Policies {
    placement: Policy,
    queue: Option<QueuePolicy>,
}

impl Policies {
    fn simulate(self, scenario: &Scenario) -> Outcome {
        let mut scenario = scenario.clone();
        if let Some(queue) = self.queue {
            let machines = scenario.machines.iter_mut();
            machines.for_each(|machine| machine.policy = queue);
        }
        simulate(&scenario, self.placement)
    }

    fn name(self) -> String {
        match self.queue {
            None => self.placement.name().to_string(),
            Some(queue) => format!("{}, {}", self.placement.name(), queue.name()),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match (&arguments.command, &arguments.scenario) {
        (Some(Command::Replay(arguments)), _) => replay::run(arguments),
        (None, Some(scenario)) => run_scenario(arguments, scenario),
        (None, None) => Err(Failure::usage("give a scenario file")),
    }
}

fn run_scenario(arguments: &Arguments, path: &Path) -> Result<(), Failure> {
    let text = document::read(path, document::MOST_BYTES);
    let path = path.display();
    let text = text.map_err(|error| Failure::cannot("read", &path, error))?;
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::cannot("use the scenario", &path, error).into_usage()
    };
    let description: Description = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let cases = description.cases().map_err(|error| wrong(&error))?;
    if !cases.is_empty() {
        if !(arguments.policy.is_empty() && arguments.queue.is_empty()) {
            return Err(Failure::usage(
                "--policy and --queue: a scenario with [[clients]] has one server, whose `policy` \
                 is in the file. Leave them out",
            ));
        }
        run_cases(&cases, arguments.json);
        return Ok(());
    }
    let named = description.scenario().map_err(|error| wrong(&error))?;
    let placements = match (arguments.policy.as_slice(), arguments.queue.is_empty()) {
        ([], true) => Policy::NAMES.map(|(_, policy)| policy).to_vec(),
        ([], false) => vec![Policy::default()],
        (chosen, _) => chosen.to_vec(),
    };
    let queues = match arguments.queue.as_slice() {
        [] => vec![None],
        chosen => chosen.iter().copied().map(Some).collect(),
    };
    let pairs = placements.into_iter().flat_map(|placement| {
        let queues = queues.iter();
        queues.map(move |queue| Policies {
            placement,
            queue: *queue,
        })
    });
    let outcomes = pairs.map(|policies| (policies, policies.simulate(&named.scenario)));
    match arguments.json {
        true => {
            let runs: Vec<Value> = outcomes.map(|one| to_json(&named, one.0, &one.1)).collect();
            println!(
                "{}",
                json!({ "schema": 1, "servers": named.servers, "runs": runs })
            );
        }
        false => print(&named, outcomes),
    }
    Ok(())
}

/// Runs the cases of clients that call again and again, each as a row of a table.
fn run_cases(cases: &[Case], json: bool) {
    let rows = cases.iter().map(|case| (case, simulate_load(&case.load)));
    if json {
        let rows: Vec<Value> = rows.map(|(case, row)| row_json(case, &row)).collect();
        println!("{}", json!({ "schema": 1, "rows": rows }));
        return;
    }
    println!(
        "function       n  clients  Mflop/s: max      min     mean  MB/s: max    min   mean  \
         busy   load  response      wait"
    );
    for (case, row) in rows {
        let site = case
            .site
            .as_deref()
            .map_or(String::new(), |site| format!("  {site}"));
        println!(
            "{:<9} {:>6} {:>8} {} {:>4.0} % {:>6.2} {:>7.2} s {:>7.2} s{site}",
            case.function,
            case.n,
            case.clients,
            rates(&row.rates),
            100.0 * row.utilisation,
            row.load,
            row.response_s,
            row.wait_s,
        );
        if row.sites.len() > 1 {
            for (name, site) in case.sites.iter().zip(&row.sites) {
                println!("{:25} {}  {name}", "", rates(site));
            }
        }
    }
}

/// The columns of rates, in millions.
fn rates(rates: &Rates) -> String {
    let spreads = [
        (rates.operations_per_s, [13, 8, 8], 2),
        (rates.bytes_per_s, [10, 6, 6], 3),
    ];
    let columns = spreads.map(|(Spread { max, min, mean }, widths, digits)| {
        let columns = [max, min, mean].into_iter().zip(widths);
        let columns = columns.map(|(rate, width)| match rate.is_nan() {
            true => format!("{:>width$}", "-"),
            false => format!("{:>width$.digits$}", rate / 1e6),
        });
        columns.collect::<Vec<String>>().join(" ")
    });
    columns.join(" ")
}

fn row_json(case: &Case, row: &Figures) -> Value {
    let spread = |spread: Spread| {
        json!({
            "max": spread.max / 1e6,
            "min": spread.min / 1e6,
            "mean": spread.mean / 1e6,
        })
    };
    let sites = case.sites.iter().zip(&row.sites).map(|(name, rates)| {
        json!({
            "site": name,
            "mflops": spread(rates.operations_per_s),
            "mbytes_per_s": spread(rates.bytes_per_s),
        })
    });
    let sites: Vec<Value> = sites.collect();
    json!({
        "function": case.function,
        "n": case.n,
        "clients": case.clients,
        "site": case.site,
        "mflops": spread(row.rates.operations_per_s),
        "mbytes_per_s": spread(row.rates.bytes_per_s),
        "sites": sites,
        "utilisation": 100.0 * row.utilisation,
        "load": row.load,
        "response_s": row.response_s,
        "wait_s": row.wait_s,
        "makespan_s": row.makespan_s,
        "mean_response_s": row.response_s,
    })
}

fn calls_of(outcome: &Outcome, servers: usize) -> Vec<usize> {
    let mut calls = vec![0; servers];
    for one in &outcome.records {
        calls[one.server] += 1;
    }
    calls
}

fn to_json(named: &Named, policies: Policies, outcome: &Outcome) -> Value {
    let calls = named.scenario.arrivals.iter().zip(&outcome.records);
    let calls = calls.map(|(arrival, one)| {
        json!({
            "at_s": arrival.at_s,
            "server": one.server,
            "predicted_s": one.predicted_s,
            "seconds": one.seconds,
            "computing_s": one.computed_s - one.started_s,
            "function": Function::ALL.get(arrival.function).map(|function| function.name()),
            "up_bytes": arrival.up_bytes,
            "down_bytes": arrival.down_bytes,
            "pes": arrival.most,
        })
    });
    let machines = named.scenario.machines.iter();
    let until = machines.map(|machine| machine.present.end);
    let until = until.map(|end| end.is_finite().then_some(end));
    json!({
        "until_s": until.collect::<Vec<Option<f64>>>(),
        "policy": policies.placement.name(),
        "queue": policies.queue.map(QueuePolicy::name),
        "makespan_s": outcome.makespan_s(),
        "mean_response_s": outcome.mean_response_s(),
        "response_95_s": outcome.response_s(0.95),
        "median_error": outcome.median_error(0),
        "calls": calls.collect::<Vec<Value>>(),
    })
}

fn print(named: &Named, outcomes: impl Iterator<Item = (Policies, Outcome)>) {
    /// Servers whose calls have a column.
    const COLUMNS: usize = 8;
    let shown = named.servers.iter().take(COLUMNS);
    let widths: Vec<usize> = shown.clone().map(|name| width(name)).collect();
    let titles: Vec<String> = shown
        .zip(&widths)
        .map(|(name, width)| format!("{name:>width$}"))
        .collect();
    println!(
        "policy                 makespan  mean response  95 % within  error  {}",
        titles.join("")
    );
    for (policies, outcome) in outcomes {
        let calls = calls_of(&outcome, named.servers.len());
        let calls: Vec<String> = calls
            .iter()
            .zip(&widths)
            .map(|(one, width)| format!("{one:>width$}"))
            .collect();
        println!(
            "{:<20} {:>8.2} s  {:>11.3} s  {:>9.3} s  {:>3.0} %  {}",
            policies.name(),
            outcome.makespan_s(),
            outcome.mean_response_s(),
            outcome.response_s(0.95),
            100.0 * outcome.median_error(0),
            calls.join("")
        );
    }
}

/// The width of the column of a server: names do not touch.
fn width(name: &str) -> usize {
    10.max(name.chars().count() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_wider_than_the_names_of_servers() {
        assert_eq!(["far", "server 1", "server 1 10"].map(width), [10, 10, 13]);
    }

    #[test]
    fn a_site_without_measured_calls_has_no_rates() {
        let spread = |rate| Spread {
            max: rate,
            min: rate,
            mean: rate,
        };
        let of = |operations, bytes| {
            rates(&Rates {
                operations_per_s: spread(operations),
                bytes_per_s: spread(bytes),
            })
        };
        assert_eq!(
            of(83.344e6, 1e7),
            "        83.34    83.34    83.34     10.000 10.000 10.000"
        );
        assert_eq!(
            of(f64::NAN, f64::NAN),
            "            -        -        -          -      -      -"
        );
    }

    #[test]
    fn policies_are_refused_where_they_have_no_effect() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sim");
        let file = folder.join("papers/table4.toml");
        for (policy, queue) in [
            (vec![Policy::default()], Vec::new()),
            (Vec::new(), vec![QueuePolicy::Sjf]),
        ] {
            let arguments = Arguments {
                command: None,
                scenario: Some(file.clone()),
                policy,
                queue,
                json: false,
            };
            let failure = run_scenario(&arguments, &file).unwrap_err();
            assert!(format!("{failure:?}").contains("--policy and --queue"));
        }
    }
}
