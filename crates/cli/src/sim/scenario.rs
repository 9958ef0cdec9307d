//! The file of a scenario: clients, servers and links as TOML. It is checked before it becomes a
//! scenario of `gridsim`.

use farcall_gridsim::{Arrival, Function, Machine, Port, Scenario, Site};
use farcall_random::SplitMix64;
use serde::Deserialize;

/// The most servers, sites and calls that are simulated.
const MOST_HOSTS: usize = 10_000;
const MOST_CALLS: usize = 1_000_000;

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    /// Of the random moments and sizes.
    #[serde(default)]
    seed: u64,
    server: Vec<Server>,
    site: Vec<Place>,
    calls: Vec<Calls>,
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
    speed: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    up: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    down: f64,
    #[serde(default, deserialize_with = "farcall_quantity::number")]
    latency: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    #[serde(default)]
    name: Option<String>,
    #[serde(deserialize_with = "farcall_quantity::number")]
    up: f64,
    #[serde(deserialize_with = "farcall_quantity::number")]
    down: f64,
    #[serde(default, deserialize_with = "farcall_quantity::number")]
    latency: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    function: String,
    count: usize,
    /// Least and greatest problem size.
    n: (u32, u32),
    #[serde(default, deserialize_with = "farcall_quantity::number")]
    within: f64,
    #[serde(default)]
    noise: f64,
    /// Most processor elements of which a call makes use.
    #[serde(default)]
    pes: Option<u32>,
    /// The site, by name; without one, each call comes from any.
    #[serde(default)]
    site: Option<String>,
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
                machines.push(machine);
                servers.push(match server.count {
                    1 => name.clone(),
                    _ => format!("{name} {}", copy + 1),
                });
            }
        }
        let sites = self.site.iter().enumerate().map(|(number, site)| {
            let name = site.name_or(number);
            let port = port(&name, site.up, site.down, site.latency)?;
            Ok(Site { port })
        });
        let sites = sites.collect::<Result<Vec<Site>, String>>()?;
        if machines.is_empty() || sites.is_empty() || sites.len() > MOST_HOSTS {
            return Err(format!(
                "a scenario must have 1 to {MOST_HOSTS} servers and 1 to {MOST_HOSTS} sites"
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
        let function = match calls.function.as_str() {
            "linpack" => Function::Linpack,
            "ep" => Function::Ep,
            "product" => Function::Product,
            other => {
                return Err(format!(
                    "function = \"{other}\" must be linpack, ep or product"
                ));
            }
        };
        let (least, most) = calls.n;
        let largest = match function {
            Function::Ep => 50,
            Function::Linpack | Function::Product => 1_000_000,
        };
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
        let site = match &calls.site {
            None => None,
            Some(name) => {
                let mut sites = self.site.iter().enumerate();
                let found = sites.position(|(number, site)| site.name_or(number) == *name);
                Some(found.ok_or_else(|| format!("site = \"{name}\": no [[site]] has that name"))?)
            }
        };
        for _ in 0..calls.count {
            let n = least + random.below(u64::from(most - least) + 1) as u32;
            let made = Arrival::new(function, n);
            let anywhere = random.below(self.site.len() as u64) as usize;
            arrivals.push(Arrival {
                at_s: random.unit() * calls.within,
                site: site.unwrap_or(anywhere),
                most: calls.pes.unwrap_or(made.most).max(1),
                noise: 1.0 + calls.noise * (2.0 * random.unit() - 1.0),
                ..made
            });
        }
        Ok(())
    }
}

impl Server {
    fn machine(&self, name: &str) -> Result<Machine, String> {
        if self.pes == 0 || !(self.speed.is_finite() && self.speed > 0.0) {
            return Err(format!("{name}: pes and speed must be greater than 0"));
        }
        Ok(Machine {
            pes: self.pes,
            speeds: [self.speed; Function::ALL.len()],
            port: port(name, self.up, self.down, self.latency)?,
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
        assert!(wrong("\"linpack\"", "\"linpac\"").contains("product"));
        assert!(wrong("[100, 1200]", "[1200, 100]").contains("the least first"));
        assert!(wrong("count = 100", "count = 10000000").contains("at most"));
        assert!(wrong("seed", "sed").contains("sed"));
    }
}
