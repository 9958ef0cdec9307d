//! Bookings: processor elements and bandwidth reserved ahead of time. This is the first guideline
//! of the second Ninf paper.

use crate::Nanos;
use std::collections::BTreeMap;

/// Processor elements and bandwidth for a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booking {
    /// How many processor elements.
    pub pes: u32,
    /// Bandwidth in both directions.
    pub bandwidth: Bandwidth,
    /// First moment.
    pub from: Nanos,
    /// First moment after the end.
    pub until: Nanos,
}

/// Bytes per second in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// To the server.
    pub up: u64,
    /// From the server.
    pub down: u64,
}

/// Processor elements that a call holds outside of bookings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How many.
    pub pes: u32,
    /// First moment.
    pub from: Nanos,
    /// First moment after the end.
    pub until: Nanos,
}

/// The machine that bookings and calls share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine<'h> {
    /// Number of processor elements.
    pub pes: u32,
    /// Elements that calls hold.
    pub holds: &'h [Hold],
}

/// Why a booking is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could begin at this time.
    NotBefore(Nanos),
    /// That many processor elements can never be booked; at most this many can.
    TooMany(u32),
    /// That much bandwidth can never be booked; at most this can.
    TooFast(Bandwidth),
}

/// All bookings. At no time are more processor elements or bandwidth booked than allowed.
#[derive(Clone, Debug)]
pub struct Calendar {
    most: u32,
    fastest: Bandwidth,
    bookings: BTreeMap<u64, Booking>,
    /// The number of the next booking.
    next: u64,
}

impl Bandwidth {
    /// Whether it is zero in both directions.
    pub fn is_none(&self) -> bool {
        *self == Bandwidth::default()
    }

    /// Whether it is at most another one, in both directions.
    pub fn is_within(&self, most: &Bandwidth) -> bool {
        self.up <= most.up && self.down <= most.down
    }

    /// The sum of both.
    pub fn plus(self, other: Bandwidth) -> Bandwidth {
        Bandwidth {
            up: self.up.saturating_add(other.up),
            down: self.down.saturating_add(other.down),
        }
    }
}

impl Booking {
    /// Whether it includes a moment.
    pub fn covers(&self, time: Nanos) -> bool {
        (self.from..self.until).contains(&time)
    }

    /// The same booking with another beginning.
    pub fn beginning(self, from: Nanos) -> Booking {
        let length = self.until.saturating_sub(self.from);
        Booking {
            from,
            until: from.saturating_add(length),
            ..self
        }
    }
}

impl Hold {
    fn covers(&self, time: Nanos) -> bool {
        (self.from..self.until).contains(&time)
    }
}

impl Calendar {
    /// An empty calendar with limits on processor elements and bandwidth.
    pub fn new(most: u32, fastest: Bandwidth) -> Calendar {
        Calendar {
            most,
            fastest,
            bookings: BTreeMap::new(),
            next: 1,
        }
    }

    /// The same calendar with another number for the next booking.
    pub(crate) fn numbered_from(self, first: u64) -> Calendar {
        Calendar {
            next: first,
            ..self
        }
    }

    /// Whether nothing is booked.
    pub fn is_empty(&self) -> bool {
        self.bookings.is_empty()
    }

    /// Whether any booking has processor elements.
    pub fn has_elements(&self) -> bool {
        self.bookings.values().any(|booking| booking.pes > 0)
    }

    /// The booking with this number.
    pub fn get(&self, id: u64) -> Option<&Booking> {
        self.bookings.get(&id)
    }

