//! The time of a transfer that shares a link with others. The closed form here is exact for a star
//! of links, so a decision needs no solver. `farcall_flow` has the solver, and tests compare both.
//! Over two shared links the time is an estimate.

use crate::forecast::Path;

/// One direction of a path between a client and a server, for a transfer that is alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathDirection {
    /// Seconds before the first byte arrives.
    pub latency_s: f64,
    /// Bytes per second.
    pub rate: f64,
    /// Spread: two thirds of the transfers take between the time divided by this and the time times
    /// this.
    pub factor: f64,
}

impl PathDirection {
    /// A path that was never observed. It is assumed to be a good local network, so that a new
    /// server is tried.
    pub const UNKNOWN: PathDirection = PathDirection {
        latency_s: 1e-3,
        rate: 1.25e8,
        factor: 10.0,
    };

    /// What was learned about a path. A latency or rate that was never observed is that of
    /// [`PathDirection::UNKNOWN`].
    pub fn of(path: &Path) -> PathDirection {
        let (latency, rate) = (path.latency(), path.rate());
        PathDirection {
            latency_s: latency.map_or(PathDirection::UNKNOWN.latency_s, |known| known.value),
            rate: rate.map_or(PathDirection::UNKNOWN.rate, |known| known.value),
            factor: rate.map_or(PathDirection::UNKNOWN.factor, |known| known.factor),
        }
    }

    /// Seconds for this many bytes.
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

/// A link that several transfers share equally: one direction of a host's connection to the
/// network.
///
/// A star of such links needs no solver. With n transfers under way, their remaining bytes shrink
/// equally. A new transfer of b bytes ends when it has moved b bytes and every other one the lesser
/// of its own rest and b, so after (b + sum of min(rest, b)) / rate. This is exactly max-min fair
/// sharing if no other link limits these transfers and no transfer joins later; tests compare it
/// with the flow solver. For a transfer that crosses two such links, a client's and a server's, the
/// slower of both times is an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    rate: f64,
    /// Remaining bytes of every transfer, sorted.
    left: Vec<f64>,
    /// Prefix sums of them.
    sums: Vec<f64>,
    /// Sum of all of them.
    total: f64,
}

impl Link {
    /// A link with this many bytes per second and no transfers. A rate that is not a positive
    /// number means no limit.
    pub fn new(rate: f64) -> Link {
        Link {
            rate: if rate > 0.0 { rate } else { f64::INFINITY },
            left: Vec::new(),
            sums: vec![0.0],
            total: 0.0,
        }
    }

    /// A link without a limit.
    pub fn unlimited() -> Link {
        Link::new(f64::INFINITY)
    }

    /// The link with these transfers under way, given by their remaining bytes.
    pub fn with(mut self, left: impl IntoIterator<Item = f64>) -> Link {
        let counts = |bytes: &f64| *bytes > 0.0 && self.rate.is_finite();
        self.left = left.into_iter().filter(counts).collect();
        self.left.sort_by(f64::total_cmp);
        self.add_up();
        self
    }

    /// Begins a transfer of this many bytes.
    pub fn begin(&mut self, bytes: f64) {
        if bytes > 0.0 && self.rate.is_finite() {
            let place = self.left.partition_point(|left| *left < bytes);
            self.left.insert(place, bytes);
            self.add_up();
        }
    }

    /// Advances the time.
    pub fn elapse(&mut self, seconds: f64) {
        if self.left.is_empty() {
            return;
        }
        let (level, ended) = self.level(seconds.max(0.0));
        self.left.drain(..ended);
        self.left.iter_mut().for_each(|left| *left -= level);
        self.add_up();
    }

    /// Seconds of a transfer that begins `from_s` seconds from now, without latency.
    pub fn seconds(&self, bytes: f64, from_s: f64) -> f64 {
        self.alone(bytes) + self.delay(bytes, from_s)
    }

    /// Seconds of a transfer that is alone, without latency.
    pub fn alone(&self, bytes: f64) -> f64 {
        bytes / self.rate
    }

    /// Delay that a transfer causes to all transfers under way together, if it begins `from_s`
    /// seconds from now. They delay it by the same amount.
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

    /// Bytes that each transfer has moved after a time, if it has that many left, and how many have
    /// ended.
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
