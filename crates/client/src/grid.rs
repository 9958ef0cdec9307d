//! All servers behind a metaserver, as one: where each call goes, what became of it, and where it
//! goes on when its server is lost.
//!
//! The metaserver is asked for each call. While none answers, the client decides itself, by the
//! directory as it knew it last.

mod call;
mod data;
mod directory;
mod function;
mod placed;
mod probe;
mod reservation;

pub(crate) use call::Started;
pub(crate) use directory::Grid;
pub(crate) use function::Function;
pub(crate) use placed::Placed;
