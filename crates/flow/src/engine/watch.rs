//! The links that a user asks about: who uses them, and how their load changes. For all other links
//! the engine counts only bytes, because this costs memory for each pair of ranks.

use super::record::{LinkLoad, Record, Sink};
use crate::platform::LinkId;
use std::collections::HashMap;

/// A pair of ranks and the bytes that it sent over a link.
pub type LinkUser = (u32, u32, f64);

/// The watched links.
#[derive(Debug, Default)]
pub(super) struct Watch {
    links: Vec<LinkId>,
    /// Index of each link of the platform in `links`, from 1. Empty if no link is watched.
    index: Vec<u32>,
    load: Vec<f64>,
    /// The load that was told last.
    told: Vec<f64>,
    users: Vec<HashMap<(u32, u32), f64>>,
}

impl Watch {
    /// Watches these links, each once, of `platform_links` in all.
    pub(super) fn new(links: &[LinkId], platform_links: usize) -> Self {
        let mut watch = Self::default();
        if links.is_empty() {
            return watch;
        }
        watch.index.resize(platform_links, 0);
        for &link in links {
            if let Some(index) = watch.index.get_mut(link as usize)
                && *index == 0
            {
                watch.links.push(link);
                *index = watch.links.len() as u32;
            }
        }
        watch.load.resize(watch.links.len(), 0.0);
        watch.told.resize(watch.links.len(), 0.0);
        watch.users.resize(watch.links.len(), HashMap::new());
        watch
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    fn watched(&self, path: &[LinkId]) -> impl Iterator<Item = usize> {
        let watched = |&link: &LinkId| (self.index[link as usize] as usize).checked_sub(1);
        path.iter().filter_map(watched)
    }

    /// Counts bytes from one rank to another.
    pub(super) fn count(&mut self, path: &[LinkId], pair: (u32, u32), bytes: f64) {
        if self.is_empty() {
            return;
        }
        let watched: Vec<usize> = self.watched(path).collect();
        for index in watched {
            *self.users[index].entry(pair).or_default() += bytes;
        }
    }

    /// The rate of a flow has changed.
    pub(super) fn change(&mut self, path: &[LinkId], difference: f64) {
        if self.is_empty() {
            return;
        }
        let watched: Vec<usize> = self.watched(path).collect();
        for index in watched {
            self.load[index] += difference;
        }
    }

    /// Tells the loads that have changed.
    pub(super) fn tell(
        &mut self,
        time: f64,
        sink: &mut Sink<'_>,
        bandwidth: impl Fn(LinkId) -> f64,
    ) {
        for (index, &link) in self.links.iter().enumerate() {
            let least = bandwidth(link) * 1e-9;
            // Without flows, the sum of all changes is 0 up to its rounding.
            let rate = match self.load[index] {
                load if load < least => 0.0,
                load => load,
            };
            if (rate - self.told[index]).abs() > least {
                self.told[index] = rate;
                sink(&Record::LinkLoad(LinkLoad { link, time, rate }));
            }
        }
    }

    /// The pairs of ranks that used each link, those with most bytes first.
    pub(super) fn users(&self) -> Vec<Vec<LinkUser>> {
        let sorted = |users: &HashMap<(u32, u32), f64>| {
            let mut users: Vec<LinkUser> = users.iter().map(|(&(s, d), &b)| (s, d, b)).collect();
            users.sort_unstable_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
            users
        };
        self.users.iter().map(sorted).collect()
    }
}

/// The links with the highest utilisation, the highest first, without unused ones.
pub fn hottest_links(
    link_bytes: &[f64],
    bandwidth: impl Fn(LinkId) -> f64,
    count: usize,
) -> Vec<LinkId> {
    let time = |link: LinkId| link_bytes[link as usize] / bandwidth(link);
    let mut links: Vec<LinkId> = (0..link_bytes.len() as LinkId)
        .filter(|&link| link_bytes[link as usize] > 0.0)
        .collect();
    links.sort_by(|&a, &b| time(b).total_cmp(&time(a)));
    links.truncate(count);
    links
}
