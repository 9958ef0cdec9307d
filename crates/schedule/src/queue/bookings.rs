//! Bookings in the queue: calls beside processor elements that are booked ahead of time.
//! `reservation` keeps the calendar of the machine. A call starts outside of its own booking only
//! if it will probably end before a booking needs its elements. Only a call that takes longer than
//! predicted delays a booking.

use super::{Nanos, Policy, Queue, Request, Running, Waiting, predicted_end};
use crate::reservation::{Booking, Hold, Machine, Refusal};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A call that waits for processor elements of its booking. The first in order goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    priority: Reverse<i32>,
    arrival: u64,
    id: u64,
}

impl Claim {
    pub(super) fn of(waiting: &Waiting) -> Claim {
        Claim {
            priority: Reverse(waiting.place.priority),
            arrival: waiting.place.arrival,
            id: waiting.request.id,
        }
    }
}

impl Queue {
    /// Books processor elements and bandwidth. Running calls count for their predicted time; a call
    /// that takes longer delays the booking.
    ///
    /// # Errors
    /// When the booking could begin, or that it never can. [`Policy::AtOnce`] keeps no elements
    /// free for anybody.
    pub fn reserve(&mut self, booking: Booking, now: Nanos) -> Result<u64, Refusal> {
        self.expire(now);
        self.check(booking, now)?;
        Ok(self.calendar.enter(booking))
    }

    /// Checks whether [`reserve`](Queue::reserve) would book this now.
    ///
    /// # Errors
    /// As for [`reserve`](Queue::reserve).
    pub fn check(&self, booking: Booking, now: Nanos) -> Result<(), Refusal> {
        if self.settings.policy == Policy::AtOnce && booking.pes > 0 {
            return Err(Refusal::TooMany(0));
        }
        let holds = self.holds(now);
        let machine = Machine {
            pes: self.settings.pes,
            holds: &holds,
        };
        self.calendar.check(booking, machine)
    }

    /// When `pes` elements outside of bookings would be free for a time, if only running calls and
    /// bookings were in the way.
    pub fn earliest(&self, pes: u32, (from, until): (Nanos, Nanos), now: Nanos) -> Nanos {
        let most = self.settings.pes;
        let pes = pes.min(most);
        let holds = self.holds(now);
        let machine = Machine {
            pes: most,
            holds: &holds,
        };
        let wanted = Booking {
            pes,
            from,
            until,
            ..Booking::default()
        };
        self.calendar.earliest(wanted, most, machine)
    }

    /// Elements that calls will probably hold outside of bookings.
    fn holds(&self, now: Nanos) -> Vec<Hold> {
        let running = self.running.values();
        let holds = running.map(|job| Hold {
            pes: job.pes,
            from: match self.booking_of(job).filter(|booking| booking.covers(now)) {
                Some(booking) => booking.until,
                None => now,
            },
            until: job.expected(now),
        });
        holds.filter(|hold| hold.from < hold.until).collect()
    }

    /// Releases a booking. Its waiting calls then wait like all others.
    pub fn release(&mut self, id: u64, now: Nanos) -> Option<Booking> {
        let booking = self.calendar.release(id)?;
        self.deadlines.remove(&id);
        self.return_claims(now);
        Some(booking)
    }

    /// The booking with this number. A booking that has ended may still be listed for a while.
    pub fn booking(&self, id: u64) -> Option<&Booking> {
        self.calendar.get(id)
    }

    /// All bookings, by number.
    pub fn bookings(&self) -> impl Iterator<Item = (u64, &Booking)> {
        self.calendar.iter()
    }

    /// When to call [`next`](Queue::next) even if no call arrives or ends: a booking begins or
    /// ends.
    pub fn next_change(&self, now: Nanos) -> Option<Nanos> {
        self.calendar.next_change(now)
    }

    /// Forgets bookings that have ended.
    pub(super) fn expire(&mut self, now: Nanos) {
        if !self.calendar.is_empty() && self.calendar.expire(now) {
            self.return_claims(now);
        }
        self.claim_begun(now);
    }

