//! Reads Chakra execution traces (MLCommons, `et_def.proto`) into the graph of a trace.
//!
//! A file is a sequence of messages of protobuf, each after its length: one of metadata, then the
//! nodes. `collective` makes the messages of collectives. Fields that the simulation does not need
//! are skipped.

mod collective;

use super::{Builder, Goal, Operation};
use crate::error::TextError;
use crate::script::Limits;
use collective::{Collective, Kind};
use prost::Message;
use std::collections::HashMap;

/// A node of a trace: what of `et_def.proto`'s `Node` matters here.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    control_dependencies: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    data_dependencies: Vec<u64>,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    attributes: Vec<Attribute>,
}

/// A named value. Programs disagree on the type of a number, so each of them is accepted.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, optional, tag = "7")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    uint64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    boolean: Option<bool>,
    #[prost(string, optional, tag = "29")]
    string: Option<String>,
}

impl Attribute {
    fn number(&self) -> Option<u64> {
        let signed = self.int32.map(i64::from).or(self.int64);
        let unsigned = self.uint32.map(u64::from).or(self.uint64);
        signed.and_then(|n| u64::try_from(n).ok()).or(unsigned)
    }
}

impl Node {
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|a| a.name == name)
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let number = self.attribute(name).and_then(Attribute::number);
        number.ok_or_else(|| format!("has no number `{name}`"))
    }

    /// The cpu of the simulation: 0 for the host, 1 for the accelerator.
    fn cpu(&self) -> u8 {
        let on_host = self.attribute("is_cpu_op").and_then(|a| a.boolean);
        if on_host == Some(true) { 0 } else { 1 }
    }
}

pub(super) fn parse(files: &[impl AsRef<[u8]>], limits: Limits) -> Result<Goal, TextError> {
    let fail = |reason: String| TextError::new(0, reason);
    let ranks = u32::try_from(files.len()).map_err(|_| fail("too many ranks".to_owned()))?;
    let mut trace = Builder::new(ranks, limits).map_err(fail)?;
    let mut collectives = Vec::new();
    for (rank, file) in (0..ranks).zip(files) {
        let mut reader = Reader {
            trace: &mut trace,
            rank,
            first: rank == 0,
            collectives: &mut collectives,
            met: 0,
            ends: HashMap::new(),
        };
        let read = reader.file(file.as_ref());
        read.map_err(|reason| fail(format!("rank {rank}: {reason}")))?;
    }
    trace.finish()
}

/// Reads the file of one rank.
struct Reader<'a> {
    trace: &'a mut Builder,
    rank: u32,
    first: bool,
    /// The collectives of the first rank. Those of the others must be the same.
    collectives: &'a mut Vec<Collective>,
    met: usize,
    /// The operation after which a node is done, and those that begin it.
    ends: HashMap<u64, u32>,
}

impl Reader<'_> {
    fn file(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        take_message(&mut bytes).map_err(|reason| format!("metadata: {reason}"))?;
        let mut waiting: Vec<(u64, u32, u64)> = Vec::new();
        while !bytes.is_empty() {
            let place = self.ends.len();
            let message = take_message(&mut bytes).map_err(|e| format!("node {place}: {e}"))?;
            let node = Node::decode(message).map_err(|e| format!("node {place}: {e}"))?;
            let named = |reason: String| format!("node with id {}: {reason}", node.id);
            let (begin, end) = self.node(&node).map_err(named)?;
            if self.ends.insert(node.id, end).is_some() {
                return Err(named("is given twice".to_owned()));
            }
            let (control, data) = (&node.control_dependencies, &node.data_dependencies);
            for &earlier in control.iter().chain(data) {
                waiting.push((node.id, begin, earlier));
            }
        }
        waiting.sort_unstable();
        waiting.dedup();
        for (id, begin, earlier) in waiting {
            let Some(&end) = self.ends.get(&earlier) else {
                return Err(format!("node with id {id}: there is no node {earlier}"));
            };
            self.trace.depend(self.rank, begin, end, true)?;
        }
        if self.met < self.collectives.len() {
            let (met, all) = (self.met, self.collectives.len());
            return Err(format!("has {met} collectives, but rank 0 has {all}"));
        }
        Ok(())
    }

    /// Adds the operations of a node. Returns the first and the last one.
    fn node(&mut self, node: &Node) -> Result<(u32, u32), String> {
        let operation = match node.kind {
            // Without a type, or metadata.
            0 | 1 => calc(0, 0),
            // Memory, and computations.
            2..=4 => {
                let work = node.attribute("num_ops").and_then(Attribute::number);
                if node.duration_micros == 0 && work.is_some_and(|operations| operations > 0) {
                    return Err(
                        "has `num_ops` but no `duration_micros`: record durations, or \
                                compute them from the operations"
                            .to_owned(),
                    );
                }
                calc(node.duration_micros, node.cpu())
            }
            5 => Operation::Send {
                to: self.peer(node, "comm_dst")?,
                bytes: node.number("comm_size")? as f64,
                tag: tag(node)?,
                cpu: 1,
                nic: 0,
            },
            6 => Operation::Receive {
                from: self.peer(node, "comm_src")?,
                tag: tag(node)?,
            },
            7 => return self.collective(node),
            other => return Err(format!("kind {other} is not known")),
        };
        let operation = self.trace.add(self.rank, operation, None)?;
        Ok((operation, operation))
    }

    fn peer(&self, node: &Node, name: &str) -> Result<u32, String> {
        let (rank, ranks) = (node.number(name)?, self.trace.ranks());
        let below = u32::try_from(rank).ok().filter(|&rank| rank < ranks);
        below.ok_or_else(|| format!("`{name}` is {rank}, but there are files of {ranks} ranks"))
    }

    fn collective(&mut self, node: &Node) -> Result<(u32, u32), String> {
        let group = node.attribute("pg_name").and_then(|a| a.string.as_deref());
        if let Some(group) = group.filter(|group| !group.is_empty()) {
            let reason = "only collectives of all ranks can be simulated";
            return Err(format!(
                "is a collective of process group `{group}`: {reason}"
            ));
        }
        let number = node.number("comm_type")?;
        let collective = Collective {
            kind: Kind::new(number)?,
            bytes: node.number("comm_size")? as f64,
        };
        match self.collectives.get(self.met) {
            None if self.first => self.collectives.push(collective),
            Some(other) if *other == collective => {}
            _ => {
                let place = self.met;
                return Err(format!("collective {place} is not the one of rank 0"));
            }
        }
        self.met += 1;
        collective.add(self.trace, self.rank, self.met as u64)
    }
}

fn calc(micros: u64, cpu: u8) -> Operation {
    Operation::Calc {
        seconds: micros as f64 / 1e6,
        cpu,
    }
}

/// The tag of a message between two ranks. Those of collectives are larger.
fn tag(node: &Node) -> Result<u64, String> {
    match node.attribute("comm_tag") {
        None => Ok(0),
        Some(_) => match node.number("comm_tag")? {
            tag if tag < collective::FIRST_TAG => Ok(tag),
            tag => Err(format!("`comm_tag` is {tag}, which is 2^63 or more")),
        },
    }
}

/// Takes one message, which its length precedes.
fn take_message<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = prost::decode_length_delimiter(&mut *bytes)
        .map_err(|_| "has no length of a message".to_owned())?;
    let Some((message, rest)) = bytes.split_at_checked(length) else {
        return Err(format!(
            "{length} bytes are announced, but {} follow",
            bytes.len()
        ));
    };
    *bytes = rest;
    Ok(message)
}

#[cfg(test)]
mod tests;
