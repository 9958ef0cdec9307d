//! Processor elements and bandwidth that users reserve ahead of time.

use super::Server;
use crate::flaw::{Flaw, has};
use crate::job::Job;
use crate::keys::{CallKey, ConnectionKey};
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, Nanos, ReservationPage, ReservationRecord,
    ReservationRequest, Reserve, User,
};
use farcall_schedule::reservation::{Bandwidth, Booking, Refusal};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Reservations in one page of a list.
const PAGE: usize = 128;
/// Nanoseconds of a millisecond, in which clients count.
const MILLI: Nanos = 1_000_000;

/// What is wanted, in words.
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
            "no bandwidth {way} this server can be reserved: its operator has not set {setting}"
        ),
        most => format!(
            "{wanted} bytes per second {way} the server are wanted, and {most} can be reserved \
             ({setting} but for a tenth)"
        ),
    }
}

/// Why something cannot be reserved, and when it could be.
fn refused(wanted: &Reserve, refusal: Refusal, now: Nanos) -> Failure {
    let seconds = wanted.length as f64 / 1e3;
    let text = match refusal {
        Refusal::NotBefore(earliest) => {
            // Rounded up: then it is free.
            let later = earliest.saturating_sub(now).div_ceil(MILLI);
            let (what, in_s) = (described(wanted), later as f64 / 1e3);
            let text =
                format!("there is room for {what} for {seconds} s in {in_s} s at the earliest");
            return Failure {
                earliest: Some(later),
                ..Failure::new(FailureKind::NotFree, text)
            };
        }
        Refusal::TooMany(0) => "no processor elements can be reserved at this server".to_string(),
        Refusal::TooFast(most) => too_fast(wanted, &most),
        Refusal::TooMany(most) => format!(
            "{} processor elements are wanted, and {most} can be reserved at this server",
            wanted.pes
        ),
    };
    Failure::new(FailureKind::NotFree, text)
}

/// Whose the bookings of the queue are.
#[derive(Default)]
pub(super) struct Reservations {
    owners: BTreeMap<u64, User>,
    changes: u64,
}

