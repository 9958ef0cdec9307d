//! Decides when gang jobs run: the slices, and the gang switches between them and within them.
//! `QueueTree` says whose turn it is, `interactive` says who comes before others, and `Switch`
//! knows the steps of a gang switch.

use super::Root;
use crate::{JobId, Nanos, Turn};
use alloc::vec::Vec;

/// The slice that runs, and the gang switch in progress.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// When the slice ends; none before the first slice.
    slice_ends: Option<Nanos>,
    /// Whether something has changed, so that other gang jobs may have to run before the slice
    /// ends.
    is_wanted: bool,
    /// Whether the gang switch in progress begins a slice.
    begins_slice: bool,
    /// Whether a gang switch is in progress.
    is_switching: bool,
    /// The gang jobs that it lets run.
    coming: Vec<JobId>,
    /// The gang jobs that it had to wait for.
    stuck: Vec<JobId>,
}

impl Root {
    /// Returns the gang jobs to switch out and in, if a gang switch is due now. The caller must
    /// start it at once.
    pub fn poll_switch(&mut self, now: Nanos) -> Option<Turn> {
        self.now = now;
        let is_over = self.turns.slice_ends.is_none_or(|end| now >= end);
        let is_due = self.turns.is_wanted || is_over && !self.is_idle();
        if self.turns.is_switching || !is_due {
            return None;
        }
        self.turns.is_wanted = false;
        self.charge(now);
        let is_whole = is_over || self.running.is_empty();
        let switch = self.next_switch(is_whole);
        self.turns.begins_slice = is_whole;
        match switch {
            Some(_) => self.turns.is_switching = true,
            None => self.begin_slice(),
        }
        switch.map(|turn| self.to_nodes(turn))
    }

    /// Handles the end of a gang switch that took `took`. Gang jobs that were to come in, and are
    /// not in `into`, do not run.
    pub fn handle_switched(&mut self, (out, into): (&[JobId], &[JobId]), took: Nanos, now: Nanos) {
        self.now = now;
        let (out, into) = (self.known(out), self.known(into));
        let coming = core::mem::take(&mut self.turns.coming);
        self.running
            .retain(|id| into.contains(id) || !coming.contains(id));
        for id in &into {
            if let Some(job) = self.jobs.get_mut(id) {
                job.slices += 1;
                // An interactive one also pays for the gang switches to it and back.
                job.since = Some(now.saturating_sub(took.saturating_mul(2)));
            }
        }
        for id in &out {
            if let Some(job) = self.jobs.get_mut(id) {
                job.lost.0 += took;
                job.lost.1 += 1;
            }
        }
        // The time that the others lost comes from its own slices.
        let lost = took.div_ceil(self.settings.slice.max(1));
        for id in core::mem::take(&mut self.turns.stuck) {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.sits_out += usize::try_from(lost).unwrap_or(usize::MAX / 2);
            }
        }
        self.turns.is_switching = false;
        self.begin_slice();
    }

    /// Begins a slice, unless the gang switch was within one.
    fn begin_slice(&mut self) {
        if !core::mem::take(&mut self.turns.begins_slice) {
            return self.begin_inspections();
        }
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.sits_out > 0) {
            job.sits_out -= 1;
            self.tree.set_runnable(*id, job.may_run());
        }
        self.turns.slice_ends = Some(self.now.saturating_add(self.settings.slice));
        self.begin_inspections();
    }

    /// The gang jobs to switch out and in next, or `None` if nothing changes. A slice begins with
    /// those whose turn it is; within a slice, those that run go on if they can.
    fn next_switch(&mut self, begins_slice: bool) -> Option<Turn> {
        let base = match (begins_slice, self.displaced.is_empty()) {
            (false, _) => self.running.clone(),
            // Those that had to make room do not lose their turn.
            (true, false) => self.displaced.clone(),
            (true, true) => self.tree.next_slice(),
        };
        let next = self.choose(&base);
        let (old, new) = match self.settings.switch_alone && begins_slice {
            true => (self.running.clone(), next.clone()),
            false => (
                difference(&self.running, &next),
                difference(&next, &self.running),
            ),
        };
        self.running = next;
        if old.is_empty() && new.is_empty() {
            return None;
        }
        self.turns.coming.clone_from(&new);
        let jobs = old.iter().chain(&new);
        let nodes_of = |id: &JobId| Some((*id, self.jobs.get(id)?.nodes.iter().copied().collect()));
        Some(Turn {
            nodes: jobs.filter_map(nodes_of).collect(),
            out: old,
            into: new,
        })
    }

    /// When the slice ends, if a gang switch is to follow then.
    pub(super) fn slice_end(&self) -> Option<Nanos> {
        let is_waiting = !self.turns.is_switching && !self.is_idle();
        self.turns.slice_ends.filter(|_| is_waiting)
    }

    /// Looks again whether a gang job may run, and wants a gang switch.
    pub(super) fn reconsider(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id) {
            self.tree.set_runnable(id, job.may_run());
            self.turns.want();
        }
    }

    /// Takes gang jobs that did not stop in time out of the slices: the others have theirs, then
    /// each of them misses its next one, and as many as the others lost.
    pub(super) fn hold_back(&mut self, stuck: &[JobId]) {
        let turns = self.jobs.len();
        let held = self.jobs.iter_mut().filter(|(id, _)| stuck.contains(id));
        for (id, job) in held {
            job.sits_out = turns;
            self.tree.set_runnable(*id, job.may_run());
            self.turns.stuck.push(*id);
        }
    }
}

impl Turns {
    /// Asks for a gang switch before the slice ends.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }
}

/// Those of `one` that are not in `other`.
fn difference(one: &[JobId], other: &[JobId]) -> Vec<JobId> {
    let mut left = one.to_vec();
    left.retain(|id| !other.contains(id));
    left
}
