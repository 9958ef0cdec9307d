//! Tells a forked child from its parent, without a system call. A child counts itself as it begins;
//! processes that begin in another way than by `fork` do not run this code.

use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the first process that asked and this one. Differs between a parent
/// that has asked and its child.
pub(crate) fn generation() -> u32 {
    #[cfg(unix)]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: the handler changes one atomic number, which a child may do at once. If there is
        // no memory for it, a child counts as its parent.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(count));
        });
    }
    FORKS.load(Ordering::Relaxed)
}

#[cfg(unix)]
extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
