//! What front ends and users do with gang jobs that have begun: they send signals, take the output,
//! and go away. A user can act only on their own gang jobs; the user root can act on all.

use super::{Job, Order, Root, SIGKILL};
use crate::{JobId, JobRow, Message};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Signals that stop a gang job and continue it.
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
const SIGTSTP: i32 = 20;

impl Root {
    /// Returns the gang job if the user may act on it.
    pub(super) fn owned(&mut self, id: JobId, user: u32) -> Result<&mut Job, String> {
        let is_own = |row: &JobRow| user == 0 || user == row.user;
        let is_lost = self.lost.get(&id).is_some_and(is_own);
        let job = self.jobs.get_mut(&id).ok_or_else(|| match is_lost {
            true => format!(
                "gang job {id} was lost with the daemon before this one; `farcall gang kill {id}` \
                 takes it from the list"
            ),
            false => format!("there is no gang job {id}"),
        })?;
        if user != 0 && user != job.spec.owner.0 {
            return Err(format!(
                "gang job {id} belongs to user {}",
                job.spec.owner.0
            ));
        }
        Ok(job)
    }

    /// Sends a signal to a gang job. SIGSTOP and SIGCONT also exclude it from the slices and
    /// include it again.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_signal(&mut self, id: JobId, signal: i32, user: u32) -> Result<(), String> {
        if signal == SIGKILL && self.take_note(id, user) {
            return Ok(());
        }
        let job = self.owned(id, user)?;
        match signal {
            SIGSTOP | SIGTSTP | SIGCONT => {
                job.is_stopped = signal != SIGCONT;
                self.reconsider(id);
            }
            SIGKILL => self.kill(id),
            1..=64 => {
                let deliver = Message::Deliver(job.local, signal);
                self.orders.push_back(Order::Nodes(deliver));
            }
            _ => return Err(format!("no signal {signal}")),
        }
        Ok(())
    }

    /// Handles the loss of a front end: its gang jobs end.
    pub fn handle_front_lost(&mut self, front: u64) {
        self.lose_taker(front);
        self.held.remove(&front);
        let mut mine = Vec::new();
        for (id, job) in &mut self.jobs {
            if job.front == front {
                if !job.is_ending && !job.is_interactive() {
                    // Whatever its processes did, it was not done. An interactive gang job is done
                    // when its front end goes.
                    job.outcome.status = job.outcome.status.max(128 + SIGKILL as u8);
                }
                job.is_ending = true;
                mine.push(*id);
            }
            job.forget_asking(front);
        }
        for id in mine {
            self.kill(id);
        }
    }

    /// Handles a front end that stops reading, or resumes. The nodes hold back the output of its
    /// gang jobs, and the states that it fetches.
    pub fn handle_hold(&mut self, front: u64, is_held: bool) {
        match is_held {
            true => self.held.insert(front),
            false => self.held.remove(&front),
        };
        let mine = self.jobs.iter().filter(|(_, job)| job.front == front);
        let holds = mine.map(|(_, job)| Order::Nodes(Message::Hold(job.local, is_held)));
        self.orders.extend(holds);
        self.pass_fetches_of(front);
    }

    /// Lets the nodes that have just prepared a gang job hold its output back, if its front end
    /// does not read now.
    pub(super) fn hold_prepared(&mut self, id: JobId) {
        let job = self.jobs.get(&id);
        if let Some(job) = job.filter(|job| self.held.contains(&job.front)) {
            let hold = Message::Hold(job.local, true);
            self.orders.push_back(Order::Nodes(hold));
        }
    }

    /// Passes the output of a process to its front end.
    pub fn handle_output(&mut self, local: JobId, message: Message) {
        if let Some(job) = self.known_one(local).and_then(|id| self.jobs.get(&id)) {
            self.orders.push_back(Order::Front(job.front, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ended, JobSpec, Settings};
    use alloc::string::ToString;
    use alloc::vec;

    /// Ends a gang job with its front end. Returns how many have succeeded then, and have not.
    fn past(interactive: Option<bool>) -> (u64, u64) {
        let mut root = Root::new(Settings::ample(), 0);
        root.handle_join("a", vec![0], String::new(), 0);
        let spec = JobSpec {
            processes: 1,
            command: vec!["program".to_string()],
            interactive,
            ..JobSpec::default()
        };
        root.handle_run(1, spec).expect("it is accepted");
        root.handle_front_lost(1);
        let killed = Ended {
            status: 137,
            ..Ended::default()
        };
        root.handle_process_ended(1, 0, killed);
        let counts = root.counts();
        (counts.succeeded, counts.failed)
    }

    /// Somebody kills the command, or it loses its connection.
    #[test]
    fn a_job_whose_front_end_went_away_has_not_succeeded() {
        assert_eq!(past(None), (0, 1));
    }

    #[test]
    fn an_interactive_job_is_done_when_its_front_end_goes() {
        assert_eq!(past(Some(true)), (1, 0));
    }
}
