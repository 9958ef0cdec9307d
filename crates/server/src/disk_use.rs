//! Measures the disk space that a folder takes, for the metrics. A thread measures every 10 s,
//! because a large folder takes long to read and the reactor must not block. The figure can be that
//! old, and a file that disappears during a measurement counts as empty.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two measurements.
const PAUSE: Duration = Duration::from_secs(10);
/// Size of the blocks that the system counts, in bytes.
const BLOCK: u64 = 512;

/// The disk use of a folder's files.
pub(crate) struct DiskUse(Arc<AtomicU64>);

impl DiskUse {
    /// Measures at once, and then from time to time while the value is in use.
    pub(crate) fn watch(folder: PathBuf) -> io::Result<DiskUse> {
        let bytes = Arc::new(AtomicU64::new(bytes_of(&folder)));
        let known = Arc::downgrade(&bytes);
        let look = move || {
            loop {
                thread::sleep(PAUSE);
                match known.upgrade() {
                    Some(bytes) => bytes.store(bytes_of(&folder), Ordering::Relaxed),
                    None => return,
                }
            }
        };
        thread::Builder::new().name("disk-use".into()).spawn(look)?;
        Ok(DiskUse(bytes))
    }

    /// The last measurement in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file that disappears meanwhile counts as empty.
fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.blocks() * BLOCK,
        Err(_) => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_count() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("jobs")).unwrap();
        assert_eq!(bytes_of(folder.path()), 0);
        fs::write(folder.path().join("jobs/1"), vec![1; 100_000]).unwrap();
        assert!((100_000..1_000_000).contains(&bytes_of(folder.path())));
        let watched = DiskUse::watch(folder.path().to_path_buf()).unwrap();
        assert_eq!(watched.bytes(), bytes_of(folder.path()));
        assert_eq!(bytes_of(Path::new("no such folder")), 0);
    }
}
