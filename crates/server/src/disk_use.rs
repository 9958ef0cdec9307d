//! How much room a folder takes on the disk, looked up by a thread of its own now and then.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(10);
/// Bytes of a block that the system counts.
const BLOCK: u64 = 512;

/// The room that the files of a folder take.
pub(crate) struct DiskUse(Arc<AtomicU64>);

impl DiskUse {
    /// Looks at once, and then now and then as long as somebody wants to know.
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

    /// What was seen last.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What goes away meanwhile counts nothing.
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
