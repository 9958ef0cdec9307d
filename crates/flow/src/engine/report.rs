//! The reasons why a simulation cannot start or continue, as errors for people. The engine finds
//! them. A deadlock names the ranks that wait and the lines they come from, as far as they are
//! known.

use crate::goal::ANY_TAG;
use crate::solver::Violation;
use std::fmt;

/// A rank that waits for a message that nobody sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The waiting rank.
    pub rank: u32,
    /// The rank it waits for, unless any rank will do.
    pub source: Option<u32>,
    /// The tag it waits for, in a trace, unless any tag will do.
    pub tag: Option<u64>,
    /// The line of the receive in the file it came from.
    pub line: Option<u32>,
}

/// A state in which no flow is active and no timer is set, but ranks still wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Deadlock {
    /// Time at which the simulation stopped, in seconds.
    pub time: f64,
    /// All receives that wait. Empty if only sends wait, for receives that never match.
    pub blocked: Vec<Blocked>,
    /// Messages that arrived but that no rank received: source, destination, tag, count.
    pub unreceived: Vec<(u32, u32, u64, u64)>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let n = self.blocked.len();
        let what = match n {
            0 => "a send waits for a receive that is never posted".to_owned(),
            1 => "1 receive waits for a message that is never sent".to_owned(),
            n => format!("{n} receives wait for a message that is never sent"),
        };
        write!(f, "deadlock at {} s: {what}", self.time)?;
        for b in self.blocked.iter().take(SHOWN) {
            match b.source {
                Some(source) => write!(f, "\n  rank {} waits for rank {source}", b.rank)?,
                None => write!(f, "\n  rank {} waits for any rank", b.rank)?,
            }
            if let Some(tag) = b.tag {
                write!(f, ", tag {tag}")?;
            }
            if let Some(line) = b.line {
                write!(f, " (line {line})")?;
            }
        }
        if n > SHOWN {
            write!(f, "\n  and {} more", n - SHOWN)?;
        }
        for (source, destination, tag, count) in self.unreceived.iter().take(SHOWN) {
            write!(
                f,
                "\n  not received: {count} from rank {source} to rank {destination}, "
            )?;
            match *tag {
                ANY_TAG => f.write_str("any tag")?,
                tag => write!(f, "tag {tag}")?,
            }
        }
        let more = self.unreceived.len().saturating_sub(SHOWN);
        if more > 0 {
            write!(f, "\n  not received: those of {more} more ranks or tags")?;
        }
        Ok(())
    }
}

/// The error of a simulation that cannot start or finish.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The workload has more ranks than there are nodes to place them on.
    #[error(
        "{ranks} ranks do not fit on {places} nodes; choose a larger platform, or a placement with \
         a node for each rank"
    )]
    TooManyRanks {
        /// Ranks of the workload.
        ranks: usize,
        /// Nodes of the platform, or entries of the placement.
        places: usize,
    },
    /// The workload deadlocks.
    #[error("{0}")]
    Deadlock(Deadlock),
    /// Failed links leave no route between two nodes.
    #[error(
        "no route from {from} to {to} works at {time} s. Let fewer links fail, or place no rank \
         there"
    )]
    Unreachable {
        /// Simulated time in seconds.
        time: f64,
        /// Name of the sending node.
        from: String,
        /// Name of the receiving node.
        to: String,
    },
    /// Full buffers of the packet model block each other. Only routes of an edge list can close a
    /// circle of buffers.
    #[error(
        "{messages} messages stop at {time} s: full buffers wait for each other in a circle. Use \
         larger buffers, or the flow model"
    )]
    FullBuffers {
        /// Simulated time in seconds.
        time: f64,
        /// Messages that have not arrived.
        messages: usize,
    },
    /// The rates are not max-min fair. This is a defect of this library.
    #[error("rates at {time} s are not max-min fair (please report): {violation}")]
    Violation {
        /// Simulated time in seconds.
        time: f64,
        /// The condition that the rates violate.
        violation: Violation,
    },
}
