//! Hash tables that are iterated in the same order in every run. The standard tables draw a random
//! seed, and with it the simulator could not repeat a history.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Values by keys.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// Keys.
pub(crate) type Set<K> = HashSet<K, BuildHasherDefault<DefaultHasher>>;
