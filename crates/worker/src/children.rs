//! Processes that functions start. They end with the call.
//!
//! Every descendant of a worker becomes its child when the parents in between end, so a worker
//! without children has no descendants. To ask for that is one system call.

use crate::namespaces::last_error;
use rustix::io::Errno;

/// The processes that functions of a worker start.
#[derive(Debug)]
pub(crate) struct Children {
    /// Whether they end with a call.
    end: bool,
    /// Whether all processes that the worker can see are its own.
    in_namespace: bool,
}

impl Children {
    /// For a worker that has loaded its library. Processes of the library itself remain. Without
    /// `end`, all others remain too.
    pub(crate) fn new(end: bool, in_namespace: bool) -> Children {
        // SAFETY: a plain system call.
        let adopts = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 };
        Children {
            end: end && adopts && !has_children(),
            in_namespace,
        }
    }

    /// Ends the processes that a call has left behind.
    pub(crate) fn end(&self) {
        if !self.end || !has_children() {
            return;
        }
        loop {
            self.kill();
            // SAFETY: a plain system call. A process that was killed ends soon.
            let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
            if waited < 0 && last_error() == Errno::CHILD {
                return;
            }
        }
    }

    fn kill(&self) {
        if self.in_namespace {
            // SAFETY: a plain system call. It reaches all processes of the namespace but this one
            // and the keeper.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            return;
        }
        // Children of children become children, and are killed in the next round.
        let tasks = std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            for child in children.split_whitespace().filter_map(|id| id.parse().ok()) {
                // SAFETY: a plain system call on a child that nobody has waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
        }
    }
}

/// Whether this process has children, running or not.
fn has_children() -> bool {
    let flags = libc::WNOHANG | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    // SAFETY: a system call on memory of this frame.
    let result = unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut found, flags)
    };
    result == 0 || last_error() != Errno::CHILD
}
