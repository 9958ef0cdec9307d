//! The messages of one rank in a collective of all ranks. All ranks take part in the same
//! collectives in the same order, so that the number of a collective can be its tag.

use crate::goal::{Builder, Operation};

/// The tags of collectives start here, above those of other messages.
pub(super) const FIRST_TAG: u64 = 1 << 63;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Barrier,
}

impl Kind {
    /// The kind of a `CollectiveCommType`.
    pub(super) fn new(number: u64) -> Result<Self, String> {
        match number {
            0 => Ok(Self::AllReduce),
            2 => Ok(Self::AllGather),
            5 => Ok(Self::Broadcast),
            6 => Ok(Self::AllToAll),
            7 | 8 => Ok(Self::ReduceScatter),
            9 => Ok(Self::Barrier),
            1 | 3 | 4 => {
                let reason = "Reduce, gather and scatter have a root that traces do not name";
                Err(format!(
                    "`comm_type` {number} cannot be simulated. {reason}"
                ))
            }
            other => Err(format!("`comm_type` {other} is not known")),
        }
    }
}

/// A collective: `bytes` is the vector of an all-reduce, reduce-scatter, all-to-all or broadcast,
/// and the part of one rank in an all-gather.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Collective {
    pub(super) kind: Kind,
    pub(super) bytes: f64,
}

/// What a rank sends and receives in a step.
struct Step {
    to: Option<u32>,
    from: Option<u32>,
    bytes: f64,
}

impl Collective {
    fn steps(&self, ranks: u32) -> u32 {
        let others = ranks - 1;
        match self.kind {
            Kind::AllReduce => 2 * others,
            Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => others,
            Kind::Broadcast | Kind::Barrier => ranks.next_power_of_two().trailing_zeros(),
        }
    }

    fn step(&self, ranks: u32, rank: u32, step: u32) -> Step {
        let ahead = |by: u32| Some(((u64::from(rank) + u64::from(by)) % u64::from(ranks)) as u32);
        let behind = |by: u32| ahead(ranks - by % ranks);
        let ring = |bytes: f64| Step {
            to: ahead(1),
            from: behind(1),
            bytes,
        };
        let part = self.bytes / f64::from(ranks);
        match self.kind {
            Kind::AllReduce | Kind::ReduceScatter => ring(part),
            Kind::AllGather => ring(self.bytes),
            Kind::AllToAll => Step {
                to: ahead(step + 1),
                from: behind(step + 1),
                bytes: part,
            },
            Kind::Barrier => Step {
                to: ahead(1 << step),
                from: behind(1 << step),
                bytes: 1.0,
            },
            Kind::Broadcast => {
                let half = 1u32 << step;
                let to = (rank < half && ranks - rank > half).then(|| rank + half);
                let from = (half..2 * half).contains(&rank).then(|| rank - half);
                let bytes = self.bytes;
                Step { to, from, bytes }
            }
        }
    }

    /// Adds the operations of `rank`. A step starts when the receive of the step before is done,
    /// except in an all-to-all, whose messages do not depend on each other. Returns the operation
    /// that begins the collective and the one that ends it.
    pub(super) fn add(
        self,
        trace: &mut Builder,
        rank: u32,
        number: u64,
    ) -> Result<(u32, u32), String> {
        let nothing = Operation::Calc {
            seconds: 0.0,
            cpu: 1,
        };
        let begin = trace.add(rank, nothing, None)?;
        let end = trace.add(rank, nothing, None)?;
        trace.depend(rank, end, begin, true)?;
        let (ranks, tag) = (trace.ranks(), FIRST_TAG + number);
        let mut before = begin;
        for step in 0..self.steps(ranks) {
            let Step { to, from, bytes } = self.step(ranks, rank, step);
            let send = to.map(|to| Operation::Send {
                to,
                bytes,
                tag,
                cpu: 1,
                nic: 0,
            });
            let receive = from.map(|from| Operation::Receive { from, tag });
            let mut received = None;
            for operation in send.into_iter().chain(receive) {
                let added = trace.add(rank, operation, None)?;
                trace.depend(rank, added, before, true)?;
                trace.depend(rank, end, added, true)?;
                if matches!(operation, Operation::Receive { .. }) {
                    received = Some(added);
                }
            }
            if self.kind != Kind::AllToAll {
                before = received.unwrap_or(before);
            }
        }
        Ok((begin, end))
    }
}
