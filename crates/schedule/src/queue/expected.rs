//! Why a call waits, and when it will probably start. A copy of the queue
//! runs on in virtual time with the predicted times of its calls. It decides as the queue does, so
//! the order is right unless new calls arrive, calls err in their times, or calls are cancelled.

use super::{Nanos, Queue, Start, UNKNOWN_S};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Why a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Others go first.
    Turn,
    /// It is next, and too few processor elements are free.
    Elements {
        /// Fewest processor elements that it can compute on.
        wanted: u32,
        /// Free ones.
        free: u32,
    },
    /// It is next, and too few GPUs are free.
    Gpus {
        /// GPUs that it wants.
        wanted: u32,
        /// Free ones.
        free: u32,
    },
    /// It is next, and [most calls](super::Settings::most_running) compute already.
    Running(usize),
    /// Its own booking has not begun.
    Booking {
        /// When it begins.
        from: Nanos,
    },
    /// Others have booked the processor elements that it needs.
    Booked,
}

/// What will probably become of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The call.
    pub id: u64,
    /// When it will start.
    pub start: Nanos,
    /// Processor elements that it will get.
    pub pes: u32,
    /// Calls of its user that will start before it.
    pub own_before: u32,
    /// Calls of all users that will start before it.
    pub before: u32,
}

impl Queue {
    /// Why a call waits; `None` if it does not.
    pub fn reason(&self, id: u64, now: Nanos) -> Option<Reason> {
        let request = self.within_booking(&self.waiting.get(&id)?.request);
        let booking = self.claimed(&request, now);
        let booking = booking.and_then(|id| self.calendar.get(id));
        if let Some(booking) = booking
            && booking.from > now
        {
            let from = booking.from;
            return Some(Reason::Booking { from });
        }
        if self.is_held_back(id, now) {
            return Some(Reason::Booked);
        }
        let chosen = self.choose(now);
        // If none of them fits, the first one says what is missing.
        if chosen.or_else(|| self.users.first()) != Some(id) {
            return Some(Reason::Turn);
        }
        let (wanted, free) = (request.fewest, self.room(&request, now));
        if free < wanted {
            return Some(Reason::Elements { wanted, free });
        }
        let (wanted, free) = (request.gpus, self.free_gpus());
        Some(match (free >= wanted, chosen) {
            (false, _) => Reason::Gpus { wanted, free },
            (true, Some(_)) => Reason::Running(self.computing()),
            (true, None) => Reason::Turn,
        })
    }

    /// The calls that will start next, in this order, and at most `most` of them. `seconds` is the
    /// predicted time of a call on some processor elements. A call without a prediction counts as
    /// short. Calls that can never start are missing.
    ///
    /// This copies the queue, and each start takes as long as a decision of the queue.
    pub fn expected_starts(
        &self,
        now: Nanos,
        most: usize,
        seconds: impl Fn(u64, u32) -> Option<f64>,
    ) -> Vec<Expected> {
        let mut queue = self.clone();
        let running = self.running.iter();
        let computing = running.filter(|(_, running)| running.paused.is_none());
        let ends = computing.map(|(id, running)| Reverse((running.expected(now), *id)));
        let mut ends: BinaryHeap<Reverse<(Nanos, u64)>> = ends.collect();
        let mut expected = Vec::new();
        let mut own: BTreeMap<u64, u32> = BTreeMap::new();
        let mut time = now;
        loop {
            while let Some(Start { id, pes }) = queue.next(time) {
                let user = self.waiting[&id].request.user;
                let own = own.entry(user).or_default();
                expected.push(Expected {
                    id,
                    start: time,
                    pes,
                    own_before: *own,
                    before: u32::try_from(expected.len()).unwrap_or(u32::MAX),
                });
                *own += 1;
                if expected.len() >= most {
                    return expected;
                }
                let nanos = seconds(id, pes).unwrap_or(UNKNOWN_S).max(0.0) * 1e9;
                ends.push(Reverse((time.saturating_add(nanos as u64), id)));
            }
            let end = ends.peek().map(|Reverse((end, _))| *end);
            let change = queue.next_change(time).filter(|change| *change > time);
            let next = end.into_iter().chain(change).min();
            let Some(next) = next.filter(|_| !queue.is_empty()) else {
                return expected;
            };
            time = next.max(time);
            while let Some(Reverse((end, id))) = ends.peek().copied()
                && end <= time
            {
                ends.pop();
                queue.remove(id, time);
            }
        }
    }
}
