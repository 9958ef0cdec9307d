//! Lanes: how fast connections may read and write while bandwidth is reserved. Connections of a
//! reservation move at its rate; all others share the rest.
//!
//! A lane is a token bucket with a queue of the connections that wait for it. While nothing is
//! reserved there are no lanes, and the check costs nothing.

use crate::action::{Action, Actions, Direction};
use crate::allowance::Allowance;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::keys::{Beside, ConnectionKey};
use farcall_rpc_proto::Nanos;
use farcall_schedule::reservation::Bandwidth;
use farcall_schedule::{Queue, TokenBucket};
use std::collections::{BTreeMap, VecDeque};

/// All clients together may send ahead what passes in one such part of a second. It must be longer
/// than a round trip.
const AHEAD: u64 = 20;
/// Least number of bytes that each client may send ahead.
const LEAST_AHEAD: u64 = 16 << 10;
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// A rate, and the connections that wait for it.
struct Lane {
    bucket: TokenBucket,
    queue: VecDeque<ConnectionKey>,
    /// The connection whose turn it is while others wait.
    turn: Option<ConnectionKey>,
}

/// The lanes of one direction.
#[derive(Default)]
struct Road {
    /// Lanes of reservations that have begun, by number.
    reserved: BTreeMap<u64, Lane>,
    /// The lane of all others; `None` while nothing is reserved.
    others: Option<Lane>,
}

/// The part of a connection in the lanes.
#[derive(Debug, Default)]
struct Share {
    /// Whether its bytes cross a network link.
    crosses_link: bool,
    /// Whether it has ended. It gets no more turns then.
    closed: bool,
    /// The reservation whose bandwidth it uses.
    reservation: Option<u64>,
    /// Its allowances, up and down.
    allowed: [Allowance; 2],
}

/// All lanes.
#[derive(Default)]
pub struct Lanes {
    roads: [Road; 2],
    shares: Beside<ConnectionKey, Share>,
    /// Whether any bandwidth is reserved now.
    is_active: bool,
    /// Bytes that every other connection may send before the server reads them.
    ahead: Option<u32>,
    /// When the next reservation of bandwidth begins or ends.
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

    /// The part of a burst that only small messages may use.
    fn kept(&self) -> u64 {
        self.bucket.burst() / 4
    }

    /// Least number of bytes in the bucket when the next connection gets its turn.
    fn quantum(&self) -> u64 {
        self.kept() + self.bucket.burst() / 8
    }

    /// When the next waiting connection gets its turn.
    fn due(&self, now: Nanos) -> Option<Nanos> {
        let waits = !self.queue.is_empty() && self.turn.is_none();
        waits.then(|| self.bucket.when(now, self.quantum()))
    }

    /// Bytes that may pass now. While connections wait, the lane makes up for a server that comes
    /// late.
    fn room(&mut self, now: Nanos) -> u64 {
        match self.queue.is_empty() {
            true => self.bucket.room(now),
            false => self.bucket.room_after_wait(now),
        }
    }

    /// The next connection, if the bucket has enough for it.
    fn next(&mut self, now: Nanos) -> Option<ConnectionKey> {
        match self.room(now) >= self.quantum() {
            true => self.queue.pop_front(),
            false => None,
        }
    }

    /// Grants bytes to a connection. While it waits behind others, it only gets those for small
    /// messages.
    fn grant(&mut self, key: ConnectionKey, allowance: &mut Allowance, now: Nanos) {
        let room = self.room(now);
        let is_behind = self.turn != Some(key) && !self.queue.is_empty();
        allowance.grant(room, if is_behind { room } else { self.kept() });
    }

    /// Counts the used part of a grant. If all of it was used, the connection waits.
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
    /// The lane of a connection with this reservation, or without one.
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

    /// Sets the lanes: one for each reservation with its rate, and one for all others with the rest
    /// of `whole`.
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
    /// Grants bytes to a connection; `None` means no limit. The caller must
    /// [settle](crate::Server::settle) what it moves.
    pub fn grant(&mut self, key: ConnectionKey, direction: Direction, now: Nanos) -> Option<u64> {
        if !self.is_active {
            return None;
        }
        let share = self.shares.get_mut(key)?;
        if !share.crosses_link {
            return None;
        }
        let lane = self.roads[direction as usize].lane(share.reservation);
        let allowance = &mut share.allowed[direction as usize];
        let Some(lane) = lane else {
            *allowance = Allowance::default();
            return None;
        };
        lane.grant(key, allowance, now);
        Some(allowance.left())
    }

    /// The granted allowance of a connection.
    pub fn allowance(
        &mut self,
        key: ConnectionKey,
        direction: Direction,
    ) -> Option<&mut Allowance> {
        let share = self.shares.get_mut(key)?;
        Some(&mut share.allowed[direction as usize])
    }

