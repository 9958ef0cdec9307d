//! What calls have taken, split as in the papers on Ninf: for the log, the status and Prometheus.

use super::Server;
use crate::functions::Counts;
use crate::keys::CallKey;

/// How many calls took how long.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; Histogram::BOUNDS.len()],
    nanos: u64,
}

impl Histogram {
    /// Seconds up to which a call belongs to each count.
    const BOUNDS: [f64; 11] = [
        1e-5,
        1e-4,
        1e-3,
        1e-2,
        0.1,
        1.0,
        10.0,
        100.0,
        1000.0,
        10000.0,
        f64::INFINITY,
    ];

    /// How many calls.
    fn calls(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn add(&mut self, nanos: u64) {
        let seconds = nanos as f64 * 1e-9;
        let index = Histogram::BOUNDS
            .iter()
            .take_while(|bound| seconds > **bound)
            .count();
        self.counts[index] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// Each bound with its count.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        Histogram::BOUNDS.into_iter().zip(self.counts).collect()
    }

    /// Seconds of all together.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 * 1e-9
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; Histogram::BOUNDS.len()],
            nanos: 0,
        }
    }
}

/// Times of all calls, and calls that came to nothing before they had a place.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// From the last argument to the start.
    pub waits: Histogram,
    /// In the library.
    pub execs: Histogram,
    /// Calls that were refused.
    pub refused: u64,
}

impl Totals {
    /// Calls whose results have left.
    pub(super) fn ended(&self) -> u64 {
        self.execs.calls()
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
        if let Some(counts) = self.functions.counts_mut(job.function) {
            counts.done += 1;
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
        match self.functions.counts_mut(function) {
            Some(Counts { failed, .. }) => *failed += 1,
            None => self.totals.refused += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_belongs_to_one_count() {
        let mut histogram = Histogram::default();
        for nanos in [0, 10_000, 10_001, 1_000_000_000, u64::MAX] {
            histogram.add(nanos);
        }
        let counts: Vec<u64> = histogram
            .buckets()
            .iter()
            .map(|(_, count)| *count)
            .collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    }
}
