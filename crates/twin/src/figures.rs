//! The figures of a recorded or a replayed day: when it was over, and how long calls took, in all,
//! by user and by server. Calls that no server took do not count. `twin` compares figures.

use farcall_gridsim::{Arrival, Record};
use std::collections::BTreeMap;

/// The parts of a call's time at a server, in seconds; means over all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Its arguments travel.
    pub send_s: f64,
    /// It waits for processor elements.
    pub wait_s: f64,
    /// It computes.
    pub compute_s: f64,
    /// Its results travel.
    pub return_s: f64,
}

impl Parts {
    /// The parts with their names.
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("transfers to the servers", self.send_s),
            ("waits", self.wait_s),
            ("computations", self.compute_s),
            ("transfers back", self.return_s),
        ]
    }
}

/// The calls of a user, or at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Number of calls.
    pub calls: usize,
    /// Mean seconds from a call to its results; 0 without calls.
    pub mean_s: f64,
}

/// The figures of a day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Seconds from the first call to the last results.
    pub makespan_s: f64,
    /// Mean seconds from a call to its results.
    pub mean_s: f64,
    /// Seconds from a call to its results that 95 % of the calls do not exceed.
    pub p95_s: f64,
    /// The parts of the mean.
    pub parts: Parts,
    /// By the number of the user.
    pub users: BTreeMap<u64, Group>,
    /// By the index of the server.
    pub servers: BTreeMap<usize, Group>,
}

impl Figures {
    /// The figures of calls and what came of them. Calls that no server took do not count.
    pub(crate) fn of(arrivals: &[Arrival], records: &[Record]) -> Figures {
        let calls = arrivals.iter().zip(records);
        let calls = calls.filter(|(_, record)| record.seconds.is_finite());
        let mut figures = Figures::default();
        let mut all = Vec::new();
        for (arrival, one) in calls {
            all.push(one.seconds);
            figures.makespan_s = figures.makespan_s.max(one.done_s);
            figures.parts.send_s += one.arrived_s - one.at_s;
            figures.parts.wait_s += one.started_s - one.arrived_s;
            figures.parts.compute_s += one.computed_s - one.started_s;
            figures.parts.return_s += one.done_s - one.computed_s;
            add(figures.users.entry(arrival.user).or_default(), one.seconds);
            add(figures.servers.entry(one.server).or_default(), one.seconds);
        }
        let count = all.len().max(1) as f64;
        let parts = &mut figures.parts;
        let sums = [
            &mut parts.send_s,
            &mut parts.wait_s,
            &mut parts.compute_s,
            &mut parts.return_s,
        ];
        sums.into_iter().for_each(|sum| *sum /= count);
        figures.mean_s = all.iter().sum::<f64>() / count;
        all.sort_by(f64::total_cmp);
        let last = all.len().saturating_sub(1) as f64;
        figures.p95_s = all
            .get((0.95 * last).round() as usize)
            .copied()
            .unwrap_or(0.0);
        for group in figures
            .users
            .values_mut()
            .chain(figures.servers.values_mut())
        {
            group.mean_s /= group.calls as f64;
        }
        figures
    }
}

/// Counts a call. The mean is a sum until all calls are counted.
fn add(group: &mut Group, seconds: f64) {
    group.calls += 1;
    group.mean_s += seconds;
}
