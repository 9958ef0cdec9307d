//! Answers requests for metrics in the text form of Prometheus. It only reads the server's state,
//! through [`Overview`]. The number of functions with their own series and the number of waiting
//! readers are bounded.

use crate::disk_use::DiskUse;
use farcall_metrics::{Answer, Histogram, Labels, Text};
use farcall_rpc_proto::DurableState;
use farcall_server_proto::{Counts, Overview, STATES};
use rustix::fd::OwnedFd;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Most functions with series of their own: the first ones that are called. The others share one
/// series.
const MOST_SERIES: u32 = 100;
/// Most readers that wait at once.
const MOST_READERS: usize = 64;

/// Asks the server's thread for metrics, from any thread.
pub struct Readings {
    asks: SyncSender<Answer>,
    doorbell: OwnedFd,
}

impl Readings {
    /// Asks for metrics. The answer is dropped if too many readers wait, or if the server has
    /// ended.
    pub fn ask(&self, answer: Answer) {
        if self.asks.try_send(answer).is_ok() {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }
}

/// The waiting readers.
#[derive(Default)]
pub(crate) struct Readers {
    asks: Option<Receiver<Answer>>,
    /// Disk use of the state folder.
    state: Option<DiskUse>,
}

impl Readers {
    /// A handle to ask for metrics of a server with this state folder.
    pub(crate) fn readings(
        &mut self,
        state: Option<PathBuf>,
        doorbell: OwnedFd,
    ) -> io::Result<Readings> {
        let (sender, asks) = sync_channel(MOST_READERS);
        self.state = state.map(DiskUse::watch).transpose()?;
        self.asks = Some(asks);
        Ok(Readings {
            asks: sender,
            doorbell,
        })
    }

    /// Answers the waiting readers. `disk` says why the disk refuses durable calls.
    pub(crate) fn answer(
        &self,
        server: Overview<'_>,
        spans: Option<farcall_otlp::Counts>,
        disk: impl Fn() -> Option<String>,
    ) {
        let Some(asks) = &self.asks else { return };
        while let Ok(answer) = asks.try_recv() {
            let mut text = text(server, self.state.as_ref());
            span_metrics(&mut text, spans.unwrap_or_default());
            if let Some(reason) = server.unready().or_else(&disk) {
                text.not_ready(reason);
            }
            answer(text);
        }
    }
}

fn text(server: Overview<'_>, state: Option<&DiskUse>) -> Text {
    let mut text = Text::new("farcall");
    for (name, help, value) in gauges(server) {
        text.gauge(name, help, value);
    }
    if let Some(disk) = state {
        let help = "Bytes of the files in the state folder, some seconds ago.";
        text.gauge("state_bytes", help, disk.bytes());
    }
    let figures = server.figures();
    let by_state = |(state, count): (&str, usize)| (vec![("state", state.to_string())], count);
    let calls = STATES.into_iter().zip(figures.calls);
    text.gauges(
        "active_calls",
        "Active calls by state.",
        calls.map(by_state),
    );
    let help = "Durable calls by state, including those with stored outcomes.";
    let states = DurableState::ALL.iter().map(|state| state.name());
    let submitted = states.zip(figures.submitted).map(by_state);
    text.gauges("submitted_calls", help, submitted);
    function_metrics(server, &mut text);
    user_metrics(server, &mut text);
    let totals = server.totals();
    let help = "Refused calls.";
    text.counter("refused", help, totals.refused);
    let all = |times: &Histogram| [(Labels::new(), times.clone())];
    let help = "Time from the arrival of the last argument to the start.";
    text.histograms("wait_seconds", help, all(&totals.waits));
    text.histograms("exec_seconds", "Time in the library.", all(&totals.execs));
    text
}

/// Single values: name, help, value.
fn gauges(server: Overview<'_>) -> [(&'static str, &'static str, f64); 13] {
    let figures = server.figures();
    let [pes, used] = [figures.pes, figures.pes_used].map(f64::from);
    let (connections, workers) = (figures.connections as f64, figures.workers as f64);
    let (limit, memory) = (figures.memory_limit as f64, figures.memory as f64);
    let draining = f64::from(u8::from(figures.draining));
    let bytes = [figures.array_bytes, figures.array_resident_bytes];
    let [bytes, resident] = bytes.map(|bytes| bytes as f64);
    let arrays = figures.arrays as f64;
    [
        ("connections", "Open connections.", connections),
        ("workers", "Worker processes.", workers),
        ("pes", "Processor elements.", pes),
        ("pes_used", "Processor elements of running calls.", used),
        ("gpus", "GPUs.", f64::from(figures.gpus)),
        (
            "gpus_used",
            "GPUs of running calls.",
            f64::from(figures.gpus_used),
        ),
        (
            "memory_limit_bytes",
            "Limit of the memory of call buffers, in bytes.",
            limit,
        ),
        (
            "memory_bytes",
            "Memory of call buffers in bytes, without idle ones, which give way to others.",
            memory,
        ),
        (
            "backlog_seconds",
            "Predicted time until processor elements are free for one more call.",
            figures.backlog_s,
        ),
        (
            "draining",
            "1 while the server takes no more calls, else 0.",
            draining,
        ),
        ("arrays", "Stored arrays.", arrays),
        ("array_bytes", "Bytes of stored arrays.", bytes),
        (
            "array_resident_bytes",
            "Bytes of stored arrays in memory.",
            resident,
        ),
    ]
}

fn function_metrics(server: Overview<'_>, text: &mut Text) {
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
        bytes.extend(ways.map(|(direction, count)| (with("way", direction), count)));
        times.push((vec![name.clone()], counts.execs.clone()));
    };
    let mut others = Counts::default();
    for function in server.functions().iter() {
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

fn span_metrics(text: &mut Text, spans: farcall_otlp::Counts) {
    let help = "Spans that the collector has taken.";
    text.counter("spans_sent", help, spans.sent);
    let help = "Spans that were lost because the collector was slow or away.";
    text.counter("spans_lost", help, spans.lost);
}

fn user_metrics(server: Overview<'_>, text: &mut Text) {
    let users = || server.totals().users.iter();
    let label = |user: &str| vec![("user", user.to_string())];
    let calls = users().map(|(user, totals)| (label(user), totals.calls));
    let help = "Calls of a user whose results were sent.";
    text.counters("user_calls", help, calls);
    let used = users().map(|(user, totals)| (label(user), totals.pe_seconds));
    let help = "Time for which a user's calls had processor elements, times their number.";
    text.counters("user_pe_seconds", help, used);
    let groups = || server.totals().groups.iter();
    let label = |group: &str| vec![("group", group.to_string())];
    let calls = groups().map(|(group, totals)| (label(group), totals.calls));
    let help = "Calls of the users of a group whose results were sent.";
    text.counters("group_calls", help, calls);
    let used = groups().map(|(group, totals)| (label(group), totals.pe_seconds));
    let help = "Time for which the calls of a group had processor elements, times their number.";
    text.counters("group_pe_seconds", help, used);
}
