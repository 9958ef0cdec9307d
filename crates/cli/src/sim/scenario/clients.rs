//! Clients that call one function again and again: the cases that a scenario with `[[clients]]`
//! describes. What both kinds of scenarios have is in the parent.

use super::{Description, MOST_CALLS, Server, function, one_element, port};
use farcall_gridsim::{Arrival, Crowd, Function, Host, Load, Repeated};
use farcall_schedule::MOST_PES;
use serde::Deserialize;

/// The most clients that call again and again, and threads of their calls.
const MOST_CLIENTS: u64 = 10_000;
const MOST_THREADS: u32 = 64;
/// The least probability of a call at a step: each step that a client waits is drawn.
const LEAST_PROBABILITY: f64 = 1e-6;

/// Clients that call one function again and again. Each n with each number of clients is a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clients {
    function: String,
    /// Problem sizes.
    n: Vec<u32>,
    /// Numbers of clients at each site.
    clients: Vec<u32>,
    /// Operations per second of a call that runs alone, for each n.
    #[serde(default)]
    speed: Vec<f64>,
    /// Of a function with a name of its own, instead of `speed`: seconds of a call that runs alone,
    /// and bytes of its arguments and results, for each n.
    #[serde(default)]
    seconds: Vec<f64>,
    #[serde(default)]
    bytes: Vec<(u64, u64)>,
    /// Threads of a call.
    #[serde(default = "one_element")]
    threads: u32,
    /// Part of its computing time for which a thread needs a processor, for each n.
    #[serde(default)]
    busy: Vec<f64>,
    /// Seconds of a step.
    #[serde(deserialize_with = "farcall_quantity::time")]
    step: f64,
    /// Probability of a call at a step.
    probability: f64,
    /// How many calls of each case are measured.
    #[serde(default = "hundreds")]
    calls: usize,
    /// The only site with clients, by name; without one, all sites.
    #[serde(default)]
    site: Option<String>,
}

/// A number of clients that call a function with one problem size.
pub(in crate::sim) struct Case {
    pub(in crate::sim) function: String,
    pub(in crate::sim) n: u32,
    pub(in crate::sim) clients: u32,
    pub(in crate::sim) site: Option<String>,
    /// The names of all sites with clients.
    pub(in crate::sim) sites: Vec<String>,
    pub(in crate::sim) load: Load,
}

fn hundreds() -> usize {
    300
}

impl Description {
    /// The cases of clients that call again and again; none if the file has calls instead.
    pub(in crate::sim) fn cases(&self) -> Result<Vec<Case>, String> {
        match (self.calls.is_empty(), self.clients.is_empty()) {
            (true, true) => return Err("a scenario needs [[calls]] or [[clients]]".to_string()),
            (false, false) => {
                return Err("a scenario has either [[calls]] or [[clients]]".to_string());
            }
            _ => {}
        }
        let mut cases = Vec::new();
        for clients in &self.clients {
            let [server] = self.server.as_slice() else {
                return Err("a scenario with [[clients]] has one [[server]]".to_string());
            };
            let host = server.host()?;
            if clients.n.is_empty() || clients.clients.is_empty() {
                return Err("n and clients must have at least one number each".to_string());
            }
            for (index, n) in clients.n.iter().enumerate() {
                let repeated = clients.repeated(index)?;
                for count in &clients.clients {
                    let (sites, crowds) = self.crowds(clients, *count)?;
                    let load = Load {
                        seed: self.seed,
                        host: host.clone(),
                        sites: crowds,
                        repeated: repeated.clone(),
                        step_s: clients.step,
                        probability: clients.probability,
                        calls: clients.calls,
                    };
                    cases.push(Case {
                        function: clients.function.clone(),
                        n: *n,
                        clients: *count,
                        site: clients.site.clone(),
                        sites,
                        load,
                    });
                }
            }
        }
        Ok(cases)
    }

    /// The sites with clients, and their names.
    fn crowds(&self, clients: &Clients, count: u32) -> Result<(Vec<String>, Vec<Crowd>), String> {
        let only = self.site_named(clients.site.as_deref())?;
        let sites = self.site.iter().enumerate();
        let sites = sites.filter(|(number, _)| only.is_none_or(|only| only == *number));
        let crowds = sites.map(|(number, site)| {
            let name = site.name_or(number);
            let port = port(&name, site.up, site.down, site.latency)?;
            let line = site.client.unwrap_or(site.up.max(site.down));
            if !(line.is_finite() && line > 0.0) {
                return Err(format!("{name}: client must be greater than 0"));
            }
            let crowd = Crowd {
                clients: count,
                line,
                port,
            };
            Ok((name, crowd))
        });
        let crowds = crowds.collect::<Result<Vec<(String, Crowd)>, String>>()?;
        let all = crowds.len() as u64 * u64::from(count);
        match (1..=MOST_CLIENTS).contains(&all) {
            true => Ok(crowds.into_iter().unzip()),
            false => Err(format!(
                "clients = {count} at each of {} sites must be 1 to {MOST_CLIENTS} in all",
                crowds.len()
            )),
        }
    }
}

