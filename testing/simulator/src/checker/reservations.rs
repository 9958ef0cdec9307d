//! Reservations: no processor element and no bandwidth is promised twice.
//!
//! A client learns the times of a reservation in milliseconds, counted from the server's answer.
//! The answer came between the question and its arrival, so only what holds for every moment
//! between them is certainly reserved.

use crate::machine::{BANDWIDTH, PES, RESERVATIONS, RESERVED};
use farcall_rpc_proto::{ReservationPage, Reserve};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// A reservation that a client was told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Booked {
    user: u8,
    pes: u32,
    pub(super) rates: [u64; 2],
    told: u64,
    /// At this time it has certainly begun. It does not end before `until`.
    from: u64,
    until: u64,
}

impl Booked {
    pub(super) fn covers(&self, now: u64) -> bool {
        (self.from..self.until).contains(&now)
    }
}

/// All reservations, by the life of the server and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Reservations(BTreeMap<(u64, u64), Booked>);

impl Reservations {
    fn of_life(&self, life: u64) -> impl Iterator<Item = (u64, &Booked)> + Clone {
        let booked = self.0.range((life, 0)..=(life, u64::MAX));
        booked.map(|((_, id), booked)| (*id, booked))
    }

    /// A client is told of the reservation that it has made; returns its number.
    pub(crate) fn reserved(
        &mut self,
        (life, user): (u64, u8),
        wanted: &Reserve,
        page: &ReservationPage,
        (since, now): (u64, u64),
    ) -> Result<u64, String> {
        let [record] = &page.reservations[..] else {
            return Err("a reservation is made and not told".to_string());
        };
        let latest = wanted.latest.unwrap_or(wanted.start).max(wanted.start);
        let is_wanted = (record.pes, record.up, record.down)
            == (wanted.pes, wanted.up, wanted.down)
            && (wanted.start..=latest + 1).contains(&record.begins)
            && record.ends.abs_diff(record.begins + wanted.length) <= 1;
        if !is_wanted {
            return Err(format!("{record:?} is reserved, and {wanted:?} was wanted"));
        }
        let booked = Booked {
            user,
            pes: record.pes,
            rates: [record.up, record.down],
            told: now,
            from: now + record.begins * MS,
            until: (since + record.ends * MS).saturating_sub(MS),
        };
        let is_before = |(id, known): (u64, &Booked)| known.told <= since && id >= record.id;
        if self.of_life(life).any(is_before) {
            return Err(format!(
                "reservation {} has a number that was used",
                record.id
            ));
        }
        self.0.insert((life, record.id), booked);
        self.check(life, now)?;
        let own = self.of_life(life);
        let own = own.filter(|(_, known)| known.user == user && known.until > now);
        match own.count() > RESERVATIONS {
            true => Err(format!(
                "user {user} has more reservations than one may have"
            )),
            false => Ok(record.id),
        }
    }

    /// Nothing is reserved twice.
    fn check(&self, life: u64, now: u64) -> Result<(), String> {
        for (_, one) in self.of_life(life) {
            let time = one.from.max(now);
            let active = self.of_life(life).filter(|(_, other)| other.covers(time));
            let (mut pes, mut own, mut rates) = (0, 0, [0, 0]);
            for (_, other) in active {
                pes += other.pes;
                own += if other.user == one.user { other.pes } else { 0 };
                rates = [0, 1].map(|direction| rates[direction] + other.rates[direction]);
            }
            if pes > PES {
                return Err(format!(
                    "{pes} processor elements are reserved, and there are {PES}"
                ));
            }
            if own > RESERVED {
                let user = one.user;
                return Err(format!("user {user} has reserved {own} processor elements"));
            }
            if rates.iter().any(|rate| *rate > BANDWIDTH) {
                return Err(format!(
                    "{rates:?} bytes per second are reserved of {BANDWIDTH}"
                ));
            }
        }
        Ok(())
    }

    /// The user releases a reservation.
    pub(crate) fn releases(&mut self, life: u64, id: u64, now: u64) {
        if let Some(booked) = self.0.get_mut(&(life, id)) {
            booked.until = booked.until.min(now);
        }
    }

    /// Whether a reservation may be over.
    pub(crate) fn may_be_over(&self, life: u64, id: u64, now: u64) -> bool {
        let booked = self.0.get(&(life, id));
        booked.is_none_or(|booked| booked.until <= now)
    }

    /// A user lists reservations.
    pub(crate) fn listed(
        &self,
        (life, user): (u64, u8),
        page: &ReservationPage,
        (since, now): (u64, u64),
    ) -> Result<(), String> {
        for record in &page.reservations {
            let known = self.0.get(&(life, record.id));
            if known.is_some_and(|known| known.user != user) {
                return Err(format!("user {user} is told of another user's reservation"));
            }
        }
        let own = self.of_life(life);
        let own = own.filter(|(_, one)| one.user == user && one.told <= since && one.until > now);
        for (id, _) in own {
            if !page.reservations.iter().any(|record| record.id == id) {
                return Err(format!("reservation {id} is there, and is not listed"));
            }
        }
        Ok(())
    }

    /// Processor elements of a reservation that has certainly begun.
    pub(super) fn pes(&self, life: u64, id: u64, now: u64) -> Option<u32> {
        let booked = self.0.get(&(life, id))?;
        (booked.covers(now) && booked.pes > 0).then_some(booked.pes)
    }

    /// Processor elements that were certainly reserved all the time, and since when.
    pub(super) fn booked(&self, life: u64, (since, now): (u64, u64)) -> (u32, u64) {
        let there = self.of_life(life);
        let there =
            there.filter(|(_, one)| one.covers(since) && one.covers(now) && one.told <= since);
        there.fold((0, 0), |(pes, since), (_, one)| {
            (pes + one.pes, since.max(one.told).max(one.from))
        })
    }

    /// Bandwidth reservations that have certainly begun, by number.
    pub(super) fn rates(&self, life: u64, now: u64) -> impl Iterator<Item = (u64, &Booked)> {
        let there = self.of_life(life);
        there.filter(move |(_, one)| one.covers(now) && one.rates != [0, 0])
    }
}
