//! The record of calls: what a line says, and which calls get a line of their own.
//!
//! [`Line`] is one line of the record, as `docs/record.md` describes it for readers. [`Sampler`]
//! decides, in the time that its caller passes in, which calls get a line of their own and which
//! ones it counts together in a [`Together`] line. This crate reads and writes no files:
//! `farcall-recorder` does. The contents of arrays never get here.

mod line;
mod sampler;
mod spread;

pub use line::{
    Call, Header, Line, LineError, Link, MOST_LINE, Placement, Placements, SCHEMA, Server, Together,
};
pub use sampler::{Budget, Fate, Measured, Sampler, Tally};
pub use spread::{QUANTILES, Spread};