impl Clients {
    /// The call with the n of this index.
    fn repeated(&self, index: usize) -> Result<Repeated, String> {
        let (call, seconds) = self.call(index)?;
        let busy = match self.busy.as_slice() {
            [] => 1.0,
            all => *self
                .entry(all, index)
                .ok_or("busy must have an entry for each n")?,
        };
        if !(busy > 0.0 && busy <= 1.0) {
            return Err(format!(
                "busy = {busy} must be greater than 0 and at most 1"
            ));
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return Err(format!(
                "threads = {} must be 1 to {MOST_THREADS}",
                self.threads
            ));
        }
        if !(LEAST_PROBABILITY..=1.0).contains(&self.probability) {
            return Err(format!(
                "probability must be at least {LEAST_PROBABILITY} and at most 1"
            ));
        }
        let has_calls = (1..=MOST_CALLS).contains(&self.calls);
        if !(self.step.is_finite() && self.step >= 0.0 && has_calls) {
            return Err(format!(
                "step must be at least 0, and calls 1 to {MOST_CALLS}"
            ));
        }
        Ok(Repeated {
            seconds,
            call,
            threads: self.threads,
            busy,
        })
    }

    /// The entry of a list that has one for each n.
    fn entry<'l, T>(&self, list: &'l [T], index: usize) -> Option<&'l T> {
        list.get(index).filter(|_| list.len() == self.n.len())
    }

    /// The bytes and the seconds of the call with the n of this index.
    fn call(&self, index: usize) -> Result<(Arrival, f64), String> {
        let n = self.n[index];
        if !self.seconds.is_empty() || !self.bytes.is_empty() {
            let (seconds, bytes) = (&self.seconds, &self.bytes);
            let both = self.entry(seconds, index).zip(self.entry(bytes, index));
            let (seconds, bytes) = both.ok_or("seconds and bytes must have an entry for each n")?;
            if !self.speed.is_empty() {
                return Err("speed has no effect beside seconds; leave it out".to_string());
            }
            if !(seconds.is_finite() && *seconds >= 0.0) {
                return Err(format!("seconds = {seconds} must be at least 0"));
            }
            let call = Arrival {
                work: 0.0,
                up_bytes: bytes.0,
                down_bytes: bytes.1,
                ..Arrival::new(Function::Ep, 1)
            };
            return Ok((call, *seconds));
        }
        let (function, largest) = function(&self.function)?;
        if n == 0 || n > largest {
            return Err(format!("n = {n} must be a size from 1 to {largest}"));
        }
        let speed = self.entry(&self.speed, index);
        let speed = *speed.ok_or("speed must have an entry for each n")?;
        if !(speed.is_finite() && speed > 0.0) {
            return Err(format!("speed = {speed} must be greater than 0"));
        }
        let call = Arrival::new(function, n);
        Ok((call, call.work / speed))
    }
}

