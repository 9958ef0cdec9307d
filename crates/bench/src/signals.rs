//! Signals for the benchmarks. An interrupted run leaves no network namespaces, and a closed pipe
//! ends a run quietly.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a signal is ending this process.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C and SIGTERM remove the network namespaces before they end this process.
pub(crate) fn leave_no_lab() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            ENDS.store(true, Ordering::SeqCst);
            // The next lab removes namespaces that cannot be removed now.
            let _ = farcall_lab::remove_all();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Waits for the end if a signal is ending this process: without its network namespaces a benchmark
/// fails, and that failure is not worth a message.
pub(crate) fn end_first() {
    while ENDS.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Lets `farcall bench ... | head` end quietly when its reader ends.
pub(crate) fn end_with_the_reader() {
    // SAFETY: no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
