//! The lifecycle of a durable call: its states, and the changes between them.
//!
//! The table is complete: a change that it does not list has no effect. So every call has at most
//! one outcome.

use farcall_rpc_proto::DurableState;

/// A change of a durable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A worker will run it.
    Start,
    /// Its results are on disk.
    Finish,
    /// It has failed, or cannot run.
    Fail,
    /// Its user cancels it.
    Cancel,
    /// The server restarts or its worker was killed, and the function is declared `Repeatable
    /// "yes"`. Or its worker was killed before it had begun.
    RestartRepeatable,
    /// The server restarts, and a second run might not be safe.
    RestartOnce,
}

/// State, change, next state. Changes that are not listed have no effect.
const TABLE: [(DurableState, Change, DurableState); 10] = {
    use Change::*;
    use DurableState::*;
    [
        (Queued, Start, Running),
        (Queued, Fail, Failed),
        (Queued, Cancel, Cancelled),
        (Queued, RestartRepeatable, Queued),
        (Queued, RestartOnce, Queued),
        (Running, Finish, Done),
        (Running, Fail, Failed),
        (Running, Cancel, Cancelled),
        (Running, RestartRepeatable, Queued),
        (Running, RestartOnce, Failed),
    ]
};

/// The state after a change; `None` if the change has no effect.
pub fn next(state: DurableState, change: Change) -> Option<DurableState> {
    let mut rows = TABLE.iter();
    let row = rows.find(|(from, by, _)| (*from, *by) == (state, change));
    row.map(|(_, _, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHANGES: [Change; 6] = [
        Change::Start,
        Change::Finish,
        Change::Fail,
        Change::Cancel,
        Change::RestartRepeatable,
        Change::RestartOnce,
    ];

    #[test]
    fn an_outcome_is_final() {
        for state in DurableState::ALL
            .into_iter()
            .filter(|state| state.is_over())
        {
            for change in CHANGES {
                assert_eq!(next(state, change), None, "{state:?} {change:?}");
            }
        }
    }

    #[test]
    fn every_state_but_the_first_is_reached_and_every_one_can_end() {
        for state in DurableState::ALL {
            let reached = TABLE.iter().any(|(_, _, to)| *to == state);
            assert!(reached, "{state:?}");
            if !state.is_over() {
                for end in [Change::Fail, Change::Cancel] {
                    assert!(next(state, end).is_some_and(DurableState::is_over));
                }
            }
        }
    }

    #[test]
    fn no_state_has_two_ways_by_one_change() {
        for (index, (from, by, _)) in TABLE.iter().enumerate() {
            let others = TABLE[index + 1..].iter();
            assert!(others.clone().all(|(f, b, _)| (f, b) != (from, by)));
        }
    }

    proptest! {
        /// Whatever happens, a call that was once running is never run twice unless it may be, and
        /// has one outcome at most.
        #[test]
        fn one_outcome_and_one_run(
            changes in prop::collection::vec(0..CHANGES.len(), 0..40),
            repeatable: bool,
        ) {
            let (mut state, mut runs, mut outcomes) = (DurableState::Queued, 0, 0);
            for index in changes {
                let change = match CHANGES[index] {
                    Change::RestartOnce if repeatable => Change::RestartRepeatable,
                    Change::RestartRepeatable if !repeatable => Change::RestartOnce,
                    other => other,
                };
                let Some(to) = next(state, change) else { continue };
                runs += usize::from(to == DurableState::Running);
                outcomes += usize::from(to.is_over());
                state = to;
            }
            prop_assert!(outcomes <= 1);
            prop_assert_eq!(outcomes == 1, state.is_over());
            prop_assert!(repeatable || runs <= 1);
        }
    }
}
