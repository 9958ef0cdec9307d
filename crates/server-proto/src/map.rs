//! Hash tables whose order is the same in every run.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Values by keys.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// Keys.
pub(crate) type Set<K> = HashSet<K, BuildHasherDefault<DefaultHasher>>;
