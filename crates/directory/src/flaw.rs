//! Deliberate faults, one line each, by which the simulator is tested. Without the feature `flaws`
//! there is none.

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Leases do not end.
    KeepsDead,
    /// A server whose connection was lost stays lost, though it reports again.
    StaysLost,
    /// A call that may have run is run again elsewhere, whatever its interface says.
    RunsElsewhere,
    /// Reports of servers that are not known are taken, and come to nothing.
    TakesStrangers,
    /// A client that has found no metaserver asks none again.
    StaysAway,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 5] = [
        Flaw::KeepsDead,
        Flaw::StaysLost,
        Flaw::RunsElsewhere,
        Flaw::TakesStrangers,
        Flaw::StaysAway,
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
        /// Have the directories and clients of this thread a fault, or none, from now on.
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
