//! Processor elements and bandwidth that are booked ahead of time: the second Ninf paper's first
//! guideline.

use std::collections::BTreeMap;

use crate::queue::Nanos;

/// Processor elements and bandwidth for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booking {
    /// How many processor elements.
    pub pes: u32,
    /// How much of the way there and back.
    pub bandwidth: Bandwidth,
    /// From then on.
    pub from: Nanos,
    /// Up to then, and not in that moment.
    pub until: Nanos,
}

/// Bytes per second, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// To the server.
    pub up: u64,
    /// From the server.
    pub down: u64,
}

/// Processor elements that are held until a moment, booked or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How many.
    pub pes: u32,
    /// Until then.
    pub until: Nanos,
}

/// Why a booking cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could begin then, as things stand.
    NotBefore(Nanos),
    /// So many processor elements can never be booked; at most these can.
    TooMany(u32),
    /// So much bandwidth can never be booked; at most this can.
    TooFast(Bandwidth),
}

/// All bookings. At no time are more processor elements or bandwidth booked than may be.
#[derive(Clone, Debug)]
pub struct Calendar {
    most: u32,
    fastest: Bandwidth,
    bookings: BTreeMap<u64, Booking>,
    last: u64,
}

impl Bandwidth {
    /// Whether it is none, either way.
    pub fn is_none(&self) -> bool {
        *self == Bandwidth::default()
    }

    /// Whether it is no more than another, either way.
    pub fn is_within(&self, most: &Bandwidth) -> bool {
        self.up <= most.up && self.down <= most.down
    }

    /// Both together.
    pub fn plus(self, other: Bandwidth) -> Bandwidth {
        Bandwidth {
            up: self.up.saturating_add(other.up),
            down: self.down.saturating_add(other.down),
        }
    }
}

impl Booking {
    /// Whether a moment is in it.
    pub fn covers(&self, time: Nanos) -> bool {
        (self.from..self.until).contains(&time)
    }
}

impl Calendar {
    /// An empty calendar, of at most so many processor elements and so much bandwidth at a time.
    pub fn new(most: u32, fastest: Bandwidth) -> Calendar {
        Calendar {
            most,
            fastest,
            bookings: BTreeMap::new(),
            last: 0,
        }
    }

    /// Whether nothing is booked.
    pub fn is_empty(&self) -> bool {
        self.bookings.is_empty()
    }

    /// The booking of that number.
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

    /// Makes a booking, besides what is held by `holds` of `pes` processor elements in all. Returns
    /// its number, which no other has had.
    ///
    /// # Errors
    /// When it could be had, or that it never can.
    pub fn book(&mut self, booking: Booking, pes: u32, holds: &[Hold]) -> Result<u64, Refusal> {
        if booking.pes > self.most {
            return Err(Refusal::TooMany(self.most));
        }
        if !booking.bandwidth.is_within(&self.fastest) {
            return Err(Refusal::TooFast(self.fastest));
        }
        let earliest = self.earliest(booking, pes, holds);
        if earliest > booking.from {
            return Err(Refusal::NotBefore(earliest));
        }
        self.last += 1;
        self.bookings.insert(self.last, booking);
        Ok(self.last)
    }

    /// When a booking that is not too wide could begin: at its time, or when another one or a hold
    /// ends. After all of them it fits.
    fn earliest(&self, booking: Booking, pes: u32, holds: &[Hold]) -> Nanos {
        let length = booking.until.saturating_sub(booking.from);
        let ends = self.bookings.values().map(|other| other.until);
        let mut starts: Vec<Nanos> = ends.chain(holds.iter().map(|hold| hold.until)).collect();
        starts.retain(|start| *start > booking.from);
        starts.push(booking.from);
        starts.sort_unstable();
        let last = starts.last().copied();
        let fits = |from: &Nanos| {
            let until = from.saturating_add(length);
            self.fits(
                Booking {
                    from: *from,
                    until,
                    ..booking
                },
                pes,
                holds,
            )
        };
        starts.into_iter().find(fits).or(last).unwrap_or_default()
    }