    /// Whether a connection waits for a grant.
    pub fn waits(&self, key: ConnectionKey, direction: Direction) -> bool {
        let share = self.shares.get(key);
        share.is_some_and(|share| share.allowed[direction as usize].is_used_up())
    }

    /// Whether the rate of a connection is limited in this direction.
    pub(crate) fn is_paced(&self, key: ConnectionKey, direction: Direction) -> bool {
        let share = self.shares.get(key);
        share.is_some_and(|share| share.allowed[direction as usize].is_limited())
    }

    /// Settles a grant. Lanes may have changed since: a connection that was granted nothing still
    /// waits.
    pub(crate) fn settle(
        &mut self,
        (key, direction): (ConnectionKey, Direction),
        granted: Option<u64>,
        now: Nanos,
        out: &mut Actions,
    ) {
        let share = self.shares.get_mut(key).filter(|share| !share.closed);
        let (true, Some(share)) = (self.is_active, share) else {
            return;
        };
        let reservation = share.reservation;
        let allowance = &mut share.allowed[direction as usize];
        let Some(lane) = self.roads[direction as usize].lane(reservation) else {
            // Nothing is reserved in this direction, so nobody would wake a connection that waits.
            *allowance = Allowance::default();
            return;
        };
        if allowance.is_limited() {
            lane.settle(key, granted.unwrap_or(0), allowance);
        }
        if lane.turn == Some(key) {
            lane.turn = None;
            self.serve_lane(direction, reservation, now, out);
        }
    }

    /// Adds a new connection.
    pub(crate) fn join(&mut self, key: ConnectionKey, crosses_link: bool, out: &mut Actions) {
        let share = Share {
            crosses_link,
            ..Share::default()
        };
        self.shares.insert(key, share);
        if self.ahead.is_some() {
            self.bound_ahead_of(key, out);
        }
    }

    /// Ends a connection. Its turn passes to others.
    pub(crate) fn close(&mut self, key: ConnectionKey) {
        if let Some(share) = self.shares.get_mut(key) {
            share.closed = true;
        }
        self.leave(key);
    }

    /// Forgets a connection that is gone.
    pub(crate) fn forget(&mut self, key: ConnectionKey) {
        self.shares.remove(key);
    }

    /// Removes a connection from the queues.
    fn leave(&mut self, key: ConnectionKey) {
        for lane in self.roads.iter_mut().flat_map(Road::lanes) {
            lane.queue.retain(|waiting| *waiting != key);
            lane.turn = lane.turn.filter(|turn| *turn != key);
        }
    }

    /// Moves a connection to the lane of a reservation.
    pub(crate) fn change_lane(&mut self, key: ConnectionKey, reservation: u64, out: &mut Actions) {
        self.leave(key);
        let Some(share) = self.shares.get_mut(key) else {
            return;
        };
        share.reservation = Some(reservation);
        for allowance in &mut share.allowed {
            allowance.is_queued = false;
        }
        if self.ahead.is_some() {
            self.bound_ahead_of(key, out);
        }
    }

    /// When to look again: a connection may continue, or a reservation begins or ends.
    pub(crate) fn next_change(&self, now: Nanos) -> Option<Nanos> {
        let lanes = self.roads.iter().flat_map(|road| {
            let others = road.others.as_ref();
            road.reserved.values().chain(others)
        });
        let due = lanes.filter_map(|lane| lane.due(now));
        due.chain(self.changes).min()
    }

    /// Sets all lanes again after reservations have begun, ended, or were made or released.
    pub(crate) fn retune(&mut self, queue: &Queue, cx: &mut Context) {
        let now = cx.now();
        let bookings = queue.bookings();
        let bookings = bookings.filter(|(_, booking)| !booking.bandwidth.is_none());
        let bookings: Vec<_> = bookings.map(|(id, booking)| (id, *booking)).collect();
        let times = bookings.iter().flat_map(|(_, one)| [one.from, one.until]);
        self.changes = times.filter(|time| *time > now).min();
        let active = bookings.iter().filter(|(_, booking)| booking.covers(now));
        let limits = &cx.settings.limits;
        for direction in DIRECTIONS {
            let rate = |bandwidth: Bandwidth| match direction {
                Direction::Up => bandwidth.up,
                Direction::Down => bandwidth.down,
            };
            let wanted = active.clone().map(|(id, one)| (*id, rate(one.bandwidth)));
            let wanted = wanted.filter(|(_, rate)| *rate > 0).collect();
            let whole = match direction {
                Direction::Up => limits.bandwidth_up,
                Direction::Down => limits.bandwidth_down,
            };
            self.roads[direction as usize].retune(&wanted, whole, now);
        }
        let others = self.roads.iter().map(|road| &road.others);
        let is_active = others.flatten().next().is_some();
        let was_active = std::mem::replace(&mut self.is_active, is_active);
        if was_active || is_active {
            self.find_lanes(&mut cx.out);
            self.bound_ahead(&mut cx.out);
        }
    }

