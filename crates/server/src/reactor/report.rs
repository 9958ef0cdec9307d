//! How the server stands: for `farcall status`, and for Prometheus.

use super::Reactor;
use crate::function::Function;
use crate::job::State;
use crate::spool::Spool;
use crate::user::User;
use farcall_metrics::{Text, label};
use farcall_rpc_proto::{CallId, JobState};
use rustix::fd::OwnedFd;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How long a reader waits for the server's thread to tell how it stands.
const PATIENCE: Duration = Duration::from_secs(2);
/// Functions of which a status tells, those with most calls.
const MOST_FUNCTIONS: usize = 200;
/// Users of whom it tells.
const MOST_USERS: usize = 200;

/// Readers that wait for the metrics.
pub(super) type Readers = Receiver<SyncSender<String>>;

/// Serves metrics from a thread which has the server's thread make the text.
fn serve_metrics(address: SocketAddr, doorbell: OwnedFd) -> std::io::Result<(SocketAddr, Readers)> {
    let (asks, readers) = sync_channel::<SyncSender<String>>(1);
    let address = farcall_metrics::serve(address, move || {
        let (answers, answer) = sync_channel(1);
        asks.try_send(answers).ok()?;
        rustix::io::write(&doorbell, &1u64.to_ne_bytes()).ok()?;
        answer.recv_timeout(PATIENCE).ok()
    })?;
    Ok((address, readers))
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
    /// Serves metrics where the server is to have them.
    pub(super) fn serve_metrics(&mut self) -> std::io::Result<()> {
        if let Some(address) = self.config.metrics {
            let (address, readers) = serve_metrics(address, self.doorbell.try_clone()?)?;
            tracing::info!("metrics at http://{address}/metrics");
            self.readers = Some(readers);
        }
        Ok(())
    }

    /// Answers those who wait for the metrics.
    pub(super) fn answer_readers(&self) {
        let Some(readers) = &self.readers else {
            return;
        };
        while let Ok(reader) = readers.try_recv() {
            let _ = reader.try_send(self.metrics());
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

    fn metrics(&self) -> String {
        let mut text = Text::new("farcall");
        let none = "";
        let gauge = |text: &mut Text, name, help, value: f64| {
            text.metric((name, "gauge", help), &[(none, value)]);
        };
        for (name, help, value) in self.gauges() {
            gauge(&mut text, name, help, value);
        }
        let jobs: Vec<_> = STATES.into_iter().zip(self.jobs_by_state()).collect();
        let jobs: Vec<_> = jobs
            .iter()
            .map(|(state, count)| (label("state", state), *count))
            .collect();
        text.metric(("calls", "gauge", "Calls by what they do."), &jobs);
        let submitted: Vec<_> = self
            .submitted_by_state()
            .map(|(state, count)| (label("state", state), count))
            .collect();
        let help = "Submitted calls by their state, outcomes that are kept included.";
        text.metric(("submitted_calls", "gauge", help), &submitted);
        self.function_metrics(&mut text);
        let refused = [(none, self.totals.refused)];
        text.metric(
            ("refused_total", "counter", "Calls that were refused."),
            &refused,
        );
        let [waits, execs] = [&self.totals.waits, &self.totals.execs];
        let help = "From the last argument to the start.";
        text.histogram("wait_seconds", help, &waits.buckets(), waits.seconds());
        text.histogram(
            "exec_seconds",
            "In the library.",
            &execs.buckets(),
            execs.seconds(),
        );
        text.finish()
    }

    /// Plain numbers: name, help, value.
    fn gauges(&self) -> [(&'static str, &'static str, f64); 10] {
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
            ("draining", "1 while it takes no more calls.", draining),
            ("arrays", "Arrays that stay.", arrays as f64),
            ("array_bytes", "Bytes of arrays that stay.", bytes),
            ("array_resident_bytes", "Bytes of them in memory.", resident),
        ]
    }

    fn function_metrics(&self, text: &mut Text) {
        let (mut calls, mut seconds, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for function in self
            .functions
            .iter()
            .filter(|function| !function.is_unused())
        {
            let name = label("function", &function.interface.qualified_name());
            let counts = &function.counts;
            let with = |other, value| format!("{name},{}", label(other, value));
            calls.push((with("outcome", "done"), counts.done));
            calls.push((with("outcome", "failed"), counts.failed));
            for (part, nanos) in ["send", "wait", "exec", "recv"]
                .into_iter()
                .zip(counts.nanos)
            {
                seconds.push((with("part", part), nanos as f64 * 1e-9));
            }
            for (way, count) in ["up", "down"].into_iter().zip(counts.bytes) {
                bytes.push((with("way", way), count));
            }
        }
        text.metric(("calls_total", "counter", "Calls that have ended."), &calls);
        let help = "Time of calls by its parts, as in the second Ninf paper.";
        text.metric(("call_seconds_total", "counter", help), &seconds);
        text.metric(
            ("call_bytes_total", "counter", "Bytes of arrays of calls."),
            &bytes,
        );
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
