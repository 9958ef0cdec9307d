//! Deliberate faults, one line each, by which the simulator is tested. Without the feature `flaws`
//! there is none.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A user's call gets memory that another user's call has left.
    SharesBuffers,
    /// A worker runs calls of several users.
    SharesWorkers,
    /// A call that a worker had begun with when it died is begun again.
    RunsAgain,
    /// A submitted call is acknowledged before it is recorded.
    AcknowledgesEarly,
    /// A submitted call is run before it is recorded that it is.
    StartsEarly,
    /// Processor elements of a call that runs are given to others.
    BooksTwice,
    /// A call may write an array that others use.
    MixesWriters,
    /// Memory of calls that were given up is not given back.
    LeaksMemory,
    /// Those who wait for memory are not told that there is some.
    ForgetsStarved,
    /// Results are removed when the call is over.
    RemovesResults,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 10] = [
        Flaw::SharesBuffers,
        Flaw::SharesWorkers,
        Flaw::RunsAgain,
        Flaw::AcknowledgesEarly,
        Flaw::StartsEarly,
        Flaw::BooksTwice,
        Flaw::MixesWriters,
        Flaw::LeaksMemory,
        Flaw::ForgetsStarved,
        Flaw::RemovesResults,
    ];
}

#[cfg(feature = "flaws")]
mod planted {
    use super::Flaw;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    impl Flaw {
        /// Has this thread's servers a fault, or none, from now on.
        pub fn plant(flaw: Option<Flaw>) {
            PLANTED.set(flaw);
        }
    }

    /// Whether there is this fault.
    pub(crate) fn has(flaw: Flaw) -> bool {
        PLANTED.get() == Some(flaw)
    }
}

#[cfg(feature = "flaws")]
pub(crate) use planted::has;

/// Whether there is this fault: never.
#[cfg(not(feature = "flaws"))]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}
