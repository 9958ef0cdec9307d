//! `farcall bench load`: many clients at once. `papers` has the experiments of the Ninf papers, and
//! this module has `dgesv` and what all experiments share. Each case reports rates, waits and
//! fairness in the same form.

pub(crate) mod clients;
pub(crate) mod problem;
pub(crate) mod server;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::progress;
use crate::table::{Better, Row, bars, median, print_table};
use clap::{Args, ValueEnum};
use clients::{ClientSite, Pace, Run};
use problem::Problem;
use serde_json::{Value, json};
use server::LoadServer;
use std::path::PathBuf;

/// Measure many clients at once: rates, waits and fairness, also in the mode of the first Ninf
/// servers
///
/// `dgesv` measures whether the rate holds up to 64 clients and whether the server treats all of
/// them alike. The other cases repeat the experiments of the two Ninf papers.
/// docs/papers/load-paper.md and docs/papers/world-paper.md compare the results with the papers.
/// `wan`, `sites`, `shared`, `world` and `bmi` create and remove network namespaces for long links,
/// so they need root. `bmi` runs examples/bmi, which `make -C examples/bmi` builds.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall bench load --check
  farcall bench load many --quick --json > many.json && python benches/load/paper.py many.json
  sudo farcall bench load world --quick
  sudo farcall bench load world --links world --sizes 500,1000 --functions pdposv --json
  sudo farcall bench load sites --faster 100")]
pub(crate) struct Arguments {
    /// Experiment to run
    #[arg(value_enum, default_value_t = What::Dgesv)]
    pub(crate) what: What,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    pub(crate) check: bool,
    /// Run fewer cases with shorter steps, which takes some minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Numbers of clients [default: the powers of 2 from 1 to 64]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = whole)]
    pub(crate) clients: Vec<usize>,
    /// Orders of the matrices of `many`, `wan`, `sites` and `world` [default: the papers']
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = whole)]
    sizes: Vec<usize>,
    /// Order of the systems of `dgesv`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole)]
    size: usize,
    /// Seconds of one case of `dgesv`; doubled for more than 16 clients
    #[arg(long, value_name = "SECONDS", default_value_t = 2.5, value_parser = seconds)]
    seconds: f64,
    /// Number of rounds of `dgesv` and `policies`; figures are medians over them
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Folder with linpack.idl, ep.idl, lapack.idl and their libraries
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    pub(crate) libraries: PathBuf,
    #[command(flatten)]
    pub(crate) far: Far,
}

/// Options for long links.
#[derive(Args)]
#[command(next_help_heading = "Long links")]
pub(crate) struct Far {
    /// Factor by which links are faster than the papers'; the time of light is not scaled [default:
    /// 10, for `sites` and `wan` 20; with --quick 40 and 100]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    faster: Option<f64>,
    /// Calls of each function, size and link of `world` [default: 24, with --quick 6]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub(crate) calls: Option<usize>,
    /// Links of `world` [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(value_parser = ["lan", "domestic", "world"])]
    links: Vec<String>,
    /// Functions of `world` [default: both]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(value_parser = ["pdposv", "pdsyev"])]
    functions: Vec<String>,
}

impl Far {
    pub(crate) fn faster(&self, what: What, quick: bool) -> f64 {
        let usual = match (what, quick) {
            (What::World, false) => 10.0,
            (What::World, true) => 40.0,
            (_, false) => 20.0,
            (_, true) => 100.0,
        };
        self.faster.unwrap_or(usual)
    }

    pub(crate) fn wants_link(&self, name: &str) -> bool {
        self.links.is_empty() || self.links.iter().any(|link| link == name)
    }

    pub(crate) fn wants_function(&self, name: &str) -> bool {
        let functions = &self.functions;
        functions.is_empty() || functions.iter().any(|function| name.ends_with(function))
    }
}

/// Parses a number of things, at least one.
fn whole(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "use a whole number above 0".into())
}

/// Parses the seconds of a case.
fn seconds(text: &str) -> Result<f64, String> {
    let is_fit = |seconds: &f64| (0.1..=3600.0).contains(seconds);
    let seconds = text.parse().ok().filter(is_fit);
    seconds.ok_or_else(|| "use 0.1 to 3600 seconds".into())
}

