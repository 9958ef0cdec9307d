//! Typed keys, and the tables that assign them.
//!
//! A key has an index and a generation. A late event for something that is gone finds nothing, and
//! never what took its place.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A place in a table, and which of its successive values is meant.
pub trait Key: Copy + Eq {
    /// A key of these parts.
    fn new(index: u32, generation: u32) -> Self;
    /// The place.
    fn index(self) -> u32;
    /// Counts the values that the place has had; never 0.
    fn generation(self) -> u32;

    /// Both in one number, which is never 0.
    fn number(self) -> u64 {
        u64::from(self.generation()) << 32 | u64::from(self.index())
    }

    /// The key of a number.
    fn of_number(number: u64) -> Self {
        Self::new(number as u32, (number >> 32) as u32)
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            index: u32,
            generation: u32,
        }

        impl $name {
            /// The key of nothing.
            pub const NONE: $name = $name {
                index: 0,
                generation: 0,
            };
        }

        impl Key for $name {
            fn new(index: u32, generation: u32) -> $name {
                $name { index, generation }
            }

            fn index(self) -> u32 {
                self.index
            }

            fn generation(self) -> u32 {
                self.generation
            }
        }
    )*};
}

keys! {
    /// A connection from a client.
    ConnectionKey;
    /// A call, or an array that comes or goes.
    CallKey;
    /// A worker.
    WorkerKey;
    /// A memory object.
    MemoryKey;
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by the keys that the table assigns.
#[derive(Debug)]
pub struct Table<K, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    keys: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Table<K, T> {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            keys: PhantomData,
        }
    }
}

impl<K: Key, T> Table<K, T> {
    /// Adds a value and returns its key.
    pub fn insert(&mut self, value: T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.value = Some(value);
        K::new(index, slot.generation)
    }

    /// The value of a key; `None` if it is gone.
    pub fn get(&self, key: K) -> Option<&T> {
        let slot = self.slots.get(key.index() as usize)?;
        slot.value
            .as_ref()
            .filter(|_| slot.generation == key.generation())
    }

    /// The value of a key, mutable; `None` if it is gone.
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        let is_it = slot.generation == key.generation();
        slot.value.as_mut().filter(|_| is_it)
    }

    /// Whether the value of a key exists.
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Removes the value of a key; `None` if it is gone already.
    pub fn remove(&mut self, key: K) -> Option<T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        self.free.push(key.index());
        Some(value)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> + Clone {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let key = K::new(index as u32, slot.generation);
            Some((key, slot.value.as_ref()?))
        })
    }

    /// All values with their keys, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(index, slot)| {
            let key = K::new(index as u32, slot.generation);
            Some((key, slot.value.as_mut()?))
        })
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

impl<K: Key, T> Index<K> for Table<K, T> {
    type Output = T;

    fn index(&self, key: K) -> &T {
        self.get(key).expect("the value of a key that is held")
    }
}

impl<K: Key, T> IndexMut<K> for Table<K, T> {
    fn index_mut(&mut self, key: K) -> &mut T {
        self.get_mut(key).expect("the value of a key that is held")
    }
}

/// A shell's values for the keys of a table that is elsewhere.
#[derive(Debug)]
pub struct Beside<K, T> {
    slots: Vec<Option<(u32, T)>>,
    keys: PhantomData<K>,
}

impl<K, T> Default for Beside<K, T> {
    fn default() -> Beside<K, T> {
        Beside {
            slots: Vec::new(),
            keys: PhantomData,
        }
    }
}

impl<K: Key, T> Beside<K, T> {
    /// Stores a value for a key.
    pub fn insert(&mut self, key: K, value: T) {
        let index = key.index() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some((key.generation(), value));
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&T> {
        let slot = self.slots.get(key.index() as usize)?.as_ref();
        let slot = slot.filter(|(generation, _)| *generation == key.generation());
        slot.map(|(_, value)| value)
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index() as usize)?.as_mut();
        let slot = slot.filter(|(generation, _)| *generation == key.generation());
        slot.map(|(_, value)| value)
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: K) -> Option<T> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        let taken = slot.take_if(|(generation, _)| *generation == key.generation());
        taken.map(|(_, value)| value)
    }

    /// All values with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            let (generation, value) = slot.as_ref()?;
            Some((K::new(index as u32, *generation), value))
        })
    }

    /// All values with their keys, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(index, slot)| {
            let (generation, value) = slot.as_mut()?;
            Some((K::new(index as u32, *generation), value))
        })
    }

    /// The key at a place, if there is one. Places count from 0 to [`Beside::places`].
    pub fn at(&self, place: usize) -> Option<K> {
        let (generation, _) = self.slots.get(place)?.as_ref()?;
        Some(K::new(place as u32, *generation))
    }

    /// Number of places.
    pub fn places(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_what_is_gone_finds_nothing() {
        let mut table = Table::<CallKey, u32>::default();
        let first = table.insert(1);
        assert_eq!((table[first], table.len()), (1, 1));
        assert_eq!(table.remove(first), Some(1));
        let second = table.insert(2);
        assert_eq!(second.index(), first.index());
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&2));
        assert_eq!(CallKey::of_number(second.number()), second);
        assert_ne!(first.number(), 0);
    }

    #[test]
    fn what_lies_beside_a_table_goes_by_the_same_keys() {
        let mut table = Table::<WorkerKey, ()>::default();
        let mut beside = Beside::default();
        let old = table.insert(());
        beside.insert(old, "old");
        table.remove(old);
        let new = table.insert(());
        beside.insert(new, "new");
        assert_eq!((beside.get(old), beside.get(new)), (None, Some(&"new")));
        assert_eq!(
            (beside.remove(old), beside.remove(new)),
            (None, Some("new"))
        );
    }
}
