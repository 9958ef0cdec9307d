//! Reads the clocks for the server, which reads none itself. Nanoseconds come from a monotonic
//! clock that starts with the server. Calendar time is read once in each turn of the reactor, so
//! all events of a turn have the same date.

use farcall_rpc_proto::Nanos;
use farcall_server_proto::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

/// A clock that counts from the server's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// Calendar time, read once in each turn.
    unix_ms: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
            unix_ms: unix_ms(),
        }
    }

    /// Reads the calendar at the beginning of a turn.
    pub(crate) fn read_calendar(&mut self) {
        self.unix_ms = unix_ms();
    }

    pub(crate) fn nanos(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            nanos: self.nanos(),
            unix_ms: self.unix_ms,
        }
    }

    /// Time from now until `nanos`.
    pub(crate) fn until(&self, nanos: Nanos) -> Duration {
        Duration::from_nanos(nanos.saturating_sub(self.nanos()))
    }
}
