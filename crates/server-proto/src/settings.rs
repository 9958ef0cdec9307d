//! Settings and limits: everything an operator can set that steers or bounds the server's
//! decisions. The shell reads them from the configuration. A limit of 0 means what its comment
//! says, mostly that there is none.

use crate::quota::{Limit, Owner, Quota};
use farcall_rpc_proto::{Nanos, User};
use farcall_schedule::queue;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Limits on what clients may ask for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections. Further clients are told so and disconnected.
    pub connections: usize,
    /// Open connections of one user; 0 means no limit.
    pub connections_per_user: usize,
    /// Calls open at once on one connection; 0 means no limit.
    pub calls_per_connection: usize,
    /// Calls of one user that are under way; 0 means no limit.
    pub calls_per_user: usize,
    /// Bytes of the call buffers of one user; 0 means no limit. A call above it is refused.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub memory_per_user: u64,
    /// Bytes of all call buffers together; 0 means half of the machine's memory. A larger call is
    /// refused; others wait for room.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub memory: u64,
    /// Seconds within which a new connection must greet.
    #[serde(deserialize_with = "farcall_quantity::above_zero")]
    pub greeting_s: f64,
    /// Seconds without clients and calls after which the server ends; 0 means never.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub idle_s: f64,
    /// Seconds within which a client must answer a callback; 0 means no limit.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub callback_s: f64,
    /// Seconds without progress after which a call fails whose arguments have begun to arrive, and
    /// after which a client that does not read its results is disconnected; 0 means never.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub stalled_s: f64,
    /// Seconds over which a client must send or read at the least rate while others wait for
    /// memory; 0 means that it may be as slow as it likes.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub stalled_busy_s: f64,
    /// This rate, in bytes per second.
    #[serde(deserialize_with = "farcall_quantity::whole")]
    pub stalled_busy_rate: u64,
    /// Objects of one client at once. Each one has a process.
    pub objects_per_connection: usize,
    /// Objects of all clients together.
    pub objects: usize,
    /// Bytes of the files of one call, for input and output each; 0 means no limit.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub files: u64,
    /// Reservations of one user at a time; 0 turns reservations off.
    pub reservations_per_user: usize,
    /// Part of the processor elements that the reservations of one user may have at a time.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub reserve_share: f64,
    /// Seconds from now within which a reservation must end.
    #[serde(deserialize_with = "farcall_quantity::from_zero")]
    pub reserve_ahead_s: f64,
    /// Bytes per second that arrive from the network at most. Reservations share them; 0 means that
    /// no bandwidth can be reserved.
    #[serde(deserialize_with = "farcall_quantity::whole")]
    pub bandwidth_up: u64,
    /// Bytes per second that leave to the network at most, in the same way.
    #[serde(deserialize_with = "farcall_quantity::whole")]
    pub bandwidth_down: u64,
}

/// Limits on durable calls. They are recorded in the folder `state`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DurableLimits {
    /// Hours for which an outcome is kept if the caller does not say.
    #[serde(deserialize_with = "farcall_quantity::above_zero")]
    pub keep_h: f64,
    /// Most hours that a caller may ask for.
    #[serde(deserialize_with = "farcall_quantity::above_zero")]
    pub longest_h: f64,
    /// Calls of one user, in any state.
    pub per_user: usize,
    /// Bytes of the arguments and results of one user.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub bytes_per_user: u64,
    /// Bytes of the disk that arguments and stored arrays leave free for the logs.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub reserve: u64,
}

/// Users whose calls count together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// Its users, by the names that the status shows. A user may be in several groups.
    pub users: Vec<String>,
    /// Calls of all of them that are under way; 0 means no limit.
    pub calls: usize,
    /// Bytes of the buffers of these calls; 0 means no limit.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub memory: u64,
    /// Stored arrays of all of them; 0 means no limit.
    pub arrays: usize,
    /// Bytes of these arrays, in memory and on the disk; 0 means no limit.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub array_bytes: u64,
    /// Durable calls of all of them together, in any state; 0 means no limit.
    pub durable_calls: usize,
    /// Bytes of the arguments and results of all of them on the disk; 0 means no limit.
    #[serde(deserialize_with = "farcall_quantity::size")]
    pub durable_bytes: u64,
}

/// Groups of users, by name.
pub type Groups = BTreeMap<String, Group>;

/// The groups of a user, with their names.
pub(crate) fn groups_of<'g>(
    groups: &'g Groups,
    user: &'g User,
) -> impl Iterator<Item = (Owner<'g>, &'g Group)> {
    let groups = groups.iter().filter(|(_, group)| group.has(user));
    groups.map(|(name, group)| (Owner::Group(name), group))
}

impl Group {
    /// Whether a user belongs to it.
    pub(crate) fn has(&self, user: &User) -> bool {
        self.users.iter().any(|name| name == user.name())
    }

    pub(crate) fn calls(&self) -> Quota {
        let count = Limit::unless_zero(self.calls, "calls");
        Quota::of_calls(count, Limit::unless_zero(self.memory, "memory"))
    }

    pub(crate) fn arrays(&self) -> Quota {
        let count = Limit::unless_zero(self.arrays, "arrays");
        Quota::of_arrays(count, Limit::unless_zero(self.array_bytes, "array_bytes"))
    }

    pub(crate) fn durable_calls(&self) -> Quota {
        let count = Limit::unless_zero(self.durable_calls, "durable_calls");
        let bytes = Limit::unless_zero(self.durable_bytes, "durable_bytes");
        Quota::of_durable_calls(count, bytes)
    }
}

impl Limits {
    /// Calls that may be open at once on one connection.
    pub(crate) fn calls_of_connection(&self) -> usize {
        match self.calls_per_connection {
            // A client keeps further calls back.
            0 => 1 << 16,
            calls => calls,
        }
    }

