//! The processor elements of a call: as many threads do its libraries use. A library that cannot
//! change its threads uses the number from its environment.

use farcall_library::Threads;

/// What the libraries of a worker use.
pub(crate) struct Elements {
    /// Processor elements of the previous call.
    pes: u32,
    /// The libraries' thread settings, looked up at the first change. Most calls never change them.
    threads: Option<Threads>,
    /// Libraries that were loaded then. A function may load another one, which has the number of
    /// its environment until the next call.
    loaded: u64,
}

impl Elements {
    /// The number in the environment of a worker that has loaded its library.
    pub(crate) fn new(pes: u32) -> Elements {
        Elements {
            pes,
            threads: None,
            loaded: Threads::loaded(),
        }
    }

    /// Sets the number of the libraries' threads.
    ///
    /// # Safety
    /// No library code runs.
    pub(crate) unsafe fn give(&mut self, pes: u32) {
        let loaded = Threads::loaded();
        if loaded != self.loaded {
            self.threads = None;
        } else if pes == self.pes {
            return;
        }
        (self.pes, self.loaded) = (pes, loaded);
        let threads = self.threads.get_or_insert_with(Threads::of_process);
        // SAFETY: the caller's promise.
        unsafe { threads.set(pes) };
    }
}
