//! Communication patterns in closed form: the messages of every rank, round by round.
//!
//! A pattern holds only its parameters, so the memory of a simulation does not grow with the number
//! of messages. In every round a rank sends at most one message (repeated `count` times) and waits
//! for at most one sender. Ranks are numbered from 0; the root of a broadcast is rank 0.

mod collective;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::PATTERN_KINDS;

use crate::error::SpecError;
use farcall_random::SplitMix64;

/// The families of patterns. `size` is the size given to [`Pattern::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// All-to-all, `size` bytes per pair: round k sends to `(rank + k) mod N` (paper section 6.2,
    /// A2ASS).
    SimpleSpread,
    /// The same, but each coordinate of a square grid advances separately (A2ASS2D).
    SimpleSpread2d,
    /// All-to-all: round k sends to `rank xor k`; N is a power of two (A2APW).
    Pairwise,
    /// All-to-all with messages of different sizes (MPI_Alltoallv), in the order of
    /// [`Kind::SimpleSpread`]: uniform between 0 and `2 size` bytes, drawn from the seed.
    Alltoallv {
        /// Seed of the sizes.
        seed: u64,
    },
    /// Layers of a mixture of experts, with an expert on each rank. In each layer a rank sends
    /// `size` bytes of tokens to the experts, and each expert sends its part back. The expert of
    /// popularity k = 1, 2, ... gets 1/k of what the first one gets (Zipf). The seed decides the
    /// popularities, for each layer anew. A rank sends to all others at once if the window allows
    /// it, and waits for all before it goes on.
    MixtureOfExperts {
        /// Number of layers.
        layers: u32,
        /// Seed of the popularities.
        seed: u64,
    },
    /// All-to-all in `ceil(log2 N)` rounds of combined blocks (Bruck et al. 1997).
    BruckAllToAll,
    /// Every rank sends `size` bytes to the next one, once.
    Ring,
    /// Broadcast of `size` bytes along a binomial tree.
    BinomialBroadcast,
    /// Broadcast of `size` bytes: binomial scatter, then ring allgather (van de Geijn).
    ScatterAllgatherBroadcast,
    /// Allreduce of `size` bytes: ring reduce-scatter, then ring allgather.
    RingAllreduce,
    /// Allreduce of `size` bytes in `log2 N` exchanges of the whole vector. If N is not a power of
    /// two, some ranks fold into others first.
    RecursiveDoublingAllreduce,
    /// Allreduce of `size` bytes: reduction to rank 0 along a binomial tree, then broadcast.
    TreeAllreduce,
    /// Allreduce of `size` bytes over groups of ranks, such as those of a machine: ring
    /// reduce-scatter in each group, ring allreduce of each part over the groups, ring allgather in
    /// each group.
    HierarchicalAllreduce {
        /// Ranks in a group; the groups are of consecutive ranks.
        group: u32,
    },
    /// Allgather of `size` bytes per rank around a ring.
    RingAllgather,
    /// Allgather of `size` bytes per rank in `log2 N` exchanges; N is a power of two.
    RecursiveDoublingAllgather,
    /// Allgather of `size` bytes per rank in `ceil(log2 N)` rounds (Bruck et al. 1997).
    BruckAllgather,
    /// `size` bytes to both neighbours in every dimension of a periodic grid of ranks, x fastest.
    Exchange {
        /// Ranks in each dimension.
        dims: Vec<u32>,
    },
    /// Batches of `size` bytes go from rank 0 to the last one, through all ranks.
    Pipeline {
        /// Number of batches.
        batches: u32,
    },
}

/// Most layers of a mixture of experts.
const MAX_LAYERS: u32 = 1 << 20;

/// The actions of a rank in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Destination and bytes of each message that the rank sends.
    pub send: Option<(u32, f64)>,
    /// The rank whose messages must have arrived before the next round.
    pub receive: Option<u32>,
    /// Whether the receive comes before the send.
    pub receive_first: bool,
}

impl Round {
    const NOTHING: Self = Self {
        send: None,
        receive: None,
        receive_first: false,
    };
}