impl Reservations {
    /// How many were made or given up; one that is over is no change.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

impl Server {
    /// A client asks about reservations.
    pub(super) fn about_reservations(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        asked: ReservationRequest,
    ) {
        let user = self.connections[key].user.clone();
        let answer = match asked {
            ReservationRequest::Reserve(wanted) => self.make_reservation(&user, &wanted),
            ReservationRequest::Release(id) => self.release_reservation(&user, id),
            ReservationRequest::List(after) => Ok(self.reservation_page(&user, after)),
            ReservationRequest::Attach(id) => self.attach_reservation(key, &user, id),
        };
        let proto = &mut self.connections[key].proto;
        match answer {
            Ok(page) => proto.reservations(request, &page),
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn make_reservation(
        &mut self,
        user: &User,
        wanted: &Reserve,
    ) -> Result<ReservationPage, Failure> {
        self.check_wanted(user, wanted)?;
        let now = self.now();
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
        let made = match self.queue.reserve(booking, now) {
            Err(Refusal::NotBefore(earliest)) if earliest <= latest => {
                let later = booking.beginning(earliest);
                self.check_end(later.until.saturating_sub(now).div_ceil(MILLI))?;
                self.queue.reserve(later, now)
            }
            made => made,
        };
        let id = made.map_err(|refusal| refused(wanted, refusal, now))?;
        self.reservations.owners.insert(id, user.clone());
        self.reservations.changes += 1;
        tracing::debug!("{user} has reserved {}", described(wanted));
        if wanted.up > 0 || wanted.down > 0 {
            self.retune();
        }
        Ok(self.one_reservation(id))
    }

    /// Whether a reservation may end in so many milliseconds.
    fn check_end(&self, end: u64) -> Result<(), Failure> {
        let (ahead, end_s) = (self.settings.limits.reserve_ahead_s, end as f64 * 1e-3);
        if end_s <= ahead {
            return Ok(());
        }
        let text = format!(
            "it would end in {end_s} s, and this server reserves for the next {ahead} s \
             (limits.reserve_ahead_s)"
        );
        Err(Failure::new(FailureKind::QuotaExceeded, text))
    }

    /// Whether a user may have one more reservation, and one like this.
    fn check_wanted(&mut self, user: &User, wanted: &Reserve) -> Result<(), Failure> {
        let failed = |kind, text: String| Err(Failure::new(kind, text));
        if self.draining || self.stopping.is_some() {
            let text = "the server takes no more calls; connect anew";
            return failed(FailureKind::Draining, text.to_string());
        }
        let is_empty = wanted.pes == 0 && wanted.up == 0 && wanted.down == 0;
        if is_empty || wanted.length == 0 {
            let text = "a reservation has at least 1 processor element or 1 byte per second, for \
                        at least 1 ms";
            return failed(FailureKind::BadArgument, text.to_string());
        }
        self.check_end(wanted.start.saturating_add(wanted.length))?;
        let most = self.settings.limits.reservations_per_user;
        self.forget_reservations();
        if has(Flaw::DropsBookings) {
            let first = self.queue.bookings().next().map(|(id, _)| id);
            first.map(|id| self.queue.release(id, self.clock.nanos));
        }
        let own = self
            .reservations
            .owners
            .values()
            .filter(|owner| *owner == user);
        if own.count() >= most {
            return failed(
                FailureKind::QuotaExceeded,
                format!(
                    "{user} may have {most} reservations at a time \
                     (limits.reservations_per_user); release one"
                ),
            );
        }
        Ok(())
    }

    /// Forgets whose those were that are over.
    fn forget_reservations(&mut self) {
        let now = self.now();
        let bookings = self.queue.bookings();
        let there = bookings.filter(|(_, booking)| booking.until > now);
        let there: Vec<u64> = there.map(|(id, _)| id).collect();
        self.reservations.owners.retain(|id, _| there.contains(id));
    }

    fn release_reservation(&mut self, user: &User, id: u64) -> Result<ReservationPage, Failure> {
        self.find_reservation(user, id)?;
        let page = self.one_reservation(id);
        let booking = self.queue.release(id, self.now());
        self.reservations.owners.remove(&id);
        self.reservations.changes += 1;
        if booking.is_some_and(|booking| !booking.bandwidth.is_none()) {
            self.retune();
        }
        Ok(page)
    }

    /// From now on the connection has the bandwidth of that reservation.
    fn attach_reservation(
        &mut self,
        key: ConnectionKey,
        user: &User,
        id: u64,
    ) -> Result<ReservationPage, Failure> {
        self.find_reservation(user, id)?;
        self.change_lane(key, id);
        Ok(self.one_reservation(id))
    }

    fn find_reservation(&self, user: &User, id: u64) -> Result<(), Failure> {
        let now = self.now();
        let booking = self.queue.booking(id);
        let is_there = booking.is_some_and(|booking| booking.until > now);
        match self.reservations.owners.get(&id) {
            Some(owner) if is_there && (owner == user || has(Flaw::ReleasesOthers)) => Ok(()),
            _ => {
                let text = format!(
                    "there is no reservation {id}: it is over, was released, the server has \
                     started anew, or it is another user's"
                );
                Err(Failure::new(FailureKind::NotFound, text))
            }
        }
    }

    /// Checks that a call's reservation is its user's.
    pub(super) fn check_reservation(&self, key: ConnectionKey, call: &Call) -> Result<(), Failure> {
        match call.reservation {
            Some(id) => self.find_reservation(&self.connections[key].user, id),
            None => Ok(()),
        }
    }

    /// Whether a job has, or will have, processor elements of a reservation.
    pub(super) fn is_reserved(&self, job: &Job) -> bool {
        let booking = job.reservation.and_then(|id| self.queue.booking(id));
        booking.is_some_and(|booking| booking.until > self.now() && booking.pes > 0)
    }

    /// Whether a job's reservation has begun.
    pub(super) fn has_elements(&self, job: CallKey) -> bool {
        let reservation = self.calls[job].reservation;
        let booking = reservation.and_then(|id| self.queue.booking(id));
        booking.is_some_and(|booking| booking.covers(self.now()))
    }

    fn records(&self) -> impl Iterator<Item = (&User, ReservationRecord)> {
        let now = self.now();
        let bookings = self.queue.bookings();
        let there = bookings.filter(move |(_, booking)| booking.until > now);
        there.filter_map(move |(id, booking)| {
            let record = ReservationRecord {
                id,
                pes: booking.pes,
                begins: booking.from.saturating_sub(now).div_ceil(MILLI),
                ends: booking.until.saturating_sub(now).div_ceil(MILLI),
                up: booking.bandwidth.up,
                down: booking.bandwidth.down,
            };
            Some((self.reservations.owners.get(&id)?, record))
        })
    }

    fn one_reservation(&self, id: u64) -> ReservationPage {
        let own = self.records().filter(|(_, record)| record.id == id);
        ReservationPage {
            reservations: own.map(|(_, record)| record).collect(),
            next: None,
        }
    }

    fn reservation_page(&self, user: &User, after: u64) -> ReservationPage {
        let records = self.records();
        let own = records.filter(|(owner, record)| *owner == user && record.id > after);
        let own = own.map(|(_, record)| record);
        let mut reservations: Vec<ReservationRecord> = own.take(PAGE + 1).collect();
        let more = reservations.len() > PAGE;
        reservations.truncate(PAGE);
        let next = reservations.last().filter(|_| more).map(|last| last.id);
        ReservationPage { reservations, next }
    }

    /// For the status: those that a user may see.
    pub(super) fn describe_reservations(&self, user: &User, all: bool) -> Vec<Value> {
        let shown = self.records().filter(|(owner, _)| all || *owner == user);
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
