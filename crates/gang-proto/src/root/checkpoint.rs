//! Takes the state of gang jobs for their front ends. It asks the processes to rest, looks at them
//! again and again as `judgement` does, and acts as [`rest::next`] says. Then the front end fetches
//! the state from the nodes through `pieces`. If anything goes wrong before that, the gang job goes
//! on as if nothing had happened.

use super::pieces::Fetches;
use super::{Inspection, Job, Order, Root};
use crate::rest::{self, Next, Phase, Standing};
use crate::{JobId, Message, Nanos, Process, Report, Rest};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const MS: Nanos = 1_000_000;
/// The first interval between two looks at the processes, and the longest: each interval is twice
/// the one before.
const SHORTEST_PAUSE: Nanos = 2 * MS;
const LONGEST_PAUSE: Nanos = 128 * MS;
/// How long a program can take to register its state after a checkpoint was requested.
const REGISTERS: Nanos = 5_000 * MS;

/// A checkpoint that is being taken, or a move.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The front end that wants it.
    front: u64,
    /// Whether the processes rest after their state was taken.
    holds: bool,
    /// When the state must be taken, and registered.
    until: Nanos,
    registers: Nanos,
    /// When to look at the processes next, and the interval before the look after that.
    look_at: Option<Nanos>,
    pause: Nanos,
    pub(super) stage: Stage,
    pub(super) fetches: Fetches,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The processes come to rest.
    Resting,
    /// They write their states.
    Saving,
    /// The nodes have the state, and the front end fetches it.
    Taken,
    /// The processes were ended, and the front end has the state. New ones receive it, unless the
    /// gang job has no nodes now.
    Placing,
}

impl Checkpoint {
    pub(super) fn front(&self) -> u64 {
        self.front
    }
}

impl Job {
    /// Its checkpoint, if it is that of the front end.
    pub(super) fn checkpoint_of(&mut self, front: u64) -> Option<&mut Checkpoint> {
        let checkpoint = self.checkpoint.as_mut();
        checkpoint.filter(|checkpoint| checkpoint.front == front)
    }
}

