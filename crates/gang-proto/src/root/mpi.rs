//! What the processes of MPI need of the root daemon: barriers over all nodes, and the end of the
//! whole gang job when one of them aborts it. `pmi` has what they say to their own daemons.

use super::{Order, Root, SIGKILL};
use crate::pmi::bytes_of;
use crate::{FARCALL_FAILED, JobId, Message, Pairs};
use alloc::format;
use alloc::string::String;

/// The most bytes that the processes of all nodes can put before a barrier: they fit into a
/// message.
const PUT: usize = 3 << 20;

impl Root {
    /// Handles a node whose processes of a gang job have reached a barrier of MPI.
    pub fn handle_fence(&mut self, local: JobId, node: u16, pairs: Pairs) {
        let job = self.known_one(local);
        let job = job.and_then(|id| self.jobs.get_mut(&id));
        let Some(job) = job.filter(|job| job.nodes.contains(&node)) else {
            return;
        };
        job.fences.insert(node, pairs);
        if job.fences.len() < job.nodes.len() {
            return;
        }
        let all = core::mem::take(&mut job.fences).into_values();
        let all: Pairs = all.flatten().collect();
        let bytes: usize = all.iter().map(|(key, value)| bytes_of(key, value)).sum();
        if bytes > PUT {
            let most = PUT >> 20;
            let cause = format!("its processes put more than {most} MiB before a barrier of MPI");
            return self.end_for_mpi(local, FARCALL_FAILED, cause);
        }
        let fenced = Message::Fenced(local, all);
        self.orders.push_back(Order::Nodes(fenced));
    }

    /// Handles a process that has aborted its gang job: all others end.
    pub fn handle_aborted(&mut self, local: JobId, rank: u16, code: i32) {
        let status = u8::try_from(code).unwrap_or(u8::MAX).max(1);
        let cause = format!("rank {rank} has called MPI_Abort with {code}");
        self.end_for_mpi(local, status, cause);
    }

    fn end_for_mpi(&mut self, local: JobId, status: u8, cause: String) {
        let job = self.known_one(local);
        let job = job.and_then(|id| self.jobs.get_mut(&id));
        let Some(job) = job.filter(|job| !job.is_ending) else {
            return;
        };
        job.is_ending = true;
        job.outcome.status = status;
        job.outcome.cause = Some(cause);
        let kill = Message::Deliver(local, SIGKILL);
        self.orders.push_back(Order::Nodes(kill));
    }
}
