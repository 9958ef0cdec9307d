//! Many servers behind metaservers: the metaservers with their store, and clients whose calls they
//! place. The directory, the sessions and the client's decisions are the product's own.
//! `world::grid` plays the network between them.

pub(crate) mod caller;
mod data;
mod lines;
pub(crate) mod meta;
pub(crate) mod store;
