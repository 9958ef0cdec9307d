//! The file of a scenario: clients, servers and links as TOML. It is checked before it becomes a
//! scenario of `gridsim`.

use farcall_gridsim::{
    Arrival, Crowd, Function, Host, Load, Machine, Port, Repeated, Scenario, Site,
};
use farcall_random::SplitMix64;
use farcall_schedule::MOST_PES;
use farcall_schedule::queue::Policy;
use serde::Deserialize;

/// The most servers, sites and calls that are simulated.
const MOST_HOSTS: usize = 10_000;
const MOST_CALLS: usize = 1_000_000;
/// The most pairs of a server and a site: what is known of each path takes about a kilobyte.
const MOST_PATHS: usize = 1_000_000;
/// The most clients that call again and again, and threads of their calls.
const MOST_CLIENTS: u64 = 10_000;
const MOST_THREADS: u32 = 64;
/// The least probability of a call at a step: each step that a client waits is drawn.
const LEAST_PROBABILITY: f64 = 1e-6;

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    /// Of the random moments and sizes.
    #[serde(default)]
    seed: u64,
    server: Vec<Server>,
    site: Vec<Place>,
    #[serde(default)]
    calls: Vec<Calls>,
    /// Clients that call again and again, instead of `calls`.
    #[serde(default)]
    clients: Vec<Clients>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    #[serde(default)]
    name: Option<String>,
    /// How many of the kind.
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "one_element")]
    pes: u32,
    /// Operations per second of an element, for `calls`.
    #[serde(default)]
    speed: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    up: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    down: f64,
    #[serde(default, deserialize_with = "farcall_quantity::time")]
    latency: f64,
    /// The order in which calls start.
    #[serde(default)]
    policy: Option<String>,
    /// When the server drains: it completes its calls and takes no more of `calls`.
    #[serde(default, deserialize_with = "some_time")]
    until: Option<f64>,
    /// Processors that other programs keep busy, beside `clients`.
    #[serde(default)]
    background: f64,
    /// Seconds of processor time for each byte that `clients` transfer.
    #[serde(default)]
    byte_time: f64,
    /// Seconds until the server takes the arguments of a call of `clients`.
    #[serde(default, deserialize_with = "farcall_quantity::time")]
    startup: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    #[serde(default)]
    name: Option<String>,
    /// Each client's own line.
    #[serde(default, deserialize_with = "some_number")]
    client: Option<f64>,
    #[serde(deserialize_with = "farcall_quantity::number")]
    up: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    down: f64,
    #[serde(default, deserialize_with = "farcall_quantity::time")]
    latency: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    function: String,
    count: usize,
    /// Least and greatest problem size.
    n: (u32, u32),
    #[serde(default, deserialize_with = "farcall_quantity::time")]
    within: f64,
    #[serde(default)]
    noise: f64,
    /// Most processor elements of which a call makes use.
    #[serde(default)]
    pes: Option<u32>,
    /// Fewest processor elements on which a call can compute: `pes` for a parallel function that
    /// cannot do with fewer.
    #[serde(default = "one_element")]
    fewest: u32,
    /// The site, by name; without one, each call comes from any.
    #[serde(default)]
    site: Option<String>,
}

/// Clients that call one function again and again. Each n with each number of clients is a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
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
pub(super) struct Case {
    pub(super) function: String,
    pub(super) n: u32,
    pub(super) clients: u32,
    pub(super) site: Option<String>,
    /// The names of all sites with clients.
    pub(super) sites: Vec<String>,
    pub(super) load: Load,
}

fn some_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    farcall_quantity::number(from).map(Some)
}

fn some_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    farcall_quantity::time(from).map(Some)
}

fn hundreds() -> usize {
    300
}

fn one() -> usize {
    1
}

fn one_element() -> u32 {
    1
}

/// A scenario and the names of its servers.
pub(super) struct Named {
    pub(super) scenario: Scenario,
    pub(super) servers: Vec<String>,
}

impl Description {
    /// Draws the calls.
    pub(super) fn scenario(&self) -> Result<Named, String> {
        let random = &mut SplitMix64::new(self.seed);
        let (mut machines, mut servers) = (Vec::new(), Vec::new());
        for (number, server) in self.server.iter().enumerate() {
            let name = server.name.clone();
            let name = name.unwrap_or_else(|| format!("server {}", number + 1));
            if server.count == 0 || servers.len() + server.count > MOST_HOSTS {
                return Err(format!(
                    "{name}: count = {} must be 1 to {MOST_HOSTS}",
                    server.count
                ));
            }
            let machine = server.machine(&name)?;
            for copy in 0..server.count {
                machines.push(machine.clone());
                servers.push(match server.count {
                    1 => name.clone(),
                    _ => format!("{name} {}", copy + 1),
                });
            }
        }
        let sites = self.site.iter().enumerate().map(|(number, site)| {
            let name = site.name_or(number);
            if site.client.is_some() {
                return Err(format!(
                    "{name}: client belongs to [[clients]]; leave it out"
                ));
            }
            let port = port(&name, site.up, site.down, site.latency)?;
            Ok(Site { port })
        });
        let sites = sites.collect::<Result<Vec<Site>, String>>()?;
        if machines.is_empty() || sites.is_empty() || sites.len() > MOST_HOSTS {
            return Err(format!(
                "a scenario must have 1 to {MOST_HOSTS} servers and 1 to {MOST_HOSTS} sites"
            ));
        }
        if machines.len() * sites.len() > MOST_PATHS {
            return Err(format!(
                "{} servers and {} sites have more than {MOST_PATHS} paths between them",
                machines.len(),
                sites.len()
            ));
        }
        let mut arrivals = Vec::new();
        for calls in &self.calls {
            if arrivals.len() + calls.count > MOST_CALLS {
                return Err(format!("a scenario can have at most {MOST_CALLS} calls"));
            }
            self.draw(calls, random, &mut arrivals)?;
        }
        arrivals.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        let scenario = Scenario {
            machines,
            sites,
            paths: Default::default(),
            arrivals,
        };
        Ok(Named { scenario, servers })
    }

