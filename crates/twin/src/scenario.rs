//! Makes a scenario of the grid simulator from the calls, servers and links of a record. `twin`
//! replays and changes it.
//!
//! Calls that a metaserver has placed are placed again in a replay, by the policy. Others stay at
//! their servers. A call takes as long as it took in the record if it runs at the same server on as
//! many processor elements. Elsewhere it errs from what was learned about the server as it did from
//! what was learned about its own.

use crate::day::{Day, Past};
use crate::links::{Rates, Transfer, rates};
use crate::streams::{Span, streams};
use farcall_gridsim::{Arrival, Known, Machine, Pace, Port, Record, Scenario, Site, simulate};
use farcall_schedule::{MOST_PES, Profile, placement, queue};
use std::collections::BTreeMap;

/// Bytes per second of links without a known limit.
const NO_LIMIT: f64 = 1e11;
/// Seconds of the way between a host and the network. The record does not tell them: what a client
/// waits beyond a server's own times is in the pauses between its calls.
pub(crate) const LATENCY_S: f64 = 1e-6;
/// The half-life of a user's past use, as servers have it by default.
const HALF_LIFE_S: f64 = 3600.0;
/// How often transfers are simulated to learn their stretch, and the least one.
const STRETCHES: usize = 4;
const LEAST_STRETCH: f64 = 0.01;
/// The names and the scenario of a day with calls in the order of their times, and what came of
/// its calls.
pub(crate) fn scenario(day: &Day) -> (Names, Scenario, Vec<Record>) {
    let names = Names::of(day);
    let ways = [0, 1].map(|way| rates(&transfers(day, &names, way)));
    let down = |past: &Past| ways[1].links.get(&names.link(past)).copied();
    let learned = |past: &Past| {
        let path = day.paths.get(&(past.server.clone(), past.host.clone()))?;
        let mut rates = path.down.clone();
        rates.sort_by(f64::total_cmp);
        farcall_schedule::median(&rates)
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
        machines: machines(day, &names, &ways),
        sites: names
            .hosts
            .iter()
            .enumerate()
            .map(|(site, _)| site_of(site, &ways))
            .collect(),
        paths: paths(&ways, &downs),
        arrivals: Vec::new(),
    };
    scenario.arrivals = arrivals(day, &names, &scenario.machines, &there);
    let records = day.calls.iter().zip(&there);
    let records = records.map(|(past, there)| names.record(past, begin, *there));
    let records: Vec<Record> = records.collect();
    stretch(&mut scenario, &records);
    (names, scenario, records)
}

/// The names of a day, whose places are the numbers of the scenario.
pub(crate) struct Names {
    pub(crate) servers: Vec<String>,
    /// With the server for hosts that share memory with it.
    pub(crate) hosts: Vec<(String, String)>,
    pub(crate) users: Vec<String>,
    pub(crate) functions: Vec<String>,
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

/// The most processor elements of each server that its calls used at a time.
fn used(day: &Day, names: &Names) -> Vec<u32> {
    let mut running: Vec<Vec<(f64, u32)>> = vec![Vec::new(); names.servers.len()];
    let mut most = vec![1; names.servers.len()];
    let mut starts: Vec<&Past> = day.calls.iter().collect();
    starts.sort_by(|one, other| one.started.total_cmp(&other.started));
    for past in starts {
        let server = names.server(past);
        let together = &mut running[server];
        together.retain(|(until, _)| *until > past.started);
        together.push((past.ended, past.pes));
        let sum = together
            .iter()
            .fold(0u32, |sum, (_, pes)| sum.saturating_add(*pes));
        most[server] = most[server].max(sum);
    }
    most
}

fn machines(day: &Day, names: &Names, ways: &[Rates; 2]) -> Vec<Machine> {
    let mut paces = vec![vec![Profile::default(); names.functions.len()]; names.servers.len()];
    let mut known: Vec<BTreeMap<usize, Option<Known>>> = vec![BTreeMap::new(); names.servers.len()];
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
    }
    let most = used(day, names);
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
            pes: (said.and_then(|said| said.pes)).unwrap_or(most[server].min(MOST_PES)),
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
        // No call waits, and none takes all elements, as `at-once` lets it.
        (machine.pes, machine.policy) = (u32::MAX, queue::Policy::default());
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
