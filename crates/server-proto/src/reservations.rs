//! Reservations: processor elements and bandwidth that users reserve ahead of time.
//!
//! This module checks wishes and knows the owners. The queue of `farcall-schedule` holds the
//! bookings themselves.

pub(crate) mod deadlines;

use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::settings::Limits;
use farcall_rpc_proto::{
    Failure, FailureKind, Nanos, ReservationPage, ReservationRecord, Reserve, User,
};
use farcall_schedule::Queue;
use farcall_schedule::queue::{Policy, Promises};
use farcall_schedule::reservation::{Bandwidth, Booking, Calendar, Machine, Refusal};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Reservations in one page of a list.
const PAGE: usize = 128;
/// Nanoseconds in a millisecond, the unit of clients.
const MILLI: Nanos = 1_000_000;

/// A wish as a text for people.
fn described(wanted: &Reserve) -> String {
    let pes = match wanted.pes {
        1 => "1 processor element".to_string(),
        pes => format!("{pes} processor elements"),
    };
    let rates = [(wanted.up, "to"), (wanted.down, "from")];
    let rates = rates.into_iter().filter(|(rate, _)| *rate > 0);
    let rates = rates.map(|(rate, way)| format!("{rate} bytes per second {way} the server"));
    let pes = (wanted.pes > 0).then_some(pes);
    pes.into_iter()
        .chain(rates)
        .collect::<Vec<_>>()
        .join(" and ")
}

fn too_fast(wanted: &Reserve, most: &Bandwidth) -> String {
    let (way, setting, wanted, most) = match wanted.up > most.up {
        true => ("to", "limits.bandwidth_up", wanted.up, most.up),
        false => ("from", "limits.bandwidth_down", wanted.down, most.down),
    };
    match most {
        0 => format!(
            "no bandwidth {way} this server can be reserved, because its operator has not set \
             {setting}"
        ),
        most => format!(
            "{wanted} bytes per second {way} the server were asked for, and at most {most} can be \
             reserved (nine tenths of {setting})"
        ),
    }
}

/// Why something cannot be reserved, and when it could be.
fn refused(wanted: &Reserve, (refusal, share): (Refusal, Option<u32>), now: Nanos) -> Failure {
    let seconds = wanted.length as f64 / 1e3;
    let share = share.map_or_else(String::new, |most| {
        format!(
            ": your reservations can have {most} of the processor elements at a time \
             (limits.reserve_share in the server's configuration); reserve fewer or at another \
             time, or release a reservation"
        )
    });
    let text = match refusal {
        Refusal::NotBefore(earliest) => {
            // Rounded up, so that it is free then.
            let later = earliest.saturating_sub(now).div_ceil(MILLI);
            let (what, in_s) = (described(wanted), later as f64 / 1e3);
            let text =
                format!("the earliest start for {what} for {seconds} s is in {in_s} s{share}");
            return Failure {
                earliest: Some(later),
                ..Failure::new(FailureKind::NotFree, text)
            };
        }
        Refusal::TooMany(0) => "no processor elements can be reserved at this server \
                                (queue.unreservable_pes in its configuration)"
            .to_string(),
        Refusal::TooFast(most) => too_fast(wanted, &most),
        Refusal::TooMany(most) => format!(
            "{} processor elements were asked for, and at most {most} can be reserved at this \
             server{share}",
            wanted.pes
        ),
    };
    Failure::new(FailureKind::NotFree, text)
}

/// The owners of the queue's bookings.
#[derive(Default)]
pub(crate) struct Reservations {
    owners: BTreeMap<u64, User>,
    changes: u64,
    /// The users of the bookings of calls with deadlines.
    promised: BTreeMap<u64, User>,
    promises: Promises,
}

