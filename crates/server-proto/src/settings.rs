//! What an operator may set, as far as it bounds or steers what the server decides.

use farcall_rpc_proto::Nanos;
use farcall_schedule::queue;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Bounds on what clients may ask for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections; more are told so and closed.
    pub connections: usize,
    /// Open connections of one user; 0 means that there is no limit.
    pub connections_per_user: usize,
    /// Calls open at once on one connection.
    pub calls_per_connection: usize,
    /// Calls of one user that are under way; 0 means that there is no limit.
    pub calls_per_user: usize,
    /// Bytes of the call buffers of one user's calls; 0 means that there is no limit. A call above
    /// it is refused.
    pub memory_per_user: u64,
    /// Bytes of all call buffers together; 0, for the shell, means half of the machine's memory. A
    /// larger call is refused, others wait for room.
    pub memory: u64,
    /// Seconds within which a new connection must greet.
    pub greeting_s: f64,
    /// Seconds within which a client must answer a callback of the function it called; 0 means
    /// that there is no limit.
    pub callback_s: f64,
    /// Seconds after which a call fails whose arguments have begun to come and do not go on, and
    /// after which a client that does not read its results is let go; 0 means never.
    pub stalled_s: f64,
    /// The same while others wait for memory.
    pub stalled_busy_s: f64,
    /// Objects of one client at once. Each has a process of its own.
    pub objects_per_connection: usize,
    /// Objects of all clients together.
    pub objects: usize,
    /// Bytes that the files of one call may come to, those that come and those that go back each; 0
    /// means that there is no limit.
    pub files: u64,
    /// Reservations of one user at a time; 0 means that nothing can be reserved.
    pub reservations_per_user: usize,
    /// Seconds from now within which a reservation must end.
    pub reserve_ahead_s: f64,
    /// Bytes per second that come to the server by the network at most, of which some can be
    /// reserved; 0 means that none can.
    #[serde(deserialize_with = "farcall_quantity::whole")]
    pub bandwidth_up: u64,
    /// The same for bytes that leave it.
    #[serde(deserialize_with = "farcall_quantity::whole")]
    pub bandwidth_down: u64,
}

/// Calls that are submitted, and fetched later. They are kept in the folder `state`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DurableLimits {
    /// Hours for which the outcome of a call is kept, where the caller does not say.
    pub keep_h: f64,
    /// The most hours that a caller may ask for.
    pub longest_h: f64,
    /// Calls of one user, in any state.
    pub per_user: usize,
    /// Bytes of one user's arguments and results.
    pub bytes_per_user: u64,
}

impl Default for DurableLimits {
    fn default() -> DurableLimits {
        DurableLimits {
            keep_h: 168.0,
            longest_h: 720.0,
            per_user: 10_000,
            bytes_per_user: 16_000_000_000,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            connections_per_user: 0,
            calls_per_connection: 256,
            calls_per_user: 0,
            memory_per_user: 0,
            memory: 0,
            greeting_s: 10.0,
            callback_s: 60.0,
            stalled_s: 3600.0,
            stalled_busy_s: 60.0,
            objects_per_connection: 16,
            objects: 64,
            files: 4 << 30,
            reservations_per_user: 4,
            reserve_ahead_s: 3600.0,
            bandwidth_up: 0,
            bandwidth_down: 0,
        }
    }
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
    /// Bounds on durable calls.
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