    /// Whether a booking can be made. What is booked grows only where a booking begins, and what is
    /// held does not grow.
    fn fits(&self, booking: Booking, pes: u32, holds: &[Hold]) -> bool {
        let begins = self.bookings.values().map(|other| other.from);
        let within = begins.filter(|from| booking.covers(*from));
        let mut times = within.chain([booking.from]);
        times.all(|time| {
            let booked = self.booked(time).saturating_add(booking.pes);
            let held = holds.iter().filter(|hold| hold.until > time);
            let held = held.fold(0u32, |sum, hold| sum.saturating_add(hold.pes));
            let has_pes =
                booking.pes == 0 || booked <= self.most && booked.saturating_add(held) <= pes;
            let bandwidth = self.bandwidth(time).plus(booking.bandwidth);
            has_pes && bandwidth.is_within(&self.fastest)
        })
    }

    /// Gives a booking up.
    pub fn release(&mut self, id: u64) -> Option<Booking> {
        self.bookings.remove(&id)
    }

    /// Forgets bookings that are over. Returns whether there were any.
    pub fn expire(&mut self, now: Nanos) -> bool {
        let before = self.bookings.len();
        self.bookings.retain(|_, booking| booking.until > now);
        self.bookings.len() < before
    }

    /// When a booking begins or ends next.
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
        let holds = [Hold { pes: 1, until: 99 }];
        assert_eq!(calendar.book(of_bandwidth(60, 0, 0, 10), 1, &holds), Ok(1));
        assert_eq!(calendar.book(of_bandwidth(0, 50, 5, 20), 1, &holds), Ok(2));
        assert_eq!(calendar.bandwidth(5), Bandwidth { up: 60, down: 50 });
        let refused = calendar.book(of_bandwidth(41, 0, 2, 4), 1, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(10)));
        let refused = calendar.book(of_bandwidth(41, 1, 2, 4), 1, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(20)), "5 to 20 is taken");
        let refused = calendar.book(of_bandwidth(0, 51, 90, 91), 1, &[]);
        assert_eq!(refused, Err(Refusal::TooFast(most)));
        let both = Booking {
            pes: 1,
            ..of_bandwidth(40, 0, 0, 5)
        };
        assert_eq!(calendar.book(both, 1, &[]), Ok(3));
        let refused = calendar.book(booking(1, 4, 6), 1, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(5)));
        assert!(calendar.release(1).is_some());
        assert_eq!(calendar.bandwidth(0), Bandwidth { up: 40, down: 0 });
    }

    #[test]
    fn a_refusal_tells_the_earliest_time() {
        let mut calendar = Calendar::new(4, Bandwidth::default());
        let first = calendar.book(booking(3, 10, 20), 4, &[]).unwrap();
        assert_eq!(calendar.book(booking(1, 10, 30), 4, &[]), Ok(2));
        let refused = calendar.book(booking(2, 5, 12), 4, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(20)));
        assert_eq!(calendar.book(booking(2, 5, 10), 4, &[]), Ok(3));
        let too_many = calendar.book(booking(5, 50, 60), 4, &[]);
        assert_eq!(too_many, Err(Refusal::TooMany(4)));
        let refused = calendar.book(booking(4, 25, 26), 4, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(30)));
        assert!(calendar.release(first).is_some());
        assert!(calendar.release(first).is_none());
        assert_eq!(calendar.book(booking(2, 10, 12), 4, &[]), Ok(4));
        assert_eq!(calendar.next_change(10), Some(12));
        assert!(calendar.expire(30));
        assert!(calendar.is_empty() && calendar.next_change(0).is_none());
    }

    #[test]
    fn running_jobs_are_in_the_way_for_as_long_as_they_are_predicted_to() {
        let mut calendar = Calendar::new(4, Bandwidth::default());
        let holds = [Hold { pes: 2, until: 7 }, Hold { pes: 1, until: 9 }];
        let refused = calendar.book(booking(3, 0, 5), 4, &holds);
        assert_eq!(refused, Err(Refusal::NotBefore(7)));
        assert_eq!(calendar.book(booking(3, 7, 12), 4, &holds), Ok(1));
    }

    #[test]
    fn a_share_is_left_for_others() {
        let mut calendar = Calendar::new(3, Bandwidth::default());
        let holds = [Hold { pes: 1, until: 9 }];
        assert_eq!(calendar.book(booking(3, 0, 5), 4, &holds), Ok(1));
        let refused = calendar.book(booking(1, 0, 5), 4, &[]);
        assert_eq!(refused, Err(Refusal::NotBefore(5)));
    }
}
