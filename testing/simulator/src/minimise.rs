//! Shortens a failing history: fewer clients, servers and requests, fewer kinds of faults, fewer
//! subjects. A shorter history counts only if it breaks the same invariant.

use crate::options::{Faults, GridFaults, Options, Subjects, SystemFaults};
use crate::world::simulate;

/// The shortest history found that breaks the same invariant. The returned options record it in
/// words.
pub fn minimise(options: &Options) -> Options {
    let broken = |options: &Options| simulate(options).violation.map(|one| one.kind());
    let first = broken(options);
    let fails = |options: &Options| broken(options) == first;
    let mut best = options.clone();
    while let Some(found) = smaller(&best).into_iter().find(fails) {
        best = found;
    }
    Options {
        traces: true,
        ..best
    }
}

/// Histories that have less of one thing, in the order in which they are tried.
fn smaller(best: &Options) -> Vec<Options> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Options)| {
        let mut one = best.clone();
        change(&mut one);
        all.push(one);
    };
    for clients in 1..best.clients {
        with(&|one| one.clients = clients);
    }
    for servers in 1..best.servers {
        with(&|one| one.servers = servers);
    }
    if best.metaservers > 1 {
        with(&|one| one.metaservers = 1);
    }
    if best.stores {
        with(&|one| one.stores = false);
    }
    for fewer in (0..GridFaults::COUNT).filter_map(|number| best.grid_faults.without(number)) {
        with(&|one| one.grid_faults = fewer);
    }
    for fewer in (0..Faults::COUNT).filter_map(|number| best.faults.without(number)) {
        with(&|one| one.faults = fewer);
    }
    for fewer in (0..SystemFaults::COUNT).filter_map(|number| best.system_faults.without(number)) {
        with(&|one| one.system_faults = fewer);
    }
    for fewer in (0..Subjects::COUNT).filter_map(|number| best.subjects.without(number)) {
        with(&|one| one.subjects = fewer);
    }
    let wishes = [
        best.wishes / 2,
        best.wishes * 3 / 4,
        best.wishes.saturating_sub(1),
    ];
    for wishes in wishes {
        if (1..best.wishes).contains(&wishes) {
            with(&|one| one.wishes = wishes);
        }
    }
    all
}