    /// What calls under way one user may have.
    pub(crate) fn calls_of_user(&self) -> Quota {
        let count = Limit::unless_zero(self.calls_per_user, "limits.calls_per_user");
        let bytes = Limit::unless_zero(self.memory_per_user, "limits.memory_per_user");
        Quota::of_calls(count, bytes)
    }
}

impl ArrayLimits {
    /// What arrays one user may have.
    pub(crate) fn of_user(&self) -> Quota {
        let count = Limit::of(self.per_user, "data.per_user");
        Quota::of_arrays(count, Limit::of(self.bytes_per_user, "data.bytes_per_user"))
    }
}

impl DurableLimits {
    /// What durable calls one user may have.
    pub(crate) fn of_user(&self) -> Quota {
        let count = Limit::of(self.per_user, "jobs.per_user");
        Quota::of_durable_calls(count, Limit::of(self.bytes_per_user, "jobs.bytes_per_user"))
    }
}

impl Default for DurableLimits {
    fn default() -> DurableLimits {
        DurableLimits {
            keep_h: 168.0,
            longest_h: 720.0,
            per_user: 10_000,
            bytes_per_user: 16_000_000_000,
            reserve: 16_777_216,
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
            idle_s: 0.0,
            callback_s: 60.0,
            stalled_s: 3600.0,
            stalled_busy_s: 15.0,
            stalled_busy_rate: 64_000,
            objects_per_connection: 16,
            objects: 64,
            files: 4 << 30,
            reservations_per_user: 4,
            reserve_share: 0.5,
            reserve_ahead_s: 3600.0,
            bandwidth_up: 0,
            bandwidth_down: 0,
        }
    }
}

/// Limits on stored arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayLimits {
    /// Bytes of arrays in memory; 0 means a quarter of all memory.
    pub memory: u64,
    /// Arrays of one user.
    pub per_user: usize,
    /// Bytes of one user's arrays, in memory and on the disk.
    pub bytes_per_user: u64,
    /// Hours for which arrays and objects are kept after their last use.
    pub keep_h: f64,
    /// Number of names.
    pub names: usize,
}

/// The settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Limits on everything that clients can make grow.
    pub limits: Limits,
    /// Limits on durable calls.
    pub durable: DurableLimits,
    /// Groups of users.
    pub groups: Groups,
    /// Limits on stored arrays.
    pub arrays: ArrayLimits,
    /// Policy of the queue.
    pub queue: queue::Settings,
    /// Priorities of functions by qualified name. A higher one goes first.
    pub priorities: BTreeMap<String, i32>,
    /// Processor elements of a call whose interface does not state them.
    pub elements: u32,
    /// Most seconds of a call; 0 means no limit.
    pub time_limit_s: f64,
    /// Whether there is a state folder.
    pub has_state: bool,
    /// Whether the shell keeps an audit log ([`Action::Audit`](crate::Action::Audit)).
    pub audits: bool,
    /// How many lines the record of calls may have. `None`: the shell keeps no record
    /// ([`Action::Note`](crate::Action::Note)).
    pub record: Option<farcall_record::Budget>,
    /// Whether the shell wants the calls that belong to a trace
    /// ([`Action::Trace`](crate::Action::Trace)).
    pub traces: bool,
    /// Program for the greeting.
    pub agent: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Seed of ids and function numbers: 32 bytes that nobody can guess.
    pub seed: [u8; 32],
}

/// Converts seconds to nanoseconds.
pub(crate) fn nanos(seconds: f64) -> Nanos {
    (seconds.clamp(0.0, 1e9) * 1e9) as Nanos
}

impl Limits {
    /// The time after which a transfer without progress ends, if ever.
    pub(crate) fn stalled(&self) -> Option<Nanos> {
        (self.stalled_s > 0.0).then(|| nanos(self.stalled_s))
    }

    /// The bytes that must pass within [`Limits::stalled_busy_s`] while others wait for memory.
    pub(crate) fn least_busy(&self) -> u64 {
        let least = self.stalled_busy_s.clamp(0.0, 1e9) * self.stalled_busy_rate as f64;
        (least as u64).max(1)
    }

    /// Processor elements of `pes` that the reservations of one user may have at a time: at least
    /// one.
    pub(crate) fn reservable(&self, pes: u32) -> u32 {
        let share = f64::from(pes) * self.reserve_share.clamp(0.0, 1.0);
        (share as u32).max(1)
    }

    /// Time without clients and calls after which the server ends.
    pub(crate) fn idle(&self) -> Option<Nanos> {
        (self.idle_s > 0.0).then(|| nanos(self.idle_s))
    }

    /// Time limit of a callback.
    pub(crate) fn callback(&self) -> Option<Nanos> {
        (self.callback_s > 0.0).then(|| nanos(self.callback_s))
    }
}

impl Settings {
    /// Time limit of a call.
    pub(crate) fn time_limit(&self) -> Option<Nanos> {
        (self.time_limit_s > 0.0).then(|| nanos(self.time_limit_s))
    }
}

#[cfg(test)]
impl Settings {
    /// The settings of a server with one processor element, for tests.
    pub(crate) fn simple(has_state: bool) -> Self {
        Self {
            limits: Limits::default(),
            durable: DurableLimits::default(),
            groups: BTreeMap::new(),
            arrays: ArrayLimits {
                memory: 0,
                per_user: 1,
                bytes_per_user: 0,
                keep_h: 1.0,
                names: 1,
            },
            queue: queue::Settings::new(1),
            priorities: BTreeMap::new(),
            elements: 1,
            time_limit_s: 0.0,
            has_state,
            audits: false,
            record: None,
            traces: false,
            agent: "test",
            version: "0",
            seed: [1; 32],
        }
    }
}
