//! Deliberate faults, one line each, with which the simulator is tested. Without the feature
//! `flaws` there are none.

/// Defines the deliberate faults of a crate, and `has`, which says whether one is planted. Without
/// the crate's feature `flaws`, none is.
#[macro_export]
macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Flaw {
            $($(#[$doc])* $name,)*
        }

        #[cfg(feature = "flaws")]
        mod planted {
            use super::Flaw;
            use std::cell::Cell;

            thread_local! {
                static PLANTED: Cell<Option<Flaw>> = const { Cell::new(None) };
            }

            impl Flaw {
                /// All deliberate faults.
                pub const ALL: &'static [Flaw] = &[$(Flaw::$name),*];

                /// Gives what runs on this thread a fault, or none, from now on.
                pub fn plant(flaw: Option<Flaw>) {
                    PLANTED.set(flaw);
                }
            }

            /// Whether this fault is planted.
            pub(crate) fn has(flaw: Flaw) -> bool {
                PLANTED.get() == Some(flaw)
            }
        }

        #[cfg(feature = "flaws")]
        pub(crate) use planted::has;

        /// Whether this fault is planted: never.
        #[cfg(not(feature = "flaws"))]
        pub(crate) const fn has(_: Flaw) -> bool {
            false
        }
    };
}

flaws! {
    /// Leases do not end.
    KeepsDead,
    /// A server whose connection was lost stays lost even if it reports again.
    StaysLost,
    /// A call that may have run is run again elsewhere, even if its function is not repeatable.
    RunsElsewhere,
    /// Reports of unknown servers are accepted and ignored.
    TakesStrangers,
    /// A client that found no metaserver never asks again.
    StaysAway,
}
