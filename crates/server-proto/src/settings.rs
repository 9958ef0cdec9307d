//! What an operator may set, as far as it bounds or steers what the server decides.

use farcall_rpc_proto::Nanos;
use farcall_schedule::queue;
use std::collections::BTreeMap;

/// Bounds on all that clients can make grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// Open connections of one user; 0 means any number.
    pub connections_per_user: usize,
    /// Open requests of one connection.
    pub calls_per_connection: usize,
    /// Calls under way of one user; 0 means any number.
    pub calls_per_user: usize,
    /// Bytes of the calls under way of one user; 0 means any number.
    pub memory_per_user: u64,
    /// Bytes of all job buffers, segments and arrays in memory.
    pub memory: u64,
    /// Seconds until a client must have greeted.
    pub greeting_s: f64,
    /// Seconds until a callback must be answered; 0 means any time.
    pub callback_s: f64,
    /// Seconds that a transfer may stand still; 0 means any time.
    pub stalled_s: f64,
    /// The same while others wait for memory.
    pub stalled_busy_s: f64,
    /// Objects of one connection, and those of one user that stay.
    pub objects_per_connection: usize,
    /// Objects in all.
    pub objects: usize,
    /// Reservations of one user at a time.
    pub reservations_per_user: usize,
    /// Seconds ahead of now in which a reservation ends at the latest.
    pub reserve_ahead_s: f64,
    /// Bytes per second of the link to the server; 0 where no bandwidth can be reserved.
    pub bandwidth_up: u64,
    /// The same for the link from the server.
    pub bandwidth_down: u64,
}

/// Bounds on submitted calls.
#[derive(Clone, Debug, PartialEq)]
pub struct DurableLimits {
    /// Hours for which an outcome is kept where the client does not say.
    pub keep_h: f64,
    /// The most hours that a client may ask for.
    pub longest_h: f64,
    /// Submitted calls of one user.
    pub per_user: usize,
    /// Their bytes on the disk.
    pub bytes_per_user: u64,
}

/// Bounds on arrays that stay.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayLimits {
    /// Bytes of arrays in memory; 0 means a quarter of all memory.
    pub memory: u64,
    /// Arrays of one user.
    pub per_user: usize,
    /// Their bytes, in memory and on the disk.
    pub bytes_per_user: u64,
    /// Hours for which what stays is kept after its last use.
    pub keep_h: f64,
    /// Names of data.
    pub names: usize,
}

/// Everything that a server is made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bounds on all that clients can make grow.
    pub limits: Limits,
    /// Bounds on submitted calls.
    pub durable: DurableLimits,
    /// Bounds on arrays that stay.
    pub arrays: ArrayLimits,
    /// Policy and processor elements.
    pub queue: queue::Settings,
    /// Priorities of functions by their qualified names; a higher one goes first.
    pub priorities: BTreeMap<String, i32>,
    /// Processor elements of a call that says nothing of them.
    pub elements: u32,
    /// Seconds that a call may run; 0 means any time.
    pub time_limit_s: f64,
    /// Whether there is a folder for what outlives the server.
    pub has_state: bool,
    /// Whether the shell wants [`Action::Audit`](crate::Action::Audit).
    pub audits: bool,
    /// What the server says of itself in its greeting.
    pub agent: &'static str,
    /// Its version, for the status.
    pub version: &'static str,
    /// What ids and numbers of functions are made from: 32 bytes that nobody guesses.
    pub seed: [u8; 32],
}

/// A time in nanoseconds.
pub(crate) fn nanos(seconds: f64) -> Nanos {
    (seconds.clamp(0.0, 1e9) * 1e9) as Nanos
}

impl Limits {
    /// After how many seconds a transfer that stands still is ended, if ever.
    pub(crate) fn stalled(&self, is_busy: bool) -> Option<f64> {
        let bounds = [Some(self.stalled_s), is_busy.then_some(self.stalled_busy_s)];
        let bounds = bounds.into_iter().flatten().filter(|bound| *bound > 0.0);
        bounds.min_by(f64::total_cmp)
    }

    /// How long a callback may take.
    pub(crate) fn callback(&self) -> Option<Nanos> {
        (self.callback_s > 0.0).then(|| nanos(self.callback_s))
    }
}

impl Settings {
    /// How long a call may run.
    pub(crate) fn time_limit(&self) -> Option<Nanos> {
        (self.time_limit_s > 0.0).then(|| nanos(self.time_limit_s))
    }
}
