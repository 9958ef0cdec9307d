//! How fast connections may read and write while bandwidth is reserved: those of a reservation at
//! its rate, all others together at what is left.
//!
//! Each lane is a token bucket with a queue of the connections that wait for it. Where nothing is
//! reserved there is no lane, and nothing is asked.

use super::Server;
use crate::action::{Action, Way};
use crate::allowance::Allowance;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use farcall_rpc_proto::Nanos;
use farcall_schedule::TokenBucket;
use farcall_schedule::reservation::Bandwidth;
use std::collections::{BTreeMap, VecDeque};

/// Clients together may send ahead what passes in this part of a second, which is to be more than a
/// round trip.
const AHEAD: u64 = 20;
/// Bytes that each of them may send ahead at least.
const LEAST_AHEAD: u64 = 16 << 10;
const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// A rate, and who waits for it.
struct Lane {
    bucket: TokenBucket,
    queue: VecDeque<ConnectionKey>,
    /// Whose turn it is though others wait.
    turn: Option<ConnectionKey>,
}

/// The lanes of one way.
#[derive(Default)]
struct Road {
    /// Of reservations that have begun, by their numbers.
    reserved: BTreeMap<u64, Lane>,
    /// Of all others; none while nothing is reserved.
    others: Option<Lane>,
}

/// All lanes.
#[derive(Default)]
pub(super) struct Lanes {
    roads: [Road; 2],
    /// Whether any bandwidth is reserved for now.
    is_active: bool,
    /// What each of all other connections may send before it is read, in bytes.
    ahead: Option<u32>,
    /// When a reservation of bandwidth begins or ends next.
    changes: Option<Nanos>,
}

impl Lane {
    fn new(rate: u64, now: Nanos) -> Lane {
        Lane {
            bucket: TokenBucket::of_rate(rate, now),
            queue: VecDeque::new(),
            turn: None,
        }
    }

    /// Of a burst, what only small messages have.
    fn kept(&self) -> u64 {
        self.bucket.burst() / 4
    }

    /// What there is at least when the next connection has its turn.
    fn quantum(&self) -> u64 {
        self.kept() + self.bucket.burst() / 8
    }

    /// When the next connection has its turn, where one waits.
    fn due(&self, now: Nanos) -> Option<Nanos> {
        let waits = !self.queue.is_empty() && self.turn.is_none();
        waits.then(|| self.bucket.when(now, self.quantum()))
    }

    /// The next connection, if there is enough for it.
    fn next(&mut self, now: Nanos) -> Option<ConnectionKey> {
        match self.bucket.room(now) >= self.quantum() {
            true => self.queue.pop_front(),
            false => None,
        }
    }

    /// Those behind others in the queue have nothing but what is kept for small messages.
    fn grant(&mut self, key: ConnectionKey, allowance: &mut Allowance, now: Nanos) {
        let room = self.bucket.room(now);
        let is_behind = self.turn != Some(key) && !self.queue.is_empty();
        allowance.grant(room, if is_behind { room } else { self.kept() });
    }

    /// Takes what was used of a grant, and has the connection wait if that was all.
    fn settle(&mut self, key: ConnectionKey, granted: u64, allowance: &mut Allowance) {
        if !has(Flaw::OverspendsLanes) {
            self.bucket.spend(granted.saturating_sub(allowance.left()));
        }
        if allowance.is_used_up() && !std::mem::replace(&mut allowance.is_queued, true) {
            self.queue.push_back(key);
        }
    }
}

impl Road {
    /// The lane of a connection of that reservation, or of none.
    fn lane(&mut self, reservation: Option<u64>) -> Option<&mut Lane> {
        let own = reservation.filter(|id| self.reserved.contains_key(id));
        match own {
            Some(id) => self.reserved.get_mut(&id),
            None => self.others.as_mut(),
        }
    }

    fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.reserved.values_mut().chain(self.others.as_mut())
    }

    /// Lanes as wide as reserved, by number of reservation, and one for all others that has the
    /// rest of `whole`.
    fn retune(&mut self, wanted: &BTreeMap<u64, u64>, whole: u64, now: Nanos) {
        self.reserved.retain(|id, _| wanted.contains_key(id));
        for (id, rate) in wanted {
            let lane = self.reserved.entry(*id);
            lane.or_insert_with(|| Lane::new(*rate, now));
        }
        if wanted.is_empty() {
            self.others = None;
            return;
        }
        let rest = whole.saturating_sub(wanted.values().sum());
        match &mut self.others {
            Some(lane) => lane.bucket.set_rate(rest, now),
            None => self.others = Some(Lane::new(rest, now)),
        }
    }
}

impl Lanes {
    /// Whether a reservation has begun or ended.
    fn is_late(&self, now: Nanos) -> bool {
        self.changes.is_some_and(|time| now >= time)
    }

    /// When to look again: somebody may go on, or a reservation begins or ends.
    pub(super) fn next_change(&self, now: Nanos) -> Option<Nanos> {
        let lanes = self.roads.iter().flat_map(|road| {
            let others = road.others.as_ref();
            road.reserved.values().chain(others)
        });
        let due = lanes.filter_map(|lane| lane.due(now));
        due.chain(self.changes).min()
    }

    /// What each of all other connections may send before it is read, in bytes.
    pub(super) fn ahead(&self) -> Option<u32> {
        self.ahead
    }

    /// A connection is closed.
    pub(super) fn forget(&mut self, key: ConnectionKey) {
        for lane in self.roads.iter_mut().flat_map(Road::lanes) {
            lane.queue.retain(|waiting| *waiting != key);
            lane.turn = lane.turn.filter(|turn| *turn != key);
        }
    }
}

impl Server {
    /// Lets a connection move some bytes; none says that it may move any number. What it moves is
    /// to be settled.
    pub fn grant(&mut self, key: ConnectionKey, way: Way, now: Nanos) -> Option<u64> {
        if !self.lanes.is_active {
            return None;
        }
        let connection = self.connections.get_mut(key)?;
        if !connection.peer.crosses_link {
            return None;
        }
        let lane = self.lanes.roads[way as usize].lane(connection.reservation);
        let allowance = &mut connection.allowed[way as usize];
        let Some(lane) = lane else {
            *allowance = Allowance::default();
            return None;
        };
        lane.grant(key, allowance, now);
        Some(allowance.left())
    }

    /// What a connection may move, as far as it was granted.
    pub fn allowance(&mut self, key: ConnectionKey, way: Way) -> Option<&mut Allowance> {
        let connection = self.connections.get_mut(key)?;
        Some(&mut connection.allowed[way as usize])
    }