    /// Bounds what clients without a reservation may send ahead. Unread bytes wait in the system's
    /// buffers and would use the full rate of the link.
    fn bound_ahead(&mut self, out: &mut Actions) {
        let road = &self.roads[Direction::Up as usize];
        let crossing = self.shares.iter().filter(|(_, one)| one.crosses_link);
        let ahead = road.others.as_ref().map(|lane| {
            let together = lane.bucket.rate() / AHEAD;
            let each = together / crossing.count().max(1) as u64;
            u32::try_from(each.max(LEAST_AHEAD)).unwrap_or(u32::MAX)
        });
        let was = std::mem::replace(&mut self.ahead, ahead);
        if was.is_none() && ahead.is_none() {
            return;
        }
        let keys: Vec<ConnectionKey> = self.shares.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.bound_ahead_of(key, out);
        }
    }

    /// Bounds one connection. Connections of reservations are limited one by one.
    fn bound_ahead_of(&self, key: ConnectionKey, out: &mut Actions) {
        let Some(share) = self.shares.get(key).filter(|share| share.crosses_link) else {
            return;
        };
        let reserved = &self.roads[Direction::Up as usize].reserved;
        let own = share.reservation;
        let is_reserved = own.is_some_and(|id| reserved.contains_key(&id));
        let bound = self.ahead.filter(|_| !is_reserved);
        out.push(Action::BoundAhead(key, bound));
    }

    /// Empties all queues and voids earlier grants. Connections that must wait join the queues
    /// again.
    fn find_lanes(&mut self, out: &mut Actions) {
        for lane in self.roads.iter_mut().flat_map(Road::lanes) {
            lane.queue.clear();
            lane.turn = None;
        }
        for (key, share) in self.shares.iter_mut() {
            if share.allowed.iter().any(|one| one.is_queued) && !share.closed {
                out.push(Action::Serve(key, Direction::Down));
            }
            share.allowed = Default::default();
            if self.is_active && share.crosses_link {
                let allowed = share.allowed.iter_mut();
                allowed.for_each(|allowance| allowance.grant(0, 0));
            }
        }
    }

    /// Begins and ends the reservations whose times have come.
    pub(crate) fn change(&mut self, queue: &Queue, cx: &mut Context) {
        if self.changes.is_some_and(|time| cx.now() >= time) {
            self.retune(queue, cx);
        }
    }

    /// Gives turns to waiting connections.
    pub(crate) fn serve_lanes(&mut self, cx: &mut Context) {
        let now = cx.now();
        if !self.is_active {
            return;
        }
        for direction in DIRECTIONS {
            let reserved = self.roads[direction as usize].reserved.keys();
            let reserved: Vec<Option<u64>> = reserved.map(|id| Some(*id)).chain([None]).collect();
            for reservation in reserved {
                self.serve_lane(direction, reservation, now, &mut cx.out);
            }
        }
    }

    /// Gives a lane's next connection its turn, until its bytes are settled.
    fn serve_lane(
        &mut self,
        direction: Direction,
        reservation: Option<u64>,
        now: Nanos,
        out: &mut Actions,
    ) {
        loop {
            let lane = self.roads[direction as usize].lane(reservation);
            let Some(lane) = lane.filter(|lane| lane.turn.is_none()) else {
                return;
            };
            let Some(key) = lane.next(now) else { return };
            if let Some(share) = self.shares.get_mut(key)
                && !share.closed
            {
                lane.turn = Some(key);
                share.allowed[direction as usize].is_queued = false;
                return out.push(Action::Serve(key, direction));
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

    /// Counts everything that a connection may move, if it has more than that. Returns the bytes.
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
    fn a_server_that_comes_late_loses_no_rate() {
        let (rate, late) = (8_000_000, 50_000_000);
        let mut lane = Lane::new(rate, 0);
        let mut allowance = Allowance::default();
        let (mut now, mut moved) = (0, 0);
        while now < 1_000_000_000 {
            moved += move_all(&mut lane, key(1), &mut allowance, now);
            lane.turn = None;
            now = lane.due(now).expect("it waits") + late;
            lane.turn = lane.next(now);
            allowance.is_queued = false;
        }
        assert!(moved > rate * 9 / 10, "{moved} of {rate}");
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
        assert_eq!(
            rate(&mut road, Some(1)),
            Some(50),
            "it has the same rate as the others"
        );
        assert_eq!(rate(&mut road, None), Some(50));
        road.retune(&BTreeMap::new(), 100, 0);
        assert_eq!(rate(&mut road, Some(2)), None);
    }
}
