//! Compares the closed form of placement with the flow solver, and measures the cost of a decision.
//! In a star both must agree. Over two shared links the closed form is only an estimate, and the
//! test bounds its error.

use farcall_flow::solver::naive_rates;
use farcall_random::SplitMix64;
use farcall_schedule::Profile;
use farcall_schedule::placement::{
    Call, Candidate, Input, Link, Origin, PathDirection, Placer, Policy, Route, Server,
};
use std::time::Instant;

fn between(random: &mut SplitMix64, low: f64, high: f64) -> f64 {
    let unit = random.below(1 << 40) as f64 / (1u64 << 40) as f64;
    low * (high / low).powf(unit)
}

/// The time at which the last of these transfers ends, by the solver. It begins later than the
/// others, and all of them share their links by max-min at every moment.
fn by_the_solver(links: &[f64], transfers: &[(Vec<u32>, f64)], later_s: f64) -> f64 {
    let mut left: Vec<f64> = transfers.iter().map(|(_, bytes)| *bytes).collect();
    let (mut now, last) = (0.0, transfers.len() - 1);
    while left[last] > 0.0 {
        let begun = now >= later_s;
        let active: Vec<usize> = (0..transfers.len())
            .filter(|&one| left[one] > 0.0 && (one < last || begun))
            .collect();
        let paths: Vec<Vec<u32>> = active.iter().map(|&one| transfers[one].0.clone()).collect();
        let rates = naive_rates(links, &paths);
        let ends = active
            .iter()
            .zip(&rates)
            .map(|(&one, rate)| left[one] / rate);
        let next = ends.fold(f64::INFINITY, f64::min);
        let step = if begun { next } else { next.min(later_s - now) };
        for (&one, rate) in active.iter().zip(&rates) {
            left[one] -= rate * step;
            if left[one] < 1e-6 {
                left[one] = 0.0;
            }
        }
        now = if step < next { later_s } else { now + step };
    }
    now - later_s
}

#[test]
fn the_closed_form_of_a_star_is_what_the_flow_solver_says() {
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let links: Vec<f64> = (0..5).map(|_| between(&mut random, 1e5, 1e7)).collect();
        let count = 1 + random.below(30) as usize;
        let transfers: Vec<(Vec<u32>, f64)> = (0..count)
            .map(|_| (vec![random.below(5) as u32], between(&mut random, 1e3, 1e7)))
            .collect();
        let (server, bytes) = (transfers[count - 1].0[0], transfers[count - 1].1);
        let later_s = if seed % 2 == 0 {
            0.0
        } else {
            between(&mut random, 0.01, 10.0)
        };
        let others = transfers[..count - 1].iter();
        let others = others.filter(|(path, _)| path[0] == server);
        let mut link = Link::new(links[server as usize]).with(others.map(|(_, bytes)| *bytes));
        let exact = by_the_solver(&links, &transfers, later_s);
        let close =
            |said: f64| assert!((said / exact - 1.0).abs() < 1e-6, "{seed}: {said} {exact}");
        close(link.seconds(bytes, later_s));
        link.elapse(later_s);
        close(link.seconds(bytes, 0.0));
    }
}

/// If transfers cross a client's and a server's link, the closed form is only an estimate.
#[test]
fn across_two_links_the_estimate_is_near() {
    let mut off = Vec::new();
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let links: Vec<f64> = (0..8).map(|_| between(&mut random, 1e6, 1e7)).collect();
        let count = 1 + random.below(20) as usize;
        // Clients 0 to 2, servers 3 to 7.
        let path =
            |random: &mut SplitMix64| vec![random.below(3) as u32, 3 + random.below(5) as u32];
        let transfers: Vec<(Vec<u32>, f64)> = (0..count)
            .map(|_| (path(&mut random), between(&mut random, 1e5, 1e7)))
            .collect();
        let (path, bytes) = &transfers[count - 1];
        let at = |link: u32| {
            let others = transfers[..count - 1].iter();
            let others = others.filter(move |(path, _)| path.contains(&link));
            let others = others.map(|(_, bytes)| *bytes);
            Link::new(links[link as usize])
                .with(others)
                .seconds(*bytes, 0.0)
        };
        let said = at(path[0]).max(at(path[1]));
        off.push((said / by_the_solver(&links, &transfers, 0.0)).ln().abs());
    }
    off.sort_by(f64::total_cmp);
    let (median, tenth) = (off[off.len() / 2].exp(), off[off.len() * 9 / 10].exp());
    println!("off by a factor of {median:.3} at the median, {tenth:.3} in one of ten");
    assert!(median < 1.1 && tenth < 1.6, "{median} {tenth}");
}