    /// Whether a connection waits until it may move more.
    pub fn waits(&self, key: ConnectionKey, way: Way) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|connection| connection.waits(way))
    }

    /// Settles what was granted. Lanes may have come or gone since: who found nothing granted waits
    /// all the same.
    pub fn settle(&mut self, key: ConnectionKey, way: Way, granted: Option<u64>) {
        if !self.lanes.is_active || !self.is_open(key) {
            return;
        }
        let granted = granted.unwrap_or(0);
        let connection = &mut self.connections[key];
        let reservation = connection.reservation;
        let allowance = &mut connection.allowed[way as usize];
        let Some(lane) = self.lanes.roads[way as usize].lane(reservation) else {
            // Nothing is reserved this way: nobody would wake who waits for his turn.
            *allowance = Allowance::default();
            return;
        };
        if allowance.is_limited() {
            lane.settle(key, granted, allowance);
        }
        if lane.turn == Some(key) {
            lane.turn = None;
            self.serve_lane(way, reservation);
        }
    }

    /// A connection is one of that reservation from now on.
    pub(super) fn change_lane(&mut self, key: ConnectionKey, reservation: u64) {
        self.lanes.forget(key);
        let connection = &mut self.connections[key];
        connection.reservation = Some(reservation);
        for allowance in &mut connection.allowed {
            allowance.is_queued = false;
        }
        if self.lanes.ahead.is_some() {
            self.bound_ahead_of(key);
        }
    }

    /// Reservations have begun, have ended or were made or released: everybody finds his lane anew.
    pub(super) fn retune(&mut self) {
        let now = self.now();
        let bookings = self.queue.bookings();
        let bookings = bookings.filter(|(_, booking)| !booking.bandwidth.is_none());
        let bookings: Vec<_> = bookings.map(|(id, booking)| (id, *booking)).collect();
        let times = bookings.iter().flat_map(|(_, one)| [one.from, one.until]);
        self.lanes.changes = times.filter(|time| *time > now).min();
        let active = bookings.iter().filter(|(_, booking)| booking.covers(now));
        let limits = &self.settings.limits;
        for way in WAYS {
            let rate = |bandwidth: Bandwidth| match way {
                Way::Up => bandwidth.up,
                Way::Down => bandwidth.down,
            };
            let wanted = active.clone().map(|(id, one)| (*id, rate(one.bandwidth)));
            let wanted = wanted.filter(|(_, rate)| *rate > 0).collect();
            let whole = match way {
                Way::Up => limits.bandwidth_up,
                Way::Down => limits.bandwidth_down,
            };
            self.lanes.roads[way as usize].retune(&wanted, whole, now);
        }
        let others = self.lanes.roads.iter().map(|road| &road.others);
        let is_active = others.flatten().next().is_some();
        let was_active = std::mem::replace(&mut self.lanes.is_active, is_active);
        if was_active || is_active {
            self.find_lanes();
            self.bound_ahead();
        }
    }

    /// What clients of other connections send lies in the system's hands before it is read, and
    /// would go at the rate of the link: together they may send ahead what passes in a while.
    fn bound_ahead(&mut self) {
        let road = &self.lanes.roads[Way::Up as usize];
        let crossing = self
            .connections
            .values()
            .filter(|one| one.peer.crosses_link);
        let ahead = road.others.as_ref().map(|lane| {
            let together = lane.bucket.rate() / AHEAD;
            let each = together / crossing.count().max(1) as u64;
            u32::try_from(each.max(LEAST_AHEAD)).unwrap_or(u32::MAX)
        });
        let was = std::mem::replace(&mut self.lanes.ahead, ahead);
        if was.is_none() && ahead.is_none() {
            return;
        }
        let keys: Vec<ConnectionKey> = self.connections.keys().collect();
        for key in keys {
            self.bound_ahead_of(key);
        }
    }

    /// Those of reservations are held to their rate one by one.
    fn bound_ahead_of(&mut self, key: ConnectionKey) {
        let connection = &self.connections[key];
        if !connection.peer.crosses_link {
            return;
        }
        let reserved = &self.lanes.roads[Way::Up as usize].reserved;
        let own = connection.reservation;
        let is_reserved = own.is_some_and(|id| reserved.contains_key(&id));
        let bound = self.lanes.ahead.filter(|_| !is_reserved);
        self.out.push(Action::BoundAhead(key, bound));
    }

    /// Nobody waits any more: who has to, finds that out. What was granted before is void.
    fn find_lanes(&mut self) {
        for lane in self.lanes.roads.iter_mut().flat_map(Road::lanes) {
            lane.queue.clear();
            lane.turn = None;
        }
        let mut waiting = Vec::new();
        for (key, connection) in self.connections.iter_mut() {
            if connection.allowed.iter().any(|one| one.is_queued) {
                waiting.push(key);
            }
            connection.allowed = Default::default();
            if self.lanes.is_active && connection.peer.crosses_link {
                let allowed = connection.allowed.iter_mut();
                allowed.for_each(|allowance| allowance.grant(0, 0));
            }
        }
        for key in waiting
            .into_iter()
            .filter(|key| self.is_open(*key))
            .collect::<Vec<_>>()
        {
            self.out.push(Action::Serve(key, Way::Down));
        }
    }

    /// Reservations begin and end; who waits for his turn has it.
    pub(super) fn serve_lanes(&mut self) {
        if self.lanes.is_late(self.now()) {
            self.retune();
        }
        if !self.lanes.is_active {
            return;
        }
        for way in WAYS {
            let reserved = self.lanes.roads[way as usize].reserved.keys();
            let reserved: Vec<Option<u64>> = reserved.map(|id| Some(*id)).chain([None]).collect();
            for reservation in reserved {
                self.serve_lane(way, reservation);
            }
        }
    }

    /// The next connection of a lane has its turn, until what it moves is settled.
    fn serve_lane(&mut self, way: Way, reservation: Option<u64>) {
        let now = self.now();
        loop {
            let lane = self.lanes.roads[way as usize].lane(reservation);
            let Some(lane) = lane.filter(|lane| lane.turn.is_none()) else {
                return;
            };
            let Some(key) = lane.next(now) else { return };
            if let Some(connection) = self.connections.get_mut(key)
                && !connection.closed
            {
                lane.turn = Some(key);
                connection.allowed[way as usize].is_queued = false;
                return self.out.push(Action::Serve(key, way));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;

    const LARGE: u64 = 1 << 30;

    fn key(number: u32) -> ConnectionKey {
        ConnectionKey::new(number, 1)
    }

    /// Moves all that a connection may, which has more; returns how much.
    fn move_all(lane: &mut Lane, key: ConnectionKey, allowance: &mut Allowance, now: Nanos) -> u64 {
        lane.grant(key, allowance, now);
        let (granted, bytes) = (allowance.left(), allowance.of(LARGE));
        allowance.spend(bytes);
        assert_eq!(allowance.of(LARGE), 0);
        lane.settle(key, granted, allowance);
        bytes
    }

    #[test]
    fn connections_take_turns_and_together_have_the_rate() {
        let rate = 8_000_000;
        let mut lane = Lane::new(rate, 0);
        let mut allowances = [(); 3].map(|()| Allowance::default());
        let mut moved = [0u64; 3];
        for (number, allowance) in allowances.iter_mut().enumerate() {
            move_all(&mut lane, key(number as u32), allowance, 0);
        }
        let mut now = 0;
        while now < 1_000_000_000 {
            now = lane.due(now).expect("all of them wait");
            let next = lane.next(now).expect("it is due");
            let index = next.index() as usize;
            lane.turn = Some(next);
            allowances[index].is_queued = false;
            moved[index] += move_all(&mut lane, next, &mut allowances[index], now);
            lane.turn = None;
        }
        let all: u64 = moved.iter().sum();
        assert!(
            (rate - rate / 50..=rate + rate / 50).contains(&all),
            "{all}"
        );
        for one in moved {
            assert!((all / 3 - all / 30..=all / 3 + all / 30).contains(&one));
        }
    }

    #[test]
    fn small_messages_go_before_those_that_wait() {
        let mut lane = Lane::new(1_000_000, 0);
        let (mut bulk, mut small) = (Allowance::default(), Allowance::default());
        move_all(&mut lane, key(1), &mut bulk, 0);
        lane.grant(key(2), &mut small, 0);
        assert!(small.of(100) >= 100);
        lane.grant(key(3), &mut small, 0);
        assert_eq!(small.of(LARGE), 0, "behind the first");
    }

    #[test]
    fn what_is_not_reserved_is_for_all_others() {
        let mut road = Road::default();
        road.retune(&BTreeMap::from([(1, 30), (2, 50)]), 100, 0);
        let rate = |road: &mut Road, of| road.lane(of).map(|lane| lane.bucket.rate());
        assert_eq!(rate(&mut road, Some(1)), Some(30));
        assert_eq!(rate(&mut road, Some(3)), Some(20));
        road.retune(&BTreeMap::from([(2, 50)]), 100, 0);
        assert_eq!(rate(&mut road, Some(1)), Some(50), "it is as all others");
        assert_eq!(rate(&mut road, None), Some(50));
        road.retune(&BTreeMap::new(), 100, 0);
        assert_eq!(rate(&mut road, Some(2)), None);
    }
}