    fn draw(
        &self,
        calls: &Calls,
        random: &mut SplitMix64,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), String> {
        let (function, largest) = function(&calls.function)?;
        let (least, most) = calls.n;
        if least == 0 || least > most || most > largest {
            return Err(format!(
                "n = [{least}, {most}] must be two sizes from 1 to {largest}, the least first"
            ));
        }
        if !(0.0..1.0).contains(&calls.noise) || !calls.within.is_finite() || calls.within < 0.0 {
            return Err(
                "noise must be at least 0 and less than 1, and within at least 0 seconds"
                    .to_string(),
            );
        }
        let usual = Arrival::new(function, least).most.max(calls.fewest);
        let elements = calls.pes.unwrap_or(usual);
        if !(1..=elements).contains(&calls.fewest) {
            return Err(format!(
                "fewest = {} must be at least 1 and at most pes",
                calls.fewest
            ));
        }
        let site = self.site_named(calls.site.as_deref())?;
        for _ in 0..calls.count {
            let n = least + random.below(u64::from(most - least) + 1) as u32;
            let made = Arrival::new(function, n);
            let anywhere = random.below(self.site.len() as u64) as usize;
            arrivals.push(Arrival {
                at_s: random.unit() * calls.within,
                site: site.unwrap_or(anywhere),
                fewest: calls.fewest,
                most: elements,
                noise: 1.0 + calls.noise * (2.0 * random.unit() - 1.0),
                ..made
            });
        }
        Ok(())
    }
}

/// The function with this name, and its largest problem size.
fn function(name: &str) -> Result<(Function, u32), String> {
    let found = Function::ALL.into_iter().find(|one| one.name() == name);
    match found {
        Some(Function::Ep) => Ok((Function::Ep, 50)),
        Some(other) => Ok((other, 1_000_000)),
        None => Err(format!(
            "function = \"{name}\" must be linpack, ep or product; in [[clients]], a function \
             with seconds and bytes can have any name"
        )),
    }
}

impl Description {
    fn site_named(&self, name: Option<&str>) -> Result<Option<usize>, String> {
        let Some(name) = name else {
            return Ok(None);
        };
        let mut sites = self.site.iter().enumerate();
        let found = sites.position(|(number, site)| site.name_or(number) == name);
        let missing = || format!("site = \"{name}\": no [[site]] has that name");
        found.ok_or_else(missing).map(Some)
    }