impl Root {
    /// Takes the state of a gang job for a front end, within this number of milliseconds. If
    /// `holds` is true, its processes rest afterwards.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_checkpoint(
        &mut self,
        id: JobId,
        (front, user): (u64, u32),
        (within, holds): (u32, bool),
        now: Nanos,
    ) -> Result<(), String> {
        let job = self.owned(id, user)?;
        let cannot = match () {
            () if job.spec.is_tree || job.has_no_processes() => {
                Some("it has no channels, so it cannot register its state")
            }
            () if job.checkpoint.is_some() => {
                Some("another command takes its state now; try again when that has ended")
            }
            () if job.is_stopped => Some("it is stopped; continue it with `farcall gang cont`"),
            () if !job.unfilled.is_empty() => Some("it has not begun yet; try again"),
            () if job.ends() => Some("it is ending"),
            () => None,
        };
        if let Some(why) = cannot {
            return Err(format!("cannot take the state of gang job {id}: {why}"));
        }
        let until = now.saturating_add(Nanos::from(within) * MS);
        let registers = match job.spec.restored {
            // It has registered before, and is only beginning again.
            Some(true) => until,
            _ => until.min(now.saturating_add(REGISTERS)),
        };
        job.checkpoint = Some(Checkpoint {
            front,
            holds,
            until,
            registers,
            look_at: Some(now.saturating_add(SHORTEST_PAUSE)),
            pause: SHORTEST_PAUSE,
            stage: Stage::Resting,
            fetches: Fetches::default(),
        });
        if let Some(inspection) = &mut job.inspection {
            inspection.is_old = inspection.awaited.is_some();
        }
        let ask = Message::Rest(job.local, Rest::Ask);
        self.orders.push_back(Order::Nodes(ask));
        Ok(())
    }

    /// When the next look at the processes of a gang job is due.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        let jobs = self.jobs.values();
        jobs.filter_map(|job| job.checkpoint.as_ref()?.look_at)
            .min()
    }

    /// Begins the looks that are due.
    pub(super) fn look_when_due(&mut self) {
        let now = self.now;
        let mut late = Vec::new();
        for (id, job) in &mut self.jobs {
            let Some(checkpoint) = &mut job.checkpoint else {
                continue;
            };
            let Some(at) = checkpoint.look_at.filter(|at| *at <= now) else {
                continue;
            };
            let is_late = now >= checkpoint.until.saturating_add(LONGEST_PAUSE);
            if job.is_stopped || is_late {
                late.push(*id);
            } else if job.inspection.is_none() {
                checkpoint.look_at = None;
                job.inspection = Some(Inspection::new());
                self.tree.set_runnable(*id, false);
                self.turns.want();
            } else {
                // Another look is on its way, and serves this one too.
                checkpoint.look_at = Some(at.saturating_add(LONGEST_PAUSE));
            }
        }
        for id in late {
            let why = "its processes get no slices: it is stopped, or a node does not answer";
            self.give_up(id, why);
        }
    }

    /// Decides what follows from a look at the processes of a gang job, which is not running.
    pub(super) fn look(&mut self, id: JobId, processes: Vec<Process>, reports: &[Report]) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let is_open = |one: &&mut Checkpoint| matches!(one.stage, Stage::Resting | Stage::Saving);
        let Some(checkpoint) = job.checkpoint.as_mut().filter(is_open) else {
            return;
        };
        let standings = standings(processes, reports);
        let is_late = now >= checkpoint.until;
        let local = job.local;
        let mut pause = (checkpoint.pause * 2).min(LONGEST_PAUSE);
        let order = match rest::next(&standings) {
            Next::Step(ranks) if !is_late => {
                pause = SHORTEST_PAUSE;
                Some(Rest::Step(ranks))
            }
            Next::Save if checkpoint.stage == Stage::Resting => {
                checkpoint.stage = Stage::Saving;
                pause = SHORTEST_PAUSE;
                Some(Rest::Save)
            }
            Next::Collect => return self.collect(id),
            Next::Unregistered(rank) if now >= checkpoint.registers => {
                let why = format!(
                    "rank {rank} has not registered its state. A program that can be moved calls \
                     `register` with its arrays and `run` with its step (in C \
                     farcall_channel_register and farcall_channel_run)"
                );
                return self.give_up(id, &why);
            }
            Next::Finished(rank) => {
                let why = format!("rank {rank} has done all its steps or has ended");
                return self.give_up(id, &why);
            }
            Next::Failed(rank) => {
                let why = format!(
                    "rank {rank} could not write its state: its node has too little memory, or \
                     its arrays have other lengths than it registered"
                );
                return self.give_up(id, &why);
            }
            _ if is_late => {
                let why = format!(
                    "its processes were not all between two steps in time: {}. Allow more time \
                     with --within",
                    rest::describe(&standings)
                );
                return self.give_up(id, &why);
            }
            _ => None,
        };
        checkpoint.look_at = Some(now.saturating_add(checkpoint.pause));
        checkpoint.pause = pause;
        if let Some(rest) = order {
            self.orders
                .push_back(Order::Nodes(Message::Rest(local, rest)));
        }
    }

    /// Lets the nodes keep the state, and tells the front end that it can be fetched.
    fn collect(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(checkpoint) = &mut job.checkpoint else {
            return;
        };
        checkpoint.stage = Stage::Taken;
        // A look for another reason may have come before the one that was due.
        checkpoint.look_at = None;
        let collect = Message::Rest(job.local, Rest::Collect(!checkpoint.holds));
        self.orders.push_back(Order::Nodes(collect));
        let taken = Message::Taken(id, job.spec.clone());
        self.orders.push_back(Order::Front(checkpoint.front, taken));
    }

    /// Gives up a checkpoint whose state was not taken, and lets the gang job go on.
    fn give_up(&mut self, id: JobId, why: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(checkpoint) = job.checkpoint.take() else {
            return;
        };
        let go_on = Message::Rest(job.local, Rest::GoOn);
        self.orders.push_back(Order::Nodes(go_on));
        let text = format!("cannot take the state of gang job {id}: {why}");
        let refused = Message::Refused(text);
        self.orders
            .push_back(Order::Front(checkpoint.front, refused));
    }

    /// The gang job whose state is taken for this front end, if it has come this far.
    pub(super) fn taken_for(
        &mut self,
        id: JobId,
        front: u64,
        is_far: impl Fn(Stage) -> bool,
    ) -> Result<&mut Job, String> {
        let job = self.jobs.get_mut(&id).filter(|job| {
            let checkpoint = job.checkpoint.as_ref();
            checkpoint.is_some_and(|it| it.front == front && is_far(it.stage))
        });
        job.ok_or_else(|| format!("no state of gang job {id} was taken for this command"))
    }

    /// Ends a checkpoint whose front end has the state, or does not want it any more. The gang job
    /// goes on.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_release(&mut self, id: JobId, front: u64) -> Result<(), String> {
        let job = self.taken_for(id, front, |stage| stage != Stage::Placing)?;
        job.checkpoint = None;
        let go_on = Message::Rest(job.local, Rest::GoOn);
        self.orders.push_back(Order::Nodes(go_on));
        Ok(())
    }
}

/// Combines what the processes wait for with where they stand.
fn standings(processes: Vec<Process>, reports: &[Report]) -> Vec<Standing> {
    let places = || reports.iter().flat_map(|report| &report.places);
    let ended: BTreeSet<u16> = reports
        .iter()
        .flat_map(|report| &report.ended)
        .copied()
        .collect();
    let ranks = (0u16..).zip(processes);
    let standing = |(rank, process): (u16, Process)| {
        let place = places().find(|place| place.rank == rank);
        let phase = match (ended.contains(&rank), place) {
            (true, _) => Phase::Finished,
            (false, place) => place.map_or(Phase::Unregistered, |place| place.phase),
        };
        Standing {
            phase,
            steps: place.map_or(0, |place| place.steps),
            process,
        }
    };
    ranks.map(standing).collect()
}
