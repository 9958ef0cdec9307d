//! What signals do to a benchmark.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Has Ctrl-C and SIGTERM end this process with its network namespaces removed before.
pub(crate) fn leave_no_lab() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // What cannot be removed now, the next lab sweeps away.
            let _ = farcall_lab::remove_all();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Lets `farcall bench ... | head` end quietly when its reader does.
pub(crate) fn end_with_the_reader() {
    // SAFETY: no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