impl Server {
    /// The server of clients that call again and again.
    fn host(&self) -> Result<Host, String> {
        let name = self.name.as_deref().unwrap_or("server");
        let policy = self.queue_policy(name)?;
        if self.count != 1 || self.until.is_some() || self.speed != 0.0 {
            return Err(format!(
                "{name}: count, until and speed belong to [[calls]]; leave them out"
            ));
        }
        let amounts = [self.background, self.byte_time, self.startup];
        if !amounts
            .iter()
            .all(|amount| amount.is_finite() && *amount >= 0.0)
        {
            return Err(format!(
                "{name}: background, byte_time and startup must be at least 0"
            ));
        }
        if !(1..=MOST_PES).contains(&self.pes) || self.background >= f64::from(self.pes) {
            return Err(format!(
                "{name}: pes must be 1 to {MOST_PES}, and greater than background"
            ));
        }
        Ok(Host {
            pes: self.pes,
            policy,
            background: self.background,
            byte_s: self.byte_time,
            startup_s: self.startup,
            port: port(name, self.up, self.down, self.latency)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_gridsim::simulate_load;

    /// The rows of a table of the first Ninf paper that were not used to choose the scenario: n,
    /// clients and the mean Mflop/s of a call.
    type Rows = &'static [(u32, u32, f64)];

    const PAPERS: [(&str, Rows); 3] = [
        (
            include_str!("../../../../../examples/sim/papers/table3.toml"),
            &[
                (600, 2, 69.63),
                (600, 4, 67.05),
                (600, 8, 49.02),
                (600, 16, 21.27),
                (1000, 2, 89.90),
                (1000, 4, 81.39),
                (1000, 8, 46.48),
                (1000, 16, 21.14),
                (1400, 2, 110.48),
                (1400, 4, 93.35),
                (1400, 8, 50.11),
                (1400, 16, 23.93),
            ],
        ),
        (
            include_str!("../../../../../examples/sim/papers/table4.toml"),
            &[
                (600, 2, 83.17),
                (600, 4, 75.83),
                (600, 8, 51.51),
                (600, 16, 18.69),
                (1000, 2, 127.63),
                (1000, 4, 92.98),
                (1000, 8, 45.85),
                (1000, 16, 20.33),
                (1400, 2, 157.98),
                (1400, 4, 96.26),
                (1400, 8, 48.27),
                (1400, 16, 23.25),
            ],
        ),
        (
            include_str!("../../../../../examples/sim/papers/table5.toml"),
            &[(600, 8, 3.51), (600, 16, 2.81)],
        ),
    ];

    #[test]
    fn clients_without_a_case_are_an_error() {
        for (from, to) in [
            ("n = [600, 1000, 1400]", "n = []"),
            ("clients = [1, 2, 4, 8, 16]", "clients = []"),
        ] {
            let text = PAPERS[1].0.replace(from, to);
            assert!(text.contains(to), "{text}");
            let description: Description = toml::from_str(&text).unwrap();
            let error = description.cases().err().unwrap_or_default();
            assert!(error.contains("at least one number"), "{error}");
        }
    }

    #[test]
    fn the_tables_of_the_paper_are_predicted_from_their_first_rows() {
        for (text, rows) in PAPERS {
            let description: Description = toml::from_str(text).unwrap();
            let cases = description.cases().unwrap();
            let errors = rows.iter().map(|&(n, clients, paper)| {
                let mut cases = cases.iter();
                let case = cases.find(|case| (case.n, case.clients) == (n, clients));
                let figures = simulate_load(&case.unwrap().load);
                (figures.rates.operations_per_s.mean / 1e6 / paper - 1.0).abs()
            });
            let errors: Vec<f64> = errors.collect();
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let near = errors.iter().filter(|error| **error <= 0.15).count();
            assert!(mean <= 0.1, "mean error {mean:.3}: {errors:.3?}");
            assert!(5 * near >= 4 * errors.len(), "{errors:.3?}");
        }
    }

    /// Table 2 of the second Ninf paper: the mean seconds of a call across the Pacific.
    #[test]
    fn calls_across_the_pacific_are_predicted_from_those_on_the_lan() {
        let text = include_str!("../../../../../examples/sim/papers/table2-world.toml");
        let description: Description = toml::from_str(text).unwrap();
        let cases = description.cases().unwrap();
        let far = cases
            .iter()
            .filter(|case| case.site.as_deref() == Some("Dallas"));
        let errors = far
            .zip([39.48, 141.90, 54.31, 199.78])
            .map(|(case, paper)| {
                let error = (simulate_load(&case.load).response_s / paper - 1.0).abs();
                assert!(error <= 0.15, "{} {}: {error:.3}", case.function, case.n);
                error
            });
        let errors: Vec<f64> = errors.collect();
        assert_eq!(errors.len(), 4);
        assert!(errors.iter().sum::<f64>() <= 0.4, "{errors:.3?}");
    }

    #[test]
    fn the_other_tables_of_the_paper_are_scenarios() {
        for text in [
            include_str!("../../../../../examples/sim/papers/table6.toml"),
            include_str!("../../../../../examples/sim/papers/table7.toml"),
            include_str!("../../../../../examples/sim/papers/table8.toml"),
        ] {
            let description: Description = toml::from_str(text).unwrap();
            assert!(description.cases().unwrap().len() >= 10);
        }
    }

    #[test]
    fn a_load_that_cannot_be_is_named() {
        let (table4, _) = PAPERS[1];
        let wrong = |from: &str, to: &str| {
            let text = table4.replacen(from, to, 1);
            assert_ne!(text, table4);
            let description: Description = toml::from_str(&text).unwrap();
            let error = description.cases().err();
            error.unwrap_or_else(|| panic!("{to} is taken"))
        };
        assert!(wrong("at-once", "at-twice").contains("fcfs"));
        assert!(wrong("threads = 4", "threads = 0").contains("threads"));
        assert!(wrong("threads = 4", "threads = 4\ncalls = 0").contains("calls 1 to"));
        assert!(wrong("probability = 0.5", "probability = 1e-300").contains("probability"));
        assert!(wrong("probability = 0.5", "probability = 0.0").contains("probability"));
        assert!(wrong("[600, 1000, 1400]", "[0]").contains("n = 0"));
        assert!(wrong(", 5.719e8]", "]").contains("each n"));
        assert!(wrong("threads = 4", "seconds = [1.0]").contains("seconds and bytes"));
        assert!(wrong("[1, 2, 4, 8, 16]", "[20000]").contains("clients = 20000"));
        assert!(wrong("pes = 4", "pes = 4\nbackground = 4.0").contains("background"));
        assert!(wrong("pes = 4", "pes = 4\ncount = 2").contains("[[calls]]"));
        assert!(wrong("pes = 4", "pes = 4\nuntil = \"1s\"").contains("[[calls]]"));
        assert!(wrong("pes = 4", "pes = 4\nspeed = 1e9").contains("[[calls]]"));
        assert!(wrong(", 0.893]", "]").contains("each n"));
        assert!(wrong(", 0.893]", ", 0.893, 0.9]").contains("each n"));
        let both = "threads = 4\nseconds = [1.0, 1.0, 1.0]\nbytes = [[1, 1], [1, 1], [1, 1]]";
        assert!(wrong("threads = 4", both).contains("speed has no effect"));
        assert!(wrong("\"2.497MB/s\"", "0.0").contains("client"));
    }
}
