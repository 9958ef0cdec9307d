//! The waiting calls of each user, their order, and the processor time that each user has used. The
//! queue decides when a call starts; this module says which call is next. The user with the least
//! use among those of the highest priority comes first. The number of remembered users without
//! calls is bounded.

use super::{Nanos, UserShare};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most users without calls that are remembered.
const MAX_USERS: usize = 4096;
/// When weights have grown by this power of 2, all are scaled down.
const MAX_EXPONENT: f64 = 256.0;

/// The position of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePosition {
    pub(super) priority: i32,
    /// Wanted processor elements; 0 if the policy ignores them.
    pub(super) width: u32,
    /// Order before the order of arrival.
    pub(super) nanos: u64,
    /// Order of arrival.
    pub(super) arrival: u64,
}

/// The calls of one user and one priority: by width, then in the order of the policy.
type Shelf = BTreeMap<u32, BTreeMap<(u64, u64), u64>>;

/// The waiting users of one priority, least usage first. Usages are not negative, so their bits
/// sort like their values.
type Ranking = BTreeSet<(u64, u64)>;

#[derive(Clone, Debug, Default)]
struct User {
    /// Seconds on one processor element, with the current weight.
    usage: f64,
    running: usize,
    shelves: BTreeMap<i32, Shelf>,
    /// Waiting calls in the order of arrival.
    arrivals: BTreeMap<u64, u64>,
    /// When the current first call became the first, and the number of starts until then.
    since: Option<(Nanos, u64)>,
}

/// All users.
///
/// With a half-life, old use counts less. Instead of shrinking all usages all the time, the weight
/// of new use grows, which keeps the order of inactive users.
#[derive(Clone, Debug)]
pub(super) struct Users {
    half_life: f64,
    /// When the weight was 1.
    epoch: Nanos,
    users: BTreeMap<u64, User>,
    rankings: BTreeMap<Reverse<i32>, Ranking>,
    /// Waiting users: since when, starts until then, and who.
    waits: BTreeSet<(Nanos, u64, u64)>,
}

impl Users {
    pub(super) fn new(half_life_s: Option<f64>) -> Users {
        Users {
            half_life: half_life_s.unwrap_or(f64::INFINITY).max(1e-3) * 1e9,
            epoch: 0,
            users: BTreeMap::new(),
            rankings: BTreeMap::new(),
            waits: BTreeSet::new(),
        }
    }

    /// Adds a waiting call.
    pub(super) fn enter(
        &mut self,
        key: u64,
        id: u64,
        place: QueuePosition,
        now: Nanos,
        starts: u64,
    ) {
        let user = self.users.entry(key).or_default();
        if user.arrivals.is_empty() {
            user.since = Some((now, starts));
            self.waits.insert((now, starts, key));
        }
        user.arrivals.insert(place.arrival, id);
        let shelf = user.shelves.entry(place.priority).or_insert_with(|| {
            let ranking = self.rankings.entry(Reverse(place.priority)).or_default();
            ranking.insert((user.usage.to_bits(), key));
            Shelf::new()
        });
        let order = (place.nanos, place.arrival);
        shelf.entry(place.width).or_default().insert(order, id);
    }

    /// Removes a waiting call.
    pub(super) fn leave(&mut self, key: u64, place: &QueuePosition, now: Nanos, starts: u64) {
        let Some(user) = self.users.get_mut(&key) else {
            return;
        };
        let was_first = user.arrivals.first_key_value().map(|(arrival, _)| *arrival);
        user.arrivals.remove(&place.arrival);
        if was_first == Some(place.arrival) {
            if let Some((since, starts)) = user.since.take() {
                self.waits.remove(&(since, starts, key));
            }
            if !user.arrivals.is_empty() {
                user.since = Some((now, starts));
                self.waits.insert((now, starts, key));
            }
        }
        let Some(shelf) = user.shelves.get_mut(&place.priority) else {
            return;
        };
        if let Some(bucket) = shelf.get_mut(&place.width) {
            bucket.remove(&(place.nanos, place.arrival));
            if bucket.is_empty() {
                shelf.remove(&place.width);
            }
        }
        if shelf.is_empty() {
            user.shelves.remove(&place.priority);
            self.unrank(key, place.priority);
        }
    }

    fn unrank(&mut self, key: u64, priority: i32) {
        let usage = self.users[&key].usage.to_bits();
        if let Some(ranking) = self.rankings.get_mut(&Reverse(priority)) {
            ranking.remove(&(usage, key));
            if ranking.is_empty() {
                self.rankings.remove(&Reverse(priority));
            }
        }
    }

