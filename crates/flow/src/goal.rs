//! GOAL traces: a graph of sends, receives and computations for every rank.
//!
//! The Group Operation Assembly Language (Hoefler, Siebert, Lumsdaine 2009) has a text form and a
//! binary form; LogGOPSim, Schedgen and ATLAHS read and write both. `text` and `binary` read them,
//! `chakra` makes the same graph of Chakra execution traces, and `builder` holds it. `a requires b`
//! starts `a` when `b` is done; `a irequires b` starts it when `b` has started. The graph has no
//! cycle.

mod binary;
mod builder;
mod chakra;
mod text;

use crate::error::TextError;
use crate::loggops::LogGops;
use crate::script::Limits;
pub(crate) use builder::Builder;

/// In [`Operation::Receive`]: a message of any rank matches.
pub const ANY_RANK: u32 = u32::MAX;
/// The tag that matches every tag.
pub const ANY_TAG: u64 = u64::MAX;

/// One operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// A message to a rank.
    Send {
        /// Destination rank.
        to: u32,
        /// Size in bytes.
        bytes: f64,
        /// Matched with the receive's tag. [`ANY_TAG`] matches every tag.
        tag: u64,
        /// The cpu that the message occupies at either end, if hosts have costs.
        cpu: u8,
        /// The network interface that the message occupies at either end.
        nic: u8,
    },
    /// The arrival of a message.
    Receive {
        /// Source rank, or [`ANY_RANK`].
        from: u32,
        /// Matched with the send's tag. [`ANY_TAG`] matches every tag.
        tag: u64,
    },
    /// A computation. Computations of one rank and cpu run one after the other.
    Calc {
        /// Duration in seconds.
        seconds: f64,
        /// The cpu of the rank.
        cpu: u8,
    },
}

/// A parsed trace. Operations are numbered rank by rank in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub(crate) operations: Vec<Operation>,
    /// The line of each operation; empty if the trace is not a text.
    lines: Vec<u32>,
    /// First operation of each rank, and the number of operations.
    pub(crate) first: Vec<u32>,
    /// Successors of each operation, and whether they wait for its end or only for its start.
    successors: Vec<(u32, bool)>,
    first_successor: Vec<u32>,
    /// Number of operations that each operation waits for.
    pub(crate) waits: Vec<u32>,
    hosts: Option<LogGops>,
}

impl Goal {
    /// Reads a trace in either form. Bytes that start with the number of the binary form are
    /// binary, all others are text.
    ///
    /// # Errors
    /// The same as [`Goal::parse`] and [`Goal::parse_binary`]; bytes that are neither.
    pub fn read(data: &[u8], limits: Limits) -> Result<Self, TextError> {
        if binary::is_binary(data) {
            return Self::parse_binary(data, limits);
        }
        let text = str::from_utf8(data).map_err(|_| {
            let reason = "is neither a text nor a binary schedule of LogGOPSim's txt2bin";
            TextError::new(0, reason)
        })?;
        Self::parse(text, limits)
    }

    /// Reads the text form. It starts with `num_ranks N`. Then `rank R { ... }` blocks hold lines
    /// of the form `label: send 10b to 1 tag 0`, `label: recv 10b from 1 tag 0`, `label: calc 100`
    /// (nanoseconds), each with an optional `cpu C` and `nic N`, and `a requires b` or
    /// `a irequires b`. An operation that nothing waits for needs no label. `from -1` matches every
    /// rank and `tag -1` every tag. `//`, `#` at the start of a line, and `/* */` are comments.
    ///
    /// # Errors
    /// The line and the reason: an unexpected word, an unknown label or rank, a label that is
    /// defined twice, a cycle of dependencies, or more ranks or operations than `limits` allow.
    pub fn parse(text: &str, limits: Limits) -> Result<Self, TextError> {
        text::parse(text, limits)
    }

    /// Reads the binary form, as LogGOPSim's txt2bin writes it.
    ///
    /// # Errors
    /// The rank and the operation, and what is wrong with them; a file that ends early; more ranks
    /// or operations than `limits` allow.
    pub fn parse_binary(data: &[u8], limits: Limits) -> Result<Self, TextError> {
        binary::parse(data, limits)
    }

    /// Reads Chakra execution traces, one file for each rank in the order of the ranks, as
    /// ASTRA-sim takes them. Computations take their `duration_micros`. Those with `is_cpu_op` run
    /// on cpu 0 and all others on cpu 1. A collective of all ranks becomes the messages of a ring
    /// (all-reduce, all-gather, reduce-scatter), of a direct exchange (all-to-all), of a binomial
    /// tree from rank 0 (broadcast) or of a dissemination (barrier).
    ///
    /// # Errors
    /// The rank and the node, and what is wrong with them: bytes that are no node, a missing
    /// attribute, a dependency on a node that does not exist, collectives of a process group or
    /// that differ between ranks; more ranks or operations than `limits` allow.
    pub fn parse_chakra(files: &[impl AsRef<[u8]>], limits: Limits) -> Result<Self, TextError> {
        chakra::parse(files, limits)
    }

    /// The same trace on hosts that need time for messages. Without it, hosts have no costs.
    pub fn with_hosts(mut self, hosts: LogGops) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// The costs of the hosts, if they have any.
    pub fn hosts(&self) -> Option<LogGops> {
        self.hosts
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        self.operations
            .iter()
            .filter(|o| matches!(o, Operation::Send { .. }))
            .count() as u64
    }

    /// All operations, rank by rank.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The line of an operation, if the trace is a text.
    pub(crate) fn line(&self, operation: u32) -> Option<u32> {
        self.lines.get(operation as usize).copied()
    }

    pub(crate) fn rank_of(&self, operation: u32) -> u32 {
        self.first.partition_point(|&f| f <= operation) as u32 - 1
    }

    /// The operations that wait for this one, and whether they wait for its end or its start.
    pub(crate) fn successors_of(&self, operation: u32) -> &[(u32, bool)] {
        let o = operation as usize;
        &self.successors[self.first_successor[o] as usize..self.first_successor[o + 1] as usize]
    }

    fn refuse_cycles(&self) -> Result<(), TextError> {
        let mut waits = self.waits.clone();
        let mut ready: Vec<u32> = (0..waits.len() as u32)
            .filter(|&o| waits[o as usize] == 0)
            .collect();
        let mut left = waits.len();
        while let Some(operation) = ready.pop() {
            left -= 1;
            for &(later, _) in self.successors_of(operation) {
                waits[later as usize] -= 1;
                if waits[later as usize] == 0 {
                    ready.push(later);
                }
            }
        }
        match waits.iter().position(|&w| w > 0) {
            Some(waiting) if left > 0 => {
                let at = self.in_cycle(&waits, waiting);
                let rank = self.rank_of(at);
                let number = at - self.first[rank as usize];
                let reason = format!("rank {rank}: operation {number} waits for itself in a cycle");
                let line = self.line(at).unwrap_or(0);
                Err(TextError::new(line as usize, reason))
            }
            _ => Ok(()),
        }
    }

    /// An operation of the cycle for which a waiting operation waits.
    fn in_cycle(&self, waits: &[u32], waiting: usize) -> u32 {
        let mut awaited = vec![0; waits.len()];
        let stuck = (0..waits.len() as u32).filter(|&o| waits[o as usize] > 0);
        for operation in stuck {
            for &(later, _) in self.successors_of(operation) {
                awaited[later as usize] = operation;
            }
        }
        // So many steps back lead into a cycle, because an operation that waits has another one
        // that waits before it.
        (0..waits.len()).fold(waiting as u32, |at, _| awaited[at as usize])
    }
}
