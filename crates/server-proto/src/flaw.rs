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
    /// A durable call is acknowledged before it is recorded.
    AcknowledgesEarly,
    /// A durable call is run before it is recorded that it is.
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
    /// An object that stays is found by other users, too.
    SharesObjects,
    /// An object that stays ends with a connection that knows it.
    EndsKeptObjects,
    /// A method is run by any worker, and not by that of its object.
    StraysMethods,
    /// Data that are not shared are found by other users.
    ShowsPrivateNames,
    /// A name goes on to stand for what was replaced.
    KeepsOldVersions,
    /// A call may write data that have a name.
    WritesNamed,
    /// A user may give up the reservation of another.
    ReleasesOthers,
    /// A reservation is forgotten when the next one is made.
    DropsBookings,
    /// What passes at a reserved rate is not counted.
    OverspendsLanes,
    /// A client may take any time to answer a callback.
    AwaitsForever,
    /// Memory that a client gives back is freed while a call still has it.
    FreesSegments,
    /// Any user may register libraries.
    RegistersAnyone,
    /// A server that drains closes connections without a word.
    ForgetsGoodbye,
    /// A call may wait for processor elements for ever.
    ForgetsPatience,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 24] = [
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
        Flaw::SharesObjects,
        Flaw::EndsKeptObjects,
        Flaw::StraysMethods,
        Flaw::ShowsPrivateNames,
        Flaw::KeepsOldVersions,
        Flaw::WritesNamed,
        Flaw::ReleasesOthers,
        Flaw::DropsBookings,
        Flaw::OverspendsLanes,
        Flaw::AwaitsForever,
        Flaw::FreesSegments,
        Flaw::RegistersAnyone,
        Flaw::ForgetsGoodbye,
        Flaw::ForgetsPatience,
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
