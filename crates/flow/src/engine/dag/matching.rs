//! Matches messages with receives: by the rank of the sender and the tag, in the order in which
//! both became known. All ranks look up keys, so that a match costs no more if many operations
//! wait: one key each, and up to four at a rank with operations that match any rank or any tag.

use crate::goal::{ANY_RANK, ANY_TAG, Goal, Operation};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What a receive asks for, or what a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Envelope {
    /// The sender, or [`ANY_RANK`].
    pub(super) source: u32,
    /// The tag, or [`ANY_TAG`].
    pub(super) tag: u64,
}

/// Operations that wait for their counterpart at a rank.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    exact: HashMap<(u32, Envelope), VecDeque<u32>>,
    /// The ranks with operations that match any rank or any tag.
    wild: BTreeMap<u32, Wild>,
}

/// A source, and a tag. `None` stands for all that wait, whatever they have; [`ANY_RANK`] and
/// [`ANY_TAG`] stand only for those that match any.
type Key = (Option<u32>, Option<u64>);

/// What waits at a rank with operations that match any rank or any tag.
#[derive(Debug, Default)]
struct Wild {
    /// Number of operations so far. An operation keeps its number in all lists.
    put: u64,
    /// Each operation is in four lists. No list is empty.
    lists: HashMap<Key, BTreeMap<u64, (Envelope, u32)>>,
}

impl Wild {
    /// The lists that an operation is in.
    fn lists_of(Envelope { source, tag }: Envelope) -> [Key; 4] {
        [
            (Some(source), Some(tag)),
            (Some(source), None),
            (None, Some(tag)),
            (None, None),
        ]
    }

    /// The lists whose operations match; some twice.
    fn lists_for(Envelope { source, tag }: Envelope) -> [Key; 4] {
        let sources = match source {
            ANY_RANK => [None; 2],
            source => [Some(source), Some(ANY_RANK)],
        };
        let tags = match tag {
            ANY_TAG => [None; 2],
            tag => [Some(tag), Some(ANY_TAG)],
        };
        [
            (sources[0], tags[0]),
            (sources[0], tags[1]),
            (sources[1], tags[0]),
            (sources[1], tags[1]),
        ]
    }

    fn put(&mut self, envelope: Envelope, operation: u32) {
        self.put += 1;
        for key in Self::lists_of(envelope) {
            let list = self.lists.entry(key).or_default();
            list.insert(self.put, (envelope, operation));
        }
    }

    /// Takes the first operation that matches.
    fn take(&mut self, envelope: Envelope) -> Option<u32> {
        let lists = Self::lists_for(envelope);
        let firsts = lists
            .iter()
            .filter_map(|key| self.lists.get(key)?.first_key_value());
        let (&number, &(found, operation)) = firsts.min_by_key(|(number, _)| **number)?;
        for key in Self::lists_of(found) {
            if let Some(list) = self.lists.get_mut(&key) {
                list.remove(&number);
                if list.is_empty() {
                    self.lists.remove(&key);
                }
            }
        }
        Some(operation)
    }

    fn all(&self) -> impl Iterator<Item = (Envelope, u32)> + '_ {
        let all = self.lists.get(&(None, None));
        all.into_iter().flat_map(|list| list.values().copied())
    }
}

impl Waiting {
    /// Nothing waits yet. `goal` tells at which ranks operations match any rank or any tag.
    pub(super) fn new(goal: &Goal) -> Self {
        let mut wild: BTreeMap<u32, Wild> = BTreeMap::new();
        for (number, operation) in goal.operations().iter().enumerate() {
            let rank = match *operation {
                Operation::Receive { from, tag } if from == ANY_RANK || tag == ANY_TAG => {
                    goal.rank_of(number as u32)
                }
                Operation::Send {
                    to, tag: ANY_TAG, ..
                } => to,
                _ => continue,
            };
            wild.entry(rank).or_default();
        }
        Self {
            exact: HashMap::new(),
            wild,
        }
    }

    pub(super) fn put(&mut self, rank: u32, envelope: Envelope, operation: u32) {
        match self.wild.get_mut(&rank) {
            Some(wild) => wild.put(envelope, operation),
            None => self
                .exact
                .entry((rank, envelope))
                .or_default()
                .push_back(operation),
        }
    }

    /// Takes the first operation that matches.
    pub(super) fn take(&mut self, rank: u32, envelope: Envelope) -> Option<u32> {
        if let Some(wild) = self.wild.get_mut(&rank) {
            return wild.take(envelope);
        }
        let queue = self.exact.get_mut(&(rank, envelope))?;
        let operation = queue.pop_front();
        if queue.is_empty() {
            self.exact.remove(&(rank, envelope));
        }
        operation
    }

    /// All operations that wait: rank, envelope, operation.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, Envelope, u32)> + '_ {
        let exact = self.exact.iter().flat_map(|(&(rank, envelope), queue)| {
            queue
                .iter()
                .map(move |&operation| (rank, envelope, operation))
        });
        let wild = self.wild.iter().flat_map(|(&rank, wild)| {
            let all = wild.all();
            all.map(move |(envelope, operation)| (rank, envelope, operation))
        });
        exact.chain(wild)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_random::SplitMix64;

    fn matches(one: Envelope, other: Envelope) -> bool {
        let source = [one.source, other.source].contains(&ANY_RANK) || one.source == other.source;
        source && ([one.tag, other.tag].contains(&ANY_TAG) || one.tag == other.tag)
    }

    #[test]
    fn the_first_operation_that_matches_is_taken() {
        let mut random = SplitMix64::new(1);
        let (mut wild, mut list) = (Wild::default(), Vec::new());
        for operation in 0..20_000 {
            let mut envelope = || Envelope {
                source: [0, 1, 2, ANY_RANK][random.below(4) as usize],
                tag: [0, 1, 2, ANY_TAG][random.below(4) as usize],
            };
            let (put, wanted) = (envelope(), envelope());
            wild.put(put, operation);
            list.push((put, operation));
            let at = list.iter().position(|(waits, _)| matches(*waits, wanted));
            let first = at.map(|at| list.remove(at).1);
            assert_eq!(wild.take(wanted), first, "operation {operation}");
            assert_eq!(wild.all().collect::<Vec<_>>(), list);
        }
        let any = Envelope {
            source: ANY_RANK,
            tag: ANY_TAG,
        };
        for (_, operation) in list {
            assert_eq!(wild.take(any), Some(operation));
        }
        assert!(wild.take(any).is_none() && wild.lists.is_empty());
    }

    /// A search through all operations would take minutes.
    #[test]
    fn many_operations_wait_at_no_cost() {
        let mut wild = Wild::default();
        let envelope = |tag, source| Envelope { source, tag };
        (0..300_000).for_each(|tag| wild.put(envelope(tag.into(), ANY_RANK), tag));
        for tag in (0..300_000).rev() {
            assert_eq!(wild.take(envelope(tag.into(), 7)), Some(tag));
        }
    }
}
