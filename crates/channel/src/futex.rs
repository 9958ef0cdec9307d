//! Sleeping on a word of the segment until another process changes it.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `seen`; may also return early.
pub(crate) fn wait(word: &AtomicU32, seen: u32) {
    // SAFETY: the word is live for the whole call, and the kernel only reads it. Without a private
    // flag the futex is known by its page, so that it works between processes.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes whoever sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word is live for the whole call, and waking does not touch it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