    /// Charges a user in advance for a call that starts.
    pub(super) fn charge(&mut self, key: u64, seconds: f64, now: Nanos) {
        self.users.entry(key).or_default().running += 1;
        let weight = self.weight(now);
        self.add(key, seconds * weight);
    }

    /// Settles the charge of a call that has ended.
    pub(super) fn settle(&mut self, key: u64, used: f64, paid: (f64, Nanos), now: Nanos) {
        let weight = self.weight(now);
        let (paid, then) = paid;
        self.add(key, used * weight - paid * self.exponent(then).exp2());
        if let Some(user) = self.users.get_mut(&key) {
            user.running -= 1;
        }
        if self.users.len() > MAX_USERS {
            self.users
                .retain(|_, user| user.running > 0 || !user.arrivals.is_empty());
        }
    }

    fn add(&mut self, key: u64, usage: f64) {
        let Some(user) = self.users.get_mut(&key) else {
            return;
        };
        let before = user.usage;
        user.usage = (before + usage).max(0.0);
        for priority in user.shelves.keys() {
            if let Some(ranking) = self.rankings.get_mut(&Reverse(*priority)) {
                ranking.remove(&(before.to_bits(), key));
                ranking.insert((user.usage.to_bits(), key));
            }
        }
    }

    /// The current weight of a second.
    fn weight(&mut self, now: Nanos) -> f64 {
        let exponent = self.exponent(now);
        if exponent > MAX_EXPONENT {
            self.scale_down(exponent);
            self.epoch = now;
        }
        self.exponent(now).exp2()
    }

    fn exponent(&self, now: Nanos) -> f64 {
        (now as f64 - self.epoch as f64) / self.half_life
    }

    fn scale_down(&mut self, exponent: f64) {
        let factor = (-exponent).exp2();
        self.rankings.clear();
        for (key, user) in &mut self.users {
            user.usage *= factor;
            for priority in user.shelves.keys() {
                let ranking = self.rankings.entry(Reverse(*priority)).or_default();
                ranking.insert((user.usage.to_bits(), *key));
            }
        }
    }

    /// The oldest call of the user who has waited longest for a start: since when, starts until
    /// then, and which call.
    pub(super) fn longest_waiting(&self) -> Option<(Nanos, u64, u64)> {
        let (since, starts, key) = self.waits.first()?;
        let (_, id) = self.users[key].arrivals.first_key_value()?;
        Some((*since, *starts, *id))
    }

    /// Shelves in the order of priority and usage.
    fn shelves(&self) -> impl Iterator<Item = &Shelf> {
        self.rankings
            .iter()
            .flat_map(|(Reverse(priority), ranking)| {
                ranking
                    .iter()
                    .filter_map(|(_, key)| self.users[key].shelves.get(priority))
            })
    }

    /// The call whose turn it is.
    pub(super) fn first(&self) -> Option<u64> {
        earliest(self.shelves().next()?, u32::MAX, |_| true)
    }

    /// The first call that wants at most `free` elements and that `fits` accepts.
    pub(super) fn first_that_fits(&self, free: u32, fits: impl Fn(u64) -> bool) -> Option<u64> {
        self.shelves()
            .find_map(|shelf| earliest(shelf, free, &fits))
    }

    /// The first of the widest calls that want at most `free` elements and that `fits` accepts.
    pub(super) fn widest_that_fits(&self, free: u32, fits: impl Fn(u64) -> bool) -> Option<u64> {
        self.shelves().find_map(|shelf| {
            let buckets = shelf.range(..=free).rev();
            let mut jobs = buckets.flat_map(|(_, bucket)| bucket.values());
            jobs.find(|id| fits(**id)).copied()
        })
    }

    pub(super) fn standings(&self, now: Nanos) -> impl Iterator<Item = UserShare> {
        let fade = (-self.exponent(now)).exp2();
        self.users.iter().map(move |(key, user)| UserShare {
            user: *key,
            waiting: user.arrivals.len(),
            running: user.running,
            usage: user.usage * fade,
        })
    }
}

/// The first call of a shelf in the order of the policy, up to this width, that `fits` accepts.
fn earliest(shelf: &Shelf, width: u32, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let heads = shelf
        .range(..=width)
        .filter_map(|(_, bucket)| bucket.iter().find(|(_, id)| fits(**id)));
    heads.min_by_key(|(order, _)| **order).map(|(_, id)| *id)
}
