//! The gang job of this process, as its daemon tells it in [`VARIABLE`]. The process finds it once,
//! and all channels share it.

use crate::error::ChannelError;
use crate::process::Process;
use crate::segment::Segment;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, OnceLock};

/// The environment variable from which a process learns its gang job: `SEGMENT,BELL,RANK,STATE`,
/// its rank, and the descriptors of the segment, of the bell and of the memory for its state.
pub const VARIABLE: &str = "FARCALL_CHANNEL";

/// The gang job of this process.
pub(crate) struct Membership {
    pub(crate) segment: Arc<Segment>,
    pub(crate) bell: Arc<OwnedFd>,
    pub(crate) rank: u16,
    /// None with a daemon of an earlier version.
    pub(crate) state: Option<Arc<File>>,
    /// The open channels, one bit each. A channel opens once, because a ring has one reader and one
    /// writer.
    pub(crate) open: AtomicU16,
    /// The process that has found it. One that was forked later does not belong to the gang job.
    pub(crate) process: Process,
}

/// Why a process has no gang job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nobody has told it one.
    Unset,
    /// The process that was told it has not passed the descriptors on.
    Closed,
    /// The segment is that of another version, or none.
    Foreign,
    /// The system cannot map it: the number of the error.
    Unmapped(i32),
}

impl From<Missing> for ChannelError {
    fn from(missing: Missing) -> ChannelError {
        match missing {
            Missing::Unset => ChannelError::NoJob("FARCALL_CHANNEL is not set"),
            Missing::Closed => ChannelError::NoJob(
                "the descriptors in FARCALL_CHANNEL are closed: another process of the job has \
                 started this one",
            ),
            Missing::Foreign => ChannelError::Foreign,
            Missing::Unmapped(error) => io::Error::from_raw_os_error(error).into(),
        }
    }
}

pub(crate) static MEMBERSHIP: OnceLock<Result<Membership, Missing>> = OnceLock::new();

impl Membership {
    pub(crate) fn find() -> Result<Membership, Missing> {
        let text = std::env::var(VARIABLE).map_err(|_| Missing::Unset)?;
        Membership::of(&text)
    }

    fn of(text: &str) -> Result<Membership, Missing> {
        let closed = |_| Missing::Closed;
        let mut fields = text.split(',').map(str::parse::<u16>);
        let mut field = || fields.next().and_then(Result::ok).ok_or(Missing::Unset);
        let (segment, bell, rank) = (field()?, field()?, field()?);
        let state = field().ok();
        // SAFETY: the daemon put the segment there for this process; it is only borrowed.
        let segment = unsafe { BorrowedFd::borrow_raw(RawFd::from(segment)) };
        let flags = rustix::io::FdFlags::CLOEXEC;
        rustix::io::fcntl_getfd(segment).map_err(closed)?;
        let opened = Segment::open(segment).map_err(|error| match error.raw_os_error() {
            Some(error) => Missing::Unmapped(error),
            None => Missing::Foreign,
        })?;
        rustix::io::fcntl_setfd(segment, flags).map_err(closed)?;
        // SAFETY: the daemon put the engine's bell there for this process, which reads the
        // variable once.
        let bell = unsafe { OwnedFd::from_raw_fd(RawFd::from(bell)) };
        rustix::io::fcntl_setfd(&bell, flags).map_err(closed)?;
        // SAFETY: as for the bell.
        let state = state.map(|state| unsafe { File::from_raw_fd(RawFd::from(state)) });
        if let Some(state) = &state {
            rustix::io::fcntl_setfd(state, flags).map_err(closed)?;
        }
        Ok(Membership {
            segment: Arc::new(opened),
            bell: Arc::new(bell),
            rank,
            state: state.map(Arc::new),
            open: AtomicU16::new(0),
            process: Process::this(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsRawFd;

    fn missing(text: &str) -> (Missing, String) {
        let missing = Membership::of(text).err().expect("no gang job");
        (missing, ChannelError::from(missing).to_string())
    }

    #[test]
    fn a_process_without_a_gang_job_learns_why() {
        let (why, text) = missing("");
        assert_eq!(why, Missing::Unset);
        assert!(text.contains("is not set"), "{text}");
        let (why, text) = missing("65534,65534,0,65534");
        assert_eq!(why, Missing::Closed);
        assert!(text.contains("are closed"), "{text}");
        let other = memfd_create("other", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&other, 1 << 20).expect("memory");
        let (why, text) = missing(&format!("{},65534,0", other.as_raw_fd()));
        assert_eq!(why, Missing::Foreign);
        assert!(text.contains("another version"), "{text}");
    }
}
