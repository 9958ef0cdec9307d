//! Latency and bandwidth between two hosts, forecast for each direction from what was measured.
//!
//! Several predictors run beside each other and the one that has erred least of late speaks, as in
//! the Network Weather Service (Wolski, Dynamically forecasting network performance using the
//! Network Weather Service, Cluster Computing 1, 1998). Directions are kept apart because up and
//! down differ by a factor of two to three (second Ninf paper, table 4). All values are taken as
//! logarithms: times and rates err by factors.

mod path;
mod series;

pub use path::{Forecasts, Path};
pub use series::{Forecast, Method, Series};
