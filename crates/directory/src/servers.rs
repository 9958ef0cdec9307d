//! The servers that have joined, by their numbers and in places that stay theirs.

use crate::server::Entry;
use std::collections::BTreeMap;

/// All servers. A decision looks at each of them: their places are numbers without gaps to speak
/// of, by which what belongs to a server is found without a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    places: Vec<Option<Entry>>,
    by_number: BTreeMap<u64, usize>,
    /// Places of servers whose state is to be made anew.
    stale: Vec<usize>,
    /// No lease ends before.
    first_end: f64,
}

impl Servers {
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &u64> {
        self.by_number.keys()
    }

    /// In the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.by_number.values().map(|place| self.at(*place))
    }

    /// With their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        self.by_number
            .iter()
            .map(|(number, place)| (*place, *number))
    }

    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// The server at a place that is taken.
    pub(crate) fn at(&self, place: usize) -> &Entry {
        self.places[place].as_ref().expect("a server is there")
    }

    pub(crate) fn contains_key(&self, number: &u64) -> bool {
        self.by_number.contains_key(number)
    }

    pub(crate) fn get(&self, number: &u64) -> Option<&Entry> {
        self.places[*self.by_number.get(number)?].as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: &u64) -> Option<&mut Entry> {
        self.places[*self.by_number.get(number)?].as_mut()
    }

    /// The same, and its state will be made anew before the next decision.
    pub(crate) fn change(&mut self, number: u64) -> Option<&mut Entry> {
        let place = *self.by_number.get(&number)?;
        let entry = self.places[place].as_mut()?;
        if !std::mem::replace(&mut entry.stale, true) {
            self.stale.push(place);
        }
        Some(entry)
    }

    /// Puts a server in the place that it has, or in one that is free; which that is.
    pub(crate) fn insert(&mut self, mut entry: Entry) -> usize {
        let number = entry.join.server;
        self.first_end = self.first_end.min(entry.expires);
        entry.stale = true;
        let free = || self.places.iter().position(Option::is_none);
        let place = self.place(number).or_else(free);
        let place = place.unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(entry);
        self.by_number.insert(number, place);
        self.stale.push(place);
        place
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Entry> {
        let place = self.by_number.remove(&number)?;
        self.places[place].take()
    }

    /// Servers whose state is to be made anew, with their places; told once.
    pub(crate) fn take_stale(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.stale)
    }

    /// The server at a place, if there is one.
    pub(crate) fn at_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.places[place].as_mut()
    }

    /// Numbers of the servers whose leases have ended.
    pub(crate) fn ended(&mut self, now: f64) -> Vec<u64> {
        if now < self.first_end {
            return Vec::new();
        }
        let entries = || self.places.iter().flatten();
        let ended = entries().filter(|entry| entry.expires <= now);
        let ended = ended.map(|entry| entry.join.server).collect();
        let hold = entries()
            .map(|entry| entry.expires)
            .filter(|end| *end > now);
        self.first_end = hold.fold(f64::INFINITY, f64::min);
        ended
    }

    /// A lease ends then: [`Servers::ended`] looks at the first.
    pub(crate) fn ends_at(&mut self, expires: f64) {
        self.first_end = self.first_end.min(expires);
    }
}
