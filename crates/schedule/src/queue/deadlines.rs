//! Deadlines: a call that must end by a time has processor elements booked for it, as late as
//! possible. Until the booking begins, the call waits like all others, and if its turn comes, the
//! booking is released. When the booking begins, the call goes first on these elements.

use super::bookings::Claim;
use super::{Nanos, Queue, Request};
use crate::Calibration;
use crate::reservation::{Booking, Refusal};
use std::collections::BTreeMap;

/// Promises from which the margin is learned.
const JUDGED: usize = 512;
/// Times below this many seconds count alike where promises are judged.
const LEAST_S: f64 = 0.01;
/// The spread of ends that is assumed before anything is known.
const FACTOR: f64 = 1.1;

/// Promises calls that they will end in time, and learns from what came how much earlier than
/// promised their elements must be booked: nine of ten promises hold.
#[derive(Clone, Debug)]
pub struct Promises {
    /// How far calls ended from the ends of their bookings.
    errors: Calibration,
    /// When each promise was made, and the end of its booking.
    open: BTreeMap<u64, (Nanos, Nanos)>,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises {
            errors: Calibration::of_last(JUDGED),
            open: BTreeMap::new(),
        }
    }
}

impl Promises {
    /// Promises that a call will end by `before`. `seconds` is a time that nine of ten such calls
    /// do not exceed. Returns the number of the booking, for [`Request::reservation`] of that call
    /// alone.
    ///
    /// # Errors
    /// The end that can be promised, or the refusal to book elements at all.
    pub fn make(
        &mut self,
        queue: &mut Queue,
        (pes, seconds): (u32, f64),
        before: Nanos,
        now: Nanos,
    ) -> Result<u64, Refusal> {
        let margin = self.errors.interval(1.0, FACTOR, 0.0).high.max(1.0);
        let scaled = |time: Nanos, by: f64| {
            let after = time.saturating_sub(now) as f64 * by;
            now.saturating_add(after as Nanos)
        };
        let booked = queue.book_before(pes, seconds, scaled(before, 1.0 / margin), now);
        let made = booked.map_err(|refusal| match refusal {
            Refusal::NotBefore(from) => {
                let end = from.saturating_add((seconds.clamp(0.0, 1e9) * 1e9) as Nanos);
                Refusal::NotBefore(scaled(end, margin))
            }
            other => other,
        })?;
        if let Some(booking) = queue.booking(made) {
            self.open.insert(made, (now, booking.until));
        }
        Ok(made)
    }

    /// Judges the promise of a call that has ended.
    pub fn ended(&mut self, booking: u64, now: Nanos) {
        if let Some((made, until)) = self.open.remove(&booking) {
            let seconds = |time: Nanos| time.saturating_sub(made) as f64 * 1e-9;
            self.errors.observe(seconds(until), seconds(now), LEAST_S);
        }
    }

    /// Forgets the promise of a call that was given up.
    pub fn forget(&mut self, booking: u64) {
        self.open.remove(&booking);
    }

    /// How many promises are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

impl Queue {
    /// Books elements for a call of this predicted time, so that it ends by `before`. Returns the
    /// number of the booking, for [`Request::reservation`] of that call alone. It ends with the
    /// call, or with [`release`](Queue::release). [`Promises`] decides how much earlier than
    /// promised that must be.
    ///
    /// # Errors
    /// When the call could begin, or that elements can never be booked.
    pub fn book_before(
        &mut self,
        pes: u32,
        seconds: f64,
        before: Nanos,
        now: Nanos,
    ) -> Result<u64, Refusal> {
        let length = ((seconds.clamp(0.0, 1e9) * 1e9) as Nanos).max(1);
        let soonest = Booking {
            pes: pes.clamp(1, self.settings.pes),
            from: now,
            until: now.saturating_add(length),
            ..Booking::default()
        };
        let latest = before.checked_sub(length).filter(|latest| *latest >= now);
        let made = match latest.map(|latest| self.reserve(soonest.beginning(latest), now)) {
            Some(Ok(made)) => made,
            // There may be room earlier.
            _ => match (self.reserve(soonest, now), latest) {
                (Ok(made), Some(_)) => made,
                (Ok(made), None) => {
                    self.release(made, now);
                    return Err(Refusal::NotBefore(now));
                }
                (Err(Refusal::NotBefore(from)), Some(latest)) if from <= latest => {
                    self.reserve(soonest.beginning(from), now)?
                }
                (Err(refusal), _) => return Err(refusal),
            },
        };
        self.deadlines.insert(made, None);
        Ok(made)
    }

    /// The booking on whose elements a call waits or starts; `None` if it waits like all others.
    pub(super) fn claimed(&self, request: &Request, now: Nanos) -> Option<u64> {
        let id = request.reservation?;
        let is_early = self.deadlines.contains_key(&id)
            && (self.calendar.get(id)).is_some_and(|booking| booking.from > now);
        (!is_early).then_some(id)
    }

    /// Notes that a call waits outside of its booking.
    pub(super) fn waits_outside(&mut self, request: &Request) {
        let booking = request.reservation;
        if let Some(waits) = booking.and_then(|id| self.deadlines.get_mut(&id)) {
            *waits = Some(request.id);
        }
    }

    /// Lets calls whose bookings have begun wait for the elements of these.
    pub(super) fn claim_begun(&mut self, now: Nanos) {
        if self.deadlines.is_empty() {
            return;
        }
        self.deadlines
            .retain(|id, _| self.calendar.get(*id).is_some());
        let has_begun = |id: &u64| self.calendar.get(*id).is_some_and(|one| one.from <= now);
        let begun = self.deadlines.iter_mut().filter(|(id, _)| has_begun(id));
        let begun: Vec<(u64, u64)> = begun
            .filter_map(|(id, waits)| Some((*id, waits.take()?)))
            .collect();
        for (booking, id) in begun {
            let Some(waiting) = self.waiting.get_mut(&id) else {
                continue;
            };
            waiting.is_claim = true;
            let (user, place, claim) = (waiting.request.user, waiting.place, Claim::of(waiting));
            self.users.leave(user, &place, now, self.starts);
            self.claims.entry(booking).or_default().insert(claim);
        }
    }

    /// Ends the promise that a call had.
    pub(super) fn end_deadline(&mut self, booking: Option<u64>, now: Nanos) {
        if let Some(id) = booking.filter(|id| self.deadlines.contains_key(id)) {
            self.release(id, now);
        }
    }
}
