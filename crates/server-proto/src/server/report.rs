//! How the server stands: for `farcall status`, and for Prometheus.

use super::Server;
use super::connections::call_of;
use crate::durable::Durable;
use crate::functions::Function;
use crate::job::State;
use crate::keys::{CallKey, ConnectionKey};
use farcall_rpc_proto::{CallId, JobState, User};
use serde_json::{Value, json};

/// Functions of which a status tells, those with most calls.
const MOST_FUNCTIONS: usize = 200;
/// Users of whom it tells.
const MOST_USERS: usize = 200;

/// What calls do.
pub const STATES: [&str; 6] = [
    "receiving",
    "waiting",
    "queued",
    "running",
    "sending",
    "on_disk",
];

/// Numbers of a server.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Open connections.
    pub connections: usize,
    /// Worker processes.
    pub workers: usize,
    /// Processor elements.
    pub pes: u32,
    /// Processor elements of running calls.
    pub pes_used: u32,
    /// Bound on all memory, in bytes.
    pub memory_limit: u64,
    /// Bytes of memory, idle buffers too.
    pub memory: u64,
    /// Whether it takes no more calls.
    pub draining: bool,
    /// Arrays that stay.
    pub arrays: usize,
    /// Their bytes.
    pub array_bytes: u64,
    /// Those of them in memory.
    pub array_resident_bytes: u64,
    /// Calls by what they do, in the order of [`STATES`].
    pub calls: [usize; 6],
    /// Submitted calls that are recorded, by the index of their state in [`JobState::ALL`].
    pub submitted: [usize; JobState::ALL.len()],
    /// Seconds until processor elements are free for one more call.
    pub backlog_s: f64,
}

impl Server {
    /// How the server stands, in numbers.
    pub fn figures(&self) -> Figures {
        let (arrays, array_bytes, array_resident_bytes) = self.arrays.totals();
        Figures {
            connections: self.connections.len(),
            workers: self.workers.len(),
            pes: self.queue.settings().pes,
            pes_used: self.queue.used(),
            memory_limit: self.memory.limit(),
            memory: self.memory.used(),
            draining: self.draining,
            arrays,
            array_bytes,
            array_resident_bytes,
            calls: self.calls_by_state(),
            submitted: self.submitted_counts(),
            backlog_s: self.backlog(),
        }
    }

    /// The calls that wait for processor elements.
    pub fn waiting(&self) -> impl Iterator<Item = CallKey> {
        self.queue.waiting().map(call_of)
    }

    fn submitted_counts(&self) -> [usize; JobState::ALL.len()] {
        self.durable
            .as_ref()
            .map(Durable::counts)
            .unwrap_or_default()
    }

    fn calls_by_state(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for job in self.calls.values() {
            let index = match job.state {
                State::Receiving => 0,
                State::Waiting => 1,
                State::Queued => 2,
                State::Running { .. } => 3,
                State::Sending => 4,
                State::OnDisk => 5,
            };
            counts[index] += 1;
        }
        counts
    }

    /// Submitted calls that are recorded, by their states.
    fn submitted_by_state(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let names = JobState::ALL.iter().map(|state| state.name());
        names.zip(self.submitted_counts())
    }

    /// A user asks how the server stands.
    pub(super) fn tell_status(&mut self, key: ConnectionKey, request: CallId) {
        let connection = &self.connections[key];
        let text = self.status(&connection.user, connection.peer.is_operator);
        self.connections[key].proto.standing(request, text);
    }

    /// A JSON object for a user, who sees of the others only how many they are.
    fn status(&self, user: &User, is_operator: bool) -> String {
        let settings = self.queue.settings();
        let jobs: serde_json::Map<String, Value> = STATES
            .into_iter()
            .zip(self.calls_by_state())
            .map(|(state, count)| (state.to_string(), count.into()))
            .collect();
        let mut functions: Vec<&Function> = self
            .functions
            .iter()
            .filter(|function| !function.is_unused())
            .collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.counts.done));
        let functions: Vec<Value> = functions
            .into_iter()
            .take(MOST_FUNCTIONS)
            .map(describe)
            .collect();
        let submitted: serde_json::Map<String, Value> = self
            .submitted_by_state()
            .map(|(state, count)| (state.to_string(), count.into()))
            .collect();
        let (arrays, bytes, resident) = self.arrays.totals();
        let memory = json!({
            "limit": self.memory.limit(),
            "used": self.memory.used(),
        });
        json!({
            "schema": 1,
            "version": self.settings.version,
            "uptime_s": self.now() as f64 * 1e-9,
            "state": if self.draining { "draining" } else { "serving" },
            "policy": settings.policy.name(),
            "pes": settings.pes,
            "pes_used": self.queue.used(),
            "connections": self.connections.len(),
            "workers": self.workers.len(),
            "jobs": jobs,
            "memory": memory,
            "submitted": submitted,
            "arrays": { "count": arrays, "bytes": bytes, "resident_bytes": resident,
                        "named": self.names.len() },
            "reservations": self.describe_reservations(user, is_operator),
            "users": self.users(user, is_operator),
            "functions_served": self.functions.len(),
            "functions": functions,
        })
        .to_string()
    }

    fn users(&self, user: &User, all: bool) -> Vec<Value> {
        let own = user.to_string();
        let known = self.queue.users(self.now()).map(|standing| {
            let name = self
                .user_names
                .get(&standing.user)
                .map_or("?", String::as_str);
            let shown = json!({
                "user": name,
                "waiting": standing.waiting,
                "running": standing.running,
                "pe_seconds": standing.usage,
            });
            (name == own, shown)
        });
        let seen = known.filter(|(is_own, _)| all || *is_own);
        seen.map(|(_, shown)| shown).take(MOST_USERS).collect()
    }
}

impl Function {
    /// Whether it was never called.
    pub fn is_unused(&self) -> bool {
        self.counts.done + self.counts.failed == 0
    }
}

fn describe(function: &Function) -> Value {
    let counts = &function.counts;
    let calls = counts.done.max(1) as f64;
    let [send, wait, exec, recv] = counts.nanos.map(|nanos| nanos as f64 * 1e-9 / calls);
    // What was learned on the most processor elements; a rate where the interface tells the work.
    let learned = function
        .profile
        .predictors()
        .last()
        .and_then(|(pes, predictor)| {
            let last = predictor.learned().last()?;
            let rate = function
                .interface
                .calc_order
                .as_ref()
                .map(|_| (-last.mean).exp());
            Some(json!({ "pes": pes, "operations_per_s": rate }))
        });
    json!({
        "name": function.interface.qualified_name(),
        "done": counts.done,
        "failed": counts.failed,
        "send_s": send,
        "wait_s": wait,
        "exec_s": exec,
        "recv_s": recv,
        "learned": learned,
    })
}
