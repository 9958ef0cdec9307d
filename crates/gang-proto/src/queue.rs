//! The distributed queue tree, which decides who shares a slice, and the admission by memory. The
//! tree halves the machine into partitions again and again; each partition has a queue.

use crate::JobId;
use alloc::vec::Vec;

/// A range of slots. Each slot is a processor of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its first slot.
    pub first: usize,
    /// Number of its slots.
    pub slots: usize,
}

#[derive(Debug)]
struct TreeNode {
    partition: Partition,
    jobs: Vec<Queued>,
    /// Indices of the two halves; none if the partition is a single slot.
    halves: Option<(usize, usize)>,
    turn: usize,
}

#[derive(Debug)]
struct Queued {
    job: JobId,
    is_runnable: bool,
}

impl Partition {
    /// Whether a slot is in both.
    pub fn overlaps(self, other: Partition) -> bool {
        self.first < other.first + other.slots && other.first < self.first + self.slots
    }
}

/// Decides which gang jobs share which slots, and whose slice is next (Feitelson and Rudolph,
/// Computer 23(5); Hori et al., HICSS 1995). A gang job enters the smallest partition that fits, on
/// the branch with the least load. The gang jobs of a queue get a slice each, one after the other.
/// Then both halves together get as many slices as the deeper half needs.
#[derive(Debug)]
pub struct QueueTree {
    nodes: Vec<TreeNode>,
}

impl QueueTree {
    /// Creates the tree for this number of slots, at least one.
    pub fn new(slots: usize) -> QueueTree {
        let mut tree = QueueTree { nodes: Vec::new() };
        tree.grow(Partition {
            first: 0,
            slots: slots.max(1),
        });
        tree
    }

    fn grow(&mut self, partition: Partition) -> usize {
        let place = self.nodes.len();
        self.nodes.push(TreeNode {
            partition,
            jobs: Vec::new(),
            halves: None,
            turn: 0,
        });
        if partition.slots > 1 {
            let left = partition.slots.div_ceil(2);
            let one = self.grow(Partition {
                first: partition.first,
                slots: left,
            });
            let other = self.grow(Partition {
                first: partition.first + left,
                slots: partition.slots - left,
            });
            self.nodes[place].halves = Some((one, other));
        }
        place
    }

    /// Queues a gang job with this number of processes. A gang job larger than the machine gets the
    /// whole machine.
    pub fn enter(&mut self, job: JobId, processes: usize) -> Partition {
        self.enter_at(job, processes, None)
    }

    /// Queues a gang job in a partition that has this slot, if one is given.
    pub fn enter_at(&mut self, job: JobId, processes: usize, slot: Option<usize>) -> Partition {
        self.enter_where(job, |Partition { first, slots }| {
            let has = |slot: usize| (first..first + slots).contains(&slot);
            slots >= processes && slot.is_none_or(has)
        })
    }

    /// Queues a gang job in the smallest partition that has all these slots.
    pub fn enter_over(&mut self, job: JobId, slots: &[usize]) -> Partition {
        self.enter_where(job, |Partition { first, slots: own }| {
            slots.iter().all(|slot| (first..first + own).contains(slot))
        })
    }

    /// Queues a gang job in the smallest partition that it fits into: of two halves, in that with
    /// fewer slices, and if both have as many, in that where gang jobs take less.
    fn enter_where(&mut self, job: JobId, fits: impl Fn(Partition) -> bool) -> Partition {
        let mut place = 0;
        while let Some((one, other)) = self.nodes[place].halves {
            let fits = |half: usize| fits(self.nodes[half].partition);
            place = match (fits(one), fits(other)) {
                (true, true) if self.crowd(other) < self.crowd(one) => other,
                (true, _) => one,
                (false, true) => other,
                (false, false) => break,
            };
        }
        let node = &mut self.nodes[place];
        node.jobs.push(Queued {
            job,
            is_runnable: true,
        });
        node.partition
    }

    /// The number of slices until every gang job in and below a partition has had one, and the
    /// slots of all these gang jobs together.
    fn crowd(&self, place: usize) -> (usize, usize) {
        let Partition { first, slots } = self.nodes[place].partition;
        let is_within =
            |part: Partition| first <= part.first && part.first + part.slots <= first + slots;
        let parts = self.nodes.iter().filter(|node| is_within(node.partition));
        let taken = parts.map(|node| node.jobs.len() * node.partition.slots);
        (self.depth(place), taken.sum())
    }

    /// Removes a gang job.
    pub fn leave(&mut self, job: JobId) {
        for node in &mut self.nodes {
            node.jobs.retain(|queued| queued.job != job);
        }
    }

