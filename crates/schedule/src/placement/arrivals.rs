//! Estimates how often calls arrive at a server, from recent arrivals. The estimate uses few calls
//! and never exceeds their number, so that many calls at once do not let it explode.

/// Most calls that an estimate uses.
const MEMORY: f64 = 8.0;

/// The recent arrivals at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Number of arrivals, up to [`MEMORY`].
    seen: f64,
    /// Weighted mean of the seconds between arrivals. Recent ones count most.
    gap_s: f64,
    last_s: f64,
}

impl Arrivals {
    /// Records an arrival, no earlier than the last one.
    pub fn arrive(&mut self, now_s: f64) {
        if self.seen > 0.0 {
            let gap_s = (now_s - self.last_s).max(0.0);
            self.gap_s += (gap_s - self.gap_s) / self.seen;
        }
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.last_s = now_s;
    }

    /// Expected number of calls within this many seconds. The rate is that of recent calls, and
    /// lower if none has arrived for longer than usual. The estimate never exceeds the number of
    /// calls that it uses: many calls that arrived at once do not mean that as many will follow.
    pub fn expected(&self, now_s: f64, within_s: f64) -> f64 {
        let gaps = self.seen - 1.0;
        let gap_s = self.gap_s.max(now_s - self.last_s);
        match gaps > 0.0 && within_s > 0.0 {
            true => (within_s / gap_s).min(gaps),
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_calls_are_expected_as_arrived_before() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.expected(0.0, 1.0), 0.0);
        arrivals.arrive(5.0);
        assert_eq!(arrivals.expected(5.0, 1.0), 0.0);
        for call in 1..100 {
            arrivals.arrive(5.0 + 0.5 * f64::from(call));
        }
        let now_s = 5.0 + 0.5 * 99.0;
        assert!((arrivals.expected(now_s, 3.0) - 6.0).abs() < 1e-9);
        assert_eq!(arrivals.expected(now_s, 1e9), 7.0);
        assert!((arrivals.expected(now_s + 6.0, 3.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn calls_that_arrive_at_once_do_not_raise_the_estimate_without_bound() {
        let mut arrivals = Arrivals::default();
        (0..3).for_each(|_| arrivals.arrive(1.0));
        assert_eq!(arrivals.expected(1.0, 0.0), 0.0);
        assert_eq!(arrivals.expected(1.0, 1e-3), 2.0);
        (0..1000).for_each(|_| arrivals.arrive(1.0));
        assert_eq!(arrivals.expected(1.0, 1e-3), 7.0);
    }
}
