//! Jobs beside processor elements that are booked ahead of time.

use super::{Nanos, Policy, Queue, Request, Running};
use crate::reservation::{Bandwidth, Booking, Hold, Refusal};

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
        let running = self.running.values();
        let outside = running.filter(|job| !self.is_inside(job, now));
        let holds: Vec<Hold> = outside
            .map(|job| Hold {
                pes: job.pes,
                until: job.expected(),
            })
            .collect();
        self.calendar.book(booking, self.settings.pes, &holds)
    }

    /// Gives a booking up: its jobs that wait are as any others from then on.
    pub fn release(&mut self, id: u64, now: Nanos) -> Option<Booking> {
        let booking = self.calendar.release(id)?;
        self.return_claims(now);
        Some(booking)
    }

    /// Bandwidth booked for now.
    pub fn bandwidth(&self, now: Nanos) -> Bandwidth {
        self.calendar.bandwidth(now)
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
        let gone = |id: &u64| {
            let reservation = self.waiting[id].request.reservation;
            reservation.is_none_or(|reservation| self.calendar.get(reservation).is_none())
        };
        let claims = self.claims.iter();
        let gone = claims.filter(|(_, id)| gone(id));
        let gone: Vec<(u64, u64)> = gone.copied().collect();
        for claim in gone {
            self.claims.remove(&claim);
            if let Some(waiting) = self.waiting.get_mut(&claim.1) {
                waiting.request.reservation = None;
                let user = waiting.request.user;
                self.users
                    .enter(user, claim.1, waiting.place, now, self.starts);
            }
        }
    }

    /// A request with the processor elements of its booking, or without one where it has none.
    pub(super) fn within_booking(&self, request: Request) -> Request {
        let reservation = request.reservation.filter(|_| !self.calendar.is_empty());
        let booking = reservation.and_then(|id| self.calendar.get(id));
        match booking.filter(|booking| booking.pes > 0) {
            Some(booking) => Request {
                fewest: request.fewest.min(booking.pes),
                most: request.most.min(booking.pes),
                ..request
            },
            None => Request {
                reservation: None,
                ..request
            },
        }
    }

    /// The first job of a booking that can start.
    pub(super) fn first_claim(&self, now: Nanos) -> Option<u64> {
        let mut claims = self.claims.iter().map(|(_, id)| *id);
        claims.find(|id| self.has_room(&self.waiting[id].request, now))
    }

    /// Whether it is a booking for which a job has to wait.
    pub(super) fn is_held_back(&self, id: u64, now: Nanos) -> bool {
        let request = &self.waiting[&id].request;
        !self.calendar.is_empty()
            && request.fewest <= self.free()
            && request.fewest > self.room(request, now)
    }

    /// Processor elements that a job could have now: of those of its booking; of the others those
    /// that no booking needs before it will probably have ended.
    pub(super) fn room(&self, request: &Request, now: Nanos) -> u32 {
        let free = self.free();
        if self.calendar.is_empty() {
            return free;
        }
        if let Some(id) = request.reservation
            && let Some(booking) = self.calendar.get(id)
        {
            return match booking.covers(now) {
                true => free.min(booking.pes.saturating_sub(self.used_of(id))),
                false => 0,
            };
        }
        let active = self.calendar.iter();
        let active = active.filter(|(_, booking)| booking.covers(now));
        let kept = active.map(|(id, booking)| booking.pes.saturating_sub(self.used_of(id)));
        let room = free.saturating_sub(kept.sum());
        let end = super::predicted_end(request.seconds, now);
        let begins = self.calendar.iter().map(|(_, booking)| booking.from);
        let begins = begins.filter(|from| (now.saturating_add(1)..end).contains(from));
        begins.fold(room, |room, time| {
            let taken = self.calendar.booked(time) + self.held_outside(time);
            room.min(self.settings.pes.saturating_sub(taken))
        })
    }

    /// Processor elements that jobs of a booking have.
    fn used_of(&self, id: u64) -> u32 {
        let running = self.running.values();
        let inside = running.filter(|job| job.paused.is_none() && job.reservation == Some(id));
        inside.map(|job| job.pes).sum()
    }

    /// Processor elements that jobs will probably hold at a later time, outside of bookings.
    fn held_outside(&self, time: Nanos) -> u32 {
        let running = self.running.values();
        let outside = running.filter(|job| {
            job.paused.is_none() && job.expected() > time && !self.is_inside(job, time)
        });
        outside.map(|job| job.pes).sum()
    }

    /// Whether a job has the processor elements of a booking at a time.
    fn is_inside(&self, job: &Running, time: Nanos) -> bool {
        let booking = job.reservation.and_then(|id| self.calendar.get(id));
        booking.is_some_and(|booking| booking.covers(time))
    }
}
