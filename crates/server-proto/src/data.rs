//! Arrays that stay at the server, and data with names: what is where, who may use it, and how it
//! comes and goes.

mod arrays;
mod named;
mod names;
mod parts;
mod pull;
mod stored;

pub(crate) use arrays::Use;
pub use names::DataFile;

use crate::keys::{CallKey, MemoryKey};
use crate::settings::Settings;
use arrays::Store;
use farcall_directory::message::MOST_DATA;
use farcall_rpc_proto::HandleId;
use names::Names;
use std::collections::VecDeque;

/// All data that stay.
pub(crate) struct Data {
    pub(crate) arrays: Store,
    pub(crate) names: Names,
    /// Arrays that come from other servers.
    pulls: pull::Pulls,
    /// Files of the data folder on their way to memory.
    data_reads: Vec<(HandleId, MemoryKey)>,
    /// Calls whose turn it may be to use arrays.
    candidates: VecDeque<CallKey>,
}

impl Data {
    /// No arrays, and the files that the data folder has.
    pub(crate) fn new(settings: &Settings, files: Vec<DataFile>) -> Data {
        let mut names = Names::new(settings.arrays.names.min(MOST_DATA));
        names.set_files(files);
        Data {
            arrays: Store::new(settings.arrays.clone(), settings.limits.memory),
            names,
            pulls: pull::Pulls::default(),
            data_reads: Vec::new(),
            candidates: VecDeque::new(),
        }
    }

    /// Whether it may be some call's turn to use arrays.
    pub(crate) fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }
}