/// A pattern for a number of ranks.
#[derive(Debug, Clone)]
pub struct Pattern {
    kind: Kind,
    ranks: u32,
    size: f64,
    count: u32,
    rounds: u64,
    side: u32,
    /// Part of the most popular expert.
    top: f64,
}

impl Pattern {
    /// A pattern over `ranks` ranks with messages of `size` bytes (see [`Kind`] for its meaning).
    ///
    /// # Errors
    /// A sentence that says which number of ranks the kind needs.
    pub fn new(kind: Kind, ranks: u32, size: f64) -> Result<Self, String> {
        if ranks == 0 {
            return Err("a pattern needs at least one rank".to_owned());
        }
        if !(size.is_finite() && size >= 0.0) {
            return Err(format!(
                "size {size}: must be a number of bytes that is not negative"
            ));
        }
        let side = (f64::from(ranks)).sqrt().round() as u32;
        match &kind {
            Kind::Pairwise | Kind::RecursiveDoublingAllgather if !ranks.is_power_of_two() => {
                return Err(format!("needs a power of two ranks, not {ranks}"));
            }
            Kind::SimpleSpread2d if side * side != ranks => {
                return Err(format!("needs a square number of ranks, not {ranks}"));
            }
            Kind::MixtureOfExperts { layers, .. } if *layers > MAX_LAYERS => {
                return Err(format!("{layers} layers: at most {MAX_LAYERS}"));
            }
            Kind::HierarchicalAllreduce { group }
                if *group == 0 || !ranks.is_multiple_of(*group) =>
            {
                return Err(format!(
                    "groups of {group} ranks do not divide {ranks} ranks"
                ));
            }
            Kind::Exchange { dims } => {
                let mut lengths = dims.iter().map(|&n| u64::from(n));
                let product = lengths.try_fold(1u64, u64::checked_mul);
                if product != Some(u64::from(ranks)) {
                    let product = product.map_or("over 2^64".to_owned(), |n| n.to_string());
                    return Err(format!(
                        "the grid has {product} ranks, but the pattern is for {ranks}"
                    ));
                }
            }
            _ => {}
        }
        let rounds = collective::rounds(&kind, ranks);
        let top = match &kind {
            Kind::MixtureOfExperts { .. } => {
                1.0 / (1..=ranks).map(|k| 1.0 / f64::from(k)).sum::<f64>()
            }
            _ => 0.0,
        };
        Ok(Self {
            kind,
            ranks,
            size,
            count: 1,
            rounds,
            side,
            top,
        })
    }

    /// Builds a pattern from a specification such as `all-to-all:simple-spread` or
    /// `allreduce:ring`.
    ///
    /// # Errors
    /// Lists the alternatives, or says which number of ranks the pattern needs. For `file:` and
    /// `goal:` the caller reads the file and uses [`crate::Script::parse_csv`] or
    /// [`crate::Goal::parse`].
    pub fn parse(spec: &str, ranks: u32, size: f64) -> Result<Self, SpecError> {
        spec::parse(spec, ranks, size)
    }

    /// The same pattern with every message sent `count` times in a row, at most 2^31 - 1 times.
    pub fn with_count(mut self, count: u32) -> Self {
        // The steps of a round are counted: so many sends, and so many receives.
        self.count = count.clamp(1, u32::MAX / 2);
        self
    }