struct Host {
    server: Server,
    route: Route,
    profile: Profile,
}

fn host(random: &mut SplitMix64) -> Host {
    let pes = 1 + random.below(32) as u32;
    let rates = [0; 2].map(|_| between(random, 1e6, 1e9));
    let [up, down] = rates.map(|rate| {
        let transfers = random.below(6);
        Link::new(rate).with((0..transfers).map(|_| between(random, 1e4, 1e8)))
    });
    let mut server = Server::idle(pes, 1 << 40, up, down);
    for _ in 0..random.below(u64::from(2 * pes)) {
        let ready_s = between(random, 0.1, 10.0) - 1.0;
        let slot = server.backlog.slot(ready_s, (1, 4), |_| 0.0);
        let seconds = between(random, 0.1, 100.0);
        server.backlog.take(ready_s, slot.pes, seconds);
    }
    let mut profile = Profile::default();
    let rate = between(random, 1e8, 1e11);
    for pes in [1, 2, 4] {
        let works = (20..40).map(|octave| f64::from(octave).exp2());
        works.for_each(|work| profile.observe(work, pes, work / rate / f64::from(pes)));
    }
    let [up, down] = rates.map(|rate| PathDirection {
        latency_s: 1e-3,
        rate,
        factor: 1.2,
    });
    Host {
        server,
        route: Route { up, down },
        profile,
    }
}

/// Microseconds for a decision: the median of many.
fn cost(hosts: &[Host], policy: Policy) -> f64 {
    let client = Link::new(1e9).with([1e6, 1e7]);
    let inputs = [8e6, 8e3].map(|bytes| Input {
        bytes: bytes as u64,
        data: None,
        origin: Origin::Client,
    });
    let mut placer = Placer::new(policy);
    let mut times: Vec<f64> = (0..401)
        .map(|round| {
            let call = Call {
                work: 1e9 + f64::from(round),
                inputs: &inputs,
                down_bytes: 8000,
                memory: 1 << 24,
                fewest: 1,
                most: 4,
            };
            let candidates = (0..).zip(hosts).map(|(id, host)| Candidate {
                id,
                server: &host.server,
                now_s: 0.0,
                route: &host.route,
                profile: &host.profile,
                unknown_s: 1.0,
                client_up: &client,
                client_down: &client,
            });
            let start = Instant::now();
            let choice = placer.choose(&call, candidates);
            let time = start.elapsed().as_secs_f64() * 1e6;
            assert!(choice.is_some());
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The bound is generous, and it holds for a release build only.
#[test]
fn a_decision_among_a_thousand_servers_is_cheap() {
    let mut random = SplitMix64::new(1);
    let different: Vec<Host> = (0..1000).map(|_| host(&mut random)).collect();
    // The hardest case: all servers look alike, so none can be left out early.
    let mut equal: Vec<Host> = Vec::new();
    equal.resize_with(1000, || host(&mut SplitMix64::new(5)));
    for (name, hosts) in [("different", &different), ("equal", &equal)] {
        for (policy_name, policy) in Policy::NAMES {
            let micros = cost(hosts, policy);
            println!("{policy_name} among 1000 {name} servers: {micros:.1} us");
            assert!(cfg!(debug_assertions) || micros < 500.0, "{micros} us");
        }
    }
}
