//! Rates of the active flows: exact max-min fairness with local repair, the naive full solver
//! that is its oracle, the certificate both must satisfy, and the two published approximations.

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

/// Index of an active flow's place; places are reused.
pub type Slot = u32;