/// Parses a number between 0.1 and 1000.
fn factor(text: &str) -> Result<f64, String> {
    let is_fit = |factor: &f64| (0.1..=1000.0).contains(factor);
    let factor = text.parse().ok().filter(is_fit);
    factor.ok_or_else(|| "use a number from 0.1 to 1000".into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Clients that call dgesv without a pause
    Dgesv,
    /// One client compared with local code (Figs. 3 and 4, Table 2)
    Single,
    /// Many clients of Linpack, on one processor element or on all (Tables 3 to 5)
    Many,
    /// Clients times threads (Fig. 6)
    Threads,
    /// Many clients of EP (Table 8)
    Ep,
    /// Many clients of Linpack behind one long link (Tables 6 and 7)
    Wan,
    /// Clients of Linpack at four sites, each site alone and all at once (Fig. 8)
    Sites,
    /// The same with one line before the server that all sites share (Fig. 8), beside `farcall sim`
    Shared,
    /// Parallel calls under each queue policy, beside `farcall sim` (sections 5.2 and 5.3)
    Policies,
    /// The second paper: pdposv and pdsyev over LAN, domestic and world-wide links
    World,
    /// The second paper: branch and bound on eight servers and on one (Tables 5 to 7)
    Bmi,
}

impl Arguments {
    /// Factor by which the links are faster than the papers'.
    pub(crate) fn faster(&self) -> f64 {
        self.far.faster(self.what, self.quick)
    }

    /// Orders of the matrices.
    pub(crate) fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        match self.sizes.is_empty() {
            true => usual.to_vec(),
            false => self.sizes.clone(),
        }
    }

    /// Numbers of clients to measure.
    pub(crate) fn counts(&self, most: usize) -> Vec<usize> {
        match self.clients.is_empty() {
            true => (0..)
                .map(|power| 1 << power)
                .take_while(|count| *count <= most)
                .collect(),
            false => self.clients.clone(),
        }
    }
}

/// Number of cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A mode of the server, by its options.
pub(crate) struct ServeOptions {
    pub(crate) name: &'static str,
    pub(crate) options: Vec<String>,
}

impl ServeOptions {
    pub(crate) fn new(name: &'static str, options: &[(&str, usize)], policy: &str) -> ServeOptions {
        let mut all = vec!["--policy".to_string(), policy.to_string()];
        for (option, value) in options {
            all.extend([option.to_string(), value.to_string()]);
        }
        ServeOptions { name, options: all }
    }

    /// The default mode of Farcall.
    pub(crate) fn queue() -> ServeOptions {
        ServeOptions::new("queue", &[], "fcfs")
    }

    /// The mode of the first Ninf servers.
    pub(crate) fn at_once() -> ServeOptions {
        ServeOptions::new("at once", &[("--pes", cores())], "at-once")
    }
}

/// One measured case, with the figures of the papers' tables.
pub(crate) struct Case {
    pub(crate) experiment: &'static str,
    pub(crate) way: &'static str,
    /// Order of the systems, or exponent of the number of trials.
    pub(crate) n: usize,
    pub(crate) clients: usize,
    pub(crate) run: Run,
    pub(crate) machine: machine::Use,
}

