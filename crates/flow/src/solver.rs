//! The solvers for the rates of the active flows.
//!
//! [`MaxMin`] is exact max-min fairness with local repair. [`naive_rates`] is the simple full
//! solver, the oracle of its tests. [`certify`] checks the result of both. [`EqualSplit`] and
//! [`Iterated`] are the two published approximations.

mod certificate;
mod links;
mod max_min;
mod naive;
mod published;
#[cfg(test)]
mod tests;

pub use certificate::{Violation, certify};
pub use max_min::MaxMin;
pub use naive::naive_rates;
pub use published::{EqualSplit, Iterated};

/// Index of an active flow's place. Places are reused.
pub type Slot = u32;
