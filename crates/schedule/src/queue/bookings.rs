//! Jobs beside processor elements that are booked ahead of time.

use super::{Nanos, Policy, Queue, Request, Running, Waiting, predicted_end};
use crate::reservation::{Booking, Hold, Machine, Refusal};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A job that waits for processor elements of its booking; the first in order goes first.
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
    /// Books processor elements and bandwidth. Jobs that run are reckoned with for as long as they
    /// are predicted to; those that take longer delay it.
    ///
    /// # Errors
    /// When it could be had, or that it never can: no processor elements with [`Policy::AtOnce`],
    /// which keeps none free for anybody.
    pub fn reserve(&mut self, booking: Booking, now: Nanos) -> Result<u64, Refusal> {
        self.expire(now);
        if self.settings.policy == Policy::AtOnce && booking.pes > 0 {
            return Err(Refusal::TooMany(0));
        }
        let holds = self.holds(now);
        let machine = Machine {
            pes: self.settings.pes,
            holds: &holds,
        };
        self.calendar.book(booking, machine)
    }

    /// When so many processor elements, outside of bookings, could be had for so long from a moment
    /// on, if nothing but the jobs that run and what is booked was in the way.
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

    /// What jobs will probably hold besides what is booked.
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

    /// Gives a booking up: its jobs that wait are as any others from then on.
    pub fn release(&mut self, id: u64, now: Nanos) -> Option<Booking> {
        let booking = self.calendar.release(id)?;
        self.return_claims(now);
        Some(booking)
    }

    /// The booking of that number. One that is over may be there for a while yet.
    pub fn booking(&self, id: u64) -> Option<&Booking> {
        self.calendar.get(id)
    }

    /// What is booked, by number.
    pub fn bookings(&self) -> impl Iterator<Item = (u64, &Booking)> {
        self.calendar.iter()
    }

    /// When to call [`next`](Queue::next) though nothing has come or ended: a booking begins or is
    /// over.
    pub fn next_change(&self, now: Nanos) -> Option<Nanos> {
        self.calendar.next_change(now)
    }

    /// Forgets bookings that are over.
    pub(super) fn expire(&mut self, now: Nanos) {
        if !self.calendar.is_empty() && self.calendar.expire(now) {
            self.return_claims(now);
        }
    }

    /// Jobs whose booking is no more wait as others do.
    fn return_claims(&mut self, now: Nanos) {
        let claims = std::mem::take(&mut self.claims).into_iter();
        let (there, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            claims.partition(|(id, _)| self.calendar.get(*id).is_some());
        self.claims = there;
        for claim in gone.into_values().flatten() {
            if let Some(waiting) = self.waiting.get_mut(&claim.id) {
                waiting.request.reservation = None;
                let user = waiting.request.user;
                self.users
                    .enter(user, claim.id, waiting.place, now, self.starts);
            }
        }
    }

    /// A request with the processor elements of its booking at most, or without one where there is
    /// none.
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

    /// The first job of a booking that can start. One that cannot holds up those of its booking
    /// behind it, but where it would be in the way of another booking.
    pub(super) fn first_claim(&self, now: Nanos) -> Option<u64> {
        let first = self.claims.values().filter_map(|claims| {
            let mut claims = claims.iter();
            let first = claims.find(|claim| !self.is_held_back(claim.id, now))?;
            let has_room = self.has_room(&self.waiting[&first.id].request, now);
            has_room.then_some(first)
        });
        first.min().map(|claim| claim.id)
    }

    /// Jobs that wait for processor elements of a booking.
    pub(super) fn claims_on(&self, reservation: u64) -> usize {
        self.claims.get(&reservation).map_or(0, BTreeSet::len)
    }

    /// Whether it is a booking, of others, for which a job has to wait.
    pub(super) fn is_held_back(&self, id: u64, now: Nanos) -> bool {
        if self.calendar.is_empty() {
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

    /// When a job that is held back could start. Others that start before and have not ended by
    /// then would hold it back for longer.
    pub(super) fn could_start(&self, id: u64, now: Nanos) -> Nanos {
        let Request {
            fewest, seconds, ..
        } = self.waiting[&id].request;
        self.earliest(fewest, (now, predicted_end(seconds, now)), now)
    }

    /// The booking of a request, and those of its processor elements that are free.
    fn own_booking(&self, request: &Request, now: Nanos) -> Option<(&Booking, u32)> {
        let id = request.reservation?;
        let booking = self.calendar.get(id)?;
        let unused = booking.pes.saturating_sub(self.used_of(id));
        let unused = if booking.covers(now) { unused } else { 0 };
        Some((booking, self.free().min(unused)))
    }

    /// Processor elements that a job could have now: of those of its booking, or of the others
    /// those that no booking has. None of them is needed by a booking before it will probably have
    /// ended.
    pub(super) fn room(&self, request: &Request, now: Nanos) -> u32 {
        let free = self.free();
        if self.calendar.is_empty() {
            return free;
        }
        let end = predicted_end(request.seconds, now);
        if let Some((booking, unused)) = self.own_booking(request, now) {
            return self.room_between(unused, (booking.until, end), now);
        }
        let active = self.calendar.iter();
        let active = active.filter(|(_, booking)| booking.covers(now));
        let kept = active.map(|(id, booking)| booking.pes.saturating_sub(self.used_of(id)));
        let room = free.saturating_sub(kept.sum());
        self.room_between(room, (now.saturating_add(1), end), now)
    }

    /// Of so many processor elements those that will probably not be needed between two moments:
    /// at the first, and where bookings begin.
    fn room_between(&self, room: u32, (from, end): (Nanos, Nanos), now: Nanos) -> u32 {
        let begins = self.calendar.iter().map(|(_, booking)| booking.from);
        let times = begins.chain([from]);
        let times = times.filter(|time| (from..end).contains(time));
        times.fold(room, |room, time| {
            let taken = self.calendar.booked(time) + self.held_outside(time, now);
            room.min(self.settings.pes.saturating_sub(taken))
        })
    }

    /// Processor elements that jobs of a booking have.
    fn used_of(&self, id: u64) -> u32 {
        let running = self.running.values();
        let inside = running.filter(|job| job.paused.is_none() && job.reservation == Some(id));
        inside.map(|job| job.pes).sum()
    }

    /// Processor elements that jobs will probably hold at a later time, outside of bookings; those
    /// that are paused go on by then.
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
