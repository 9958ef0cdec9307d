//! Sources outside of Farcall, whose contents change. An array that a server reads must be what the
//! source had at some time while the server was asked. An array that a server has written to an
//! address is there when the client is told.

use std::collections::BTreeMap;

/// Number of sources.
pub(crate) const SOURCES: u64 = 4;

/// The sources, and what servers have written to other addresses.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The times at which the versions of each source began.
    versions: [Vec<u64>; SOURCES as usize],
    written: BTreeMap<String, Vec<u8>>,
}

impl Default for Sources {
    fn default() -> Sources {
        Sources {
            versions: std::array::from_fn(|_| vec![0]),
            written: BTreeMap::new(),
        }
    }
}

/// The bytes of a version of a source.
pub(crate) fn contents(source: u64, version: u64) -> Vec<u8> {
    let first = source * 61 + version * 7;
    let count = 1 + (source * 1009 + version * 577) % 3000;
    let byte = |index: u64| (first + index * (1 + source)) as u8;
    (0..count).map(byte).collect()
}

/// Whether a source says its version.
pub(crate) fn says_version(source: u64) -> bool {
    source.is_multiple_of(2)
}

impl Sources {
    /// The version of a source.
    pub(crate) fn version(&self, source: u64) -> u64 {
        self.versions[source as usize].len() as u64 - 1
    }

    /// A source has other contents from now on.
    pub(crate) fn changes(&mut self, source: u64, now: u64) {
        self.versions[source as usize].push(now);
    }

    /// A server has written an array to an address.
    pub(crate) fn writes(&mut self, address: String, bytes: Vec<u8>) {
        self.written.insert(address, bytes);
    }

    /// Whether these bytes are at an address.
    pub(crate) fn has(&self, address: &str, bytes: &[u8]) -> bool {
        self.written
            .get(address)
            .is_some_and(|there| there == bytes)
    }

    /// Whether these were the contents of a source at some time since.
    pub(crate) fn were(&self, source: u64, bytes: &[u8], (since, until): (u64, u64)) -> bool {
        let begins = &self.versions[source as usize];
        let ends = begins.iter().skip(1).copied().chain([u64::MAX]);
        let known = begins.iter().copied().zip(ends).zip(0..);
        let mut current = known.filter(|((begin, end), _)| *begin <= until && *end >= since);
        current.any(|(_, version)| contents(source, version) == bytes)
    }
}
