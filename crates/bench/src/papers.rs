//! The experiments of the two Ninf papers, repeated. docs/papers/load-paper.md and
//! docs/papers/world-paper.md compare the results with the papers.
//!
//! This module has only what the papers fix, such as links, sizes and paces. Clients, servers and
//! tables are in [`crate::load`].

pub(crate) mod bmi;
mod links;
mod local;
pub(crate) mod one_host;
pub(crate) mod policies;
pub(crate) mod sites;
mod statistics;
pub(crate) mod world;
