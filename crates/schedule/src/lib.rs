//! Scheduling decisions without a clock and without I/O: how long a call will take, which call
//! starts next, and which server gets it. Servers, metaservers and the simulator run the same code.
//!
//! - [`Predictor`] learns the time of one function from its calls.
//! - [`Calibration`] learns how far predictions err, and states intervals that hold.
//! - [`Profile`] does so for each number of processor elements.
//! - [`Queue`] holds the calls that wait for processor elements, and says which starts next.
//! - [`reservation`] books processor elements and bandwidth ahead of time.
//! - [`TokenBucket`] limits bytes to a rate.
//! - [`Throughput`] learns the rate of one direction of a link from its transfers.
//! - [`dataflow`] finds what the calls of a transaction wait for, and follows their execution.
//! - [`placement`] chooses the server for a call.
//! - [`pool`] says how many servers a batch system should run.
//! - [`forecast`] predicts how long a transfer between two hosts will take, with an error bar.

mod calibration;
pub mod dataflow;
pub mod forecast;
pub mod placement;
pub mod pool;
mod predict;
mod profile;
pub mod queue;
pub mod reservation;
mod throughput;
mod token_bucket;

pub use calibration::{Calibration, Interval};
pub use predict::{Learned, Prediction, Predictor};
pub use profile::Profile;
pub use queue::{Policy, Queue};
pub use throughput::Throughput;
pub use token_bucket::TokenBucket;

/// Nanoseconds since any fixed moment.
pub type Nanos = u64;

/// Most processor elements of a server, at a metaserver and in simulations.
pub const MOST_PES: u32 = 1 << 16;

/// The median of sorted values: the middle one, or the mean of the two in the middle. `None`
/// without values.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    match sorted.len() % 2 {
        0 => Some((sorted[middle - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}
