//! The time of a transfer that shares a link with others.

use crate::forecast::Path;

/// One direction between a client and a server, as a transfer sees it that is alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathDirection {
    /// Seconds before the first byte arrives.
    pub latency_s: f64,
    /// Bytes per second.
    pub rate: f64,
    /// Two thirds of the transfers take between the time divided by this and multiplied by it.
    pub factor: f64,
}

impl PathDirection {
    /// Of which nothing was observed: a good local network, so that a new server is tried.
    pub const UNKNOWN: PathDirection = PathDirection {
        latency_s: 1e-3,
        rate: 1.25e8,
        factor: 10.0,
    };

    /// What was learned of a path. Where either of latency and rate was never observed, it is that
    /// of [`PathDirection::UNKNOWN`].
    pub fn of(path: &Path) -> PathDirection {
        let (latency, rate) = (path.latency(), path.rate());
        PathDirection {
            latency_s: latency.map_or(PathDirection::UNKNOWN.latency_s, |known| known.value),
            rate: rate.map_or(PathDirection::UNKNOWN.rate, |known| known.value),
            factor: rate.map_or(PathDirection::UNKNOWN.factor, |known| known.factor),
        }
    }

    /// Seconds for so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.latency_s + bytes / self.rate
    }
}

/// Both directions between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// From the client.
    pub up: PathDirection,
    /// To the client.
    pub down: PathDirection,
}

/// A link that several transfers share, each an equal part of it: one direction of a host's
/// connection to the network.
///
/// A star of such links needs no solver. With n transfers under way the bytes left of each shrink
/// alike; one of b bytes that joins ends when it has its b bytes and every other the lesser of its
/// own rest and b, so after (b + sum of min(rest, b)) / rate. That is max-min fair sharing exactly,
/// as long as the transfers on the link are limited by no other and nobody joins later; tests hold
/// it against the flow solver. Where a transfer crosses two such links, a client's and a server's,
/// the slower of both times is taken; then it is an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    rate: f64,
    /// Bytes left of every transfer, in their order.
    left: Vec<f64>,
    /// The sum of the first so many of them.
    sums: Vec<f64>,
    /// The sum of all.
    total: f64,
}

impl Link {
    /// A link of so many bytes per second on which nothing is under way. A rate that is not a
    /// positive number means that it never limits anybody.
    pub fn new(rate: f64) -> Link {
        Link {
            rate: if rate > 0.0 { rate } else { f64::INFINITY },
            left: Vec::new(),
            sums: vec![0.0],
            total: 0.0,
        }
    }

    /// A link that never limits anybody.
    pub fn unlimited() -> Link {
        Link::new(f64::INFINITY)
    }

    /// The same link with these transfers under way, each with so many bytes left.
    pub fn with(mut self, left: impl IntoIterator<Item = f64>) -> Link {
        let counts = |bytes: &f64| *bytes > 0.0 && self.rate.is_finite();
        self.left = left.into_iter().filter(counts).collect();
        self.left.sort_by(f64::total_cmp);
        self.add_up();
        self
    }

    /// A transfer of so many bytes begins.
    pub fn begin(&mut self, bytes: f64) {
        if bytes > 0.0 && self.rate.is_finite() {
            let place = self.left.partition_point(|left| *left < bytes);
            self.left.insert(place, bytes);
            self.add_up();
        }
    }

    /// Time goes by.
    pub fn elapse(&mut self, seconds: f64) {
        if self.left.is_empty() {
            return;
        }
        let (level, ended) = self.level(seconds.max(0.0));
        self.left.drain(..ended);
        self.left.iter_mut().for_each(|left| *left -= level);
        self.add_up();
    }

    /// Seconds that a transfer takes which begins so many seconds from now, latency apart.
    pub fn seconds(&self, bytes: f64, from_s: f64) -> f64 {
        self.alone(bytes) + self.delay(bytes, from_s)
    }

    /// Seconds that a transfer takes where no other is under way, latency apart.
    pub fn alone(&self, bytes: f64) -> f64 {
        bytes / self.rate
    }

    /// By how much a transfer that begins so many seconds from now delays those under way, all
    /// together; and they delay it by as much.
    pub fn delay(&self, bytes: f64, from_s: f64) -> f64 {
        if self.left.is_empty() || self.alone(bytes) == 0.0 {
            return 0.0;
        }
        let (level, ended) = self.level(from_s);
        if ended == self.left.len() {
            return 0.0;
        }
        let shorter = self.left.partition_point(|left| *left < level + bytes);
        let shorter = shorter.max(ended);
        let longer = self.left.len() - shorter;
        let others = self.sums[shorter] - self.sums[ended] - level * (shorter - ended) as f64
            + bytes * longer as f64;
        others.max(0.0) / self.rate
    }

    /// What each transfer has got after a time, if it had so much left; and how many have ended.
    fn level(&self, seconds: f64) -> (f64, usize) {
        if seconds <= 0.0 {
            return (0.0, 0);
        }
        let served = self.rate * seconds;
        let count = self.left.len();
        if self.total <= served {
            return (f64::INFINITY, count);
        }
        let (mut ended, mut above) = (0, count);
        while ended < above {
            let middle = ended.midpoint(above);
            let at_its_end = self.sums[middle] + self.left[middle] * (count - middle) as f64;
            match at_its_end <= served {
                true => ended = middle + 1,
                false => above = middle,
            }
        }
        let level = (served - self.sums[ended]) / (count - ended).max(1) as f64;
        (level.max(0.0), ended)
    }

    fn add_up(&mut self) {
        self.sums.clear();
        self.sums.push(0.0);
        let mut sum = 0.0;
        self.sums.extend(self.left.iter().map(|left| {
            sum += left;
            sum
        }));
        self.total = sum;
    }
}
