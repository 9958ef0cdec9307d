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
                        "the grid has {product} ranks, but the platform has {ranks}"
                    ));
                }
            }
            _ => {}
        }
        let rounds = collective::rounds(&kind, ranks);
        Ok(Self {
            kind,
            ranks,
            size,
            count: 1,
            rounds,
            side,
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

    /// The same pattern with every message sent `count` times in a row.
    pub fn with_count(mut self, count: u32) -> Self {
        self.count = count.max(1);
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
        use Kind::{Pairwise, Ring, SimpleSpread, SimpleSpread2d};
        !matches!(self.kind, Pairwise | Ring | SimpleSpread | SimpleSpread2d)
    }

    /// Number of messages. A formula gives it where one exists; patterns with idle ranks are
    /// counted.
    pub fn messages(&self) -> u64 {
        use Kind::{
            BinomialBroadcast, Pipeline, RecursiveDoublingAllreduce, ScatterAllgatherBroadcast,
            TreeAllreduce,
        };
        let ranks = u64::from(self.ranks);
        let each = match self.kind {
            _ if self.ranks < 2 => 0,
            Pipeline { .. } => (ranks - 1) * self.rounds,
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
        each * u64::from(self.count)
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
}
