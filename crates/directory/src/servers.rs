//! The table of servers, by number. Each server has a position that does not change while the
//! server is in the table, so that other tables can find what belongs to it. The table notes which
//! servers have changed, so that the directory updates only those before its next decision.

use crate::server::Entry;
use std::collections::BTreeMap;

/// All servers. Each decision looks at all of them, so they have positions without large gaps, by
/// which other tables find what belongs to a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    places: Vec<Option<Entry>>,
    by_number: BTreeMap<u64, usize>,
    /// Positions of servers whose state must be updated, each once.
    stale: Vec<usize>,
    /// No lease ends before this time.
    first_end: f64,
}

impl Servers {
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// All servers in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.by_number.values().map(|place| self.at(*place))
    }

    /// All servers with their positions.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        self.by_number
            .iter()
            .map(|(number, place)| (*place, *number))
    }

    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// The server at a position that is taken.
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

    /// A server, mutable. Its state will be updated before the next decision.
    pub(crate) fn change(&mut self, number: u64) -> Option<&mut Entry> {
        let place = *self.by_number.get(&number)?;
        let entry = self.places[place].as_mut()?;
        if !std::mem::replace(&mut entry.stale, true) {
            self.stale.push(place);
        }
        Some(entry)
    }

    /// Inserts a server at its own position or a free one. Returns the position.
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
        let before = self.places[place].replace(entry);
        self.by_number.insert(number, place);
        if before.is_none_or(|before| !before.stale) {
            self.stale.push(place);
        }
        place
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Entry> {
        let place = self.by_number.remove(&number)?;
        let entry = self.places[place].take()?;
        if entry.stale {
            self.stale.retain(|one| *one != place);
        }
        Some(entry)
    }

    /// Takes the servers whose state must be updated, with their positions.
    pub(crate) fn take_stale(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.stale)
    }

    /// The server at a position, if there is one.
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

    /// Notes when a lease ends, for [`Servers::ended`].
    pub(crate) fn ends_at(&mut self, expires: f64) {
        self.first_end = self.first_end.min(expires);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Join;

    /// A metaserver that nobody asks still reads the rows of others.
    #[test]
    fn a_server_is_updated_once_however_often_it_has_changed() {
        let entry = |server| {
            let join = Join {
                server,
                address: "farcall://host:3717".to_string(),
                agent: "test".to_string(),
                pes: 1,
                memory: 0,
                functions: Vec::new(),
            };
            Entry::new(join, 0.0, 10.0)
        };
        let mut servers = Servers::default();
        for _ in 0..10 {
            servers.insert(entry(1));
            servers.change(1);
            servers.insert(entry(2));
            servers.remove(2);
        }
        assert_eq!(servers.take_stale(), [0]);
    }
}
