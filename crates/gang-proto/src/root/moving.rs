//! Moves gang jobs whose states were taken: their processes end, and begin again at other nodes
//! under the same number and for the same front end. `pieces` brings the state to the nodes.

use super::checkpoint::Stage;
use super::looks::Looks;
use super::submission::has_foreign;
use super::{Order, Root};
use crate::{FARCALL_FAILED, JobId, Message, Placement};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Root {
    /// Ends the processes of a gang job whose state the front end has, and begins it again on nodes
    /// with these names; without names, wherever there is the least load. The front end then sends
    /// the state.
    ///
    /// # Errors
    /// Returns the reason for the front end. Nothing has changed then.
    pub fn handle_replace(
        &mut self,
        id: JobId,
        front: u64,
        names: &[String],
    ) -> Result<(), String> {
        let is_ready = |stage| matches!(stage, Stage::Taken | Stage::Placing);
        let job = self.taken_for(id, front, is_ready)?;
        if job.ends() {
            return Err(format!("gang job {id} is ending"));
        }
        let (processes, old) = (job.spec.processes, job.local);
        if self.slots.is_empty() {
            return Err("no node has joined".to_string());
        }
        let places = match names {
            [] => None,
            names => Some(self.slots_on(names)?),
        };
        self.tree.leave(id);
        let mut placement = match places {
            Some(places) => self.place_over(id, &places, processes),
            None => {
                let partition = self.tree.enter(id, processes.into());
                let slots = self.slots_of(partition, false);
                self.place(id, &slots, processes)
            }
        };
        self.last += 1;
        let local = self.last;
        placement.job = local;
        placement.network = self.settings.epoch << 24 | local;
        self.moved.remove(&old);
        self.moved.insert(local, id);
        self.orders.push_back(Order::Nodes(Message::Forget(old)));
        self.begin_again(id, local, placement);
        Ok(())
    }

    /// Prepares the processes that begin from the state.
    fn begin_again(&mut self, id: JobId, local: JobId, placement: Placement) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.local = local;
        job.nodes = placement.nodes.iter().copied().collect();
        let is_behind = |node: &u16| self.nodes[usize::from(*node)].is_behind;
        job.behind = job.nodes.iter().copied().filter(is_behind).collect();
        job.placement = placement.clone();
        job.unfilled = (0..job.spec.processes).collect();
        job.filling.clear();
        job.ended.clear();
        job.fences.clear();
        for front in job.take_asking() {
            let text = format!("gang job {id} is being moved: ask again");
            let refused = Message::Refused(text);
            self.orders.push_back(Order::Front(front, refused));
        }
        job.last_judgement = None;
        job.looks = Looks::default();
        job.spec.restored = Some(true);
        if has_foreign(&self.nodes, job.spec.owner.0) {
            // It has joined since the gang job began.
            job.spec.keep_public_environment();
        }
        if let Some(checkpoint) = &mut job.checkpoint {
            checkpoint.stage = Stage::Placing;
        }
        let prepare = Message::Prepare(job.spec.clone(), placement);
        self.orders.push_back(Order::Nodes(prepare));
        self.hold_prepared(id);
        if self.running.contains(&id) {
            self.running.retain(|other| *other != id);
            self.ended.push(id);
        }
        self.reconsider(id);
    }

    /// Handles the loss of a node on which a gang job was to begin again. The front end that moves
    /// it has the state and can choose other nodes. Returns whether this is so.
    pub(super) fn lose_place(&mut self, id: JobId, name: &str, why: &str) -> bool {
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| !job.unfilled.is_empty() && !job.ends());
        let Some(job) = job else {
            return false;
        };
        let Some(front) = job.checkpoint.as_ref().map(|it| it.front()) else {
            return false;
        };
        job.nodes.clear();
        job.behind.clear();
        let text = format!("node {name} was lost while gang job {id} began there: {why}");
        self.orders
            .push_back(Order::Nodes(Message::Forget(job.local)));
        self.orders
            .push_back(Order::Front(front, Message::Refused(text)));
        true
    }

    /// Handles the loss of a front end that takes the state of gang jobs. They go on, unless their
    /// processes have ended for a move: then the state is lost with it.
    pub(super) fn lose_taker(&mut self, front: u64) {
        let takes = |(id, job): (&JobId, &mut super::Job)| {
            let stage = job.checkpoint_of(front)?.stage;
            Some((*id, stage))
        };
        let jobs: Vec<_> = self.jobs.iter_mut().filter_map(takes).collect();
        for (id, stage) in jobs {
            if stage != Stage::Placing {
                // The front end is that of the checkpoint.
                let _ = self.handle_release(id, front);
                continue;
            }
            if let Some(job) = self.jobs.get_mut(&id) {
                job.checkpoint = None;
                job.outcome.status = FARCALL_FAILED;
                let cause = "the command that moved it ended before its processes had their state";
                job.outcome.cause = Some(cause.to_string());
            }
            self.finish(id);
        }
    }
}
