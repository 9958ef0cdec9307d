//! The full solver as in a textbook. Tests use it as the oracle for [`super::MaxMin`].

use crate::platform::LinkId;

/// Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).
///
/// `bandwidth[l]` is in bytes/s; `paths[f]` holds the links of flow `f`, each at most once. Every
/// round finds the link with the least free bandwidth per flow without a rate, and gives its flows
/// that share. Cost: rounds times links times flows.
pub fn naive_rates(bandwidth: &[f64], paths: &[Vec<LinkId>]) -> Vec<f64> {
    let mut rates = vec![f64::NAN; paths.len()];
    loop {
        let mut room: Vec<f64> = bandwidth.to_vec();
        let mut open = vec![0usize; bandwidth.len()];
        for (path, rate) in paths.iter().zip(&rates) {
            for &link in path {
                if rate.is_nan() {
                    open[link as usize] += 1;
                } else {
                    room[link as usize] -= rate;
                }
            }
        }
        let share = |l: usize| room[l] / open[l] as f64;
        let candidates = (0..bandwidth.len()).filter(|&l| open[l] > 0);
        let Some(bottleneck) = candidates.min_by(|&a, &b| share(a).total_cmp(&share(b))) else {
            return rates;
        };
        let level = share(bottleneck);
        for (path, rate) in paths.iter().zip(&mut rates) {
            if rate.is_nan() && path.contains(&(bottleneck as LinkId)) {
                *rate = level;
            }
        }
    }
}
