//! Tells a forked child from its parent, without a system call. A child counts itself as it begins;
//! processes that begin in another way than by `fork` do not run this code.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that calls this first, or a child of it that was forked later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process. Its children by `fork` are others from now on.
    pub(crate) fn this() -> Process {
        static ONCE: Once = Once::new();
        // SAFETY: the handler changes one atomic number, which a child may do at once. If there is
        // no memory for it, a child counts as its parent.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(count));
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is the one that [`Process::this`] returned it to.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
