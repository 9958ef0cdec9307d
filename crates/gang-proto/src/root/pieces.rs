//! Carries states piece by piece: from the nodes to a front end that takes a state, and from a
//! front end to the nodes where processes begin from one. A bound for each direction keeps the
//! pieces from filling the links between daemons.

use super::checkpoint::Stage;
use super::{Job, Order, Root};
use crate::{JobId, Lengths, Message, Piece};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The most pieces of a state that are on their way to a front end at the same time.
const OPEN: usize = 8;
/// The most bytes of the state of a gang job that are on their way to its nodes.
const FILLING: usize = 2 << 20;

/// The pieces of a state that a front end wants.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    /// Those that were asked for and wait: their ranks and offsets.
    asked: VecDeque<(u16, u64)>,
    /// Number of pieces that are on their way.
    open: usize,
}

impl Job {
    /// The front end that sends the state with which its processes begin: the one that moves it, or
    /// else its own.
    fn sender(&self) -> u64 {
        let moves = self.checkpoint.as_ref();
        moves.map_or(self.front, |checkpoint| checkpoint.front())
    }
}

impl Root {
    /// Handles a request for a piece of the state. Some requests are passed to the nodes at a time.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_fetch(
        &mut self,
        id: JobId,
        front: u64,
        rank: u16,
        offset: u64,
    ) -> Result<(), String> {
        let job = self.taken_for(id, front, |stage| stage == Stage::Taken)?;
        if rank >= job.spec.processes {
            return Err(format!("gang job {id} has no rank {rank}"));
        }
        // A front end asks for the beginning of all ranks at once.
        let most = usize::from(job.spec.processes) + OPEN;
        if let Some(checkpoint) = &mut job.checkpoint {
            if checkpoint.fetches.asked.len() >= most {
                return Err(format!("more than {most} pieces were asked for at once"));
            }
            checkpoint.fetches.asked.push_back((rank, offset));
        }
        self.pass_fetches(id);
        Ok(())
    }

    /// Asks the nodes for pieces that wait, as many as may be on their way.
    fn pass_fetches(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(checkpoint) = &mut job.checkpoint else {
            return;
        };
        // What it has not read yet is in the memory of this daemon.
        let reads = !self.held.contains(&checkpoint.front());
        let fetches = &mut checkpoint.fetches;
        while reads
            && fetches.open < OPEN
            && let Some((rank, offset)) = fetches.asked.pop_front()
        {
            fetches.open += 1;
            let node = job.placement.nodes[usize::from(rank)];
            let fetch = Message::Fetch(node, job.local, rank, offset);
            self.orders.push_back(Order::Node(node, fetch));
        }
    }

    /// Asks for the pieces that waited because this front end did not read.
    pub(super) fn pass_fetches_of(&mut self, front: u64) {
        let of = |(id, job): (&JobId, &mut Job)| job.checkpoint_of(front).map(|_| *id);
        let jobs: Vec<JobId> = self.jobs.iter_mut().filter_map(of).collect();
        jobs.into_iter().for_each(|id| self.pass_fetches(id));
    }

    /// Passes a piece of the state to the front end that asked for it.
    pub fn handle_fetched(&mut self, local: JobId, piece: Piece) {
        let Some(id) = self.known_one(local) else {
            return;
        };
        let job = self.jobs.get_mut(&id);
        if let Some(checkpoint) = job.and_then(|job| job.checkpoint.as_mut()) {
            checkpoint.fetches.open = checkpoint.fetches.open.saturating_sub(1);
            let fetched = Message::Fetched(id, piece);
            self.orders
                .push_back(Order::Front(checkpoint.front(), fetched));
            self.pass_fetches(id);
        }
    }

    /// Passes a piece of the state with which a process begins to its node.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_fill(&mut self, id: JobId, front: u64, piece: Piece) -> Result<(), String> {
        let job = self
            .jobs
            .get_mut(&id)
            .filter(|job| job.sender() == front && job.unfilled.contains(&piece.rank));
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
        // Without nodes the gang job waits for another place: one of them was lost, the front end
        // was told, and what the others have got counts no more.
        let job = self.jobs.get_mut(&id);
        let Some(job) = job.filter(|job| !job.nodes.is_empty()) else {
            return;
        };
        job.filling.pop_front();
        let filled = Message::Filled(id, rank, offset, lengths);
        self.orders.push_back(Order::Front(job.sender(), filled));
        if offset < lengths.total() || !job.unfilled.remove(&rank) || !job.unfilled.is_empty() {
            return;
        }
        // All have theirs: a move is over.
        job.checkpoint = None;
        self.reconsider(id);
    }
}
