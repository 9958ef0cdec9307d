//! Begins gang jobs from saved states, and moves them: their processes end, and begin again at
//! other nodes under the same number and for the same front end. The nodes know a gang job by
//! another number after each move. So nothing that comes late from its former processes counts.

use super::checkpoint::Stage;
use super::looks::Looks;
use super::{Order, Root};
use crate::{FARCALL_FAILED, JobId, Lengths, Message, Partition, Piece, Placement, Turn};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The most bytes of the state of a gang job that are on their way to its nodes, so that they do
/// not fill the links between daemons.
const FILLING: usize = 2 << 20;

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

    /// The slots of a partition, those of the root daemon's node first if `here` is true.
    pub(super) fn slots_of(&self, partition: Partition, here: bool) -> Vec<(u16, u16)> {
        let mut slots = self.slots[partition.first..][..partition.slots].to_vec();
        if here {
            slots.sort_by_key(|(node, _)| *node != 0);
        }
        slots
    }

    /// Assigns slots to the ranks, in order and as evenly as possible.
    pub(super) fn place(&self, job: JobId, slots: &[(u16, u16)], processes: u16) -> Placement {
        let processes = usize::from(processes);
        let is_dedicated = processes <= slots.len();
        let slot = |rank: usize| match is_dedicated {
            true => slots[rank],
            false => slots[rank * slots.len() / processes],
        };
        Placement {
            job,
            network: self.settings.epoch << 24 | job,
            nodes: (0..processes).map(|rank| slot(rank).0).collect(),
            processors: (0..processes).map(|rank| slot(rank).1).collect(),
            engines: self.nodes.iter().map(|node| node.engine.clone()).collect(),
            is_dedicated,
        }
    }

    /// The slots, by their places, of the nodes with these names.
    pub(super) fn slots_on(&self, names: &[String]) -> Result<Vec<usize>, String> {
        let mut nodes = BTreeSet::new();
        for name in names {
            let mut all = (0u16..).zip(&self.nodes);
            let found = all.find(|(_, node)| !node.is_lost && node.name == *name);
            let (number, _) = found.ok_or_else(|| {
                let names: Vec<&str> = self.nodes().map(|(name, _)| name).collect();
                format!(
                    "no node `{name}` has joined; there are {}",
                    names.join(", ")
                )
            })?;
            nodes.insert(number);
        }
        let slots = self.slots.iter().enumerate();
        let chosen = slots.filter(|(_, (node, _))| nodes.contains(node));
        let places: Vec<usize> = chosen.map(|(place, _)| place).collect();
        match places.is_empty() {
            true => Err("state at least one node for the gang job".to_string()),
            false => Ok(places),
        }
    }

    /// Places the processes of a gang job on these slots.
    pub(super) fn place_over(
        &mut self,
        id: JobId,
        places: &[usize],
        processes: u16,
    ) -> (Partition, Placement) {
        let partition = self.tree.enter_over(id, places);
        let slots: Vec<(u16, u16)> = places.iter().map(|place| self.slots[*place]).collect();
        (partition, self.place(id, &slots, processes))
    }

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
            Some(places) => self.place_over(id, &places, processes).1,
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
        if let Some(checkpoint) = &mut job.checkpoint {
            checkpoint.stage = Stage::Placing;
        }
        let prepare = Message::Prepare(job.spec.clone(), placement);
        self.orders.push_back(Order::Nodes(prepare));
        let may_run = job.may_run();
        self.tree.set_runnable(id, may_run);
        if self.running.contains(&id) {
            self.running.retain(|other| *other != id);
            self.ended.push(id);
        }
        self.turns.is_wanted = true;
    }

    /// Passes a piece of the state with which a process begins to its node.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_fill(&mut self, id: JobId, front: u64, piece: Piece) -> Result<(), String> {
        let job = self.jobs.get_mut(&id).filter(|job| {
            let sends = match &job.checkpoint {
                Some(checkpoint) => checkpoint.front(),
                None => job.front,
            };
            sends == front && job.unfilled.contains(&piece.rank)
        });
        let job = job.ok_or(format!("gang job {id} does not wait for this state"))?;
        let node = job.placement.nodes.get(usize::from(piece.rank)).copied();
        let bytes = piece.bytes.len();
        if job.filling.iter().sum::<usize>() + bytes > FILLING {
            return Err(format!(
                "more than {} MiB of a state are on their way",
                FILLING >> 20
            ));
        }
        // The nodes are gone, and the front end has been told.
        if let Some(node) = node.filter(|node| job.nodes.contains(node)) {
            job.filling.push_back(bytes);
            let fill = Message::Fill(node, job.local, piece);
            self.orders.push_back(Order::Node(node, fill));
        }
        Ok(())
    }

    /// Handles a node that has the state of a rank up to `offset`.
    pub fn handle_filled(&mut self, local: JobId, rank: u16, offset: u64, lengths: Lengths) {
        let Some(id) = self.known_one(local) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let front = match &job.checkpoint {
            Some(checkpoint) => checkpoint.front(),
            None => job.front,
        };
        job.filling.pop_front();
        let filled = Message::Filled(id, rank, offset, lengths);
        self.orders.push_back(Order::Front(front, filled));
        if offset < lengths.total() || !job.unfilled.remove(&rank) || !job.unfilled.is_empty() {
            return;
        }
        // All have theirs: a move is over.
        job.checkpoint = None;
        let may_run = job.may_run();
        self.tree.set_runnable(id, may_run);
        self.turns.is_wanted = true;
    }

    /// Handles the loss of a node on which a gang job was to begin again. The front end that moves
    /// it has the state and can choose other nodes. Returns whether this is so.
    pub(super) fn lose_place(&mut self, id: JobId, name: &str, why: &str) -> bool {
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| !job.unfilled.is_empty() && !job.is_ending);
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
