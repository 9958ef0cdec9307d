//! Signals for the benchmarks: an interrupted run leaves no network namespaces, and a closed pipe
//! ends a run quietly.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Makes Ctrl-C and SIGTERM remove the network namespaces before they end this process.
pub(crate) fn leave_no_lab() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // The next lab removes namespaces that cannot be removed now.
            let _ = farcall_lab::remove_all();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Lets `farcall bench ... | head` end quietly when its reader ends.
pub(crate) fn end_with_the_reader() {
    // SAFETY: no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
