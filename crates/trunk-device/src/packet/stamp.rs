//! Reads the kernel's time stamp of a packet: when it reached this machine (`SO_TIMESTAMPNS`,
//! `socket(7)`). The stamps are converted to the monotonic clock. A packet without a stamp counts
//! as arrived now.

use crate::{clock, now};
use farcall_trunk_proto::Nanos;
use rustix::time::ClockId;

/// Bytes of the control message of a packet, which holds one time.
pub(super) const STAMP_BYTES: usize = 64;

/// Converts the kernel's time stamps, which are in wall-clock time, to the monotonic clock.
pub(super) struct Clock {
    now: Nanos,
    wall: Nanos,
}

impl Clock {
    pub(super) fn read() -> Clock {
        Clock {
            now: now(),
            wall: clock(ClockId::Realtime),
        }
    }

    /// When the packet arrived, or now if the kernel gives no time stamp.
    pub(super) fn arrival(&self, header: &libc::msghdr) -> Nanos {
        match stamp(header) {
            Some(at) => self.now.saturating_sub(self.wall.saturating_sub(at)),
            None => self.now,
        }
    }
}

fn stamp(header: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: the header is one that the kernel has filled, and what it points to is still there;
    // the macros stay within it. The data of this kind are one `struct timespec`, perhaps
    // unaligned.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header).as_ref()?;
        let whole = libc::CMSG_LEN(size_of::<libc::timespec>() as u32) as usize;
        let is_stamp = control.cmsg_level == libc::SOL_SOCKET
            && control.cmsg_type == libc::SCM_TIMESTAMPNS
            && control.cmsg_len as usize >= whole;
        let time = is_stamp.then(|| libc::CMSG_DATA(control).cast::<libc::timespec>());
        let time = time?.read_unaligned();
        Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
