//! Trouble with the disk of the state folder: what people are told about it, and how often. The
//! journal notices the trouble. An error names the folder and the remedy, and only the first of
//! several refusals is logged.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A write that takes longer is logged. Its bytes may take longer, at the rate below.
const SLOW: Duration = Duration::from_secs(5);
/// Bytes per second that a disk writes at least if it is not slow.
const SLOW_RATE: u64 = 10_000_000;
/// Time between two such lines.
const PAUSE: Duration = Duration::from_secs(60);

/// The folder, and whether it can be written at present.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    folder: Arc<PathBuf>,
    /// Why the folder cannot be written at present.
    known: Arc<Mutex<Option<String>>>,
    /// When people were last told that the disk is slow.
    told: Arc<Mutex<Option<Instant>>>,
}

impl Trouble {
    pub(crate) fn new(folder: &Path) -> Trouble {
        Trouble {
            folder: Arc::new(folder.to_path_buf()),
            known: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Why the folder cannot be written at present.
    pub(super) fn known(&self) -> MutexGuard<'_, Option<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same error, with the folder and the remedy.
    pub(crate) fn explain(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // It says how much is needed and where, or what is missing.
            ErrorKind::StorageFull | ErrorKind::NotFound if error.raw_os_error().is_none() => error,
            ErrorKind::InvalidData => error,
            kind => io::Error::new(kind, self.text(&error)),
        }
    }

    fn text(&self, error: &io::Error) -> String {
        let folder = self.folder.display();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
                "the disk of the state folder {folder} is full ({error}): make room there, and the \
                 server goes on"
            ),
            ErrorKind::ReadOnlyFilesystem => format!(
                "the disk of the state folder {folder} has become read-only: the kernel's log \
                 (dmesg) says why; make it writable again, and the server goes on"
            ),
            ErrorKind::NotFound => format!(
                "the state folder {folder} was removed or replaced ({error}): put it back, and the \
                 server goes on, or start the server again, which then has no call of before"
            ),
            _ => format!(
                "the state folder {folder} cannot be read or written: {error}; check the disk and \
                 the kernel's log (dmesg)"
            ),
        }
    }

    /// The disk has refused a write. Logs the first of several refusals. Returns what clients are
    /// told.
    pub(super) fn begins(&self, error: &io::Error) -> String {
        let text = self.text(error);
        if self.known().replace(text.clone()).is_none() {
            let kept = match error.kind() {
                ErrorKind::NotFound => "",
                _ => ", and nothing that was accepted is lost",
            };
            tracing::error!(
                "durable calls cannot be recorded: {text}. New durable calls are refused until \
                 then{kept}"
            );
        }
        text
    }

    /// The disk takes writes.
    pub(super) fn ends(&self) {
        if self.known().take().is_some() {
            let folder = self.folder.display();
            tracing::info!("durable calls are recorded again in {folder}");
        }
    }

    /// A write of so many bytes, which began at `start`, has ended.
    pub(super) fn took(&self, start: Instant, bytes: u64) {
        let took = start.elapsed();
        if took < SLOW + Duration::from_secs(bytes / SLOW_RATE) {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= PAUSE) {
            *told = Some(Instant::now());
            tracing::warn!(
                "the disk of the state folder {} is slow: a write of {bytes} bytes took {:.1} s; \
                 clients that submit durable calls wait as long",
                self.folder.display(),
                took.as_secs_f64()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_folder_and_the_remedy() {
        let trouble = Trouble::new(Path::new("/var/lib/farcall"));
        for (errno, says) in [
            (libc::ENOSPC, "make room there"),
            (libc::EDQUOT, "make room there"),
            (libc::EROFS, "has become read-only"),
            (libc::ENOENT, "was removed or replaced"),
            (libc::EIO, "check the disk"),
        ] {
            let error = trouble.explain(io::Error::from_raw_os_error(errno));
            let text = error.to_string();
            assert!(
                text.contains(says) && text.contains("/var/lib/farcall"),
                "{text}"
            );
            assert_eq!(trouble.begins(&io::Error::from_raw_os_error(errno)), text);
        }
        for (kind, text) in [
            (ErrorKind::StorageFull, "5 bytes are needed"),
            (ErrorKind::NotFound, "the logs do not have them"),
        ] {
            let known = trouble.explain(io::Error::new(kind, text));
            assert_eq!((known.kind(), known.to_string().as_str()), (kind, text));
        }
    }
}
