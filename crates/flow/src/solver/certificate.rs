//! Checks whether a set of rates is max-min fair. It does not compute rates and knows nothing of
//! how the solver found them, so that it can judge the solver. The check is exact up to the given
//! tolerance.

use crate::platform::LinkId;

/// The reason why a set of rates is not max-min fair.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    /// The flows on a link exceed its bandwidth.
    #[error("link {link} carries {load} bytes/s of {bandwidth}")]
    Overload {
        /// The link.
        link: LinkId,
        /// Sum of the rates on it, bytes/s.
        load: f64,
        /// Its bandwidth, bytes/s.
        bandwidth: f64,
    },
    /// A flow that has no saturated link on which its rate is the largest.
    #[error("flow {flow} at {rate} bytes/s has no bottleneck link")]
    NoBottleneck {
        /// Index of the flow in the caller's list.
        flow: usize,
        /// Its rate, bytes/s.
        rate: f64,
    },
}

/// Largest relative difference of two rates that count as the same.
const SAME: f64 = 1e-9;

/// Checks that rates are feasible and that every flow has a saturated link on which its rate is
/// maximal. Both together are necessary and sufficient for max-min fairness. `tolerance` is the
/// fraction by which loads can exceed a bandwidth, or miss one that they saturate: the rates are
/// max-min fair for bandwidths that differ from the given ones by at most that.
///
/// # Errors
/// The first violation found.
pub fn certify<'a, F>(bandwidth: &[f64], flows: F, tolerance: f64) -> Result<(), Violation>
where
    F: Iterator<Item = (&'a [LinkId], f64)> + Clone,
{
    let mut load = vec![0.0; bandwidth.len()];
    let mut largest = vec![0.0f64; bandwidth.len()];
    for (path, rate) in flows.clone() {
        for &link in path {
            load[link as usize] += rate;
            largest[link as usize] = largest[link as usize].max(rate);
        }
    }
    for (link, (&load, &bandwidth)) in load.iter().zip(bandwidth).enumerate() {
        if load > bandwidth * (1.0 + tolerance) {
            return Err(Violation::Overload {
                link: link as LinkId,
                load,
                bandwidth,
            });
        }
    }
    for (flow, (path, rate)) in flows.enumerate() {
        let bottleneck = path.iter().any(|&link| {
            let l = link as usize;
            load[l] >= bandwidth[l] * (1.0 - tolerance) && rate >= largest[l] * (1.0 - SAME)
        });
        if !bottleneck {
            return Err(Violation::NoBottleneck { flow, rate });
        }
    }
    Ok(())
}
