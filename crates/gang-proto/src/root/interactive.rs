//! Interactive gang jobs, which run only while their front ends have work for them. Such a job does
//! not wait for its turn: it takes the place of others at once, and they go on when its work is
//! done. What users get in this way is bounded; beyond it, an interactive gang job takes turns like
//! any other, so a bound delays it and never blocks it.

use super::{Job, Root};
use crate::{JobId, Nanos};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The time over which shares are bounded: a share that was not used in it can be used at once.
const WINDOW: Nanos = 4_000_000_000;
/// All users together have this many times the share of one.
const USERS: u64 = 2;

/// The processor time that interactive gang jobs had before others, of one user or of all. It
/// counts in nanoseconds of the whole machine, and is forgotten at the rate of the share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    used: Nanos,
    at: Nanos,
}

impl Account {
    fn settle(&mut self, percent: u64, now: Nanos) {
        let time = now.saturating_sub(self.at);
        let forgotten = time.saturating_mul(percent) / 100;
        *self = Account {
            used: self.used.saturating_sub(forgotten),
            at: now,
        };
    }

    /// Whether more may be used now.
    fn has_room(&self, percent: u64) -> bool {
        self.used < WINDOW / 100 * percent
    }
}

impl Root {
    /// Handles a front end whose interactive gang job has work, or has no more.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_work(&mut self, id: JobId, front: u64, has_work: bool) -> Result<(), String> {
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| job.front == front && job.is_interactive());
        let Some(job) = job else {
            return Err(format!(
                "gang job {id} is not an interactive one of this front end"
            ));
        };
        job.has_work = has_work;
        // One that has no more work makes room; one that has work may come before others.
        self.reconsider(id);
        Ok(())
    }

    /// Charges the users of interactive gang jobs for the time since the last call.
    pub(super) fn charge(&mut self, now: Nanos) {
        let slots = self.tree.slots() as u64;
        let percent = self.settings.share;
        for id in &self.running {
            let Some(job) = self.jobs.get_mut(id).filter(|job| job.is_interactive()) else {
                continue;
            };
            let Some(since) = job.since.replace(now) else {
                continue;
            };
            let part = u64::from(job.spec.processes).min(slots);
            let used = now.saturating_sub(since) / slots * part;
            let own = self.accounts.entry(job.spec.owner.0).or_default();
            own.settle(percent, now);
            own.used += used;
            self.account.settle(percent * USERS, now);
            self.account.used += used;
        }
        self.accounts.retain(|_, account| {
            account.settle(percent, now);
            account.used > 0
        });
        self.account.settle(percent * USERS, now);
    }

    /// The interactive gang jobs that may run before others now.
    fn urgent(&self) -> Vec<JobId> {
        let percent = self.settings.share;
        let has_room = |job: &Job| {
            let own = self.accounts.get(&job.spec.owner.0);
            own.copied().unwrap_or_default().has_room(percent)
        };
        if !self.account.has_room(percent * USERS) {
            return Vec::new();
        }
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.is_interactive() && has_room(job));
        jobs.map(|(id, _)| *id).collect()
    }

    /// The gang jobs to run now: urgent ones, then those of `base`, then those that had to make
    /// room for urgent ones, then any that fit beside them.
    pub(super) fn choose(&mut self, base: &[JobId]) -> Vec<JobId> {
        let mut chosen = Vec::new();
        let urgent = self.urgent();
        self.tree.add_fitting(&mut chosen, &urgent);
        self.tree.add_fitting(&mut chosen, base);
        self.tree.add_fitting(&mut chosen, &self.displaced);
        self.tree.fill(&mut chosen);
        let mut displaced = core::mem::take(&mut self.displaced);
        displaced.extend(base.iter().filter(|id| !urgent.contains(id)));
        displaced.retain(|id| !chosen.contains(id) && self.jobs.contains_key(id));
        displaced.sort_unstable();
        displaced.dedup();
        if chosen.iter().any(|id| urgent.contains(id)) {
            self.displaced = displaced;
        }
        chosen
    }
}