    /// Excludes a gang job from the slices, or includes it again.
    pub fn set_runnable(&mut self, job: JobId, is_runnable: bool) {
        let jobs = self.nodes.iter_mut().flat_map(|node| &mut node.jobs);
        for queued in jobs.filter(|queued| queued.job == job) {
            queued.is_runnable = is_runnable;
        }
    }

    /// Adds to a set of gang jobs, whose partitions do not overlap, those of `more` that are
    /// runnable and fit beside them.
    pub fn add_fitting(&self, set: &mut Vec<JobId>, more: &[JobId]) {
        let mut taken = self.taken(set);
        for job in more {
            if let Some((partition, true)) = self.find(*job)
                && !taken.iter().any(|other| partition.overlaps(*other))
            {
                taken.push(partition);
                set.push(*job);
            }
        }
    }

    /// Adds to a set of gang jobs, whose partitions do not overlap, all that are runnable and fit
    /// beside them, the largest first.
    pub fn fill(&self, set: &mut Vec<JobId>) {
        let mut taken = self.taken(set);
        let mut nodes: Vec<&TreeNode> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| core::cmp::Reverse(node.partition.slots));
        for node in nodes {
            let runnable = || node.jobs.iter().filter(|queued| queued.is_runnable);
            let next = node.turn.checked_rem(runnable().count());
            if let Some(queued) = next.and_then(|next| runnable().nth(next))
                && !taken.iter().any(|other| node.partition.overlaps(*other))
            {
                taken.push(node.partition);
                set.push(queued.job);
            }
        }
    }

    fn taken(&self, set: &[JobId]) -> Vec<Partition> {
        let found = set.iter().filter_map(|job| self.find(*job));
        found.map(|(partition, _)| partition).collect()
    }

    /// The partition of a gang job, and whether it is runnable.
    pub(crate) fn find(&self, job: JobId) -> Option<(Partition, bool)> {
        self.nodes.iter().find_map(|node| {
            let queued = node.jobs.iter().find(|queued| queued.job == job)?;
            Some((node.partition, queued.is_runnable))
        })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.nodes[0].partition.slots
    }

    /// Returns the gang jobs of the next slice, whose partitions do not overlap.
    pub fn next_slice(&mut self) -> Vec<JobId> {
        let mut slice = Vec::new();
        self.turn(0, &mut slice);
        slice
    }

    fn turn(&mut self, place: usize, slice: &mut Vec<JobId>) {
        let depth = self.depth(place);
        if depth == 0 {
            return;
        }
        let node = &mut self.nodes[place];
        let turn = node.turn % depth;
        node.turn = turn + 1;
        let mut runnable = node.jobs.iter().filter(|queued| queued.is_runnable);
        match (runnable.nth(turn), node.halves) {
            (Some(queued), _) => slice.push(queued.job),
            (None, Some((one, other))) => {
                self.turn(one, slice);
                self.turn(other, slice);
            }
            (None, None) => {}
        }
    }

    /// Number of slices until every gang job in and below a partition has had one.
    fn depth(&self, place: usize) -> usize {
        let node = &self.nodes[place];
        let own = node.jobs.iter().filter(|queued| queued.is_runnable).count();
        let halves = node
            .halves
            .map_or(0, |(one, other)| self.depth(one).max(self.depth(other)));
        own + halves
    }
}

/// Admission by memory: a preempted gang job keeps all its memory, so the sum is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    limit: u64,
    taken: u64,
}

/// The memory of a gang job does not fit beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the job's memory ({wanted} bytes) does not fit: {taken} of {limit} bytes are taken by other \
     jobs; wait for one to end, ask for less with --memory, or give the daemon more"
)]
pub struct NoAdmission {
    /// Bytes requested.
    pub wanted: u64,
    /// Bytes that other gang jobs occupy.
    pub taken: u64,
    /// Bytes available to all gang jobs together.
    pub limit: u64,
}

impl Admission {
    /// Creates an admission with `limit` bytes for all gang jobs of a node together.
    pub fn new(limit: u64) -> Admission {
        Admission { limit, taken: 0 }
    }

    /// Reserves the bytes of a gang job.
    pub fn enter(&mut self, wanted: u64) -> Result<(), NoAdmission> {
        let taken = self.taken.checked_add(wanted);
        match taken.filter(|taken| *taken <= self.limit) {
            Some(taken) => self.taken = taken,
            None => {
                return Err(NoAdmission {
                    wanted,
                    taken: self.taken,
                    limit: self.limit,
                });
            }
        }
        Ok(())
    }

