//! What Prometheus reads.

use super::Reactor;
use farcall_metrics::{Text, label};
use farcall_rpc_proto::JobState;
use farcall_server_proto::STATES;
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How long a reader waits for the server's thread to tell how it stands.
const PATIENCE: Duration = Duration::from_secs(2);

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

impl Reactor {
    /// Serves metrics where the server is to have them.
    pub(super) fn serve_metrics(&mut self) -> std::io::Result<()> {
        if let Some(address) = self.config.metrics {
            let doorbell = self.bells.doorbell.try_clone()?;
            let (address, readers) = serve_metrics(address, doorbell)?;
            tracing::info!("metrics at http://{address}/metrics");
            self.readers.metrics = Some(readers);
        }
        Ok(())
    }

    /// Answers those who wait for the metrics.
    pub(super) fn answer_readers(&self) {
        let Some(readers) = &self.readers.metrics else {
            return;
        };
        while let Ok(reader) = readers.try_recv() {
            let _ = reader.try_send(self.metrics());
        }
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
        let figures = self.server.figures();
        let jobs: Vec<_> = STATES.into_iter().zip(figures.calls).collect();
        let jobs: Vec<_> = jobs
            .iter()
            .map(|(state, count)| (label("state", state), *count))
            .collect();
        text.metric(("calls", "gauge", "Calls by what they do."), &jobs);
        let states = JobState::ALL.iter().map(|state| state.name());
        let submitted = states.zip(figures.submitted);
        let submitted: Vec<_> = submitted
            .map(|(state, count)| (label("state", state), count))
            .collect();
        let help = "Submitted calls by their state, outcomes that are kept included.";
        text.metric(("submitted_calls", "gauge", help), &submitted);
        self.function_metrics(&mut text);
        let refused = [(none, self.server.totals().refused)];
        text.metric(
            ("refused_total", "counter", "Calls that were refused."),
            &refused,
        );
        let totals = self.server.totals();
        let [waits, execs] = [&totals.waits, &totals.execs];
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
        let figures = self.server.figures();
        let [pes, used] = [figures.pes, figures.pes_used].map(f64::from);
        let (connections, workers) = (figures.connections as f64, figures.workers as f64);
        let (limit, memory) = (figures.memory_limit as f64, figures.memory as f64);
        let draining = f64::from(u8::from(figures.draining));
        let bytes = [figures.array_bytes, figures.array_resident_bytes];
        let [bytes, resident] = bytes.map(|bytes| bytes as f64);
        let arrays = figures.arrays;
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
        let functions = self.server.functions().iter();
        for function in functions.filter(|function| !function.is_unused()) {
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
