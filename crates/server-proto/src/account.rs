//! Accounting for the log, the status, Prometheus and the record of calls: the times of calls,
//! split as in the Ninf papers. It counts and decides nothing. A call counts once, when its results
//! have left or are stored, or when it has failed.

use crate::call::ActiveCall;
use crate::functions::{Counts, Functions};
use crate::keys::{CallKey, Key};
use crate::notes::Notes;
use crate::settings::Groups;
use farcall_metrics::{Bounded, Histogram};
use farcall_rpc_proto::{JobId, Nanos, TraceContext, User};
use std::collections::{BTreeMap, VecDeque};

/// Times of all calls, and counts of calls that were refused.
#[derive(Debug, Default)]
pub struct Totals {
    /// Time from the last argument to the start.
    pub waits: Histogram,
    /// Time in the library.
    pub execs: Histogram,
    /// Calls that were refused.
    pub refused: u64,
    /// Totals by user.
    pub users: Bounded<UserTotals>,
    /// Totals by group of users.
    pub groups: BTreeMap<String, UserTotals>,
    /// The calls of functions that ended last, the latest first.
    pub(crate) recent: VecDeque<Recent>,
    /// The record of calls, if the shell keeps one.
    pub(crate) notes: Option<Notes>,
    /// Number of functions that were called.
    functions: u32,
}

/// Calls that are remembered after they have ended, for those who watch.
const MOST_RECENT: usize = 100;

/// A call that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    pub(crate) number: u64,
    pub(crate) user: User,
    pub(crate) function: u64,
    pub(crate) job: Option<JobId>,
    pub(crate) cause: Option<TraceContext>,
    pub(crate) pes: u32,
    /// Seconds in the library, as predicted when it was queued.
    pub(crate) predicted: Option<f64>,
    /// SEND, wait, EXEC, RECV.
    pub(crate) nanos: [Nanos; 4],
    pub(crate) bytes: [u64; 2],
    /// When it ended.
    pub(crate) at: Nanos,
}

/// Totals of one user, or of a group.
#[derive(Clone, Debug, Default)]
pub struct UserTotals {
    /// Calls whose results have left or are stored.
    pub calls: u64,
    /// Seconds for which calls had processor elements, times their number, however the calls ended.
    pub pe_seconds: f64,
}

impl Totals {
    pub(crate) fn new(notes: Option<Notes>) -> Totals {
        Totals {
            notes,
            ..Totals::default()
        }
    }

    /// Calls whose results have left.
    pub(crate) fn ended(&self) -> u64 {
        self.execs.count()
    }

    /// Counts a call whose results have left or are stored.
    ///
    /// SEND, EXEC and RECV are those of the second Ninf paper. `wait` is the first paper's: from
    /// the last argument to the start.
    pub(crate) fn add(
        &mut self,
        (key, call): (CallKey, &ActiveCall),
        functions: &mut Functions,
        groups: &Groups,
        now: Nanos,
    ) {
        let times = &call.times;
        let nanos = [
            times.queued.saturating_sub(times.accepted),
            times.started.saturating_sub(times.queued),
            times.exec,
            now.saturating_sub(times.ended),
        ];
        let bytes = [call.layout.sent_bytes(), call.layout.returned_bytes()];
        // A transfer of a result or an array, which no function has computed, is no call.
        if functions.get(call.function).is_err() {
            return;
        }
        self.remember((key, call), nanos, bytes, now);
        self.each_of(&call.user, groups, |totals| totals.calls += 1);
        if let Some(counts) = self.counts_of(call.function, functions) {
            counts.done += 1;
            counts.execs.add(nanos[2]);
            let sums = counts.bytes.iter_mut().chain(&mut counts.nanos);
            for (sum, value) in sums.zip(bytes.into_iter().chain(nanos)) {
                *sum = sum.saturating_add(value);
            }
        }
        self.waits.add(nanos[1]);
        self.execs.add(nanos[2]);
        if tracing::enabled!(target: "farcall::call", tracing::Level::DEBUG)
            && let Ok(function) = functions.get(call.function)
        {
            log(call, &function.interface.qualified_name(), bytes, nanos);
        }
    }

    /// Charges a user, and the groups of the user, for processor elements that a call has had.
    pub(crate) fn charge(&mut self, user: &User, groups: &Groups, pe_seconds: f64) {
        if pe_seconds > 0.0 {
            self.each_of(user, groups, |totals| totals.pe_seconds += pe_seconds);
        }
    }

    /// Changes the totals of a user, and of the groups of the user.
    fn each_of(&mut self, user: &User, groups: &Groups, change: impl Fn(&mut UserTotals)) {
        change(self.users.get(user.name()));
        for (name, _) in groups.iter().filter(|(_, group)| group.has(user)) {
            change(self.groups.entry(name.clone()).or_default());
        }
    }

    fn remember(
        &mut self,
        (key, call): (CallKey, &ActiveCall),
        nanos: [Nanos; 4],
        bytes: [u64; 2],
        at: Nanos,
    ) {
        self.recent.truncate(MOST_RECENT - 1);
        self.recent.push_front(Recent {
            number: key.number(),
            user: call.user.clone(),
            function: call.function,
            job: call.job_id(),
            cause: call.run.cause,
            pes: call.run.pes,
            predicted: call.run.predicted,
            nanos,
            bytes,
            at,
        });
    }

    /// Counts a call that has failed.
    pub(crate) fn count_failure(&mut self, function: u64, functions: &mut Functions) {
        match self.counts_of(function, functions) {
            Some(Counts { failed, .. }) => *failed += 1,
            None => self.refused += 1,
        }
    }

    /// The counts of a function. The first call gives it a place among those that were called.
    fn counts_of<'f>(
        &mut self,
        function: u64,
        functions: &'f mut Functions,
    ) -> Option<&'f mut Counts> {
        let counts = functions.counts_mut(function)?;
        counts.place.get_or_insert_with(|| {
            self.functions += 1;
            self.functions
        });
        Some(counts)
    }
}

fn log(call: &ActiveCall, function: &str, [sent_bytes, returned_bytes]: [u64; 2], nanos: [u64; 4]) {
    let [send_s, wait_s, exec_s, recv_s] = nanos.map(|nanos| nanos as f64 * 1e-9);
    tracing::debug!(
        target: "farcall::call",
        function,
        user = call.user.to_string(),
        pes = call.run.pes,
        sent_bytes,
        returned_bytes,
        send_s,
        wait_s,
        exec_s,
        recv_s,
        "done"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{ConnectionKey, MemoryKey};

    /// Its times are zero, and there are many: they would hide how long calls wait and compute.
    #[test]
    fn the_transfer_of_a_result_is_no_call() {
        let (mut totals, mut functions) = (Totals::default(), Functions::default());
        let client = (ConnectionKey::NONE, 1);
        let call = ActiveCall::delivery(User::named("anne"), client, 8, MemoryKey::NONE, 1);
        totals.add((CallKey::NONE, &call), &mut functions, &Groups::new(), 2);
        assert_eq!((totals.ended(), totals.waits.count()), (0, 0));
        assert!(totals.users.iter().next().is_none());
    }
}
