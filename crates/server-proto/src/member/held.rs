//! Keeps track of which named data of this server a metaserver knows, and composes the next message
//! about them. A message is bounded, so several can be necessary. An entry counts as told only
//! after [`told`](HeldData::told) was called for its message.

use farcall_directory::message::{Datum, DatumName, Hold, MOST_HELD};
use std::collections::BTreeMap;

/// The named data of a server, and what was told about them.
#[derive(Debug, Default)]
pub(crate) struct HeldData {
    all: BTreeMap<DatumName, Datum>,
    told: BTreeMap<DatumName, (u64, u64)>,
    /// Whether the metaserver knows nothing yet, or nothing certain.
    is_new: bool,
    /// Whether data were ever told. A metaserver may still know them.
    has_told: bool,
}

impl HeldData {
    /// Sets the data that the server holds now.
    pub(crate) fn set(&mut self, data: Vec<Datum>) {
        self.all = data.into_iter().map(|datum| (datum.key(), datum)).collect();
    }

    /// Forgets what was told: the metaserver is new, or has forgotten it.
    pub(crate) fn begin_anew(&mut self) {
        self.told.clear();
        self.is_new = true;
    }

    /// What to tell next, if anything.
    pub(crate) fn next(&self, server: u64) -> Option<Hold> {
        let is_told =
            |(key, datum): &(&DatumName, &Datum)| self.told.get(key) == Some(&datum.version());
        let untold = self.all.iter().filter(|one| !is_told(one));
        let held: Vec<Datum> = untold
            .take(MOST_HELD)
            .map(|(_, datum)| datum.clone())
            .collect();
        let gone = self.told.keys().filter(|key| !self.all.contains_key(*key));
        let gone: Vec<DatumName> = gone.take(MOST_HELD).cloned().collect();
        let anew = self.is_new && (self.has_told || !self.all.is_empty());
        (anew || !held.is_empty() || !gone.is_empty()).then_some(Hold {
            server,
            anew,
            held,
            gone,
        })
    }

    /// Records that this was told.
    pub(crate) fn told(&mut self, hold: &Hold) {
        (self.is_new, self.has_told) = (false, true);
        for key in &hold.gone {
            self.told.remove(key);
        }
        let held = hold.held.iter();
        self.told
            .extend(held.map(|datum| (datum.key(), datum.version())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_directory::message::Join;
    use farcall_directory::{Directory, Settings};

    fn datum(number: usize, stamp: u64) -> Datum {
        Datum {
            name: format!("n{number}"),
            owner: "alice".to_string(),
            written: 1,
            stamp,
            number: 1,
            shared: false,
            element: "double".to_string(),
            shape: vec![1],
            bytes: 8,
        }
    }

    #[test]
    fn what_has_changed_is_told_and_nothing_else() {
        let mut held = HeldData::default();
        assert_eq!(held.next(7), None);
        held.begin_anew();
        held.set((0..MOST_HELD + 3).map(|number| datum(number, 1)).collect());
        let (mut messages, mut told) = (0, 0);
        while let Some(hold) = held.next(7) {
            assert_eq!((hold.server, hold.anew), (7, messages == 0));
            messages += 1;
            told += hold.held.len();
            held.told(&hold);
        }
        assert_eq!((messages, told), (2, MOST_HELD + 3));
        held.set(vec![datum(0, 2), datum(1, 1)]);
        let hold = held.next(7).unwrap();
        assert_eq!((hold.held.len(), hold.gone.len()), (1, MOST_HELD));
        held.told(&hold);
        let hold = held.next(7).unwrap();
        assert_eq!((hold.held.len(), hold.gone.len(), hold.anew), (0, 1, false));
        held.told(&hold);
        assert_eq!(held.next(7), None);
        held.begin_anew();
        assert!(held.next(7).unwrap().anew);
    }

    #[test]
    fn data_that_were_dropped_while_the_metaserver_was_away_are_forgotten() {
        let mut directory = Directory::new(Settings::default());
        let join = Join {
            server: 1,
            address: "farcall://a:1".into(),
            agent: "test".into(),
            pes: 1,
            memory: 0,
            functions: Vec::new(),
        };
        let mut held = HeldData::default();
        let mut tell = |held: &mut HeldData| {
            directory.join(1.0, join.clone()).unwrap();
            held.begin_anew();
            while let Some(hold) = held.next(1) {
                directory.hold(1.0, hold.clone()).unwrap();
                held.told(&hold);
            }
            directory.data_count()
        };
        assert_eq!(
            held.next(1),
            None,
            "a server without data has nothing to say"
        );
        held.set(vec![datum(0, 1)]);
        assert_eq!(tell(&mut held), 1);
        held.set(Vec::new());
        assert_eq!(tell(&mut held), 0);
    }
}
