//! Limits of the resources of a worker. They are never above those that its server has.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Limits private memory, and the size of files that functions write. Call buffers are shared
/// memory and do not count.
pub(crate) fn of_worker(memory: u64, files: u64) -> io::Result<()> {
    /// Least file size limit, because writes to shared memory count too.
    const LEAST_FILE: u64 = 4 << 20;
    lower(Resource::Core, 0)?;
    if memory > 0 {
        lower(Resource::Data, memory)?;
    }
    if files > 0 {
        lower(Resource::Fsize, files.max(LEAST_FILE))?;
    }
    // The server ignores this signal. In a worker it ends the call that writes too much.
    // SAFETY: the signal gets its usual effect back, and no handler runs.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    Ok(())
}

/// Limits a resource. A shell or a batch system may have set a smaller limit, which stays.
pub(crate) fn lower(what: Resource, to: u64) -> rustix::io::Result<()> {
    let least = getrlimit(what).maximum.map_or(to, |most| most.min(to));
    let (current, maximum) = (Some(least), Some(least));
    setrlimit(what, Rlimit { current, maximum })
}
