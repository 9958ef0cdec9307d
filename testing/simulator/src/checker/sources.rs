//! Sources outside of Farcall, whose contents change. An array that a server reads must be what the
//! source had at some time while the server was asked.

/// Number of sources.
pub(crate) const SOURCES: u64 = 4;

/// The times at which the versions of each source began.
#[derive(Debug)]
pub(crate) struct Sources([Vec<u64>; SOURCES as usize]);

impl Default for Sources {
    fn default() -> Sources {
        Sources(std::array::from_fn(|_| vec![0]))
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
        self.0[source as usize].len() as u64 - 1
    }

    /// A source has other contents from now on.
    pub(crate) fn changes(&mut self, source: u64, now: u64) {
        self.0[source as usize].push(now);
    }

    /// Whether these were the contents of a source at some time since.
    pub(crate) fn were(&self, source: u64, bytes: &[u8], (since, until): (u64, u64)) -> bool {
        let begins = &self.0[source as usize];
        let ends = begins.iter().skip(1).copied().chain([u64::MAX]);
        let known = begins.iter().copied().zip(ends).zip(0..);
        let mut current = known.filter(|((begin, end), _)| *begin <= until && *end >= since);
        current.any(|(_, version)| contents(source, version) == bytes)
    }
}
