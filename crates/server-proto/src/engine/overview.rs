//! The overview: the status of the server for `farcall status` and for Prometheus.
//!
//! It only reads. Users see their own calls in detail, and of others only how many there are.

use super::Engine;
use crate::account::Totals;
use crate::action::Request;
use crate::call::State;
use crate::functions::{Function, Functions};
use crate::keys::{CallKey, ConnectionKey, Key, WorkerKey};
use crate::links::Links;
use crate::settings::Group;
use farcall_rpc_proto::{DurableState, User};
use farcall_snapshot::{List, User as UserShare, finds};
use serde_json::{Value, json};

/// Most functions in a status. The ones with most calls come first.
const MOST_FUNCTIONS: usize = 200;
/// Most users in a status.
const MOST_USERS: usize = 200;

/// Names of the states of calls.
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
    /// GPUs.
    pub gpus: u32,
    /// GPUs of running calls.
    pub gpus_used: u32,
    /// Limit on all memory, in bytes.
    pub memory_limit: u64,
    /// Bytes of memory, including idle buffers.
    pub memory: u64,
    /// Whether the server takes no more calls.
    pub draining: bool,
    /// Stored arrays.
    pub arrays: usize,
    /// Their bytes.
    pub array_bytes: u64,
    /// Their bytes in memory.
    pub array_resident_bytes: u64,
    /// Calls under way in each of the [`STATES`].
    pub calls: [usize; 6],
    /// Recorded durable calls in each state.
    pub submitted: [usize; DurableState::ALL.len()],
    /// Seconds until processor elements are free for one more call.
    pub backlog_s: f64,
}

/// A read-only view of the server.
#[derive(Clone, Copy)]
pub struct Overview<'s>(pub(crate) &'s Engine);

impl<'s> Overview<'s> {
    /// The figures of the server.
    pub fn figures(&self) -> Figures {
        let (arrays, array_bytes, array_resident_bytes) = self.0.data.arrays.totals();
        Figures {
            connections: self.0.cx.clients.len(),
            workers: self.0.elements.workers.len(),
            pes: self.0.elements.queue.settings().pes,
            pes_used: self.0.elements.queue.used(),
            gpus: self.0.elements.queue.settings().gpus,
            gpus_used: self.0.elements.queue.used_gpus(),
            memory_limit: self.0.cx.memory.limit(),
            memory: self.0.cx.memory.in_use(),
            draining: self.0.cx.draining,
            arrays,
            array_bytes,
            array_resident_bytes,
            calls: self.calls_by_state(),
            submitted: self.0.durable_calls.counts(),
            backlog_s: self.0.elements.backlog(&self.0.cx),
        }
    }

    /// Why the server accepts no calls at present.
    pub fn unready(&self) -> Option<String> {
        let calls = self.0.cx.calls.len();
        match (self.0.cx.stopping, self.0.cx.draining) {
            (Some(_), _) => Some("the server is stopping".to_owned()),
            (None, true) => Some(format!("the server is draining; calls under way: {calls}")),
            (None, false) => None,
        }
    }

