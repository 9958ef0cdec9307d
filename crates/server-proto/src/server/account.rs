//! What calls have taken, split as in the papers on Ninf: for the log, the status and Prometheus.

use super::Server;
use crate::functions::Counts;
use crate::keys::CallKey;
use farcall_metrics::{Bounded, Histogram};

/// Times of all calls, and calls that came to nothing before they had a place.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// From the last argument to the start.
    pub waits: Histogram,
    /// In the library.
    pub execs: Histogram,
    /// Calls that were refused.
    pub refused: u64,
    /// By user.
    pub users: Bounded<UserTotals>,
    /// Functions that have been called.
    functions: u32,
}

/// What the calls of one user have come to.
#[derive(Clone, Debug, Default)]
pub struct UserTotals {
    /// Those whose results have left.
    pub calls: u64,
    /// Seconds in the library, times processor elements.
    pub pe_seconds: f64,
}

impl Totals {
    /// Calls whose results have left.
    pub(super) fn ended(&self) -> u64 {
        self.execs.count()
    }
}

impl Server {
    /// The results of a call have left, or are kept.
    ///
    /// SEND, EXEC and RECV are those of the second Ninf paper; `wait` is the first paper's, from
    /// the last argument to the start.
    pub(super) fn account(&mut self, key: CallKey) {
        let now = self.now();
        let Some(job) = self.calls.get(key) else {
            return;
        };
        let times = &job.times;
        let nanos = [
            times.queued.saturating_sub(times.accepted),
            times.started.saturating_sub(times.queued),
            times.exec,
            now.saturating_sub(times.ended),
        ];
        let bytes = [job.layout.sent_bytes(), job.layout.returned_bytes()];
        let user = self.totals.users.get(job.user.name());
        user.calls += 1;
        user.pe_seconds += nanos[2] as f64 * 1e-9 * f64::from(job.pes.max(1));
        let function = job.function;
        if let Some(counts) = self.counts_of(function) {
            counts.done += 1;
            counts.execs.add(nanos[2]);
            let sums = counts.bytes.iter_mut().chain(&mut counts.nanos);
            for (sum, value) in sums.zip(bytes.into_iter().chain(nanos)) {
                *sum = sum.saturating_add(value);
            }
        }
        self.audit_job(key, "done");
        self.totals.waits.add(nanos[1]);
        self.totals.execs.add(nanos[2]);
        if tracing::enabled!(target: "farcall::call", tracing::Level::DEBUG) {
            self.log_call(key, bytes, nanos);
        }
    }

    fn log_call(&self, key: CallKey, [sent_bytes, returned_bytes]: [u64; 2], nanos: [u64; 4]) {
        let job = &self.calls[key];
        let Ok(function) = self.functions.get(job.function) else {
            return;
        };
        let [send_s, wait_s, exec_s, recv_s] = nanos.map(|nanos| nanos as f64 * 1e-9);
        tracing::debug!(
            target: "farcall::call",
            function = &*function.interface.qualified_name(),
            user = job.user.to_string(),
            pes = job.pes,
            sent_bytes,
            returned_bytes,
            send_s,
            wait_s,
            exec_s,
            recv_s,
            "done"
        );
    }

    /// A call of the function has failed.
    pub(super) fn count_failure(&mut self, function: u64) {
        match self.counts_of(function) {
            Some(Counts { failed, .. }) => *failed += 1,
            None => self.totals.refused += 1,
        }
    }

    /// What is counted of a function. It has its place among those that were called.
    fn counts_of(&mut self, function: u64) -> Option<&mut Counts> {
        let counts = self.functions.counts_mut(function)?;
        counts.place.get_or_insert_with(|| {
            self.totals.functions += 1;
            self.totals.functions
        });
        Some(counts)
    }
}
