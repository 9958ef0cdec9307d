//! Nobody starves: a call that waits for processor elements has them in time.
//!
//! The bound follows from the policy (`farcall_schedule::queue`): a user's oldest call that has
//! waited for its patience is next, behind those of other users that have waited for longer, and
//! nothing else starts until it has its elements. Each of these has them when what runs has ended.
//! Behind it the user's next call is the oldest. So the call with `k` calls of its user before it
//! waits at most for `(k + 1) * (patience + users * longest)`.

use crate::machine::{PATIENCE, USERS};
use crate::options::Options;
use farcall_server_proto::CallKey;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    user: u8,
    since: u64,
    /// Calls of its user that came before.
    behind: u64,
}

/// Who waits for how long.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    waits: BTreeMap<(u64, CallKey), Wait>,
    /// What broke has an effect until then.
    broken: u64,
    /// The longest wait, as a part of what it might be.
    pub(crate) longest: f64,
}

/// For how long a call has its processor elements at most.
fn longest(options: &Options) -> u64 {
    let faults = &options.faults;
    let parts = [
        // It runs, and its worker has started before.
        (true, 1100 * MS),
        // It runs again when its caller has answered.
        (options.subjects.callbacks, S),
        (faults.worker_starts_badly, 2 * S),
        // It is recorded before that it runs.
        (faults.disk_is_slow, 10 * S),
        (faults.disk_is_full, 3 * S),
    ];
    let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
    parts.map(|(_, nanos)| nanos).sum()
}

impl Fairness {
    /// Something is broken until then: who waits may wait anew from then on.
    pub(crate) fn broken(&mut self, until: u64) {
        self.broken = self.broken.max(until);
    }

    /// A server has ended.
    pub(crate) fn ended(&mut self, life: u64) {
        self.waits.retain(|(of, _), _| *of != life);
    }

    /// These calls wait, with their users, in the order in which they came. Says who starves.
    pub(crate) fn look(
        &mut self,
        life: u64,
        waiting: &[(CallKey, u8)],
        now: u64,
        options: &Options,
    ) -> Result<(), String> {
        self.waits
            .retain(|key, _| key.0 != life || waiting.iter().any(|(call, _)| *call == key.1));
        for (call, user) in waiting {
            // Of those that came since it was looked last nobody knows the order.
            let own = waiting.iter().filter(|(_, other)| other == user);
            let behind = own.count() as u64 - 1;
            let wait = self.waits.entry((life, *call));
            wait.or_insert(Wait {
                user: *user,
                since: now,
                behind,
            });
        }
        // Reservations go before.
        if options.subjects.reservations {
            return Ok(());
        }
        for ((_, call), wait) in &self.waits {
            let waited = now.saturating_sub(wait.since.max(self.broken));
            let bound = (wait.behind + 1) * (PATIENCE + USERS * longest(options));
            self.longest = self.longest.max(waited as f64 / bound as f64);
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
