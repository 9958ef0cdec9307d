//! Futexes: sleep on a word of the segment until another process changes it. A wait can end early,
//! so the caller checks its condition again. It works between processes, because the futex is not
//! private.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps as long as `word` holds `seen`, at most for `most`. It may also return early.
pub(crate) fn wait(word: &AtomicU32, seen: u32, most: Option<Duration>) {
    let time = most.map(|most| libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: word and time are live for the whole call, and the kernel only reads them. Without a
    // private flag the futex is known by its page, so that it works between processes.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, time);
    }
}

/// Wakes every process that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word is live for the whole call, and waking does not touch it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
