//! Sends spans to a collector with OpenTelemetry's protocol (OTLP): protobuf over HTTP.
//!
//! The caller hands spans to an [`Exporter`] and never waits. A thread sends what has gathered. If
//! the collector is slow or away, spans are lost and counted; no call waits for it. This crate
//! makes no spans of its own and chooses no ids.

mod endpoint;
mod exporter;
mod message;
mod post;

use farcall_random::SplitMix64;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Counts, Exporter, Settings};

/// A span: a piece of work, and when it was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: [u8; 16],
    /// Its id.
    pub id: [u8; 8],
    /// The span that has caused it; `None` for the first one of a trace.
    pub parent: Option<[u8; 8]>,
    /// What was done.
    pub name: String,
    /// Whose part of the work it is.
    pub role: Role,
    /// When it began and ended, in nanoseconds since 1970.
    pub from_to: [u64; 2],
    /// More about it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it has failed, if it has.
    pub failure: Option<String>,
}

/// Whose part of the work a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A request, as the client sees it.
    Client,
    /// A request, as the server sees it.
    Server,
    /// A part of another span.
    Part,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
}

/// Nanoseconds since 1970 of a moment in seconds.
pub fn unix_nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The id of a part of a span, which follows from the id of the span. Parts of a span have
/// different numbers.
pub fn part_id(span: [u8; 8], number: u64) -> [u8; 8] {
    let seed = u64::from_be_bytes(span).wrapping_add(number);
    SplitMix64::new(seed).next_u64().max(1).to_be_bytes()
}
