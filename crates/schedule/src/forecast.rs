//! Forecasts of latency and bandwidth between two hosts, for each direction, from measurements.
//!
//! Several predictors run side by side, and the one with the smallest recent error gives the
//! forecast, as in the Network Weather Service (Wolski, Dynamically forecasting network performance
//! using the Network Weather Service, Cluster Computing 1, 1998). Directions are separate because
//! up and down differ by a factor of two to three (second Ninf paper, table 4). All values are
//! logarithms, because times and rates err by factors.

mod path;
mod series;

pub use path::{Forecasts, Path};
pub use series::{Forecast, Method, Series};
