//! Checks bandwidth: each reservation, and all other connections together, move no more bytes than
//! their share. Bytes of a connection that is about to change its lane are not counted.

use super::Checker;
use crate::machine::BANDWIDTH;
use farcall_server_proto::Direction;
use std::collections::BTreeMap;

/// The burst is what the rate moves in this part of a second, and at least this many bytes.
const BURST: u64 = 50;
const LEAST_BURST: u64 = 16 << 10;
/// A server that has stood still may make up for this part of a second.
const LATE: u64 = 10;
/// Bytes by which rounding may be off.
const SLACK: f64 = 64.0;

/// Bytes that can still pass.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: u64,
    level: f64,
    /// Bytes above the burst that may gather, or that are there.
    late: f64,
    at: u64,
}

impl Bucket {
    fn new(rate: u64, now: u64) -> Bucket {
        Bucket {
            rate,
            level: Bucket::burst(rate),
            late: 0.0,
            at: now,
        }
    }

    fn burst(rate: u64) -> f64 {
        (rate / BURST).max(LEAST_BURST) as f64
    }

    /// Lets bytes pass. Returns whether the rate allows them.
    fn pass(&mut self, bytes: u64, now: u64) -> bool {
        let passed = (now - self.at) as f64 * 1e-9 * self.rate as f64;
        let burst = Bucket::burst(self.rate);
        self.level = (self.level + passed).min(burst + self.late) - bytes as f64;
        self.late = (self.level - burst).max(0.0);
        self.at = now;
        self.level >= -SLACK
    }
}

/// Bytes that connections have moved while bandwidth was reserved.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Connections that have asked for the bandwidth of a reservation (`None`) or have it, by the
    /// life of the server and the number of the client.
    attached: BTreeMap<(u64, u64), Option<u64>>,
    /// By life, reservation and direction. Reservation 0 means all other connections.
    buckets: BTreeMap<(u64, u64, usize), Bucket>,
}

impl Lanes {
    /// A client has a new connection.
    pub(crate) fn connects(&mut self, client: (u64, u64)) {
        self.attached.remove(&client);
    }

    /// A server stands still. The connections that wait make up for it.
    pub(crate) fn stands_still(&mut self, life: u64) {
        for bucket in self.buckets.range_mut((life, 0, 0)..(life + 1, 0, 0)) {
            bucket.1.late = (bucket.1.rate / LATE) as f64;
        }
    }

    /// A client asks for the bandwidth of a reservation.
    pub(crate) fn asks(&mut self, client: (u64, u64)) {
        self.attached.insert(client, None);
    }

    /// A client has the bandwidth of a reservation.
    pub(crate) fn attaches(&mut self, client: (u64, u64), id: u64) {
        self.attached.insert(client, Some(id));
    }
}

impl Checker {
    /// A server has moved bytes of a connection that crosses its link.
    pub(crate) fn moved(&mut self, client: (u64, u64), direction: Direction, bytes: u64) {
        let (now, life, direction) = (self.now, client.0, direction as usize);
        let Checker {
            reservations,
            lanes,
            ..
        } = self;
        let (mut reserved, mut own) = (0, None);
        let attached = lanes.attached.get(&client).copied();
        for (id, booked) in reservations.rates(life, now) {
            reserved += booked.rates[direction];
            if attached == Some(Some(id)) {
                own = Some((id, booked.rates[direction]));
            }
        }
        let (id, rate) = match (attached, own) {
            // Its lane is not certain.
            (Some(_), None) => return,
            (Some(_), Some((id, rate))) => (id, rate),
            (None, _) => (0, BANDWIDTH.saturating_sub(reserved)),
        };
        if reserved == 0 || rate == 0 {
            lanes.buckets.remove(&(life, 0, direction));
            return;
        }
        let bucket = lanes.buckets.entry((life, id, direction));
        let bucket = bucket.or_insert_with(|| Bucket::new(rate, now));
        if bucket.rate != rate {
            // A reservation has ended. If the server stood still, it makes up for it at this rate.
            let late = if bucket.late > 0.0 {
                (rate / LATE) as f64
            } else {
                0.0
            };
            *bucket = Bucket::new(rate, now);
            bucket.level += late;
            bucket.late = late;
        }
        if !bucket.pass(bytes, now) {
            let over = -bucket.level;
            let text = format!(
                "{over:.0} bytes more pass than the {rate} bytes per second of reservation {id} \
                 (0: all others) let"
            );
            self.fail(text);
        }
    }
}
