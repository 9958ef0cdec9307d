//! Metric series whose labels anybody can choose, such as the names of users. The number of series
//! is bounded: the first 100 names have their own, and all others share one. No series ever
//! decreases.

use foldhash::fast::FixedState;
use std::collections::HashMap;

/// A value for each name, with a bounded number of names. The first [`Bounded::MOST`] names have a
/// value each. All later names share one value, so that no series ever decreases.
#[derive(Clone, Debug, Default)]
pub struct Bounded<V> {
    own: HashMap<String, V, FixedState>,
    others: Option<V>,
}

/// The name of the value that all later names share.
const OTHERS: &str = "other";

impl<V: Default> Bounded<V> {
    /// Largest number of names that have a value of their own.
    pub const MOST: usize = 100;

    /// The value of a name.
    pub fn get(&mut self, name: &str) -> &mut V {
        let is_full = self.own.len() >= Self::MOST;
        if !self.own.contains_key(name) {
            if is_full || name == OTHERS {
                return self.others.get_or_insert_default();
            }
            self.own.insert(name.to_string(), V::default());
        }
        self.own.get_mut(name).expect("it was just put in")
    }

    /// All values with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let own = self.own.iter().map(|(name, value)| (name.as_str(), value));
        own.chain(self.others.iter().map(|value| (OTHERS, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_a_value() {
        let mut counts: Bounded<u64> = Bounded::default();
        for round in 0..2 {
            for name in 0..1000 {
                *counts.get(&format!("user{name}")) += 1;
            }
            assert_eq!(counts.iter().count(), Bounded::<u64>::MOST + 1);
            let others = counts.iter().find(|(name, _)| *name == OTHERS).unwrap();
            assert_eq!(*others.1, 900 * (round + 1));
        }
        *counts.get(OTHERS) += 1;
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 2001);
    }
}
