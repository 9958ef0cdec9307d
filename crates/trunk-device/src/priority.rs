//! The priority of the thread that moves frames, and its processor time. A link does not wait for a
//! daemon that waits for a processor: what is not sent in time is lost rate.

use crate::interface::check;
use crate::{Nanos, clock};
use std::io;

/// Lets this thread run before all ordinary threads whenever it has work, with a real-time priority
/// (`SCHED_RR`) of 1 or more. With none, it is an ordinary thread. Threads and programs that it
/// starts are ordinary ones.
///
/// # Errors
/// The process has no right to do so: it needs `CAP_SYS_NICE`, or a limit `RLIMIT_RTPRIO` of at
/// least the priority, and a control group with real-time bandwidth.
pub fn set_priority(priority: Option<u8>) -> io::Result<()> {
    // SAFETY: all bytes of the parameter may be zero.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority.map_or(0, i32::from);
    let policy = priority.map_or(libc::SCHED_OTHER, |_| libc::SCHED_RR);
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameter outlives the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) }).map(drop)
}

/// Nanoseconds of processor time that this thread has used.
pub fn thread_time() -> Nanos {
    clock(rustix::time::ClockId::ThreadCPUTime)
}
