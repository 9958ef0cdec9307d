//! What a simulation tells while it runs: messages, computations, and the load of single links. The
//! engine and the packet model report; other programs make tables and traces of it.

use crate::platform::LinkId;

/// One message that has arrived. Times in seconds from the start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MessageRecord {
    /// Sending rank.
    pub source: u32,
    /// Receiving rank.
    pub destination: u32,
    /// Size.
    pub bytes: f64,
    /// When the first byte left.
    pub start: f64,
    /// When the last byte arrived.
    pub end: f64,
}

/// A computation of a trace, or the delay of a send in a pattern file. Times in seconds from the
/// start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Computation {
    /// The rank that computes.
    pub rank: u32,
    /// Its cpu; 0 for a delay.
    pub cpu: u8,
    /// When it starts.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// A change of the load of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkLoad {
    /// The link, one of those in [`crate::Config::watch`].
    pub link: LinkId,
    /// Seconds from the start of the simulation.
    pub time: f64,
    /// Bytes/s from then on.
    pub rate: f64,
}

/// Something that a simulation tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Record {
    /// A message has arrived.
    Message(MessageRecord),
    /// A computation has started.
    Computation(Computation),
    /// The load of a link has changed.
    LinkLoad(LinkLoad),
}

impl Record {
    /// A computation that starts now and takes this many seconds.
    pub(crate) fn computation(rank: u32, cpu: u8, now: f64, seconds: f64) -> Record {
        Record::Computation(Computation {
            rank,
            cpu,
            start: now,
            end: now + seconds,
        })
    }
}

/// A function that receives every record as it happens.
pub type Sink<'a> = Box<dyn FnMut(&Record) + Send + 'a>;
