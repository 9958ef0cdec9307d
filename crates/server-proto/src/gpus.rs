//! Sets of a server's GPUs, by their numbers. A worker is bound to one such set for its life, and a
//! call has its set for itself. Which call has which GPU is decided in `elements`.

use farcall_idl::MOST_GPUS;

/// A set of GPUs. Each has a number from 0 to 63, its place among those that the server uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus(u64);

/// What of the machine a worker has for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Its processes, which compute together.
    pub(crate) processes: u32,
    /// The GPUs that it can see.
    pub(crate) gpus: Gpus,
}

impl Resources {
    /// One process without GPUs.
    pub(crate) const ONE: Resources = Resources {
        processes: 1,
        gpus: Gpus(0),
    };
}

impl Gpus {
    /// Those GPUs of a server with `all` that are not in `used`, and at most `count` of them. `key`
    /// says which ones come first: those with the least.
    pub(crate) fn choose(count: u32, all: u32, used: Gpus, key: impl Fn(Gpus) -> usize) -> Gpus {
        let all = (0..all.min(MOST_GPUS)).map(|number| Gpus(1 << number));
        let mut free: Vec<Gpus> = all.filter(|one| !one.meets(used)).collect();
        free.sort_by_key(|one| key(*one));
        let chosen = free.into_iter().take(count as usize);
        chosen.fold(Gpus::default(), Gpus::with)
    }

    /// The GPUs of both.
    pub fn with(self, other: Gpus) -> Gpus {
        Gpus(self.0 | other.0)
    }

    /// Whether both have a GPU in common.
    pub fn meets(self, other: Gpus) -> bool {
        self.0 & other.0 != 0
    }

    /// Their number.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The number of each.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..MOST_GPUS as usize).filter(move |number| self.0 >> number & 1 == 1)
    }
}