    /// The same pattern cut after the first `rounds` rounds.
    pub fn with_steps(mut self, rounds: u64) -> Self {
        self.rounds = self.rounds.min(rounds);
        self
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Messages sent in a row by each round's send.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The rounds, if any, in which every rank does the same as in the round before.
    pub(crate) fn repeated_rounds(&self) -> std::ops::Range<u64> {
        match self.kind {
            Kind::RingAllreduce | Kind::RingAllgather => 0..self.rounds,
            Kind::ScatterAllgatherBroadcast => {
                collective::rounds(&Kind::BinomialBroadcast, self.ranks)..self.rounds
            }
            _ => 0..0,
        }
    }

    /// Whether any rank ever waits for a message.
    pub fn has_receives(&self) -> bool {
        use Kind::{Alltoallv, Pairwise, Ring, SimpleSpread, SimpleSpread2d};
        let without = matches!(self.kind, Pairwise | Ring | SimpleSpread | SimpleSpread2d);
        !without && !matches!(self.kind, Alltoallv { .. })
    }

    /// Number of messages. A formula gives it where one exists; patterns with idle ranks are
    /// counted.
    pub fn messages(&self) -> u64 {
        use Kind::{
            BinomialBroadcast, MixtureOfExperts, Pipeline, RecursiveDoublingAllreduce,
            ScatterAllgatherBroadcast, TreeAllreduce,
        };
        let ranks = u64::from(self.ranks);
        let each = match self.kind {
            _ if self.ranks < 2 => 0,
            Pipeline { .. } => (ranks - 1) * self.rounds,
            MixtureOfExperts { .. } => {
                let (whole, part) = (2 * (ranks - 1), self.rounds % (2 * (ranks - 1)));
                let each = self.rounds / whole * (ranks - 1) + part.min(ranks - 1);
                ranks.saturating_mul(each)
            }
            BinomialBroadcast
            | ScatterAllgatherBroadcast
            | RecursiveDoublingAllreduce
            | TreeAllreduce => {
                let log = collective::rounds(&BinomialBroadcast, self.ranks);
                let counted = match self.kind {
                    TreeAllreduce => self.rounds,
                    _ => self.rounds.min(log + 2),
                };
                let senders = (0..self.ranks).map(|rank| {
                    (0..counted)
                        .filter(|&r| self.round(rank, r).send.is_some())
                        .count() as u64
                });
                senders.sum::<u64>() + (self.rounds - counted) * ranks
            }
            _ => ranks * self.rounds,
        };
        each.saturating_mul(u64::from(self.count))
    }

    /// The actions of `rank` in `round`.
    #[inline]
    pub fn round(&self, rank: u32, round: u64) -> Round {
        let n = self.ranks;
        let to = match self.kind {
            Kind::SimpleSpread => {
                let to = u64::from(rank) + round + 1;
                (if to >= u64::from(n) {
                    to - u64::from(n)
                } else {
                    to
                }) as u32
            }
            Kind::Alltoallv { seed } => {
                let to = ((u64::from(rank) + round + 1) % u64::from(n)) as u32;
                let pair = u64::from(rank) * u64::from(n) + u64::from(to);
                let bytes = 2.0 * self.size * SplitMix64::new(mixed(seed, pair)).unit();
                return Round {
                    send: Some((to, bytes)),
                    ..Round::NOTHING
                };
            }
            Kind::MixtureOfExperts { seed, .. } => return self.experts(rank, round, seed),
            Kind::Pairwise => rank ^ (round as u32 + 1),
            Kind::SimpleSpread2d => {
                let (p, side) = (round as u32 + 1, self.side);
                let x = (rank % side + p % side) % side;
                let y = (rank / side + p / side) % side;
                x + y * side
            }
            _ => return collective::round(&self.kind, n, self.size, rank, round),
        };
        Round {
            send: Some((to, self.size)),
            receive: None,
            receive_first: false,
        }
    }

    /// A round of a mixture of experts. Each of the two exchanges of a layer has a round for each
    /// other rank. All receives come after all sends, so that a rank sends to all at once.
    fn experts(&self, rank: u32, round: u64, seed: u64) -> Round {
        let n = u64::from(self.ranks);
        if n < 2 {
            return Round::NOTHING;
        }
        let (exchange, step) = (round / (2 * (n - 1)), round % (2 * (n - 1)));
        let shift = |by: u64| ((u64::from(rank) + by) % n) as u32;
        if step >= n - 1 {
            return Round {
                receive: Some(shift(2 * n - 2 - step)),
                ..Round::NOTHING
            };
        }
        let to = shift(step + 1);
        let expert = if exchange.is_multiple_of(2) { to } else { rank };
        let first = SplitMix64::new(mixed(seed, exchange / 2)).below(n);
        let popularity = (u64::from(expert) + n - first) % n + 1;
        Round {
            send: Some((to, self.size * self.top / popularity as f64)),
            ..Round::NOTHING
        }
    }
}

/// The seed of one of many draws.
fn mixed(seed: u64, draw: u64) -> u64 {
    SplitMix64::new(seed.wrapping_add(draw.wrapping_mul(0x9e37_79b9_7f4a_7c15))).next_u64()
}
