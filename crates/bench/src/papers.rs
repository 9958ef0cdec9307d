//! The experiments of the two Ninf papers, made again. docs/papers/load-paper.md and
//! docs/papers/world-paper.md set what is found beside what the papers say.
//!
//! Everything here is a reproduction: what the papers fix, such as links, sizes and paces, stands
//! here, and clients, servers and tables are those of [`crate::load`].

mod links;
mod local;
pub(crate) mod one_host;
pub(crate) mod sites;
mod statistics;
pub(crate) mod world;
