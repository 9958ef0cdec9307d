//! The gang job of this process, as its daemon tells it in [`VARIABLE`]. The process finds it once,
//! and all channels share it.

use crate::segment::Segment;
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
    pub(crate) state: Option<Arc<OwnedFd>>,
    /// The open channels, one bit each. A channel opens once, because a ring has one reader and one
    /// writer.
    pub(crate) open: AtomicU16,
}

pub(crate) static MEMBERSHIP: OnceLock<Result<Membership, &'static str>> = OnceLock::new();

impl Membership {
    pub(crate) fn find() -> Result<Membership, &'static str> {
        let text = std::env::var(VARIABLE).map_err(|_| VARIABLE)?;
        let mut fields = text.split(',').map(str::parse::<u16>);
        let mut field = || fields.next().and_then(Result::ok).ok_or(VARIABLE);
        let (segment, bell, rank) = (field()?, field()?, field()?);
        let state = field().ok();
        // SAFETY: the daemon put the segment there for this process; it is only borrowed.
        let segment = unsafe { BorrowedFd::borrow_raw(RawFd::from(segment)) };
        let opened = Segment::open(segment).map_err(|_| VARIABLE)?;
        let flags = rustix::io::FdFlags::CLOEXEC;
        rustix::io::fcntl_setfd(segment, flags).map_err(|_| VARIABLE)?;
        // SAFETY: the daemon put the engine's bell there for this process, which reads the
        // variable once.
        let bell = unsafe { OwnedFd::from_raw_fd(RawFd::from(bell)) };
        rustix::io::fcntl_setfd(&bell, flags).map_err(|_| VARIABLE)?;
        // SAFETY: as for the bell.
        let state = state.map(|state| unsafe { OwnedFd::from_raw_fd(RawFd::from(state)) });
        if let Some(state) = &state {
            rustix::io::fcntl_setfd(state, flags).map_err(|_| VARIABLE)?;
        }
        Ok(Membership {
            segment: Arc::new(opened),
            bell: Arc::new(bell),
            rank,
            state: state.map(Arc::new),
            open: AtomicU16::new(0),
        })
    }
}
