//! Signals for the benchmarks. An interrupted run leaves no network namespaces and no temporary
//! files. A run whose output nobody reads any more leaves none either, and ends quietly.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tempfile::{NamedTempFile, TempDir};

/// Whether a signal is ending this process.
static ENDS: AtomicBool = AtomicBool::new(false);
/// The temporary files and folders of this process.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes Ctrl-C and SIGTERM remove the network namespaces and the temporary files before they end
/// this process.
pub(crate) fn leave_nothing() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !farcall_child::outlives_terminal() {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            ENDS.store(true, Ordering::SeqCst);
            // The next lab removes namespaces that cannot be removed now.
            let _ = farcall_lab::remove_all();
            // Nobody makes another file from here on.
            let temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
            temporary.iter().for_each(|path| remove(path));
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Removes a file or a folder. A process that still runs may make another file there meanwhile.
fn remove(path: &Path) {
    let again = |_: &i32| std::fs::remove_dir_all(path).is_err() && path.is_dir();
    let _ = std::fs::remove_file(path);
    let _ = (0..10).take_while(again).count();
}

/// A temporary folder, which is removed when it is dropped or when a signal ends this process.
pub(crate) fn folder() -> io::Result<TempDir> {
    remember(tempfile::tempdir, TempDir::path)
}

/// The same for a file.
pub(crate) fn file() -> io::Result<NamedTempFile> {
    remember(NamedTempFile::new, NamedTempFile::path)
}

fn remember<T>(
    make: impl FnOnce() -> io::Result<T>,
    path: impl FnOnce(&T) -> &Path,
) -> io::Result<T> {
    // A signal that comes now waits until the list has the path.
    let mut temporary = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    let made = make()?;
    temporary.push(path(&made).to_owned());
    Ok(made)
}

/// Waits for the end if a signal is ending this process: without its network namespaces a benchmark
/// fails, and that failure is not worth a message.
pub(crate) fn end_first() {
    while ENDS.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Lets `farcall bench ... | head` end quietly when its reader ends. Printing panics then, so that
/// hosts, processes and files go with the values that hold them. SIGPIPE would leave them. Output
/// that cannot be written for another reason, such as a full disk, is an error.
pub(crate) fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    let no_reader = io::Error::from_raw_os_error(libc::EPIPE).to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        match text.strip_prefix("failed printing to stdout: ") {
            None => usual(panic),
            Some(reason) if reason == no_reader => {}
            Some(reason) => {
                let text = format_args!("cannot write to standard output: {reason}");
                Failure::failed(text).print();
            }
        }
    }));
}
