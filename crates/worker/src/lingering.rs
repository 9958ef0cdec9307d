//! A worker's process after it has closed its connection. Nearly always it is about to end, and its
//! status tells why. A library can also close the connection and go on: then it is killed.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a worker that has closed its connection may take to end. On a busy machine, a process
/// that ends can wait for a processor.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// A process without a connection to the server.
pub(crate) struct Lingering {
    /// Readable when the process has ended.
    end: OwnedFd,
    until: Instant,
    is_over: bool,
}

impl Lingering {
    /// The time of a process begins. `end` is readable when it has ended.
    pub(crate) fn begin(end: OwnedFd) -> Lingering {
        let until = Instant::now() + LAST_BREATH;
        Lingering {
            end,
            until,
            is_over: false,
        }
    }

    /// Readable when the process has ended.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Whether the process has not ended yet.
    pub(crate) fn goes_on(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    /// The time that the process has; `None` from the moment on when it is over.
    pub(crate) fn left(&mut self) -> Option<Duration> {
        let left = self.remaining();
        self.is_over |= left.is_zero();
        (!self.is_over).then_some(left)
    }

    /// Waits until the process has ended or its time is over. Returns whether it has ended in time.
    pub(crate) fn ends_in_time(&self) -> bool {
        !self.is_over && self.ends_within(self.remaining())
    }

    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn ends_within(&self, most: Duration) -> bool {
        let mut ended = [PollFd::new(&self.end, PollFlags::IN)];
        let most = Timespec::try_from(most).ok();
        rustix::event::poll(&mut ended, most.as_ref()) == Ok(1)
    }
}
