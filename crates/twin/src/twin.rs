//! A recorded day as a scenario of the grid simulator, and the answers of its replays.
//!
//! Calls that a metaserver has placed are placed again in a replay, by the policy. Others stay at
//! their servers. A call takes as long as it took in the record if it runs at the same server on as
//! many processor elements. Elsewhere it errs from what was learned about the server as it did from
//! what was learned about its own.

use crate::change::{Change, ChangeError, find};
use crate::day::{Day, DayError, MOST_CALLS};
use crate::figures::{Figures, Group};
use crate::scenario::{LATENCY_S, scenario};
use farcall_gridsim::simulate;
use farcall_gridsim::{Arrival, Machine, Outcome, Port, Record, Scenario};
use farcall_quantity::counted;
use farcall_random::SplitMix64;
use farcall_schedule::{placement, queue};
use std::collections::{BTreeMap, BTreeSet};

/// The parts of the replays between which an interval lies.
const QUANTILES: (f64, f64) = (0.1, 0.9);

/// A recorded day that can be replayed.
#[derive(Clone, Debug)]
pub struct Twin {
    servers: Vec<String>,
    hosts: Vec<String>,
    users: Vec<String>,
    functions: Vec<String>,
    scenario: Scenario,
    policy: placement::Policy,
    /// What came of the calls of the record.
    past: Vec<Record>,
    recorded: Figures,
    notes: Vec<String>,
}

/// A figure of the record, of the replays, and what follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In the record; `None` for a server that was added.
    pub recorded: Option<f64>,
    /// In the replay without changes.
    pub replayed: Option<f64>,
    /// What the record would have shown with the changes.
    pub predicted: f64,
    /// The interval in which four of five such days would lie.
    pub interval: (f64, f64),
}

impl Estimate {
    /// How far the replay is from the record, as a part of the record.
    pub fn error(&self) -> Option<f64> {
        let (recorded, replayed) = self.recorded.zip(self.replayed)?;
        (recorded > 0.0).then(|| replayed / recorded - 1.0)
    }
}

/// What a replay with changes says.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Seconds from the first call to the last results.
    pub makespan_s: Estimate,
    /// Mean seconds from a call to its results.
    pub mean_s: Estimate,
    /// Seconds from a call to its results that 95 % of the calls do not exceed.
    pub p95_s: Estimate,
    /// For each user: the name, the calls of the record and with the changes, and the mean.
    pub users: Vec<(String, [usize; 2], Estimate)>,
    /// The same for each server.
    pub servers: Vec<(String, [usize; 2], Estimate)>,
    /// Why the replay without changes is wrong by more than 10 %; empty if it is not.
    pub reasons: Vec<String>,
}

/// A replay without changes, one with them, and the servers of the second.
struct Pair {
    plain: Figures,
    changed: Figures,
}

impl Twin {
    /// Makes a twin of what was collected.
    ///
    /// # Errors
    /// There is no call to replay, or there are too many.
    pub fn new(mut day: Day) -> Result<Twin, DayError> {
        day.check()?;
        day.calls
            .sort_by(|one, other| one.asked.total_cmp(&other.asked));
        day.rename();
        let (names, scenario, records) = scenario(&day);
        let recorded = Figures::of(&scenario.arrivals, &records);
        Ok(Twin {
            notes: [
                unknown(&day, &names.servers, &scenario),
                notes(&day, &recorded),
            ]
            .concat(),
            servers: names.servers,
            hosts: names.hosts.into_iter().map(|(host, _)| host).collect(),
            users: names.users,
            functions: names.functions,
            scenario,
            policy: placement::Policy::default(),
            past: records,
            recorded,
        })
    }

    /// The figures of the record.
    pub fn recorded(&self) -> &Figures {
        &self.recorded
    }

    /// The servers of the record.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Number of calls that a client made after the results of another one.
    pub fn followers(&self) -> usize {
        let arrivals = self.scenario.arrivals.iter();
        arrivals.filter(|arrival| arrival.after.is_some()).count()
    }

    /// Number of calls that are replayed.
    pub fn calls(&self) -> usize {
        self.scenario.arrivals.len()
    }

