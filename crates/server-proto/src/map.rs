//! Hash tables that are iterated in the same order in every run. The standard tables draw a random
//! seed, and with it the simulator could not repeat a history. A call needs about ten look-ups, so
//! the hash is a fast one.

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// Values by keys.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;
/// Keys.
pub(crate) type Set<K> = HashSet<K, FixedState>;
