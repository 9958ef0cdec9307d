//! Forecasts for one direction between two hosts, and the table of all such paths. `series` makes
//! the forecasts. A path learns the rate of a transfer that is alone on its link. The number of
//! paths is bounded: a new one replaces the one that was observed longest ago.

use super::{Forecast, Series};
use std::collections::BTreeMap;

/// One direction from a host to another: latency and bandwidth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    latency: Series,
    rate: Series,
}

impl Path {
    /// Transfers of fewer bytes show the latency; longer ones show the bandwidth.
    pub const SHORT_BYTES: u64 = 1 << 16;
    /// With fewer observations, nothing is expected.
    const FEW: usize = 5;

    /// Records a transfer of a call or a probe, which took this many seconds from its first byte at
    /// one host to its last byte at the other. `sharing` is the harmonic mean of the number of
    /// transfers on the link meanwhile, this one included. The path learns the rate of a transfer
    /// that is alone.
    pub fn observe(&mut self, bytes: u64, seconds: f64, sharing: f64) {
        if !seconds.is_finite() || !sharing.is_finite() {
            return;
        }
        let rate = self.rate.forecast().map(|rate| rate.value);
        let sharing = sharing.max(1.0);
        if bytes < Path::SHORT_BYTES {
            // At least half of the time counts as latency, because the rate is only a forecast.
            let on_the_link = rate.map_or(0.0, |rate| bytes as f64 * sharing / rate);
            self.latency
                .observe(seconds - on_the_link.min(seconds / 2.0));
        } else {
            let latency = self.latency.forecast().map_or(0.0, |known| known.value);
            let on_the_link = seconds - latency.min(seconds / 2.0);
            self.rate.observe(bytes as f64 * sharing / on_the_link);
        }
    }

    /// Seconds that a transfer is expected to take, from the first byte at one host to the last
    /// byte at the other. `None` before several transfers of its kind (short or long) are known.
    pub fn expects(&self, bytes: u64, sharing: f64) -> Option<f64> {
        let is_short = bytes < Path::SHORT_BYTES;
        let series = if is_short { &self.latency } else { &self.rate };
        if series.recent().count() < Path::FEW {
            return None;
        }
        let latency_s = self.latency.forecast().map_or(0.0, |known| known.value);
        let rate = self.rate.forecast().map(|known| known.value);
        Some(latency_s + rate.map_or(0.0, |rate| bytes as f64 * sharing.max(1.0) / rate))
    }

    /// Seconds before the first byte arrives; `None` before the first short transfer.
    pub fn latency(&self) -> Option<Forecast> {
        self.latency.forecast()
    }

    /// Bytes per second of a transfer that is alone; `None` before the first long transfer.
    pub fn rate(&self) -> Option<Forecast> {
        self.rate.forecast()
    }

    /// The measurements behind the two forecasts, latency first, for storage.
    pub fn series(&self) -> (&Series, &Series) {
        (&self.latency, &self.rate)
    }

    /// A path restored from stored measurements: latencies in seconds and rates in bytes per
    /// second, the oldest first.
    pub fn resume(
        latencies: impl IntoIterator<Item = f64>,
        rates: impl IntoIterator<Item = f64>,
    ) -> Path {
        let mut path = Path::default();
        latencies
            .into_iter()
            .for_each(|one| path.latency.observe(one));
        rates.into_iter().for_each(|one| path.rate.observe(one));
        path
    }
}

/// The paths between hosts, each direction separate. Their number is bounded: a new path replaces
/// the one with the oldest observation.
#[derive(Clone, Debug)]
pub struct Forecasts {
    paths: BTreeMap<(u64, u64), (u64, Path)>,
    /// The paths by their last observation.
    by_age: BTreeMap<u64, (u64, u64)>,
    most: usize,
    observations: u64,
}

impl Forecasts {
    /// No paths yet, and at most `most` (at least one).
    pub fn new(most: usize) -> Forecasts {
        Forecasts {
            paths: BTreeMap::new(),
            by_age: BTreeMap::new(),
            most: most.max(1),
            observations: 0,
        }
    }

