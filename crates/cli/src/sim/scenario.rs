//! The file of a scenario: clients, servers and links as TOML. It is checked before it becomes a
//! scenario of `gridsim`.

mod clients;

pub(super) use clients::Case;

use clients::Clients;
use farcall_gridsim::{Arrival, Function, Machine, Port, Scenario, Site};
use farcall_random::SplitMix64;
use farcall_schedule::MOST_PES;
use farcall_schedule::queue::Policy;
use serde::Deserialize;

/// The most servers, sites and calls that are simulated.
const MOST_HOSTS: usize = 10_000;
const MOST_CALLS: usize = 1_000_000;
/// The most pairs of a server and a site: what is known of each path takes about a kilobyte.
const MOST_PATHS: usize = 1_000_000;
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

fn some_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    farcall_quantity::number(from).map(Some)
}

fn some_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    farcall_quantity::time(from).map(Some)
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
        let mut named =
            (0..self.site.len()).filter(|number| self.site[*number].name_or(*number) == name);
        match (named.next(), named.next()) {
            (None, _) => Err(format!("site = \"{name}\": no [[site]] has that name")),
            (found, None) => Ok(found),
            _ => Err(format!(
                "site = \"{name}\": more than one [[site]] has that name"
            )),
        }
    }
}

impl Server {
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
        let twice = "[[site]]\nname = \"lab\"\nup = 1e6\ndown = 1e6\n[[site]]";
        let named = wrong("n = [100, 1200]", "n = [100, 1200]\nsite = \"lap\"");
        assert!(named.contains("no [[site]]"), "{named}");
        let text = EXAMPLE.replacen("n = [100, 1200]", "n = [100, 1200]\nsite = \"lab\"", 1);
        let text = text.replacen("[[site]]", twice, 1);
        let description: Description = toml::from_str(&text).unwrap();
        let error = description.scenario().err().unwrap();
        assert!(error.contains("more than one [[site]]"), "{error}");
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
}
