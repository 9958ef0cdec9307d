//! What a call will take and which call goes first, without a clock and without I/O: the server
//! learns, predicts and decides with the same code as a simulator.
//!
//! - [`Predictor`] learns the time of one function from its calls.
//! - [`Profile`] does so for each number of processor elements.
//! - [`Queue`] holds the jobs that wait for processor elements and says which starts next.
//! - [`reservation`] keeps processor elements and bandwidth that are booked ahead of time.
//! - [`TokenBucket`] lets bytes pass at a rate.
//! - [`Throughput`] learns the rate of one direction of a link from the transfers on it.
//! - [`dataflow`] finds what the calls of a transaction wait for, and follows them.
//! - [`placement`] chooses the server for a call.
//! - [`forecast`] says what a transfer between two hosts will take, and how sure that is.

pub mod dataflow;
pub mod forecast;
pub mod placement;
mod predict;
mod profile;
pub mod queue;
pub mod reservation;
mod throughput;
mod token_bucket;

pub use predict::{Learned, Prediction, Predictor};
pub use profile::Profile;
pub use queue::{Policy, Queue};
pub use throughput::Throughput;
pub use token_bucket::TokenBucket;

/// Nanoseconds since any fixed moment.
pub type Nanos = u64;

/// The middle of sorted values, or the mean of the two in the middle; none where there is no value.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        0 => Some((sorted[middle - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}