impl Case {
    pub(crate) fn measure(
        experiment: &'static str,
        way: &'static str,
        server: &LoadServer,
        problem: Problem,
        clients: usize,
        pace: Pace,
    ) -> Result<Case, Failure> {
        let machine = Machine::watch();
        let places = vec![ClientSite::here(server.address()); clients];
        let mut run = clients::run(&places, problem, pace)?;
        let machine = machine.end();
        run.take_waits(server.calls(run.all_calls)?);
        Ok(Case {
            experiment,
            way,
            n: problem.size(),
            clients,
            run,
            machine,
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let run = &self.run;
        let spread = |values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            json!({ "max": most, "min": least, "mean": mean })
        };
        let mut case = json!({
            "experiment": self.experiment,
            "way": self.way,
            "n": self.n,
            "clients": self.clients,
            "calls": run.calls().count(),
            "aggregate_mflops": run.aggregate() * 1e-6,
            "mflops": spread(run.rates().map(|rate| rate * 1e-6).collect()),
            "mb_s": spread(run.throughputs().map(|rate| rate * 1e-6).collect()),
            "cpu_percent": self.machine.cpu_percent,
            "t_response_s": run.response(),
            "t_wait_s": run.wait(),
            "slowest_client": run.unfairness().1,
            "fastest_client": run.unfairness().0,
        });
        self.machine.add_to(&mut case);
        case
    }

    pub(crate) fn print_header() {
        println!(
            "{:10} {:>6} {:>4} {:>6} {:>26} {:>9} {:>23} {:>6} {:>6} {:>11} {:>8}",
            "",
            "n",
            "c",
            "calls",
            "Mflop/s max/min/mean",
            "all",
            "MB/s max/min/mean",
            "CPU %",
            "load",
            "T_response",
            "T_wait"
        );
    }

    pub(crate) fn print(&self) {
        let case = self.to_json();
        let spread = |name: &str, digits: usize| {
            let value = |part: &str| case[name][part].as_f64().unwrap_or(f64::NAN);
            let [max, min, mean] = ["max", "min", "mean"].map(value);
            format!("{max:.digits$}/{min:.digits$}/{mean:.digits$}")
        };
        println!(
            "{:10} {:>6} {:>4} {:>6} {:>26} {:>9.0} {:>23} {:>6.1} {:>6.1} {:>11.4} {:>8.4}",
            self.way,
            self.n,
            self.clients,
            self.run.calls().count(),
            spread("mflops", 1),
            self.run.aggregate() * 1e-6,
            spread("mb_s", 0),
            self.machine.cpu_percent,
            self.machine.load,
            self.run.response(),
            self.run.wait(),
        );
    }
}

/// Prints cases, and rows if there are any.
pub(crate) fn show(arguments: &Arguments, cases: &[Case], rows: &[Row]) -> Result<(), Failure> {
    if arguments.json {
        let cases: Vec<Value> = cases.iter().map(Case::to_json).collect();
        let shown: Vec<Value> = rows.iter().map(Row::to_json).collect();
        println!(
            "{}",
            json!({ "schema": 1, "cases": cases, "rows": shown, "cores": cores() })
        );
    } else if !rows.is_empty() {
        progress::over();
        println!();
        print_table(rows);
    }
    match arguments.check {
        true => bars(rows),
        false => Ok(()),
    }
}

/// Prints the result of a case, unless the output is one JSON object at the end.
pub(crate) fn tell(arguments: &Arguments, case: &Case) {
    if !arguments.json {
        case.print();
    }
}

/// Measures whether the rate holds and whether all clients are treated alike, also in the mode of
/// the first Ninf servers.
pub(crate) fn dgesv(arguments: &Arguments) -> Result<(), Failure> {
    let problem = Problem::Dgesv(arguments.size);
    let counts = arguments.counts(64);
    let seconds = if arguments.quick {
        arguments.seconds.min(1.0)
    } else {
        arguments.seconds
    };
    let ways = [ServeOptions::queue(), ServeOptions::at_once()];
    if !arguments.json {
        Case::print_header();
    }
    let mut cases = Vec::new();
    for _ in 0..arguments.rounds {
        for way in &ways {
            let server = LoadServer::start(&arguments.libraries, problem, &way.options)?;
            for count in &counts {
                // Each of many clients needs several calls for the comparison.
                let pace = Pace::always(seconds * if *count > 16 { 2.0 } else { 1.0 });
                let case = Case::measure("dgesv", way.name, &server, problem, *count, pace)?;
                tell(arguments, &case);
                cases.push(case);
            }
        }
    }
    let rows = dgesv_rows(&cases, &counts);
    show(arguments, &cases, &rows)
}

fn dgesv_rows(cases: &[Case], counts: &[usize]) -> Vec<Row> {
    let of = |way: &str, count: usize, figure: fn(&Run) -> f64| -> Vec<f64> {
        let matches = |case: &&Case| case.way == way && case.clients == count;
        cases
            .iter()
            .filter(matches)
            .map(|case| figure(&case.run))
            .collect()
    };
    let rate: fn(&Run) -> f64 = |run| run.aggregate() * 1e-6;
    let most = counts.iter().copied().max().unwrap_or(1);
    let best = |way: &str| {
        let rates = counts.iter().map(|count| of(way, *count, rate));
        let best = rates.max_by(|one, other| median(one).total_cmp(&median(other)));
        best.unwrap_or_default()
    };
    let rates = |name: &str, values, peer, peer_values, bar| Row {
        name: format!("c = {most}, {name}"),
        unit: "Mflop/s",
        values,
        peer,
        peer_values,
        better: Better::Higher,
        bar,
    };
    let times = |name: &str, way, figure, better, bar| Row {
        name: format!("c = {most}, {name}"),
        unit: "",
        values: of(way, most, figure),
        peer: "mean of all",
        peer_values: vec![1.0],
        better,
        bar,
    };
    let [ours, theirs] = ["queue", "at once"].map(|way| of(way, most, rate));
    let slowest: fn(&Run) -> f64 = |run| run.unfairness().1;
    let fastest: fn(&Run) -> f64 = |run| run.unfairness().0;
    let (higher, lower) = (Better::Higher, Better::Lower);
    vec![
        rates(
            "all clients",
            ours.clone(),
            "best c",
            best("queue"),
            Some(0.95),
        ),
        times("slowest client's time", "queue", slowest, lower, Some(1.2)),
        times("fastest client's time", "queue", fastest, higher, Some(0.8)),
        rates("all clients", ours, "at once", theirs.clone(), None),
        rates("all, at once", theirs, "its best c", best("at once"), None),
        times("slowest, at once", "at once", slowest, lower, None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::arguments;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for wrong in [
            ["--seconds", "-1"],
            ["--seconds", "nan"],
            ["--seconds", "1e300"],
            ["--clients", "1,0"],
            ["--sizes", "0"],
            ["--size", "0"],
            ["--calls", "0"],
            ["--links", "lan,moon"],
            ["--functions", "dgesv"],
        ] {
            let [option, value] = wrong;
            let word = format!("{option}={value}");
            assert!(arguments::<Arguments>(vec![&word]).is_err(), "{word}");
        }
        let words = [
            "world",
            "--links=lan,world",
            "--functions=pdsyev",
            "--clients=1,4",
        ];
        let arguments: Arguments = arguments(words.to_vec()).unwrap();
        assert_eq!(arguments.counts(64), [1, 4]);
        assert!(arguments.far.wants_link("lan") && !arguments.far.wants_link("domestic"));
        assert!(!arguments.far.wants_function("scalapack/pdposv"));
    }
}
