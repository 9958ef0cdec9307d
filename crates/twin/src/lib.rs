//! The twin: replays a record of calls in the grid simulator, as it was and with changes.
//!
//! A [`Day`] takes the lines of records and becomes a [`Twin`]: servers, sites, links and calls of
//! `farcall-gridsim`, whose placement and queues are the code of real servers. The twin learns from
//! the record how long each server computes each function, how fast the links are (`links`), and
//! which calls a client made only after the results of others (`streams`). A [`Change`] asks what
//! another server, link or policy would have changed. The crate reads no files and no clock.

#![forbid(unsafe_code)]

mod change;
mod day;
mod figures;
mod links;
mod scenario;
mod streams;
#[cfg(test)]
mod tests;
mod twin;

pub use change::{Change, ChangeError};
pub use day::{Day, DayError};
pub use figures::{Figures, Group, Parts};
pub use twin::{Answer, Estimate, Twin};