    /// Lets calls whose booking has ended wait like all others.
    fn return_claims(&mut self, now: Nanos) {
        let claims = std::mem::take(&mut self.claims).into_iter();
        let (there, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            claims.partition(|(id, _)| self.calendar.get(*id).is_some());
        self.claims = there;
        for claim in gone.into_values().flatten() {
            if let Some(waiting) = self.waiting.get_mut(&claim.id) {
                (waiting.request.reservation, waiting.is_claim) = (None, false);
                let user = waiting.request.user;
                self.users
                    .enter(user, claim.id, waiting.place, now, self.starts);
            }
        }
    }

    /// The request limited to the elements of its booking, or without a booking if there is none.
    pub(super) fn within_booking(&self, request: &Request) -> Request {
        let reservation = request.reservation.filter(|_| !self.calendar.is_empty());
        let booking = reservation.and_then(|id| self.calendar.get(id));
        match booking.filter(|booking| booking.pes > 0) {
            Some(booking) => Request {
                fewest: request.fewest.min(booking.pes),
                most: request.most.min(booking.pes),
                ..*request
            },
            None => Request {
                reservation: None,
                ..*request
            },
        }
    }

    /// The first call of a booking that can start. A call that cannot holds up later calls of its
    /// booking, unless another booking is in its way.
    pub(super) fn first_claim(&self, now: Nanos) -> Option<u64> {
        let first = self.claims.values().filter_map(|claims| {
            let mut claims = claims.iter();
            let first = claims.find(|claim| !self.is_held_back(claim.id, now))?;
            let has_room = self.has_room(&self.waiting[&first.id].request, now);
            has_room.then_some(first)
        });
        first.min().map(|claim| claim.id)
    }

    /// Number of calls that wait for elements of a booking.
    pub(super) fn claims_on(&self, reservation: u64) -> usize {
        self.claims.get(&reservation).map_or(0, BTreeSet::len)
    }

    /// Whether a call waits only because of bookings of others.
    pub(super) fn is_held_back(&self, id: u64, now: Nanos) -> bool {
        if !self.calendar.has_elements() {
            return false;
        }
        let request = self.within_booking(&self.waiting[&id].request);
        let unused = match self.own_booking(&request, now) {
            Some((booking, unused)) if booking.covers(now) => unused,
            Some(_) => 0,
            None => self.free(),
        };
        request.fewest <= unused && request.fewest > self.room(&request, now)
    }

    /// When a call that is held back could start. Calls that start before then and have not ended
    /// would hold it back for longer.
    pub(super) fn could_start(&self, id: u64, now: Nanos) -> Nanos {
        let Request {
            fewest, seconds, ..
        } = self.waiting[&id].request;
        self.earliest(fewest, (now, predicted_end(seconds, now)), now)
    }

    /// The booking of a request, and its free elements.
    fn own_booking(&self, request: &Request, now: Nanos) -> Option<(&Booking, u32)> {
        let id = self.claimed(request, now)?;
        let booking = self.calendar.get(id)?;
        let unused = booking.pes.saturating_sub(self.used_of(id));
        let unused = if booking.covers(now) { unused } else { 0 };
        Some((booking, self.free().min(unused)))
    }

    /// Processor elements that a call could have now: of its booking, or of those without a
    /// booking. No booking needs them before the call will probably have ended.
    pub(super) fn room(&self, request: &Request, now: Nanos) -> u32 {
        let free = self.free();
        if !self.calendar.has_elements() {
            return free;
        }
        let end = predicted_end(request.seconds, now);
        if let Some((booking, unused)) = self.own_booking(request, now) {
            return self.room_between(unused, (booking.until, end), None, now);
        }
        let active = self.calendar.iter();
        let active = active.filter(|(_, booking)| booking.covers(now));
        let kept = active.map(|(id, booking)| booking.pes.saturating_sub(self.used_of(id)));
        let room = free.saturating_sub(kept.sum());
        self.room_between(room, (now.saturating_add(1), end), request.reservation, now)
    }

    /// Elements of `room` that will probably not be needed between two times, looked at at the
    /// first and wherever a booking begins. The own booking of a call does not count.
    fn room_between(
        &self,
        room: u32,
        (from, end): (Nanos, Nanos),
        own: Option<u64>,
        now: Nanos,
    ) -> u32 {
        let own = own.and_then(|id| self.calendar.get(id));
        let begins = self.calendar.iter().map(|(_, booking)| booking.from);
        let times = begins.chain([from]);
        let times = times.filter(|time| (from..end).contains(time));
        times.fold(room, |room, time| {
            let own = own.filter(|own| own.covers(time)).map_or(0, |own| own.pes);
            let taken = self.calendar.booked(time) - own + self.held_outside(time, now);
            room.min(self.settings.pes.saturating_sub(taken))
        })
    }

    /// Processor elements that calls of a booking use.
    fn used_of(&self, id: u64) -> u32 {
        let running = self.running.values();
        let inside = running.filter(|job| job.paused.is_none() && job.reservation == Some(id));
        inside.map(|job| job.pes).sum()
    }

    /// Processor elements that calls outside of bookings will probably hold at a later time. Paused
    /// calls are assumed to have resumed by then.
    fn held_outside(&self, time: Nanos, now: Nanos) -> u32 {
        let running = self.running.values();
        let outside = running.filter(|job| {
            let is_inside = self.booking_of(job).is_some_and(|one| one.covers(time));
            job.expected(now) > time && !is_inside
        });
        outside.map(|job| job.pes).sum()
    }

    fn booking_of(&self, job: &Running) -> Option<&Booking> {
        self.calendar.get(job.reservation?)
    }
}
