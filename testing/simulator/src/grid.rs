//! Many servers behind metaservers: the metaservers with their store, and clients whose calls they
//! place.

pub(crate) mod caller;
mod data;
mod lines;
pub(crate) mod meta;
pub(crate) mod store;