    fn calls_by_state(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for call in self.0.cx.calls.values() {
            let index = match call.state {
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

    /// Number of recorded durable calls in each state.
    fn submitted_by_state(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let names = DurableState::ALL.iter().map(|state| state.name());
        names.zip(self.0.durable_calls.counts())
    }

    /// The status as a JSON object for the user of a connection. Other users appear only as counts.
    pub(super) fn status(&self, key: ConnectionKey) -> String {
        let connection = &self.0.cx.clients[key];
        let (user, is_operator) = (&connection.user, connection.peer.is_operator);
        let settings = self.0.elements.queue.settings();
        let calls: serde_json::Map<String, Value> = STATES
            .into_iter()
            .zip(self.calls_by_state())
            .map(|(state, count)| (state.to_string(), count.into()))
            .collect();
        let mut functions: Vec<&Function> = self
            .0
            .cx
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
        let (arrays, bytes, resident) = self.0.data.arrays.totals();
        let (queue, now) = (&self.0.elements.queue, self.0.cx.now());
        let reservations = self.0.reservations.describe(queue, user, is_operator, now);
        let memory = json!({
            "limit": self.0.cx.memory.limit(),
            "used": self.0.cx.memory.in_use(),
        });
        json!({
            "schema": 1,
            "version": self.0.cx.settings.version,
            "uptime_s": self.0.cx.now() as f64 * 1e-9,
            "state": if self.0.cx.draining { "draining" } else { "serving" },
            "policy": settings.policy.name(),
            "pes": settings.pes,
            "pes_used": self.0.elements.queue.used(),
            "gpus": settings.gpus,
            "gpus_used": self.0.elements.queue.used_gpus(),
            "connections": self.0.cx.clients.len(),
            "workers": self.0.elements.workers.len(),
            "jobs": calls,
            "memory": memory,
            "submitted": submitted,
            "arrays": { "count": arrays, "bytes": bytes, "resident_bytes": resident,
                        "named": self.0.data.names.len() },
            "reservations": reservations,
            "users": self.users(user, is_operator),
            "groups": self.groups(user, is_operator),
            "functions_served": self.0.cx.functions.count(),
            "functions": functions,
        })
        .to_string()
    }

    /// The calls that wait for processor elements.
    pub fn waiting(self) -> impl Iterator<Item = CallKey> {
        self.0.elements.queue.waiting().map(CallKey::of_number)
    }

    /// A call as its worker needs it; `None` if the call has ended.
    pub fn request(self, call: CallKey) -> Option<Request<'s>> {
        let call = self.0.cx.calls.get(call)?;
        let function = self.0.cx.functions.get(call.function).ok()?;
        Some(Request {
            function: function.entry.function,
            buffer: call.memory.buffer,
            segments: &call.memory.segments,
            arrays: &call.memory.data,
            swap: call.streams.swap,
            pes: call.run.pes,
            alone: call.run.alone,
            message: &call.message,
        })
    }

    /// The name of the function that a worker ran last, for the log.
    pub fn runs(self, key: WorkerKey) -> Option<String> {
        let number = self.0.elements.workers.get(key)?.function?;
        let function = self.0.cx.functions.get(number).ok()?;
        Some(function.interface.qualified_name().into_owned())
    }

    /// The call that a worker runs, or will run as soon as the journal has recorded it.
    pub fn call_of(self, key: WorkerKey) -> Option<CallKey> {
        self.0.elements.workers.get(key)?.call()
    }

    /// Whether a worker runs a call whose client wants its output. The output must be sent before
    /// the call ends.
    pub fn prints(self, key: WorkerKey) -> bool {
        let worker = self.0.elements.workers.get(key);
        let call = worker.and_then(|worker| self.0.cx.calls.get(worker.call()?));
        call.is_some_and(|call| call.printing.is_some())
    }

    /// The functions served.
    pub fn functions(self) -> &'s Functions {
        &self.0.cx.functions
    }

    /// What was learned about links.
    pub fn links(self) -> &'s Links {
        &self.0.links
    }

    /// Times of all calls.
    pub fn totals(self) -> &'s Totals {
        &self.0.cx.totals
    }

    /// What groups of users have used: all of them for an operator, their own for users.
    fn groups(&self, user: &User, all: bool) -> Vec<Value> {
        let groups = self.0.cx.settings.groups.iter();
        let seen = groups.filter(|(_, group)| all || group.has(user));
        let describe = |(name, group): (&String, &Group)| {
            let totals = self
                .0
                .cx
                .totals
                .groups
                .get(name)
                .cloned()
                .unwrap_or_default();
            let (calls, bytes) = self.0.durable_calls.usage_of(group);
            json!({
                "group": name,
                "users": group.users.len(),
                "calls": totals.calls,
                "pe_seconds": totals.pe_seconds,
                "durable_calls": calls,
                "durable_calls_limit": group.durable_calls,
                "durable_bytes": bytes,
                "durable_bytes_limit": group.durable_bytes,
            })
        };
        seen.map(describe).take(MOST_USERS).collect()
    }

    fn users(&self, user: &User, all: bool) -> Vec<Value> {
        let shown = self.user_shares(user, all, "").rows.into_iter().map(|one| {
            json!({
                "user": one.user,
                "waiting": one.waiting,
                "running": one.running,
                "pe_seconds": one.usage_s,
            })
        });
        shown.collect()
    }

    /// What users wait for and have used: all of them for an operator, their own for users. Only
    /// those that the search finds are there.
    pub(super) fn user_shares(&self, user: &User, all: bool, search: &str) -> List<UserShare> {
        let elements = &self.0.elements;
        let known = elements.queue.users(self.0.cx.now());
        let known = known.map(|status| (elements.user_name(status.user), status));
        let seen = known.filter(|(name, _)| all || *name == user.name());
        let seen = seen.filter(|(name, _)| finds(search, &[name]));
        List::of(seen, MOST_USERS, |(name, status)| UserShare {
            user: name.to_owned(),
            waiting: status.waiting as u64,
            running: status.running as u64,
            usage_s: status.usage,
        })
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
    // Times learned on the most processor elements; a rate if the interface states the work.
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
