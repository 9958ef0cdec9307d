//! The files of the record of calls. A [`Recorder`] writes lines into a folder, on a thread of its
//! own, and keeps the folder within a bound. [`Lines`] reads a file, and [`files`] finds the files
//! of a folder.
//!
//! A file is whole: one zstd frame of lines of JSON, which every tool reads. Only the file that a
//! server writes at the moment is not, and its name ends in `.part`. After a crash, such a file is
//! readable up to the last second, and the next recorder of the folder makes a whole file of it.
//! `farcall-record` defines the lines.

mod folder;
mod reader;
mod recorder;
mod writer;

pub use folder::files;
pub use reader::{Lines, ReadError, Told};
pub use recorder::{Recorder, Settings};
pub use writer::Writer;
