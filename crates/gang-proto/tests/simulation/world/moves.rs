//! Front ends that move gang jobs, and what the nodes do for it. A process that rests does no work,
//! and its state is the work that is left. So a gang job that was moved and ended well has done all
//! its work exactly once. Each front end must be told how its move ended.

use super::*;
use farcall_gang_proto::Piece;

/// A move, as its front end sees it.
pub(super) struct Move {
    pub(super) job: JobId,
    processes: u16,
    /// The state of each rank.
    states: BTreeMap<u16, Lengths>,
    /// Ranks whose states the nodes have.
    filled: usize,
    has_replaced: bool,
}

impl World {
    /// The number by which users know a gang job of the nodes.
    pub(super) fn user_number(&self, local: JobId) -> JobId {
        self.root.known(&[local])[0]
    }

    pub(super) fn begin_move(&mut self, job: JobId, user: u32) {
        self.last_front += 1;
        let front = self.last_front;
        let within = 1 + self.random.below(20_000) as u32;
        let asked = self
            .root
            .handle_checkpoint(job, (front, user), (within, true), self.now);
        if asked.is_ok() {
            let begun = Move {
                job,
                processes: 0,
                states: BTreeMap::new(),
                filled: 0,
                has_replaced: false,
            };
            self.moves.insert(front, begun);
        }
    }

    /// Handles what the root tells a front end that moves a gang job.
    pub(super) fn tell_mover(&mut self, front: u64, message: Message) {
        if self.random.below(40) == 0 {
            // It is killed.
            self.moves.remove(&front);
            return self.root.handle_front_lost(front);
        }
        let Some(mover) = self.moves.get_mut(&front) else {
            return;
        };
        let job = mover.job;
        match message {
            Message::Taken(_, spec) => {
                mover.processes = spec.processes;
                for rank in 0..spec.processes {
                    // A job that has ended since is told.
                    let _ = self.root.handle_fetch(job, front, rank, 0);
                }
            }
            Message::Fetched(_, piece) => {
                mover.states.insert(piece.rank, piece.lengths);
                if mover.states.len() == usize::from(mover.processes) {
                    let node = self.below(self.faults.nodes);
                    self.replace(front, &[format!("node{node}")]);
                }
            }
            Message::Filled(..) => {
                mover.filled += 1;
                if mover.filled == usize::from(mover.processes) {
                    self.moves.remove(&front);
                    self.moved += 1;
                }
            }
            Message::Refused(text) if text.contains("ended") || !mover.has_replaced => {
                self.moves.remove(&front);
            }
            // A node was lost while the gang job began there.
            Message::Refused(_) => self.replace(front, &[]),
            other => panic!("{other:?} for a mover"),
        }
    }

    fn replace(&mut self, front: u64, names: &[String]) {
        let Some(mover) = self.moves.get_mut(&front) else {
            return;
        };
        let job = mover.job;
        match self.root.handle_replace(job, front, names) {
            Ok(()) => {
                mover.has_replaced = true;
                mover.filled = 0;
                for (rank, lengths) in mover.states.clone() {
                    let piece = Piece {
                        rank,
                        offset: 0,
                        lengths,
                        bytes: Vec::new(),
                    };
                    let _ = self.root.handle_fill(job, front, piece);
                }
            }
            Err(_) => {
                // The gang job goes on where it was, or has ended.
                let _ = self.root.handle_release(job, front);
                self.moves.remove(&front);
            }
        }
    }

    /// Sends a message to one node.
    pub(super) fn pass(&mut self, index: usize, node: u16, message: Message) {
        if self.daemons[index].number == Some(node) {
            return self.do_here(index, message);
        }
        if let Some(child) = self.daemons[index].switch.child(node) {
            self.send_down(index, child as usize, message);
        }
    }

    pub(super) fn rest(&mut self, index: usize, id: JobId, rest: &Rest) {
        let number = self.user_number(id);
        let now = self.now;
        let Some(job) = self.daemons[index].jobs.get_mut(&id) else {
            return;
        };
        let phase = match rest {
            Rest::Ask => Phase::Resting,
            Rest::Save => Phase::Saved,
            Rest::GoOn | Rest::Collect(true) => Phase::InStep,
            Rest::Step(_) | Rest::Collect(false) => return,
        };
        // One that waits forever does not come to the end of its step.
        let works = |one: &&mut Process| one.left.is_some() && !one.has_ended;
        for process in job.processes.iter_mut().filter(works) {
            process.phase = phase;
            if let (Some(since), Some(left)) = (process.since.take(), &mut process.left) {
                *self.done.entry((number, process.rank)).or_default() += now - since;
                *left -= now - since;
            }
        }
        if phase == Phase::InStep && job.is_running {
            self.go_on(index, id);
        }
    }

    pub(super) fn fetch(&mut self, index: usize, id: JobId, rank: u16, offset: u64) {
        let job = self.daemons[index].jobs.get(&id);
        let mut processes = job.into_iter().flat_map(|job| &job.processes);
        let Some(process) = processes.find(|one| one.rank == rank) else {
            return;
        };
        assert_eq!(process.phase, Phase::Saved, "its state was taken");
        let piece = Piece {
            rank,
            offset,
            lengths: Lengths {
                network: process.left.expect("it has work"),
                program: 0,
            },
            bytes: Vec::new(),
        };
        self.report(index, Message::Fetched(id, piece));
    }

    pub(super) fn fill(&mut self, index: usize, id: JobId, piece: &Piece) {
        let job = self.daemons[index].jobs.get_mut(&id);
        let mut processes = job.into_iter().flat_map(|job| &mut job.processes);
        let Some(process) = processes.find(|one| one.rank == piece.rank) else {
            return;
        };
        assert!(process.since.is_none(), "it runs without its state");
        process.left = Some(piece.lengths.network);
        let filled = Message::Filled(id, piece.rank, piece.lengths.total(), piece.lengths);
        self.report(index, filled);
    }
}
