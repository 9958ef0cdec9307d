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
        let others_run = job.ended.len() < usize::from(job.spec.processes);
        let is_missed = ended.is_missed == Some(true) && others_run;
        let ended = match is_missed {
            true => missed(rank, ended),
            false => ended,
        };
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
        if (ended.status >= FARCALL_FAILED || is_missed) && !job.is_ending {
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

/// The end of a process of MPI that others wait for. It is no success, whatever its status.
fn missed(rank: u16, ended: Ended) -> Ended {
    let how = ended.cause;
    let how = how.unwrap_or_else(|| format!("rank {rank} ended with status 0"));
    Ended {
        status: ended.status.max(1),
        cause: Some(format!(
            "{how} before MPI_Finalize, so the others cannot go on"
        )),
        ..ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobSpec, Settings};
    use alloc::string::String;
    use alloc::vec;

    /// How a gang job of three processes ends, one of which ends early.
    fn outcome(status: u8, is_missed: bool) -> (bool, Ended) {
        let mut root = Root::new(Settings::ample(), 0);
        root.handle_join("a", vec![0, 1, 2], String::new(), 0);
        let spec = JobSpec {
            processes: 3,
            command: vec!["program".to_string()],
            ..JobSpec::default()
        };
        root.handle_run(1, spec).expect("it is accepted");
        let early = Ended {
            status,
            is_missed: Some(is_missed),
            ..Ended::default()
        };
        root.handle_process_ended(1, 1, early);
        let mut orders = core::iter::from_fn(|| root.poll_order());
        let kill = Order::Nodes(Message::Deliver(1, SIGKILL));
        let is_killed = orders.any(|order| order == kill);
        for rank in [0, 2] {
            let last = Ended {
                status: if is_killed { 137 } else { 0 },
                is_missed: Some(rank == 2),
                ..Ended::default()
            };
            root.handle_process_ended(1, rank, last);
        }
        let orders = core::iter::from_fn(|| root.poll_order());
        let mut ended = orders.filter_map(|order| match order {
            Order::Front(1, Message::JobEnded(1, ended)) => Some(ended),
            _ => None,
        });
        (is_killed, ended.next().expect("it has ended"))
    }

    /// The others would wait for its messages for ever.
    #[test]
    fn a_process_that_has_not_left_mpi_ends_its_job() {
        let (is_killed, ended) = outcome(3, true);
        assert!(is_killed && ended.status == 3);
        let (is_killed, ended) = outcome(0, true);
        assert!(is_killed && ended.status == 1);
        let told = ended.cause.expect("a reason");
        assert!(told.contains("with status 0 before MPI_Finalize"), "{told}");
    }

    #[test]
    fn a_process_that_nobody_misses_ends_alone() {
        for status in [0, 3] {
            let (is_killed, ended) = outcome(status, false);
            assert!(!is_killed && ended.status == status);
            assert_eq!(ended.cause, None);
        }
    }
}
