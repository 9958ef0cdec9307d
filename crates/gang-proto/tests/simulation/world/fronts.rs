//! The requests of the front ends, and the answers they get. Front ends run, stop, continue, kill
//! and inspect gang jobs, sometimes those of another user. Each gang job must end exactly once, and
//! a failure must have a cause.

use super::*;
use farcall_gang_proto::FARCALL_FAILED;

impl World {
    /// A front end starts a job, or does something to one.
    pub(super) fn act_as_front(&mut self) {
        if self.now > BUSY {
            for (id, told) in &self.told {
                let _ = self.root.handle_signal(*id, SIGCONT, told.user);
                let _ = self.root.handle_work(*id, told.front, true);
            }
            return;
        }
        let jobs: Vec<JobId> = self.told.keys().copied().collect();
        if jobs.is_empty() || self.random.below(3) == 0 {
            return self.run_job();
        }
        let id = jobs[self.below(jobs.len())];
        let KnownJob { front, user, .. } = self.told[&id];
        let other = self.random.below(10) == 0;
        let user = if other { user + 1 } else { user };
        if self.random.below(4) == 0 {
            return self.begin_move(id, user);
        }
        match self.random.below(15) {
            0 => {
                self.root.handle_front_lost(front);
                for (id, told) in self.told.iter_mut().filter(|(_, told)| told.front == front) {
                    told.front = u64::MAX;
                    self.killed.insert(*id);
                }
                self.looked.remove(&front);
            }
            1..3 => {
                if self.root.handle_signal(id, SIGKILL, user).is_ok() {
                    self.killed.insert(id);
                }
            }
            3..7 => {
                let _ = self.root.handle_signal(id, SIGSTOP, user);
            }
            7..9 => {
                let _ = self.root.handle_signal(id, SIGCONT, user);
            }
            9..12 => {
                let has_work = self.random.below(2) == 0;
                let _ = self.root.handle_work(id, front, has_work);
            }
            _ => {
                self.last_front += 1;
                if self.root.handle_inspect(id, self.last_front, user).is_ok() {
                    self.looked.insert(self.last_front, id);
                }
            }
        }
    }

    fn run_job(&mut self) {
        if self.started as usize >= self.faults.jobs {
            return;
        }
        self.last_front += 1;
        let front = self.last_front;
        let user = 1 + self.random.below(3) as u32;
        let processes = 1 + self.random.below(2 + 2 * self.faults.nodes as u64) as u16;
        let waits = self.random.below(6) == 0;
        let spec = JobSpec {
            processes,
            command: vec!["job".to_string()],
            memory: self.random.below(3),
            detect_termination: waits,
            owner: (user, user),
            interactive: Some(self.random.below(4) == 0),
            ..JobSpec::default()
        };
        if self.root.handle_run(front, spec).is_err() {
            return;
        }
        self.started += 1;
        let rows = self.root.rows(0);
        let id = rows.iter().map(|row| row.id).max().expect("it has begun");
        let is_long = self.random.below(2) == 0;
        for rank in 0..processes {
            let most = [MS, 100 * MS, 2 * SECOND][self.below(3)];
            let least = if is_long { 3 * SECOND } else { 1 };
            let work = Some(least + self.random.below(most)).filter(|_| !waits);
            self.work.insert((id, rank), work);
        }
        let told = KnownJob {
            front,
            user,
            ended: None,
        };
        self.told.insert(id, told);
    }

    pub(super) fn tell(&mut self, front: u64, message: Message) {
        if self.moves.contains_key(&front) {
            return self.tell_mover(front, message);
        }
        match message {
            Message::Started(id, _) => assert_eq!(self.told[&id].front, front),
            Message::JobEnded(id, ended) => {
                let told = self.told.get_mut(&id).expect("it was started");
                if let Some(FARCALL_FAILED) = Some(ended.status) {
                    assert!(ended.cause.is_some(), "job {id} failed for no reason");
                }
                let before = told.ended.replace(ended);
                assert_eq!(before, None, "job {id} ended twice");
            }
            Message::JobState(..) | Message::Refused(_) => {
                self.looked.remove(&front).expect("it was asked for");
            }
            // The front end of a move is gone.
            Message::Fetched(..) | Message::Filled(..) | Message::Taken(..) => {}
            other => panic!("{other:?} for a front end"),
        }
    }
}
