//! Matches messages with receives: by the rank of the sender and the tag, in the order in which
//! both became known. A rank whose receives can match any rank or any tag searches its lists in
//! order; all other ranks look up an exact key.

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

impl Envelope {
    fn matches(self, other: Self) -> bool {
        let source = [self.source, other.source].contains(&ANY_RANK) || self.source == other.source;
        source && ([self.tag, other.tag].contains(&ANY_TAG) || self.tag == other.tag)
    }
}

/// Operations that wait for their counterpart at a rank.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    exact: HashMap<(u32, Envelope), VecDeque<u32>>,
    /// The lists of the ranks that search.
    searched: BTreeMap<u32, VecDeque<(Envelope, u32)>>,
}

impl Waiting {
    /// Lists for the ranks that must search because of `goal`.
    pub(super) fn new(goal: &Goal) -> Self {
        let mut searched = BTreeMap::new();
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
            searched.entry(rank).or_default();
        }
        Self {
            exact: HashMap::new(),
            searched,
        }
    }

    pub(super) fn put(&mut self, rank: u32, envelope: Envelope, operation: u32) {
        match self.searched.get_mut(&rank) {
            Some(list) => list.push_back((envelope, operation)),
            None => self
                .exact
                .entry((rank, envelope))
                .or_default()
                .push_back(operation),
        }
    }

    /// Takes the first operation that matches.
    pub(super) fn take(&mut self, rank: u32, envelope: Envelope) -> Option<u32> {
        if let Some(list) = self.searched.get_mut(&rank) {
            let at = list.iter().position(|(e, _)| e.matches(envelope))?;
            return list.remove(at).map(|(_, operation)| operation);
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
        let searched = self.searched.iter().flat_map(|(&rank, list)| {
            list.iter()
                .map(move |&(envelope, operation)| (rank, envelope, operation))
        });
        exact.chain(searched)
    }
}