    /// The cases of clients that call again and again; none if the file has calls instead.
    pub(super) fn cases(&self) -> Result<Vec<Case>, String> {
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
            all => *all.get(index).ok_or("busy must have an entry for each n")?,
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

    /// The bytes and the seconds of the call with the n of this index.
    fn call(&self, index: usize) -> Result<(Arrival, f64), String> {
        let n = self.n[index];
        if !self.seconds.is_empty() || !self.bytes.is_empty() {
            let both = self.seconds.get(index).zip(self.bytes.get(index));
            let (seconds, bytes) = both.ok_or("seconds and bytes must have an entry for each n")?;
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
        let speed = *(self.speed.get(index)).ok_or("speed must have an entry for each n")?;
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
        if self.count != 1 || self.until.is_some() {
            return Err(format!(
                "{name}: count and until belong to [[calls]]; leave them out"
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

    /// The order in which calls start.
    fn queue_policy(&self, name: &str) -> Result<Policy, String> {
        let Some(policy) = &self.policy else {
            return Ok(Policy::default());
        };
        Policy::named(policy).ok_or_else(|| {
            let names = Policy::NAMES.map(|(name, _)| name).join(", ");
            format!("{name}: policy = \"{policy}\" must be one of {names}")
        })
    }

    fn machine(&self, name: &str) -> Result<Machine, String> {
        let policy = self.queue_policy(name)?;
        if policy == Policy::AtOnce {
            return Err(format!(
                "{name}: policy = \"at-once\" needs [[clients]], whose calls share processors"
            ));
        }
        if [self.background, self.byte_time, self.startup] != [0.0; 3] {
            return Err(format!(
                "{name}: background, byte_time and startup belong to [[clients]]; leave them out"
            ));
        }
        let has_pes = (1..=MOST_PES).contains(&self.pes);
        if !(has_pes && self.speed.is_finite() && self.speed > 0.0) {
            return Err(format!(
                "{name}: pes must be 1 to {MOST_PES}, and speed greater than 0"
            ));
        }
        let until = self.until.unwrap_or(f64::INFINITY);
        if until.is_nan() || until <= 0.0 {
            return Err(format!("{name}: until must be greater than 0 seconds"));
        }
        let port = port(name, self.up, self.down, self.latency)?;
        let speeds = [self.speed; Function::ALL.len()];
        Ok(Machine {
            policy,
            present: 0.0..until,
            ..Machine::new(self.pes, speeds, port)
        })
    }
}

impl Place {
    fn name_or(&self, number: usize) -> String {
        let name = self.name.clone();
        name.unwrap_or_else(|| format!("site {}", number + 1))
    }
}

fn port(name: &str, up: f64, down: f64, latency_s: f64) -> Result<Port, String> {
    let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
    if !is_rate(up) || !is_rate(down) || !latency_s.is_finite() || latency_s < 0.0 {
        return Err(format!(
            "{name}: up and down must be greater than 0, and latency at least 0"
        ));
    }
    Ok(Port {
        up,
        down,
        latency_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_gridsim::simulate_load;

    const EXAMPLE: &str = include_str!("../../../../examples/sim/two-servers.toml");

    #[test]
    fn the_example_is_one() {
        let description: Description = toml::from_str(EXAMPLE).unwrap();
        let named = description.scenario().unwrap();
        assert_eq!(named.servers, ["near", "far"]);
        assert_eq!(named.scenario.arrivals.len(), 200);
        assert_eq!(named.scenario.machines[0].port.up, 12.5e6);
        let again = description.scenario().unwrap();
        assert_eq!(named.scenario, again.scenario);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let wrong = |from: &str, to: &str| {
            let text = EXAMPLE.replacen(from, to, 1);
            assert_ne!(text, EXAMPLE);
            let read = toml::from_str::<Description>(&text);
            let error = match read {
                Ok(description) => description.scenario().err(),
                Err(error) => Some(error.to_string()),
            };
            error.unwrap_or_else(|| panic!("{to} is taken"))
        };
        assert!(wrong("100Mbit/s", "100furlongs").contains("unit"));
        assert!(wrong("speed = 5e8", "speed = 0.0").contains("near"));
        assert!(wrong("speed = 5e8", "speed = 5e8\npes = 100000").contains("65536"));
        assert!(wrong("\"linpack\"", "\"linpac\"").contains("product"));
        assert!(wrong("[100, 1200]", "[1200, 100]").contains("the least first"));
        assert!(wrong("count = 100", "count = 10000000").contains("at most"));
        assert!(wrong("seed", "sed").contains("sed"));
        assert!(wrong("noise = 0.2", "noise = 0.2\nfewest = 9\npes = 4").contains("fewest = 9"));
        assert!(wrong("speed = 1e9", "speed = 1e9\npolicy = \"lifo\"").contains("fmpfs"));
        for other in ["background = 1.0", "byte_time = 1e-6", "startup = \"1s\""] {
            let error = wrong("speed = 1e9", &format!("speed = 1e9\n{other}"));
            assert!(error.contains("[[clients]]"), "{error}");
        }
        assert!(wrong("[[site]]", "[[site]]\nclient = 1e6").contains("[[clients]]"));
    }

    #[test]
    fn the_paths_between_servers_and_sites_are_bounded() {
        let site = "[[site]]\nup = 1e6\ndown = 1e6\n";
        let server = "[[server]]\ncount = 10000\nspeed = 1e9\nup = 1e6\ndown = 1e6\n";
        let calls = "[[calls]]\nfunction = \"ep\"\ncount = 1\nn = [20, 20]\n";
        let of = |sites| {
            let text = format!("{server}{}{calls}", site.repeat(sites));
            let description: Description = toml::from_str(&text).unwrap();
            description.scenario().err()
        };
        assert_eq!(of(100), None);
        assert!(of(101).unwrap().contains("1000000 paths"));
    }

    /// The rows of a table of the first Ninf paper that were not used to choose the scenario: n,
    /// clients and the mean Mflop/s of a call.
    type Rows = &'static [(u32, u32, f64)];

    const PAPERS: [(&str, Rows); 3] = [
        (
            include_str!("../../../../examples/sim/papers/table3.toml"),
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
            include_str!("../../../../examples/sim/papers/table4.toml"),
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
            include_str!("../../../../examples/sim/papers/table5.toml"),
            &[(600, 8, 3.51), (600, 16, 2.81)],
        ),
    ];

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
        let text = include_str!("../../../../examples/sim/papers/table2-world.toml");
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
            include_str!("../../../../examples/sim/papers/table6.toml"),
            include_str!("../../../../examples/sim/papers/table7.toml"),
            include_str!("../../../../examples/sim/papers/table8.toml"),
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
        assert!(wrong(", 0.893]", "]").contains("each n"));
        assert!(wrong("\"2.497MB/s\"", "0.0").contains("client"));
    }
}
