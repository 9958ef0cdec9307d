//! A recorded day as a scenario of the grid simulator, and the answers of its replays.
//!
//! Calls that a metaserver has placed are placed again in a replay, by the policy. Others stay at
//! their servers. A call takes as long as it took in the record if it runs at the same server on as
//! many processor elements. Elsewhere it errs from what was learned about the server as it did from
//! what was learned about its own.

use crate::change::{Change, ChangeError, find};
use crate::day::{Day, DayError, Past};
use crate::figures::Figures;
use crate::links::{Rates, Transfer, rates};
use crate::streams::{Span, streams};
use farcall_gridsim::simulate;
use farcall_gridsim::{Arrival, Known, Machine, Outcome, Pace, Port, Record, Scenario, Site};
use farcall_random::SplitMix64;
use farcall_schedule::{Profile, placement, queue};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes per second of links without a known limit.
const NO_LIMIT: f64 = 1e11;
/// Seconds of the way between a host and the network. The record does not tell them: what a client
/// waits beyond a server's own times is in the pauses between its calls.
const LATENCY_S: f64 = 1e-6;
/// The half-life of a user's past use, as servers have it by default.
const HALF_LIFE_S: f64 = 3600.0;
/// How often transfers are simulated to learn their stretch, and the least one.
const STRETCHES: usize = 4;
const LEAST_STRETCH: f64 = 0.01;
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
        let names = Names::of(&day);
        let ways = [0, 1].map(|way| rates(&transfers(&day, &names, way)));
        let down = |past: &Past| ways[1].links.get(&names.link(past)).copied();
        let learned = |past: &Past| {
            let path = day.paths.get(&(past.server.clone(), past.host.clone()))?;
            farcall_schedule::median(&sorted(&path.down))
        };
        // Results leave a server into its kernel, before they are at the client.
        let rate = |past: &Past| learned(past).or(down(past)).unwrap_or(f64::INFINITY);
        let there = |past: &Past| {
            past.sent
                .max(past.ended + past.bytes[1] as f64 / rate(past))
        };
        let there: Vec<f64> = day.calls.iter().map(there).collect();
        let downs = day.calls.iter().map(|past| (names.link(past), rate(past)));
        let downs: BTreeMap<(usize, usize), f64> = downs.collect();
        let begin = day.calls[0].asked;
        let mut scenario = Scenario {
            machines: machines(&day, &names, &ways),
            sites: names
                .hosts
                .iter()
                .enumerate()
                .map(|(site, _)| site_of(site, &ways))
                .collect(),
            paths: paths(&ways, &downs),
            arrivals: Vec::new(),
        };
        scenario.arrivals = arrivals(&day, &names, &scenario.machines, &there);
        let records = day.calls.iter().zip(&there);
        let records = records.map(|(past, there)| names.record(past, begin, *there));
        let records: Vec<Record> = records.collect();
        stretch(&mut scenario, &records);
        let recorded = Figures::of(&scenario.arrivals, &records);
        Ok(Twin {
            notes: notes(&day, &recorded),
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
        let users = self.users.iter().zip(0u64..).map(|(name, user)| {
            let group = |figures: &Figures| figures.users.get(&user).copied();
            let calls = [&self.recorded, &exact.changed];
            let calls = calls.map(|figures| group(figures).unwrap_or_default().calls);
            (
                name.clone(),
                calls,
                estimate(&|figures| Some(group(figures)?.mean_s)),
            )
        });
        let servers = changed.servers.iter().enumerate().map(|(server, name)| {
            let group = |figures: &Figures| figures.servers.get(&server).copied();
            let calls = [&self.recorded, &exact.changed];
            let calls = calls.map(|figures| group(figures).unwrap_or_default().calls);
            (
                name.clone(),
                calls,
                estimate(&|figures| Some(group(figures)?.mean_s)),
            )
        });
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
            Change::Clients(factor) => self.multiply(*factor),
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
        let site = host.map(|host| self.site(host)).transpose()?;
        let of = |latency_s| Port {
            up: rate,
            down: rate,
            latency_s,
        };
        let scenario = &mut self.scenario;
        match (site, server) {
            (Some(site), Some(server)) => {
                scenario.paths.insert((site, server), of(0.0));
            }
            // What was learned of the links behind a line, it has told about the line.
            (Some(site), None) => {
                scenario.sites[site].port = of(LATENCY_S);
                scenario.paths.retain(|(other, _), _| *other != site);
            }
            (None, Some(server)) => {
                scenario.machines[server].port = of(LATENCY_S);
                scenario.paths.retain(|(_, other), _| *other != server);
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn site(&self, name: &str) -> Result<usize, ChangeError> {
        find(name, &self.hosts).ok_or_else(|| ChangeError::Host {
            name: name.to_owned(),
            known: self.hosts.join(", "),
        })
    }

    /// Makes so many times as many clients: loops of calls and single calls are there several
    /// times, or some of them are not there.
    fn multiply(&mut self, factor: f64) {
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
            for (call, arrival) in old.iter().enumerate() {
                let is_there = match arrival.after {
                    Some(after) => new[after].is_some(),
                    None => left >= 1.0 || random.unit() < left,
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

/// The names of a day, whose places are the numbers of the scenario.
struct Names {
    servers: Vec<String>,
    /// With the server for hosts that share memory with it.
    hosts: Vec<(String, String)>,
    users: Vec<String>,
    functions: Vec<String>,
}

impl Names {
    fn of(day: &Day) -> Names {
        let all = |of: fn(&Past) -> String| {
            let mut names: Vec<String> = day.calls.iter().map(of).collect();
            names.sort();
            names.dedup();
            names
        };
        let mut hosts: Vec<(String, String)> = day.calls.iter().map(host).collect();
        hosts.sort();
        hosts.dedup();
        Names {
            servers: all(|past| past.server.clone()),
            hosts,
            users: all(|past| past.user.clone()),
            functions: all(|past| past.function.clone()),
        }
    }

    fn server(&self, past: &Past) -> usize {
        self.servers.binary_search(&past.server).unwrap_or(0)
    }

    /// The site and the server of a call.
    fn link(&self, past: &Past) -> (usize, usize) {
        (
            self.hosts.binary_search(&host(past)).unwrap_or(0),
            self.server(past),
        )
    }

    fn user(&self, past: &Past) -> usize {
        self.users.binary_search(&past.user).unwrap_or(0)
    }

    fn function(&self, past: &Past) -> usize {
        self.functions.binary_search(&past.function).unwrap_or(0)
    }

    fn record(&self, past: &Past, begin: f64, there: f64) -> Record {
        Record {
            server: self.server(past),
            at_s: past.asked - begin,
            arrived_s: past.queued - begin,
            started_s: past.started - begin,
            computed_s: past.ended - begin,
            seconds: there - past.asked,
            done_s: there - begin,
            ..Record::default()
        }
    }
}

/// The client's host, and the server if it is on the same host.
fn host(past: &Past) -> (String, String) {
    let is_local = past.host == "local";
    let server = if is_local {
        past.server.clone()
    } else {
        String::new()
    };
    (past.host.clone(), server)
}

/// The transfers up (0) or down (1).
fn transfers(day: &Day, names: &Names, way: usize) -> Vec<Transfer> {
    let transfer = |past: &Past| {
        let (site, server) = names.link(past);
        let (from_s, to_s) = match way {
            0 => (past.granted, past.queued),
            _ => (past.ended, past.sent),
        };
        Transfer {
            site,
            server,
            from_s,
            to_s,
            bytes: past.bytes[way] as f64,
        }
    };
    day.calls.iter().map(transfer).collect()
}

fn port(limits: [Option<&f64>; 2]) -> Port {
    let [up, down] = limits.map(|limit| limit.copied().unwrap_or(NO_LIMIT));
    Port {
        up,
        down,
        latency_s: LATENCY_S,
    }
}

fn site_of(site: usize, ways: &[Rates; 2]) -> Site {
    let limits = [&ways[0], &ways[1]].map(|way| way.sites.get(&site));
    Site { port: port(limits) }
}

/// The links with known rates. `downs` are those at which results travel.
fn paths(
    ways: &[Rates; 2],
    downs: &BTreeMap<(usize, usize), f64>,
) -> BTreeMap<(usize, usize), Port> {
    let links = downs.iter().map(|(link, down)| {
        let up = ways[0].links.get(link).copied().unwrap_or(NO_LIMIT);
        let port = Port {
            up,
            down: down.min(NO_LIMIT),
            latency_s: 0.0,
        };
        (*link, port)
    });
    links.collect()
}

fn machines(day: &Day, names: &Names, ways: &[Rates; 2]) -> Vec<Machine> {
    let mut paces = vec![vec![Profile::default(); names.functions.len()]; names.servers.len()];
    let mut known: Vec<BTreeMap<usize, Option<Known>>> = vec![BTreeMap::new(); names.servers.len()];
    let mut running = vec![Vec::new(); names.servers.len()];
    let mut most = vec![1; names.servers.len()];
    for past in &day.calls {
        let (server, function) = (names.server(past), names.function(past));
        let seconds = past.ended - past.started;
        paces[server][function].observe(past.work, past.pes, seconds);
        known[server].entry(function).or_insert_with(|| {
            Some(Known {
                function,
                work: past.work,
                pes: past.pes,
                seconds: past.predicted_s?,
            })
        });
        let together: &mut Vec<(f64, u32)> = &mut running[server];
        together.retain(|(until, _)| *until > past.started);
        together.push((past.ended, past.pes));
        let sum = together
            .iter()
            .fold(0u32, |sum, (_, pes)| sum.saturating_add(*pes));
        most[server] = most[server].max(sum);
    }
    let all = names.servers.iter().zip(paces).zip(known).enumerate();
    let machine = |(server, ((name, paces), known)): (usize, ((&String, Vec<Profile>), _))| {
        let known: BTreeMap<usize, Option<Known>> = known;
        let said = day.hosts.get(name);
        let pace = |profile: Profile| match profile.predictors().is_empty() {
            true => Pace::Missing,
            false => Pace::Learned(Box::new(profile)),
        };
        let limits = [&ways[0], &ways[1]].map(|way| way.servers.get(&server));
        Machine {
            pes: said.and_then(|said| said.pes).unwrap_or(most[server]),
            policy: said.and_then(|said| said.policy).unwrap_or_default(),
            half_life_s: Some(HALF_LIFE_S),
            functions: paces.into_iter().map(pace).collect(),
            known: known.into_values().flatten().collect(),
            present: present(day, name),
            port: port(limits),
        }
    };
    all.map(machine).collect()
}

/// When a server was there, from the first call of the day. What came after the last call does not
/// count: a replay may last longer.
fn present(day: &Day, name: &str) -> std::ops::Range<f64> {
    let (first, last) = (day.calls[0].asked, day.calls[day.calls.len() - 1].asked);
    let own = day.calls.iter().find(|past| past.server == name);
    let own = own.map_or(first, |past| past.asked);
    let events = day.hosts.get(name).map_or(&[][..], |host| &host.events);
    let came = events
        .iter()
        .filter(|(_, comes)| *comes)
        .map(|(time, _)| *time);
    let came = came.fold(f64::INFINITY, f64::min).min(own);
    let latest = events.iter().max_by(|one, other| one.0.total_cmp(&other.0));
    let gone = latest.filter(|(time, comes)| !comes && *time < last);
    let gone = gone.map_or(f64::INFINITY, |(time, _)| *time);
    (came - first).max(0.0)..(gone - first)
}

fn arrivals(day: &Day, names: &Names, machines: &[Machine], there: &[f64]) -> Vec<Arrival> {
    let begin = day.calls[0].asked;
    // Calls of one client, or of one user at one host if the record does not tell the client.
    let group = |past: &Past| match past.client.as_str() {
        "" => (format!("{:?}", host(past)), past.user.clone()),
        client => (client.to_owned(), String::new()),
    };
    let mut groups: Vec<(String, String)> = day.calls.iter().map(group).collect();
    groups.sort();
    groups.dedup();
    let spans = day.calls.iter().zip(there).map(|(past, there)| Span {
        group: groups.binary_search(&group(past)).unwrap_or(0),
        from_s: past.asked - begin,
        to_s: there - begin,
    });
    let spans: Vec<Span> = spans.collect();
    let after = streams(&spans);
    let calls = day.calls.iter().zip(after).zip(&spans);
    let arrival = |((past, after), span): ((&Past, Option<usize>), &Span)| {
        let server = names.server(past);
        let function = names.function(past);
        let usual_s = machines[server].functions[function].seconds(past.work, past.pes);
        let key = (past.function.clone(), past.server.clone());
        Arrival {
            at_s: span.from_s - after.map_or(0.0, |after: usize| spans[after].to_s),
            after,
            site: names.link(past).0,
            user: names.user(past) as u64,
            server: (!day.placed.contains(&key)).then_some(server),
            function,
            work: past.work,
            up_bytes: past.bytes[0],
            down_bytes: past.bytes[1],
            fewest: past.pes,
            most: past.pes,
            noise: (past.ended - past.started) / usual_s.unwrap_or(1.0).max(1e-9),
            stretch: [1.0; 2],
            pause_s: [0.0; 2],
        }
    };
    calls.map(arrival).collect()
}

/// Learns how each transfer differed from what links at their rates make of it: some pause, because
/// a client reads slowly or a packet was lost, and some get more of a link than others. The
/// transfers of the record are simulated from the moments at which they began, time after time.
fn stretch(scenario: &mut Scenario, records: &[Record]) {
    let mut apart = scenario.clone();
    for machine in &mut apart.machines {
        machine.pes = u32::MAX;
    }
    for (arrival, record) in apart.arrivals.iter_mut().zip(records) {
        let machine = &apart.machines[record.server];
        let usual_s = machine.functions[arrival.function].seconds(arrival.work, arrival.fewest);
        (arrival.at_s, arrival.after) = (record.at_s, None);
        arrival.server = Some(record.server);
        let seconds = record.computed_s - record.arrived_s;
        arrival.noise = seconds / usual_s.unwrap_or(1.0).max(1e-9);
    }
    for _ in 0..STRETCHES {
        let simulated = simulate(&apart, placement::Policy::default()).records;
        let both = records.iter().zip(simulated);
        for (arrival, (record, simulated)) in apart.arrivals.iter_mut().zip(both) {
            let ups = (
                record.arrived_s - record.at_s,
                simulated.arrived_s - simulated.at_s,
            );
            let downs = (
                record.done_s - record.computed_s,
                simulated.done_s - simulated.computed_s,
            );
            for (way, (seconds, simulated_s)) in [ups, downs].into_iter().enumerate() {
                let pause_s = arrival.pause_s[way];
                let moving_s = (simulated_s - pause_s).max(1e-9);
                let wanted_s = seconds.max(0.0);
                arrival.pause_s[way] = (wanted_s - moving_s).max(0.0);
                let ratio = (wanted_s / moving_s).min(1.0);
                arrival.stretch[way] = (arrival.stretch[way] * ratio).max(LEAST_STRETCH);
            }
        }
    }
    for (arrival, apart) in scenario.arrivals.iter_mut().zip(apart.arrivals) {
        (arrival.stretch, arrival.pause_s) = (apart.stretch, apart.pause_s);
    }
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
    if day.unstarted > 0 {
        notes.push(format!(
            "{} calls never started and are left out",
            day.unstarted
        ));
    }
    if day.unknown > 0 {
        notes.push(format!(
            "{} calls are counted without their functions and left out",
            day.unknown
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