impl Reservations {
    /// Number of reservations that were made or released. The end of a reservation does not count.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Makes a reservation, at the wanted time or later. Returns its number.
    pub(crate) fn make(
        &mut self,
        cx: &Context,
        queue: &mut Queue,
        user: &User,
        wanted: &Reserve,
    ) -> Result<u64, Failure> {
        let limits = &cx.settings.limits;
        self.check_wanted(cx, queue, user, wanted)?;
        if wanted.pes > 0 && queue.settings().policy == Policy::AtOnce {
            let text = "no processor elements can be reserved at this server, because its policy \
                        at-once keeps none free (queue.policy in its configuration)";
            return Err(Failure::new(FailureKind::NotFree, text));
        }
        let now = cx.now();
        let from = now.saturating_add(wanted.start.saturating_mul(MILLI));
        let booking = Booking {
            pes: wanted.pes,
            bandwidth: Bandwidth {
                up: wanted.up,
                down: wanted.down,
            },
            from,
            until: from.saturating_add(wanted.length.saturating_mul(MILLI)),
        };
        let latest = wanted.latest.unwrap_or(wanted.start).saturating_mul(MILLI);
        let latest = now.saturating_add(latest);
        let fastest = queue.settings().bandwidth;
        if !booking.bandwidth.is_within(&fastest) {
            // The user's share could name a time, at which this is refused then.
            return Err(refused(wanted, (Refusal::TooFast(fastest), None), now));
        }
        let most = limits.reservable(queue.settings().pes);
        let own = self.calendar(queue, user, most);
        let free = first_free(queue, (own, most), booking, now);
        let (booking, share) = free.map_err(|never| refused(wanted, never, now))?;
        if booking.from > latest.max(from) {
            let earliest = Refusal::NotBefore(booking.from);
            return Err(refused(wanted, (earliest, share), now));
        }
        if booking.from > from {
            check_end(limits, booking.until.saturating_sub(now).div_ceil(MILLI))?;
        }
        let made = queue.reserve(booking, now);
        let id = made.map_err(|why| refused(wanted, (why, None), now))?;
        self.owners.insert(id, user.clone());
        self.changes += 1;
        tracing::debug!("{user} has reserved {}", described(wanted));
        Ok(id)
    }

    /// The processor elements that a user has reserved, of `most` that it may have.
    fn calendar(&self, queue: &Queue, user: &User, most: u32) -> Calendar {
        let mut calendar = Calendar::new(most, Bandwidth::default());
        let owner = |id: &u64| self.owners.get(id).or_else(|| self.promised.get(id));
        let own = |id: &u64| owner(id) == Some(user);
        for (_, booking) in queue.bookings().filter(|(id, _)| own(id)) {
            let _ = book(&mut calendar, *booking);
        }
        calendar
    }

    /// Checks the limits of a user's wish.
    fn check_wanted(
        &mut self,
        cx: &Context,
        queue: &mut Queue,
        user: &User,
        wanted: &Reserve,
    ) -> Result<(), Failure> {
        let failed = |kind, text: String| Err(Failure::new(kind, text));
        if cx.is_ending().is_some() {
            let text = "the server takes no more calls; connect again";
            return failed(FailureKind::Draining, text.to_string());
        }
        let is_empty = wanted.pes == 0 && wanted.up == 0 && wanted.down == 0;
        if is_empty || wanted.length == 0 {
            let text = "a reservation needs at least 1 processor element or 1 byte per second, \
             for at least 1 ms";
            return failed(FailureKind::BadArgument, text.to_string());
        }
        let limits = &cx.settings.limits;
        check_end(limits, wanted.start.saturating_add(wanted.length))?;
        let most = limits.reservations_per_user;
        // Owners of ended reservations are forgotten.
        let bookings = queue.bookings();
        let there = bookings.filter(|(_, booking)| booking.until > cx.now());
        let there: Vec<u64> = there.map(|(id, _)| id).collect();
        self.owners.retain(|id, _| there.contains(id));
        if has(Flaw::DropsBookings) {
            let first = queue.bookings().next().map(|(id, _)| id);
            first.map(|id| queue.release(id, cx.now()));
        }
        let own = self.owners.values().filter(|owner| *owner == user);
        if most == 0 {
            let text = "this server takes no reservations (limits.reservations_per_user is 0 in \
                        its configuration)";
            return failed(FailureKind::QuotaExceeded, text.to_string());
        }
        if own.count() >= most {
            let text = format!(
                "{user} has {most} reservations, which is the limit for one user \
                 (limits.reservations_per_user); release one"
            );
            return failed(FailureKind::QuotaExceeded, text);
        }
        Ok(())
    }

    /// Releases a reservation and returns it.
    pub(crate) fn release(&mut self, queue: &mut Queue, id: u64, now: Nanos) -> Option<Booking> {
        self.owners.remove(&id);
        self.changes += 1;
        queue.release(id, now)
    }

    /// Whether a user has that reservation.
    pub(crate) fn check(
        &self,
        queue: &Queue,
        user: &User,
        id: u64,
        now: Nanos,
    ) -> Result<(), Failure> {
        let booking = queue.booking(id);
        let is_there = booking.is_some_and(|booking| booking.until > now);
        match self.owners.get(&id) {
            Some(owner) if is_there && (owner == user || has(Flaw::ReleasesOthers)) => Ok(()),
            _ => {
                let text = format!(
                    "there is no reservation {id}: it is over, it was released, the server was \
                     restarted, or it belongs to another user"
                );
                Err(Failure::new(FailureKind::NotFound, text))
            }
        }
    }

