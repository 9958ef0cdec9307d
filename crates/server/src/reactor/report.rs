//! How the server stands: for `farcall status`, and for Prometheus.

use super::Reactor;
use crate::disk_use::DiskUse;
use crate::function::{Counts, Function};
use crate::job::State;
use crate::spool::Spool;
use crate::user::User;
use farcall_metrics::{Answer, Histogram, Labels, Text};
use farcall_rpc_proto::{CallId, JobState};
use rustix::fd::OwnedFd;
use serde_json::{Value, json};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Functions of which a status tells, those with most calls.
const MOST_FUNCTIONS: usize = 200;
/// Users of whom it tells.
const MOST_USERS: usize = 200;

/// Functions that have series of their own, the first ones that are called; the others share one.
const MOST_SERIES: u32 = 100;
/// Readers that wait for the numbers.
const MOST_READERS: usize = 64;

/// Has the server's thread say how it stands, from any thread.
pub struct Readings {
    asks: SyncSender<Answer>,
    doorbell: OwnedFd,
}

impl Readings {
    /// The answer is dropped where too many wait, or the server has ended.
    pub fn ask(&self, answer: Answer) {
        if self.asks.try_send(answer).is_ok() {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }
}

/// Those who wait for the numbers.
pub(super) struct Readers {
    asks: Receiver<Answer>,
    /// Bytes of the files in the folder for state.
    state: Option<DiskUse>,
}

/// Jobs by what they do: receiving, queued, running, sending.
const STATES: [&str; 6] = [
    "receiving",
    "waiting",
    "queued",
    "running",
    "sending",
    "on_disk",
];

impl Reactor {
    /// A way to ask for the numbers.
    pub(crate) fn readings(&mut self) -> io::Result<Readings> {
        let (sender, asks) = sync_channel(MOST_READERS);
        let state = self.config.state.clone().map(DiskUse::watch).transpose()?;
        self.readers = Some(Readers { asks, state });
        Ok(Readings {
            asks: sender,
            doorbell: self.doorbell.try_clone()?,
        })
    }

    /// Answers those who wait for the numbers.
    pub(super) fn answer_readers(&self) {
        let Some(readers) = &self.readers else {
            return;
        };
        while let Ok(answer) = readers.asks.try_recv() {
            answer(self.metrics(readers));
        }
    }

