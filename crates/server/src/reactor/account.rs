//! What calls have taken, split as in the papers on Ninf.

use super::Reactor;

impl Reactor {
    /// The results of a call have left, or are kept: tells the log what it took.
    ///
    /// SEND, EXEC and RECV are those of the second Ninf paper; `wait` is the first paper's, from
    /// the last argument to the start.
    pub(super) fn account(&self, key: usize) {
        if !tracing::enabled!(target: "farcall::call", tracing::Level::DEBUG) {
            return;
        }
        let Some(job) = self.jobs.get(key) else {
            return;
        };
        let Ok(function) = self.functions.get(job.function) else {
            return;
        };
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e-9;
        let times = &job.times;
        tracing::debug!(
            target: "farcall::call",
            function = &*function.interface.qualified_name(),
            user = job.user.to_string(),
            pes = job.pes,
            sent_bytes = job.layout.sent_bytes(),
            returned_bytes = job.layout.returned_bytes(),
            send_s = seconds(times.accepted, times.queued),
            wait_s = seconds(times.queued, times.started),
            exec_s = times.exec as f64 * 1e-9,
            recv_s = seconds(times.ended, self.nanos()),
            "done"
        );
    }
}