    /// Records a transfer from one host to another, as in [`Path::observe`].
    pub fn observe(&mut self, from: u64, to: u64, bytes: u64, seconds: f64, sharing: f64) {
        self.touch(from, to).observe(bytes, seconds, sharing);
    }

    /// Restores a stored path.
    pub fn resume(&mut self, from: u64, to: u64, path: Path) {
        *self.touch(from, to) = path;
    }

    /// What is known about a direction.
    pub fn path(&self, from: u64, to: u64) -> Option<&Path> {
        self.paths.get(&(from, to)).map(|(_, path)| path)
    }

    /// All known directions.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = ((u64, u64), &Path)> {
        self.paths.iter().map(|(hosts, (_, path))| (*hosts, path))
    }

    fn touch(&mut self, from: u64, to: u64) -> &mut Path {
        let hosts = (from, to);
        self.observations += 1;
        match self.paths.get(&hosts) {
            Some((age, _)) => {
                self.by_age.remove(age);
            }
            None if self.paths.len() == self.most => {
                if let Some((_, oldest)) = self.by_age.pop_first() {
                    self.paths.remove(&oldest);
                }
            }
            None => {}
        }
        self.by_age.insert(self.observations, hosts);
        let (age, path) = self.paths.entry(hosts).or_default();
        *age = self.observations;
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(forecast: Option<Forecast>) -> f64 {
        forecast.expect("known").value
    }

    #[test]
    fn latency_and_bandwidth_are_told_apart() {
        let mut path = Path::default();
        assert_eq!(path.rate(), None);
        for _ in 0..20 {
            path.observe(64, 0.02 + 64.0 / 1e6, 1.0);
            path.observe(1 << 20, 0.02 + f64::from(1 << 20) / 1e6, 1.0);
        }
        assert!((value(path.latency()) / 0.02 - 1.0).abs() < 0.01);
        assert!((value(path.rate()) / 1e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_transfer_that_shares_its_link_does_not_make_it_slower() {
        let mut path = Path::default();
        for sharing in [1.0, 4.0, 2.0, 8.0] {
            path.observe(1 << 20, sharing * f64::from(1 << 20) / 1e6, sharing);
        }
        assert!((value(path.rate()) / 1e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn directions_are_apart_and_the_number_of_paths_has_a_bound() {
        let mut forecasts = Forecasts::new(10);
        forecasts.observe(1, 2, 1 << 20, 1.0, 1.0);
        forecasts.observe(2, 1, 1 << 20, 3.0, 1.0);
        let rate = |from, to| forecasts.path(from, to).and_then(|path| path.rate());
        assert!((value(rate(1, 2)) / value(rate(2, 1)) - 3.0).abs() < 1e-9);
        for host in 3..1000 {
            forecasts.observe(1, host, 1 << 20, 1.0, 1.0);
            forecasts.observe(1, 2, 1 << 20, 1.0, 1.0);
        }
        assert_eq!(forecasts.paths().len(), 10);
        assert_eq!(forecasts.by_age.len(), 10);
        assert!(forecasts.path(1, 2).is_some(), "observed all the time");
        assert!(forecasts.path(2, 1).is_none(), "not for long");
    }

    #[test]
    fn learned_paths_can_be_stored_and_impossible_values_do_no_harm() {
        let mut path = Path::default();
        for (bytes, seconds) in [(1, f64::NAN), (1, -1.0), (1, 0.0), (1 << 20, 0.0)] {
            path.observe(bytes, seconds, f64::NAN);
            path.observe(bytes, seconds, 1.0);
        }
        assert_eq!(path, Path::default());
        for round in 1..15 {
            path.observe(100, 0.01 * f64::from(round), 1.0);
            path.observe(1 << 20, 1.0 * f64::from(round), 1.0);
        }
        let (latency, rate) = path.series();
        let again = Path::resume(latency.recent(), rate.recent());
        let close = |one: Option<Forecast>, other: Option<Forecast>| {
            assert!((value(one) / value(other) - 1.0).abs() < 1e-9);
        };
        close(again.latency(), path.latency());
        close(again.rate(), path.rate());
    }
}