    fn jobs_by_state(&self) -> [usize; 6] {
        let mut counts = [0; 6];
        for (_, job) in &self.jobs {
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
        let counts = self.spool.as_ref().map(Spool::counts).unwrap_or_default();
        JobState::ALL.iter().map(|state| state.name()).zip(counts)
    }

    /// A user asks how the server stands.
    pub(super) fn tell_status(&mut self, key: usize, request: CallId) {
        let text = self.status(&self.connections[key].user);
        self.connections[key].proto.standing(request, text);
    }

    /// A JSON object for a user, who sees of the others only how many they are.
    fn status(&self, user: &User) -> String {
        let settings = self.queue.settings();
        let jobs: serde_json::Map<String, Value> = STATES
            .into_iter()
            .zip(self.jobs_by_state())
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
        let (arrays, bytes, resident) = self.store.totals();
        let memory = json!({
            "limit": self.pool.limit(),
            "used": self.pool.used(),
        });
        json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.start.elapsed().as_secs_f64(),
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
                        "named": self.named.names.len() },
            "reservations": self.describe_reservations(user),
            "users": self.users(user),
            "functions_served": self.functions.len(),
            "functions": functions,
        })
        .to_string()
    }

    fn users(&self, user: &User) -> Vec<Value> {
        let all = self.access.is_operator(user);
        let own = user.to_string();
        let known = self.queue.users(self.nanos()).map(|standing| {
            let name = self.names.get(&standing.user).map_or("?", String::as_str);
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

    fn metrics(&self, readers: &Readers) -> Text {
        let mut text = Text::new("farcall");
        for (name, help, value) in self.gauges() {
            text.gauge(name, help, value);
        }
        if let Some(disk) = &readers.state {
            let help = "Bytes of the files in the folder for state, some seconds ago.";
            text.gauge("state_bytes", help, disk.bytes());
        }
        let by_state = |(state, count): (&str, usize)| (vec![("state", state.to_string())], count);
        let jobs = STATES.into_iter().zip(self.jobs_by_state());
        text.gauges("calls", "Calls by what they do.", jobs.map(by_state));
        let help = "Submitted calls by their state, outcomes that are kept included.";
        let submitted = self.submitted_by_state().map(by_state);
        text.gauges("submitted_calls", help, submitted);
        self.function_metrics(&mut text);
        self.user_metrics(&mut text);
        let help = "Calls that were refused.";
        text.counter("refused", help, self.totals.refused);
        let all = |times: &Histogram| [(Labels::new(), times.clone())];
        let help = "From the last argument to the start.";
        text.histograms("wait_seconds", help, all(&self.totals.waits));
        text.histograms("exec_seconds", "In the library.", all(&self.totals.execs));
        text
    }

    /// Plain numbers: name, help, value.
    fn gauges(&self) -> [(&'static str, &'static str, f64); 11] {
        let pes: f64 = self.queue.settings().pes.into();
        let used: f64 = self.queue.used().into();
        let (connections, workers) = (self.connections.len() as f64, self.workers.len() as f64);
        let (limit, memory) = (self.pool.limit() as f64, self.pool.used() as f64);
        let draining = f64::from(u8::from(self.draining));
        let (arrays, bytes, resident) = self.store.totals();
        let [bytes, resident] = [bytes, resident].map(|bytes| bytes as f64);
        [
            ("connections", "Open connections.", connections),
            ("workers", "Worker processes.", workers),
            ("pes", "Processor elements.", pes),
            ("pes_used", "Processor elements of running calls.", used),
            ("memory_limit_bytes", "Bound on job buffers.", limit),
            ("memory_bytes", "Job buffers, idle ones too.", memory),
            (
                "backlog_seconds",
                "Predicted time until processor elements are free for one more call.",
                self.backlog(),
            ),
            ("draining", "1 while it takes no more calls.", draining),
            ("arrays", "Arrays that stay.", arrays as f64),
            ("array_bytes", "Bytes of arrays that stay.", bytes),
            ("array_resident_bytes", "Bytes of them in memory.", resident),
        ]
    }

    fn function_metrics(&self, text: &mut Text) {
        let (mut calls, mut seconds, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut times = Vec::new();
        let mut add = |function: String, counts: &Counts| {
            let name = ("function", function);
            let with = |other, value: &str| vec![name.clone(), (other, value.to_string())];
            calls.push((with("outcome", "done"), counts.done));
            calls.push((with("outcome", "failed"), counts.failed));
            let parts = ["send", "wait", "exec", "recv"].into_iter();
            let parts = parts.zip(counts.nanos);
            seconds.extend(parts.map(|(part, nanos)| (with("part", part), nanos as f64 * 1e-9)));
            let ways = ["up", "down"].into_iter().zip(counts.bytes);
            bytes.extend(ways.map(|(way, count)| (with("way", way), count)));
            times.push((vec![name.clone()], counts.execs.clone()));
        };
        let mut others = Counts::default();
        for function in self.functions.iter() {
            match function.counts.place {
                None => {}
                Some(place) if place <= MOST_SERIES => {
                    add(
                        function.interface.qualified_name().into_owned(),
                        &function.counts,
                    );
                }
                Some(_) => others.merge(&function.counts),
            }
        }
        if others.done + others.failed > 0 {
            add("other".to_string(), &others);
        }
        text.counters("calls", "Calls that have ended.", calls);
        let help = "Time of calls by its parts, as in the second Ninf paper.";
        text.counters("call_seconds", help, seconds);
        text.counters("call_bytes", "Bytes of arrays of calls.", bytes);
        let help = "Time of calls in the library.";
        text.histograms("function_exec_seconds", help, times);
    }

    fn user_metrics(&self, text: &mut Text) {
        let users = || self.totals.users.iter();
        let label = |user: &str| vec![("user", user.to_string())];
        let calls = users().map(|(user, totals)| (label(user), totals.calls));
        let help = "Calls of a user whose results have left.";
        text.counters("user_calls", help, calls);
        let used = users().map(|(user, totals)| (label(user), totals.pe_seconds));
        let help = "Time of a user's calls in the library, times processor elements.";
        text.counters("user_pe_seconds", help, used);
    }
}

impl Function {
    fn is_unused(&self) -> bool {
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
