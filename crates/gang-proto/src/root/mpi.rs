//! What the processes of MPI need of the root daemon: barriers over all nodes, and the end of the
//! whole gang job when one of them aborts it. `pmi` has what they say to their own daemons.

use super::{Order, Root, SIGKILL};
use crate::{JobId, Message, Pairs};
use alloc::format;

impl Root {
    /// Handles a node whose processes of a gang job have reached a barrier of MPI.
    pub fn handle_fence(&mut self, local: JobId, node: u16, pairs: Pairs) {
        let job = self.known_one(local);
        let job = job.and_then(|id| self.jobs.get_mut(&id));
        let Some(job) = job.filter(|job| job.nodes.contains(&node)) else {
            return;
        };
        job.fences.insert(node, pairs);
        if job.fences.len() == job.nodes.len() {
            let all = core::mem::take(&mut job.fences).into_values();
            let fenced = Message::Fenced(local, all.flatten().collect());
            self.orders.push_back(Order::Nodes(fenced));
        }
    }

    /// Handles a process that has aborted its gang job: all others end.
    pub fn handle_aborted(&mut self, local: JobId, rank: u16, code: i32) {
        let job = self.known_one(local);
        let job = job.and_then(|id| self.jobs.get_mut(&id));
        let Some(job) = job.filter(|job| !job.is_ending) else {
            return;
        };
        job.is_ending = true;
        job.outcome.status = u8::try_from(code).unwrap_or(u8::MAX).max(1);
        job.outcome.cause = Some(format!("rank {rank} has called MPI_Abort with {code}"));
        let kill = Message::Deliver(local, SIGKILL);
        self.orders.push_back(Order::Nodes(kill));
    }
}
