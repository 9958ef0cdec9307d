//! Many servers behind a metaserver, used as one: placement of calls, named data, and what happens
//! when a server is lost.
//!
//! This module asks the metaserver where each call goes. While no metaserver answers, the client
//! decides by its last copy of the directory. The calls themselves are made by `remote`, which
//! knows nothing of `grid`.

mod call;
mod data;
mod directory;
mod function;
mod placed;
mod probe;
mod reservation;

pub(crate) use directory::Grid;
pub(crate) use function::Function;
