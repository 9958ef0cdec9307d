//! The numbers by which the nodes know gang jobs. After a move this is another number than the one
//! of the user, so nothing that comes late from the former processes counts.

use super::Root;
use crate::{JobId, Turn};
use alloc::vec::Vec;

impl Root {
    /// The gang job that the nodes know by a number, if this number is still right.
    pub fn known_one(&self, local: JobId) -> Option<JobId> {
        let id = self.moved.get(&local).copied().unwrap_or(local);
        let job = self.jobs.get(&id);
        job.is_some_and(|job| job.local == local).then_some(id)
    }

    /// The gang jobs that the nodes know by these numbers. Those that have ended, or were moved
    /// meanwhile, keep the number.
    pub fn known(&self, locals: &[JobId]) -> Vec<JobId> {
        let locals = locals.iter();
        locals
            .map(|local| self.moved.get(local).copied().unwrap_or(*local))
            .collect()
    }

    /// A gang switch in the numbers of the nodes.
    pub(super) fn to_nodes(&self, turn: Turn) -> Turn {
        let local = |id: &JobId| self.jobs.get(id).map_or(*id, |job| job.local);
        Turn {
            out: turn.out.iter().map(local).collect(),
            into: turn.into.iter().map(local).collect(),
            nodes: turn
                .nodes
                .into_iter()
                .map(|(id, nodes)| (local(&id), nodes))
                .collect(),
        }
    }
}
