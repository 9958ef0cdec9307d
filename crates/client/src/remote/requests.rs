//! What is asked of the program at the other end of a connection: one function for each question,
//! one module for each subject. Whether that program is old enough, or of the wrong kind, is looked
//! at here.

pub(crate) mod arrays;
pub(crate) mod directory;
pub(crate) mod functions;
pub(crate) mod jobs;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod operation;
pub(crate) mod reservations;
