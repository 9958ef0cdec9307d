//! Judges gang jobs whose processes poll. A process of MPI never sleeps while it waits, so its
//! saved context does not say that it waits. But its network says what it looks for, and how often
//! it has looked and found nothing. A process that has polled all the time from one look to the
//! next, and has done nothing else with its network, seems to wait for one of the things that it
//! looks for.
//!
//! Nobody knows which of them the program needs, so each of them lets it go on, and so does a
//! message on its way to it. Even then it may do something else meanwhile: wait for a file, or
//! compute in another thread. So a deadlock is suspected, and never certain.

use crate::state::live;
use crate::{Process, Waits, Wanted};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A process that polls all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poller {
    /// What it looks for.
    pub wanted: Vec<Wanted>,
    /// Whether it also looks for something else, which any process may send.
    pub has_others: bool,
}

/// The processes that poll all the time, by their ranks.
pub type Pollers = BTreeMap<u16, Poller>;

impl Wanted {
    /// The rank that it waits for; none if any rank will do.
    pub fn rank(&self) -> Option<u16> {
        match self {
            Wanted::Message(source, _) => *source,
            Wanted::Receive(target, _) => Some(*target),
        }
    }
}

impl Poller {
    /// Whether it may continue, as a process of this rank, if these processes may.
    pub(crate) fn goes_on(&self, rank: usize, live: &BTreeSet<usize>) -> bool {
        let others_live = || live.iter().any(|other| *other != rank);
        let comes = |wanted: &Wanted| match wanted.rank() {
            Some(other) => live.contains(&usize::from(other)),
            None => others_live(),
        };
        let knows_nothing = self.wanted.is_empty() && !self.has_others;
        knows_nothing || self.has_others && others_live() || self.wanted.iter().any(comes)
    }
}

/// The processes of a suspected deadlock: first those that wait for each other in a circle, in the
/// order of the circle, then the others that wait for them. It is empty if each process might
/// continue.
pub fn suspect(processes: &[Process], pollers: &Pollers) -> Vec<u16> {
    let live = live(processes, &|rank, live| {
        let poller = pollers.get(&(rank as u16));
        poller
            .is_none_or(|poller| !processes[rank].pending.is_empty() || poller.goes_on(rank, live))
    });
    let is_blocked = |rank: u16| {
        let process = processes.get(usize::from(rank));
        let polls = process.is_some_and(|process| process.waits == Waits::No);
        polls && !live.contains(&usize::from(rank))
    };
    let blocked = || pollers.keys().copied().filter(|rank| is_blocked(*rank));
    let mut all = blocked()
        .find_map(|start| circle(start, pollers, &is_blocked))
        .unwrap_or_default();
    let others: Vec<u16> = blocked().filter(|rank| !all.contains(rank)).collect();
    all.extend(others);
    all
}

/// The circle to which a blocked process leads, if it leads to one.
fn circle(start: u16, pollers: &Pollers, is_blocked: &dyn Fn(u16) -> bool) -> Option<Vec<u16>> {
    let mut path: Vec<u16> = Vec::new();
    let mut rank = start;
    loop {
        if let Some(place) = path.iter().position(|seen| *seen == rank) {
            return Some(path.split_off(place));
        }
        path.push(rank);
        let mut on = pollers.get(&rank)?.wanted.iter().filter_map(Wanted::rank);
        rank = on.find(|other| is_blocked(*other))?;
    }
}

#[cfg(test)]
mod tests;