    fn records(
        &self,
        queue: &Queue,
        now: Nanos,
    ) -> impl Iterator<Item = (&User, ReservationRecord)> {
        let there = queue
            .bookings()
            .filter(move |(_, booking)| booking.until > now);
        there.filter_map(move |(id, booking)| {
            let record = ReservationRecord {
                id,
                pes: booking.pes,
                begins: booking.from.saturating_sub(now).div_ceil(MILLI),
                ends: booking.until.saturating_sub(now).div_ceil(MILLI),
                up: booking.bandwidth.up,
                down: booking.bandwidth.down,
            };
            Some((self.owners.get(&id)?, record))
        })
    }

    /// One reservation, as its user sees it.
    pub(crate) fn one(&self, queue: &Queue, id: u64, now: Nanos) -> ReservationPage {
        let records = self.records(queue, now);
        let own = records.filter(|(_, record)| record.id == id);
        ReservationPage {
            reservations: own.map(|(_, record)| record).collect(),
            next: None,
        }
    }

    /// A user's reservations with numbers above `after`.
    pub(crate) fn page(
        &self,
        queue: &Queue,
        user: &User,
        after: u64,
        now: Nanos,
    ) -> ReservationPage {
        let records = self.records(queue, now);
        let own = records.filter(|(owner, record)| *owner == user && record.id > after);
        let own = own.map(|(_, record)| record);
        let mut reservations: Vec<ReservationRecord> = own.take(PAGE + 1).collect();
        let more = reservations.len() > PAGE;
        reservations.truncate(PAGE);
        let next = reservations.last().filter(|_| more).map(|last| last.id);
        ReservationPage { reservations, next }
    }

    /// The reservations that a user may see: all of them, or their own.
    pub(crate) fn seen_by(
        &self,
        queue: &Queue,
        user: &User,
        all: bool,
        now: Nanos,
    ) -> impl Iterator<Item = (&User, ReservationRecord)> {
        let records = self.records(queue, now);
        records.filter(move |(owner, _)| all || *owner == user)
    }

    /// The reservations that a user may see, for the status.
    pub(crate) fn describe(&self, queue: &Queue, user: &User, all: bool, now: Nanos) -> Vec<Value> {
        let shown = self.seen_by(queue, user, all, now);
        let shown = shown.map(|(owner, record)| {
            json!({
                "id": record.id,
                "user": owner.to_string(),
                "pes": record.pes,
                "begins_in_s": record.begins as f64 * 1e-3,
                "ends_in_s": record.ends as f64 * 1e-3,
                "up": record.up,
                "down": record.down,
            })
        });
        shown.take(PAGE).collect()
    }
}

/// The booking at the first time at which neither the queue nor the share of its user, of `most`
/// processor elements, is in its way. `Some(most)` beside it if the share was.
fn first_free(
    queue: &Queue,
    (mut own, most): (Calendar, u32),
    mut booking: Booking,
    now: Nanos,
) -> Result<(Booking, Option<u32>), (Refusal, Option<u32>)> {
    let mut was = None;
    loop {
        let free = match within_share(&mut own, booking) {
            Ok(()) => queue.check(booking, now).map_err(|why| (why, None)),
            Err(why) => Err((why, Some(most))),
        };
        match free {
            Ok(()) => return Ok((booking, was)),
            // It is later than before: an end of one of finitely many bookings and calls.
            Err((Refusal::NotBefore(earliest), share)) => {
                was = was.or(share);
                booking = booking.beginning(earliest);
            }
            Err(never) => return Err(never),
        }
    }
}

/// Adds the processor elements of a booking to a user's calendar.
fn book(calendar: &mut Calendar, booking: Booking) -> Result<u64, Refusal> {
    let pes = Booking {
        bandwidth: Bandwidth::default(),
        ..booking
    };
    let machine = Machine {
        pes: u32::MAX,
        holds: &[],
    };
    calendar.book(pes, machine)
}

/// Whether another booking leaves processor elements to other users.
fn within_share(own: &mut Calendar, booking: Booking) -> Result<(), Refusal> {
    let booked = book(own, booking)?;
    own.release(booked);
    Ok(())
}

/// Checks that a reservation ends within the limit.
fn check_end(limits: &Limits, end: u64) -> Result<(), Failure> {
    let (ahead, end_s) = (limits.reserve_ahead_s, end as f64 * 1e-3);
    if end_s <= ahead {
        return Ok(());
    }
    let text = format!(
        "it would end in {end_s} s, and this server takes reservations for the next {ahead} s \
         (limits.reserve_ahead_s)"
    );
    Err(Failure::new(FailureKind::QuotaExceeded, text))
}