    /// What the record lacks, in words.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why these changes, of which this is the result, change no call; nothing if they may.
    pub fn without_effect(&self, changes: &[Change]) -> Option<&'static str> {
        let places = |change: &Change| matches!(change, Change::Add { .. } | Change::Placement(_));
        let stays = |arrival: &Arrival| arrival.server.is_some();
        let has_none = changes.iter().any(places) && self.scenario.arrivals.iter().all(stays);
        has_none.then_some(
            "all calls stay at their servers, because no metaserver has placed them; give the \
             record of the metaserver, too, if there is one",
        )
    }

    /// What came of the calls of the record.
    pub fn past(&self) -> &[Record] {
        &self.past
    }

    /// Replays the day.
    pub fn replay(&self) -> Outcome {
        simulate(&self.scenario, self.policy)
    }

    /// The figures of a replay.
    pub fn replayed(&self) -> Figures {
        Figures::of(&self.scenario.arrivals, &self.replay().records)
    }

    /// Replays the day as it was and with changes, `runs` times with computing times that are
    /// drawn from those of the record, and calls `each_run` after each.
    ///
    /// # Errors
    /// A change does not fit the record.
    pub fn ask(
        &self,
        changes: &[Change],
        runs: u64,
        mut each_run: impl FnMut(),
    ) -> Result<Answer, ChangeError> {
        let changed = self.with(changes)?;
        let mut pair = |seed| {
            let figures = |twin: &Twin| twin.drawn(seed).replayed();
            let plain = figures(self);
            let pair = Pair {
                changed: match changes {
                    [] => plain.clone(),
                    _ => figures(&changed),
                },
                plain,
            };
            each_run();
            pair
        };
        let exact = pair(None);
        let drawn: Vec<Pair> = (0..runs).map(|seed| pair(Some(seed))).collect();
        let estimate =
            |of: &dyn Fn(&Figures) -> Option<f64>| estimate(of(&self.recorded), &exact, &drawn, of);
        let all = |of: fn(&Figures) -> f64| estimate(&|figures: &Figures| Some(of(figures)));
        let makespan_s = all(|figures| figures.makespan_s);
        let mean_s = all(|figures| figures.mean_s);
        let row = |name: &String, group: &dyn Fn(&Figures) -> Option<Group>| {
            let calls = [&self.recorded, &exact.changed];
            let calls = calls.map(|figures| group(figures).unwrap_or_default().calls);
            let mean_s = estimate(&|figures| Some(group(figures)?.mean_s));
            (name.clone(), calls, mean_s)
        };
        let users = self.users.iter().zip(0u64..);
        let users = users.map(|(name, user)| row(name, &|all| all.users.get(&user).copied()));
        let servers = changed.servers.iter().enumerate();
        let servers =
            servers.map(|(server, name)| row(name, &|all| all.servers.get(&server).copied()));
        let is_off = |one: &Estimate| one.error().is_some_and(|error| error.abs() > 0.1);
        Ok(Answer {
            users: users.collect(),
            servers: servers.collect(),
            reasons: match is_off(&makespan_s) || is_off(&mean_s) {
                true => self.reasons(&exact.plain),
                false => Vec::new(),
            },
            makespan_s,
            mean_s,
            p95_s: all(|figures| figures.p95_s),
        })
    }

    /// The day with changes.
    ///
    /// # Errors
    /// A change does not fit.
    pub fn with(&self, changes: &[Change]) -> Result<Twin, ChangeError> {
        let mut twin = self.clone();
        for change in changes {
            twin.change(change)?;
        }
        Ok(twin)
    }

    fn change(&mut self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::Add { name, copy_of } => self.add(name, copy_of)?,
            Change::Remove(name) => self.remove(name)?,
            Change::Link { host, server, rate } => {
                self.set_link(host.as_deref(), server.as_deref(), *rate)?;
            }
            Change::Queue(policy) => {
                let machines = self.scenario.machines.iter_mut();
                machines.for_each(|machine| machine.policy = *policy);
            }
            Change::Placement(policy) => self.policy = *policy,
            Change::Elements { server, pes } => {
                let server = self.server(server)?;
                self.scenario.machines[server].pes = *pes;
            }
            Change::Clients(factor) => self.multiply(*factor)?,
        }
        Ok(())
    }

    fn server(&self, name: &str) -> Result<usize, ChangeError> {
        let known = || ChangeError::Server {
            name: name.to_owned(),
            known: self.servers.join(", "),
        };
        find(name, &self.servers).ok_or_else(known)
    }

    fn add(&mut self, name: &str, copy_of: &str) -> Result<(), ChangeError> {
        if self.servers.iter().any(|known| known == name) {
            return Err(ChangeError::Taken(name.to_owned()));
        }
        let (old, new) = (self.server(copy_of)?, self.servers.len());
        self.servers.push(name.to_owned());
        let machine = self.scenario.machines[old].clone();
        self.scenario.machines.push(machine);
        let paths = self.scenario.paths.iter();
        let paths = paths.filter(|((_, server), _)| *server == old);
        let paths: Vec<_> = paths
            .map(|((site, _), port)| ((*site, new), *port))
            .collect();
        self.scenario.paths.extend(paths);
        Ok(())
    }

    /// Removes a server. Its calls go where the policy places them.
    fn remove(&mut self, name: &str) -> Result<(), ChangeError> {
        let server = self.server(name)?;
        self.scenario.machines[server].functions.clear();
        for arrival in &mut self.scenario.arrivals {
            arrival.server = arrival.server.filter(|own| *own != server);
            let machines = &self.scenario.machines;
            if !machines.iter().any(|machine| machine.has(arrival.function)) {
                return Err(ChangeError::Needed {
                    server: self.servers[server].clone(),
                    function: self.functions[arrival.function].clone(),
                });
            }
        }
        Ok(())
    }

    /// Sets the rate of a link of a host and a server, or of the line of one of them.
    fn set_link(
        &mut self,
        host: Option<&str>,
        server: Option<&str>,
        rate: f64,
    ) -> Result<(), ChangeError> {
        let server = server.map(|server| self.server(server)).transpose()?;
        let sites = host.map(|host| self.sites(host)).transpose()?;
        let of = |latency_s| Port {
            up: rate,
            down: rate,
            latency_s,
        };
        let scenario = &mut self.scenario;
        match (sites, server) {
            (Some(sites), Some(server)) => {
                let paths = sites.into_iter().map(|site| ((site, server), of(0.0)));
                scenario.paths.extend(paths);
            }
            // What was learned of the links behind a line, it has told about the line.
            (Some(sites), None) => {
                for site in sites {
                    scenario.sites[site].port = of(LATENCY_S);
                    scenario.paths.retain(|(other, _), _| *other != site);
                }
            }
            (None, Some(server)) => {
                scenario.machines[server].port = of(LATENCY_S);
                scenario.paths.retain(|(_, other), _| *other != server);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// The sites of a host. The host of each server has the name `local`.
    fn sites(&self, name: &str) -> Result<Vec<usize>, ChangeError> {
        let same = (0..self.hosts.len()).filter(|site| self.hosts[*site] == name);
        let same: Vec<usize> = same.collect();
        if !same.is_empty() {
            return Ok(same);
        }
        let found = find(name, &self.hosts).map(|site| vec![site]);
        found.ok_or_else(|| ChangeError::Host {
            name: name.to_owned(),
            known: self.hosts.join(", "),
        })
    }

    /// Makes so many times as many clients: loops of calls and single calls are there several
    /// times, or some of them are not there.
    ///
    /// # Errors
    /// There would be too many calls.
    fn multiply(&mut self, factor: f64) -> Result<(), ChangeError> {
        if self.scenario.arrivals.len() as f64 * factor > MOST_CALLS as f64 {
            return Err(ChangeError::TooMany);
        }
        let old = std::mem::take(&mut self.scenario.arrivals);
        let last_s = old
            .iter()
            .filter(|one| one.after.is_none())
            .map(|one| one.at_s);
        let last_s = last_s.fold(0.0, f64::max);
        let first = old.iter().filter(|one| one.after.is_none()).count();
        let spacing_s = last_s / first.max(1) as f64;
        let mut random = SplitMix64::new(1);
        let mut left = factor;
        for copy in 0.. {
            if left <= 0.0 {
                break;
            }
            let mut new = vec![None; old.len()];
            let mut loops = first as u64;
            let mut wanted = (left.min(1.0) * first as f64).round() as u64;
            if copy == 0 {
                wanted = wanted.max(1);
            }
            for (call, arrival) in old.iter().enumerate() {
                let is_there = match arrival.after {
                    Some(after) => new[after].is_some(),
                    // Each has the same chance, and their number is exact.
                    None => {
                        let is_there = left >= 1.0 || random.below(loops) < wanted;
                        loops -= 1;
                        wanted -= u64::from(is_there);
                        is_there
                    }
                };
                if is_there {
                    new[call] = Some(self.scenario.arrivals.len());
                    let is_shifted = copy > 0 && arrival.after.is_none();
                    let shift_s = if is_shifted {
                        spacing_s * random.unit()
                    } else {
                        0.0
                    };
                    self.scenario.arrivals.push(Arrival {
                        at_s: arrival.at_s + shift_s,
                        after: arrival.after.and_then(|after| new[after]),
                        ..*arrival
                    });
                }
            }
            left -= 1.0;
        }
        Ok(())
    }

    /// The day with computing times and stretches of transfers that are drawn from calls of the
    /// same function.
    fn drawn(&self, seed: Option<u64>) -> Twin {
        let mut twin = self.clone();
        let Some(seed) = seed else {
            return twin;
        };
        let mut pools: BTreeMap<usize, Vec<&Arrival>> = BTreeMap::new();
        for arrival in &self.scenario.arrivals {
            pools.entry(arrival.function).or_default().push(arrival);
        }
        let mut random = SplitMix64::new(seed);
        for arrival in &mut twin.scenario.arrivals {
            let pool = &pools[&arrival.function];
            let drawn = pool[random.below(pool.len() as u64) as usize];
            arrival.noise = drawn.noise;
            (arrival.stretch, arrival.pause_s) = (drawn.stretch, drawn.pause_s);
        }
        twin
    }

    /// Why a replay without changes is wrong: the parts that are, and what the record lacks.
    fn reasons(&self, replayed: &Figures) -> Vec<String> {
        let parts = self
            .recorded
            .parts
            .named()
            .into_iter()
            .zip(replayed.parts.named());
        let mut parts: Vec<(f64, String)> = parts
            .map(|((name, recorded), (_, replayed))| {
                let text = format!(
                    "{name} take {replayed:.3} s a call in the replay, and {recorded:.3} s in the \
                     record"
                );
                ((replayed - recorded).abs(), text)
            })
            .collect();
        parts.sort_by(|one, other| other.0.total_cmp(&one.0));
        let worst = parts.into_iter().take(1).map(|(_, text)| text);
        worst.chain(self.notes.iter().cloned()).collect()
    }
}

/// What a figure would have been in the record: it changes as it does from replay to replay.
fn estimate(
    recorded: Option<f64>,
    exact: &Pair,
    drawn: &[Pair],
    of: &dyn Fn(&Figures) -> Option<f64>,
) -> Estimate {
    let replayed = of(&exact.plain);
    let error = recorded.zip(replayed).map_or(0.0, |(recorded, replayed)| {
        (replayed / recorded.max(1e-9) - 1.0).abs().min(0.99)
    });
    // Without a figure of the record, the replays stand for themselves.
    let predicted = |pair: &Pair| {
        let changed = of(&pair.changed)?;
        let ratio = recorded.zip(of(&pair.plain).filter(|plain| *plain > 0.0));
        Some(ratio.map_or(changed, |(recorded, plain)| recorded * changed / plain))
    };
    let exactly = predicted(exact).unwrap_or(0.0);
    let all: Vec<f64> = drawn.iter().filter_map(predicted).collect();
    let all = sorted(&all);
    let at = |part: f64| {
        let index = (part * all.len().saturating_sub(1) as f64).round() as usize;
        all.get(index).copied().unwrap_or(exactly)
    };
    let (low, high) = (at(QUANTILES.0).min(exactly), at(QUANTILES.1).max(exactly));
    Estimate {
        recorded,
        replayed,
        predicted: exactly,
        interval: (low * (1.0 - error), high * (1.0 + error)),
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The servers of which the record has no line, and what is assumed of them.
fn unknown(day: &Day, servers: &[String], scenario: &Scenario) -> Vec<String> {
    let all = servers.iter().zip(&scenario.machines);
    let unknown =
        all.filter(|(name, _)| day.hosts.get(*name).is_none_or(|host| host.pes.is_none()));
    let note = |(name, machine): (&String, &Machine)| {
        let (pes, policy) = (machine.pes, machine.policy.name());
        format!(
            "the record does not tell the processor elements of {name}; {pes} and the policy \
             {policy} are assumed, as that many were used at a time"
        )
    };
    unknown.map(note).collect()
}

/// What the record lacks, and what the simulator does not know.
fn notes(day: &Day, recorded: &Figures) -> Vec<String> {
    let mut notes = Vec::new();
    let all = day.calls.len();
    let singles = day.calls.iter().filter(|past| past.is_single).count();
    if singles < all {
        let part = 100.0 * (all - singles) as f64 / all as f64;
        notes.push(format!(
            "{part:.0} % of the calls have no lines of their own; their times are drawn from \
             quantiles"
        ));
    }
    if day.unfinished > 0 {
        notes.push(format!(
            "left out: {} that failed or never started",
            counted(day.unfinished as usize, "call")
        ));
    }
    if day.unknown > 0 {
        notes.push(format!(
            "left out: {} whose functions are not in the record",
            counted(day.unknown as usize, "call")
        ));
    }
    if day.unsound > 0 {
        notes.push(format!(
            "left out: {} whose times or numbers cannot be right",
            counted(day.unsound as usize, "call")
        ));
    }
    let memory = day
        .calls
        .iter()
        .map(|past| past.granted - past.asked)
        .sum::<f64>()
        / all as f64;
    if memory > 0.02 * recorded.mean_s {
        notes.push(format!(
            "calls waited {memory:.3} s for memory on average, which is not simulated"
        ));
    }
    for (name, host) in &day.hosts {
        if host.policy == Some(queue::Policy::AtOnce) {
            notes.push(format!(
                "{name} starts all calls at once; the replay keeps their recorded times however \
                 many run"
            ));
        }
    }
    let with_calls = |server: &String| day.calls.iter().any(|past| past.server == *server);
    let missing = day
        .placed
        .iter()
        .map(|(_, server)| server)
        .filter(|one| !with_calls(one));
    let missing: BTreeSet<&String> = missing.collect();
    for server in missing {
        notes.push(format!(
            "calls were placed at {server}, whose record is not given"
        ));
    }
    notes
}