    /// All bookings by number, which is the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Booking)> {
        self.bookings.iter().map(|(id, booking)| (*id, booking))
    }

    /// Processor elements booked at a time.
    pub fn booked(&self, time: Nanos) -> u32 {
        let bookings = self.bookings.values();
        let then = bookings.filter(|booking| booking.covers(time));
        then.map(|booking| booking.pes).sum()
    }

    /// Bandwidth booked at a time.
    pub fn bandwidth(&self, time: Nanos) -> Bandwidth {
        let bookings = self.bookings.values();
        let then = bookings.filter(|booking| booking.covers(time));
        then.fold(Bandwidth::default(), |sum, booking| {
            sum.plus(booking.bandwidth)
        })
    }

    /// Makes a booking beside the elements that calls hold. Returns its number, which is new.
    ///
    /// # Errors
    /// When the booking could begin, or that it never can.
    pub fn book(&mut self, booking: Booking, machine: Machine<'_>) -> Result<u64, Refusal> {
        self.check(booking, machine)?;
        Ok(self.enter(booking))
    }

    /// Checks whether a booking can be made beside the elements that calls hold.
    ///
    /// # Errors
    /// When the booking could begin, or that it never can.
    pub fn check(&self, booking: Booking, machine: Machine<'_>) -> Result<(), Refusal> {
        if booking.pes > self.most {
            return Err(Refusal::TooMany(self.most));
        }
        if !booking.bandwidth.is_within(&self.fastest) {
            return Err(Refusal::TooFast(self.fastest));
        }
        let earliest = self.earliest(booking, self.most, machine);
        match earliest > booking.from {
            true => Err(Refusal::NotBefore(earliest)),
            false => Ok(()),
        }
    }

    /// Makes a booking that was checked. Returns its number, which is new.
    pub(crate) fn enter(&mut self, booking: Booking) -> u64 {
        let id = self.next;
        self.next += 1;
        self.bookings.insert(id, booking);
        id
    }

    /// When a booking could begin if at most `most` elements may be booked: at the wanted time, or
    /// when another booking or hold ends. After all of them it can.
    pub fn earliest(&self, wanted: Booking, most: u32, machine: Machine<'_>) -> Nanos {
        let ends = self.bookings.values().map(|other| other.until);
        let ends = ends.chain(machine.holds.iter().map(|hold| hold.until));
        let mut starts: Vec<Nanos> = ends.collect();
        starts.retain(|start| *start > wanted.from);
        starts.push(wanted.from);
        starts.sort_unstable();
        let last = starts.last().copied();
        let fits = |from: &Nanos| self.fits(wanted.beginning(*from), most, machine);
        starts.into_iter().find(fits).or(last).unwrap_or_default()
    }

    /// Whether a booking fits. Bookings and holds grow only where one begins, so only these moments
    /// are checked.
    fn fits(&self, wanted: Booking, most: u32, machine: Machine<'_>) -> bool {
        let begins = self.bookings.values().map(|other| other.from);
        let begins = begins.chain(machine.holds.iter().map(|hold| hold.from));
        let within = begins.filter(|from| wanted.covers(*from));
        let mut times = within.chain([wanted.from]);
        times.all(|time| {
            let booked = self.booked(time).saturating_add(wanted.pes);
            let held = machine.holds.iter().filter(|hold| hold.covers(time));
            let held = held.fold(0u32, |sum, hold| sum.saturating_add(hold.pes));
            let has_pes =
                wanted.pes == 0 || booked <= most && booked.saturating_add(held) <= machine.pes;
            let bandwidth = self.bandwidth(time).plus(wanted.bandwidth);
            has_pes && bandwidth.is_within(&self.fastest)
        })
    }

    /// Releases a booking.
    pub fn release(&mut self, id: u64) -> Option<Booking> {
        self.bookings.remove(&id)
    }

    /// Forgets bookings that have ended. Returns whether there were any.
    pub fn expire(&mut self, now: Nanos) -> bool {
        let before = self.bookings.len();
        self.bookings.retain(|_, booking| booking.until > now);
        self.bookings.len() < before
    }

    /// When the next booking begins or ends.
    pub fn next_change(&self, now: Nanos) -> Option<Nanos> {
        let bookings = self.bookings.values();
        let times = bookings.flat_map(|booking| [booking.from, booking.until]);
        times.filter(|time| *time > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn booking(pes: u32, from: Nanos, until: Nanos) -> Booking {
        Booking {
            pes,
            from,
            until,
            ..Booking::default()
        }
    }

    fn of_bandwidth(up: u64, down: u64, from: Nanos, until: Nanos) -> Booking {
        Booking {
            bandwidth: Bandwidth { up, down },
            from,
            until,
            ..Booking::default()
        }
    }

    #[test]
    fn bandwidth_is_booked_each_way_and_apart_from_processor_elements() {
        let most = Bandwidth { up: 100, down: 50 };
        let mut calendar = Calendar::new(1, most);
        let holds = [hold(1, 0, 99)];
        assert_eq!(
            calendar.book(of_bandwidth(60, 0, 0, 10), of_one(&holds)),
            Ok(1)
        );
        assert_eq!(
            calendar.book(of_bandwidth(0, 50, 5, 20), of_one(&holds)),
            Ok(2)
        );
        assert_eq!(calendar.bandwidth(5), Bandwidth { up: 60, down: 50 });
        let refused = calendar.book(of_bandwidth(41, 0, 2, 4), of_one(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(10)));
        let refused = calendar.book(of_bandwidth(41, 1, 2, 4), of_one(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(20)), "5 to 20 is taken");
        let refused = calendar.book(of_bandwidth(0, 51, 90, 91), of_one(&[]));
        assert_eq!(refused, Err(Refusal::TooFast(most)));
        let both = Booking {
            pes: 1,
            ..of_bandwidth(40, 0, 0, 5)
        };
        assert_eq!(calendar.book(both, of_one(&[])), Ok(3));
        let refused = calendar.book(booking(1, 4, 6), of_one(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(5)));
        assert!(calendar.release(1).is_some());
        assert_eq!(calendar.bandwidth(0), Bandwidth { up: 40, down: 0 });
    }

    fn hold(pes: u32, from: Nanos, until: Nanos) -> Hold {
        Hold { pes, from, until }
    }

    fn of_one(holds: &[Hold]) -> Machine<'_> {
        Machine { pes: 1, holds }
    }

    fn machine(holds: &[Hold]) -> Machine<'_> {
        Machine { pes: 4, holds }
    }

    #[test]
    fn a_refusal_tells_the_earliest_time() {
        let mut calendar = Calendar::new(4, Bandwidth::default());
        let first = calendar.book(booking(3, 10, 20), machine(&[])).unwrap();
        assert_eq!(calendar.book(booking(1, 10, 30), machine(&[])), Ok(2));
        let refused = calendar.book(booking(2, 5, 12), machine(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(20)));
        assert_eq!(calendar.book(booking(2, 5, 10), machine(&[])), Ok(3));
        let too_many = calendar.book(booking(5, 50, 60), machine(&[]));
        assert_eq!(too_many, Err(Refusal::TooMany(4)));
        let refused = calendar.book(booking(4, 25, 26), machine(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(30)));
        assert!(calendar.release(first).is_some());
        assert!(calendar.release(first).is_none());
        assert_eq!(calendar.book(booking(2, 10, 12), machine(&[])), Ok(4));
        assert_eq!(calendar.next_change(10), Some(12));
        assert!(calendar.expire(30));
        assert!(calendar.is_empty() && calendar.next_change(0).is_none());
    }

    #[test]
    fn running_jobs_are_in_the_way_for_as_long_as_they_are_predicted_to() {
        let mut calendar = Calendar::new(4, Bandwidth::default());
        let holds = [hold(2, 0, 7), hold(1, 0, 9)];
        let refused = calendar.book(booking(3, 0, 5), machine(&holds));
        assert_eq!(refused, Err(Refusal::NotBefore(7)));
        assert_eq!(calendar.book(booking(3, 7, 12), machine(&holds)), Ok(1));
        // A call that still runs when its booking has ended.
        let holds = [hold(2, 12, 15)];
        let refused = calendar.book(booking(3, 10, 13), machine(&holds));
        assert_eq!(refused, Err(Refusal::NotBefore(15)));
    }

    #[test]
    fn a_share_is_left_for_others() {
        let mut calendar = Calendar::new(3, Bandwidth::default());
        let holds = [hold(1, 0, 9)];
        assert_eq!(calendar.book(booking(3, 0, 5), machine(&holds)), Ok(1));
        let refused = calendar.book(booking(1, 0, 5), machine(&[]));
        assert_eq!(refused, Err(Refusal::NotBefore(5)));
    }
}