    /// Releases the bytes of a gang job.
    pub fn leave(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use farcall_random::SplitMix64;

    #[test]
    fn two_small_jobs_run_side_by_side() {
        let mut tree = QueueTree::new(4);
        assert_eq!(tree.enter(1, 2), Partition { first: 0, slots: 2 });
        assert_eq!(tree.enter(2, 2), Partition { first: 2, slots: 2 });
        for _ in 0..3 {
            assert_eq!(tree.next_slice(), vec![1, 2]);
        }
    }

    #[test]
    fn a_job_gets_a_partition_that_has_its_slot() {
        let mut tree = QueueTree::new(4);
        for job in 1..4 {
            let got = tree.enter_at(job, 1, Some(1));
            assert_eq!(got, Partition { first: 1, slots: 1 });
        }
        let got = tree.enter_at(4, 2, Some(3));
        assert_eq!(got, Partition { first: 2, slots: 2 });
        let got = tree.enter_at(5, 9, Some(3));
        assert_eq!(got, Partition { first: 0, slots: 4 });
    }

    #[test]
    fn a_job_gets_the_smallest_partition_over_its_slots() {
        let mut tree = QueueTree::new(4);
        let got = tree.enter_over(1, &[2, 3]);
        assert_eq!(got, Partition { first: 2, slots: 2 });
        let got = tree.enter_over(2, &[3]);
        assert_eq!(got, Partition { first: 3, slots: 1 });
        let got = tree.enter_over(3, &[1, 2]);
        assert_eq!(got, Partition { first: 0, slots: 4 });
    }

    #[test]
    fn small_jobs_share_no_slot_as_long_as_others_are_free() {
        let mut random = SplitMix64::new(2);
        for slots in 1..40 {
            let mut tree = QueueTree::new(slots);
            let mut alive: Vec<JobId> = Vec::new();
            for job in 0..200 {
                if alive.len() == slots {
                    tree.leave(alive.remove(random.below(slots as u64) as usize));
                }
                tree.enter(job, 1);
                alive.push(job);
                assert_eq!(tree.next_slice().len(), alive.len(), "{slots} slots");
            }
        }
    }

    #[test]
    fn a_large_job_takes_turns_with_both_halves() {
        let mut tree = QueueTree::new(4);
        tree.enter(1, 4);
        tree.enter(2, 2);
        tree.enter(3, 2);
        tree.enter(4, 1);
        // The branch with the least load takes the last: all are equally deep, so the first.
        let slices: Vec<_> = (0..6).map(|_| tree.next_slice()).collect();
        assert_eq!(slices[0], vec![1]);
        assert_eq!(slices[1], vec![2, 3]);
        assert_eq!(slices[2], vec![4, 3]);
        assert_eq!(slices[3..], slices[..3]);
    }

    #[test]
    fn every_job_gets_its_slice_when_others_come_and_go() {
        let mut tree = QueueTree::new(7);
        let mut random = SplitMix64::new(1);
        let mut alive: Vec<JobId> = Vec::new();
        for job in 1..200 {
            tree.enter(job, 1 + random.below(9) as usize);
            alive.push(job);
            if random.below(4) == 0 {
                tree.leave(alive.remove(random.below(alive.len() as u64) as usize));
            }
            if job % 20 == 0 {
                let slices = 2 * alive.len();
                let seen: Vec<JobId> = (0..slices).flat_map(|_| tree.next_slice()).collect();
                assert!(alive.iter().all(|job| seen.contains(job)), "after {job}");
            }
        }
    }

    #[test]
    fn what_fits_beside_others_is_added() {
        let mut tree = QueueTree::new(4);
        for (job, size) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
            tree.enter(job, size);
        }
        let add = |tree: &QueueTree, set: &[JobId]| {
            let mut set = set.to_vec();
            tree.fill(&mut set);
            set
        };
        assert_eq!(add(&tree, &[1]), [1]);
        assert_eq!(add(&tree, &[4]), [4, 3]);
        assert_eq!(add(&tree, &[]), [1]);
        tree.set_runnable(1, false);
        assert_eq!(add(&tree, &[]), [2, 3]);
        tree.set_runnable(2, false);
        assert_eq!(add(&tree, &[]), [3, 4]);
        let mut set = Vec::from([4]);
        tree.add_fitting(&mut set, &[1, 2, 3]);
        assert_eq!(set, [4, 3]);
    }

    #[test]
    fn a_stopped_job_gets_no_slice() {
        let mut tree = QueueTree::new(2);
        tree.enter(1, 2);
        tree.enter(2, 2);
        tree.set_runnable(1, false);
        assert_eq!((tree.next_slice(), tree.next_slice()), (vec![2], vec![2]));
        tree.set_runnable(2, false);
        assert!(tree.next_slice().is_empty());
        tree.set_runnable(1, true);
        assert_eq!(tree.next_slice(), vec![1]);
    }

    #[test]
    fn memory_is_counted() {
        let mut admission = Admission::new(100);
        assert_eq!(admission.enter(60), Ok(()));
        assert!(admission.enter(50).is_err());
        assert!(admission.enter(u64::MAX).is_err());
        admission.leave(60);
        assert_eq!(admission.enter(100), Ok(()));
    }
}
