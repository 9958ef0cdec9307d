//! How gang jobs end: their processes end by themselves or are killed, and the last one ends the
//! gang job. Its front end then learns the outcome, in which the first cause of the end counts.

use super::{Order, Root, SIGKILL};
use crate::{Ended, FARCALL_FAILED, JobId, Message};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

impl Root {
    /// Kills the processes of a gang job. One without processes ends at once.
    pub(super) fn kill(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.is_killed = true;
        if job.nodes.is_empty() {
            // Its processes have ended for a move, and there are no others yet.
            job.outcome.status = job.outcome.status.max(128 + SIGKILL as u8);
        }
        match job.has_no_processes() || job.nodes.is_empty() {
            true => self.finish(id),
            false => {
                let kill = Message::Deliver(job.local, SIGKILL);
                self.orders.push_back(Order::Nodes(kill));
            }
        }
    }

    /// Handles the end of a process.
    pub fn handle_process_ended(&mut self, local: JobId, rank: u16, ended: Ended) {
        if let Some(id) = self.known_one(local) {
            self.end_process(id, rank, ended);
        }
    }

    pub(super) fn end_process(&mut self, id: JobId, rank: u16, ended: Ended) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.ended.insert(rank) {
            return;
        }
        let outcome = &mut job.outcome;
        outcome.usage.user_us += ended.usage.user_us;
        outcome.usage.system_us += ended.usage.system_us;
        outcome.usage.peak_bytes = outcome.usage.peak_bytes.max(ended.usage.peak_bytes);
        // If the gang job is already being ended, the ends of its processes say nothing new.
        if !job.is_ending {
            if outcome.cause.is_none() {
                outcome.cause = ended.cause;
            }
            outcome.status = outcome.status.max(ended.status);
        }
        if ended.status >= FARCALL_FAILED && !job.is_ending {
            job.is_ending = true;
            let kill = Message::Deliver(job.local, SIGKILL);
            self.orders.push_back(Order::Nodes(kill));
        }
        if job.ended.len() == usize::from(job.spec.processes) {
            self.finish(id);
        }
    }

    pub(super) fn finish(&mut self, id: JobId) {
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        let asking = job.take_asking();
        self.tree.leave(id);
        self.admission.leave(job.bytes);
        self.moved.remove(&job.local);
        self.orders
            .push_back(Order::Nodes(Message::Forget(job.local)));
        match job.outcome.status {
            0 => self.past.0 += 1,
            _ => self.past.1 += 1,
        }
        let ended = Message::JobEnded(id, job.outcome);
        self.orders.push_back(Order::Front(job.front, ended));
        let taker = job.checkpoint.map(|checkpoint| checkpoint.front());
        for front in asking.into_iter().chain(taker) {
            let gone = Message::Refused(format!("gang job {id} has ended"));
            self.orders.push_back(Order::Front(front, gone));
        }
        if self.running.contains(&id) {
            self.running.retain(|other| *other != id);
            self.ended.push(id);
            self.turns.want();
        }
    }

    /// Ends all gang jobs because the daemon stops.
    pub fn handle_end(&mut self) {
        for job in self.jobs.values_mut() {
            job.is_ending = true;
            job.outcome.status = FARCALL_FAILED;
            job.outcome.cause = Some("the daemon was stopped".to_string());
        }
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }
}
