//! What a call will take, without a clock and without I/O: the server learns and predicts with the
//! same code as a simulator.
//!
//! - [`Predictor`] learns the time of one function from its calls.
//! - [`Throughput`] learns the rate of one direction of a link from the transfers on it.

mod predict;
mod throughput;

pub use predict::{Prediction, Predictor};
pub use throughput::Throughput;
