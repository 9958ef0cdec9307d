//! Fairness: no call starves. A call that waits for processor elements receives them within a
//! bound.
//!
//! The bound follows from the policy (`farcall_schedule::queue`). When a user's oldest call has
//! waited for its patience, it is next, behind such calls of other users that have waited longer.
//! Nothing else starts until it has its processor elements; the checker verifies that directly.
//! Each of these calls starts when the running calls have ended, and then the user's next call is
//! the oldest. So a call with `k` earlier calls of its user waits at most `(k + 1) * (patience +
//! users * longest)`.
//!
//! The checker looks at the waiting calls from time to time. It knows what happened since the last
//! time, but not in which order.

use crate::machine::{PATIENCE, USERS};
use crate::options::Options;
use farcall_server_proto::CallKey;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    user: u8,
    since: u64,
    /// Earlier calls of its user.
    behind: u64,
}

/// The calls of a user of which one is the oldest.
#[derive(Clone, Debug)]
struct Oldest {
    calls: BTreeSet<CallKey>,
    /// When it became the oldest: after the first time, and before the second.
    since: (u64, u64),
}

/// Waiting calls and their times.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    waits: BTreeMap<(u64, CallKey), Wait>,
    /// Faults have an effect until this time.
    broken: u64,
    /// By life and user.
    oldest: BTreeMap<(u64, u8), Oldest>,
    /// The user whose oldest call is next, by life.
    next: BTreeMap<u64, u8>,
    /// Calls that started since the last look.
    started: Vec<(u64, CallKey)>,
    /// The time of the last look, by life.
    looked: BTreeMap<u64, u64>,
}

/// The longest time for which a call can have its processor elements.
fn longest(options: &Options) -> u64 {
    let faults = &options.faults;
    let parts = [
        // The call runs, after its worker has started.
        (true, 1100 * MS),
        // The call continues when its callback is answered.
        (options.subjects.callbacks, S),
        (faults.worker_starts_badly, 2 * S),
        // The server records the call before it starts.
        (faults.disk_is_slow, 10 * S),
        (faults.disk_is_full, 3 * S),
    ];
    let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
    parts.map(|(_, nanos)| nanos).sum()
}

impl Fairness {
    /// A fault has an effect until this time. Waiting times start again then.
    pub(crate) fn broken(&mut self, until: u64) {
        self.broken = self.broken.max(until);
    }

    /// A server has ended.
    pub(crate) fn ended(&mut self, life: u64) {
        self.waits.retain(|(of, _), _| *of != life);
        self.oldest.retain(|(of, _), _| *of != life);
        self.started.retain(|(of, _)| *of != life);
        self.next.remove(&life);
    }

    /// A worker is handed a call. Calls of reservations take precedence.
    pub(crate) fn started(&mut self, life: u64, call: CallKey, is_reserved: bool) {
        self.started.push((life, call));
        if is_reserved {
            self.waits.remove(&(life, call));
        }
    }

    /// Whether a call has started although an older call was next and still waits.
    fn check_next(&mut self, life: u64, waiting: &[(CallKey, u8)]) -> Result<(), String> {
        let started = std::mem::take(&mut self.started);
        let (mine, others) = started.into_iter().partition(|(of, _)| *of == life);
        self.started = others;
        let mine: Vec<(u64, CallKey)> = mine;
        let next = self.next.remove(&life);
        let next = next.and_then(|user| self.oldest.get(&(life, user)));
        let told = match next {
            Some(oldest) => {
                let waits = |call: &CallKey| {
                    let is_there = waiting.iter().any(|(other, _)| other == call);
                    is_there && !mine.contains(&(life, *call))
                };
                let is_other = |key: &&(u64, CallKey)| self.waits.contains_key(key);
                match mine.iter().find(is_other) {
                    Some((_, call)) if oldest.calls.iter().all(waits) => Err(format!(
                        "{call:?} starts, and a call whose patience is over is next: {oldest:?}",
                    )),
                    _ => Ok(()),
                }
            }
            None => Ok(()),
        };
        // A call that was taken back from a worker starts to wait again.
        for key in &mine {
            self.waits.remove(key);
        }
        let has_started = |call: &CallKey| mine.contains(&(life, *call));
        self.oldest
            .retain(|(of, _), oldest| *of != life || !oldest.calls.iter().all(has_started));
        told
    }

    /// Finds the oldest call of each user, and whether one of them is next.
    fn find_next(&mut self, life: u64, now: u64) {
        let before = self.looked.insert(life, now).unwrap_or(now);
        let waits = self.waits.range((life, CallKey::NONE)..);
        let waits = waits.take_while(|(key, _)| key.0 == life);
        let mut first: BTreeMap<u8, (u64, BTreeSet<CallKey>)> = BTreeMap::new();
        for ((_, call), wait) in waits {
            let known = first
                .entry(wait.user)
                .or_insert((u64::MAX, BTreeSet::new()));
            if wait.since < known.0 {
                *known = (wait.since, BTreeSet::new());
            }
            if wait.since == known.0 {
                known.1.insert(*call);
            }
        }
        self.oldest
            .retain(|(of, user), _| *of != life || first.contains_key(user));
        for (user, (_, calls)) in first {
            let since = (before, now);
            let known = self.oldest.entry((life, user));
            let known = known.or_insert_with(|| Oldest {
                calls: calls.clone(),
                since,
            });
            if known.calls != calls {
                // One of the remaining calls might have been the oldest before.
                let was_there = !known.calls.is_disjoint(&calls);
                let from = if was_there { known.since.0 } else { before };
                *known = Oldest {
                    calls,
                    since: (from, now),
                };
            }
        }
        let its = self.oldest.range((life, 0)..=(life, u8::MAX));
        let first = its.clone().min_by_key(|(_, oldest)| oldest.since.1);
        let Some(((_, user), oldest)) = first else {
            return;
        };
        let mut others = its.filter(|((_, other), _)| other != user);
        let is_first = others.all(|(_, other)| oldest.since.1 < other.since.0);
        if is_first && now > oldest.since.1 + PATIENCE {
            self.next.insert(life, *user);
        }
    }

    /// Checks these waiting calls and their users. Reports the call that starves.
    pub(crate) fn look(
        &mut self,
        life: u64,
        waiting: &[(CallKey, u8)],
        now: u64,
        options: &Options,
    ) -> Result<(), String> {
        // Reservations take precedence.
        if options.subjects.reservations {
            return Ok(());
        }
        self.check_next(life, waiting)?;
        self.waits
            .retain(|key, _| key.0 != life || waiting.iter().any(|(call, _)| *call == key.1));
        for (call, user) in waiting {
            // The order of calls that came since the last look is unknown.
            let own = waiting.iter().filter(|(_, other)| other == user);
            let behind = own.count() as u64 - 1;
            let wait = self.waits.entry((life, *call));
            wait.or_insert(Wait {
                user: *user,
                since: now,
                behind,
            });
        }
        self.find_next(life, now);
        for ((_, call), wait) in &self.waits {
            let waited = now.saturating_sub(wait.since.max(self.broken));
            let bound = (wait.behind + 1) * (PATIENCE + USERS * longest(options));
            if waited > bound {
                return Err(format!(
                    "{call:?} of user {} has waited {:.1} s for processor elements, behind {} of \
                     its own, and {:.1} s is the most",
                    wait.user,
                    waited as f64 * 1e-9,
                    wait.behind,
                    bound as f64 * 1e-9
                ));
            }
        }
        Ok(())
    }
}
