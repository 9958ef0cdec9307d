//! Requests to the peer of a connection: one function for each request, one module for each
//! subject.
//!
//! The functions here also check whether the peer is new enough and of the right kind.

pub(crate) mod arrays;
pub(crate) mod directory;
pub(crate) mod functions;
pub(crate) mod jobs;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod operation;
pub(crate) mod reservations;
