//! The rule: a call goes to the server if it ends sooner there by a margin. This module is pure.
//! It knows no connection and reads no clock; speeds are learned from the calls that it is told.

/// A remote call must take at most this part of the local time, because both times are predicted.
const MARGIN: f64 = 0.8;
/// Operations per second of a processor core of which nothing is known: more than most cores
/// reach, so that a call goes only if it would pay even then.
const UNKNOWN_CORE: f64 = 4e10;
/// A server elsewhere that has never run a function counts as this many times as fast. A first call
/// tells.
const UNKNOWN_SERVER: f64 = 2.0;
/// The part of the time of local calls that another trial of the server may lose.
const TRIAL: f64 = 0.02;
/// Bytes per second of a link over which nothing has travelled yet.
const UNKNOWN_LINK: f64 = 1e8;
/// The part of an older speed that remains when a new one arrives.
const MEMORY: f64 = 0.5;

/// The speed at which one place computes one function. It depends on the size of the problem: each
/// factor of 8 in the operations, which doubles a matrix, has a speed of its own.
#[derive(Clone, Debug, Default)]
pub struct Speed([Option<f64>; 16]);

impl Speed {
    /// Learns from a call.
    pub fn learn(&mut self, operations: f64, seconds: f64) {
        if !(operations > 0.0 && seconds > 0.0) {
            return;
        }
        let rate = operations / seconds;
        let known = &mut self.0[size(operations)];
        *known = Some(match *known {
            Some(before) => before * MEMORY + rate * (1.0 - MEMORY),
            None => rate,
        });
    }

    /// Operations per second of a call of this size, or of the nearest size that is known.
    pub fn rate(&self, operations: f64) -> Option<f64> {
        let here = size(operations);
        (0..self.0.len()).find_map(|distance| {
            let above = self.0.get(here + distance).copied().flatten();
            above.or_else(|| self.0.get(here.checked_sub(distance)?).copied().flatten())
        })
    }
}

/// The class of a number of operations: from 10^6 on, each factor of 8 begins another one.
fn size(operations: f64) -> usize {
    let class = ((operations / 1e6).log2() / 3.0).floor();
    class.clamp(0.0, 15.0) as usize
}

/// What one call needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Operations of the computation.
    pub operations: f64,
    /// Bytes that travel to the server.
    pub sent: f64,
    /// Bytes that travel back.
    pub returned: f64,
}

/// What the server and the way to it promise for one call, in seconds and bytes per second. What
/// nobody knows yet is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Promise {
    /// Whether the server is on this host. It has no faster processors then.
    pub is_here: bool,
    /// Time of a call without data and without computation.
    pub latency: f64,
    /// Wait for a free worker.
    pub wait: f64,
    /// Computation.
    pub computation: Option<f64>,
    /// Rate to the server.
    pub up: Option<f64>,
    /// Rate from the server.
    pub down: Option<f64>,
}

/// Predicted seconds of a call in this process.
pub fn here(operations: f64, speed: &Speed, cores: usize) -> f64 {
    let unknown = UNKNOWN_CORE * cores.max(1) as f64;
    operations / speed.rate(operations).unwrap_or(unknown)
}

/// Predicted seconds of a call at the server. `here` is the prediction for this process.
pub fn there(demand: &Demand, promise: &Promise, here: f64) -> f64 {
    let unknown = match promise.is_here {
        true => here,
        false => here / UNKNOWN_SERVER,
    };
    let computation = promise.computation.unwrap_or(unknown);
    let up = demand.sent / promise.up.unwrap_or(UNKNOWN_LINK);
    let down = demand.returned / promise.down.unwrap_or(UNKNOWN_LINK);
    promise.latency + promise.wait + up + computation + down
}

/// Whether the call goes to the server.
pub fn pays(here: f64, there: f64) -> bool {
    there < MARGIN * here
}

/// Trials of one function at a server that has been slow. It may have been busy, or have started
/// its worker, so that one bad call must not keep all later ones here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trials {
    /// Seconds of local calls since the last trial.
    here: f64,
}

impl Trials {
    /// A local call has taken so long.
    pub fn computed_here(&mut self, seconds: f64) {
        self.here += seconds;
    }

    /// Whether a call goes: if it pays, or as a trial. A server elsewhere that has never run the
    /// function is tried after a local call if the trial is not expected to take longer. One that
    /// has been slow is tried again if the call would pay at an idle server, and if the time that
    /// it loses by the server's estimate is a small part of the time of the local calls before it.
    pub fn goes(&mut self, demand: &Demand, promise: &Promise, here: f64) -> bool {
        let expected = there(demand, promise, here);
        if pays(here, expected) {
            return true;
        }
        let is_unknown = promise.computation.is_none() && !promise.is_here;
        if is_unknown && self.here > 0.0 && expected <= here {
            self.here = 0.0;
            return true;
        }
        let idle = Promise {
            computation: None,
            wait: 0.0,
            ..*promise
        };
        let is_worth = expected - here <= TRIAL * self.here && promise.computation.is_some();
        let is_trial = is_worth && pays(here, there(demand, &idle, here));
        if is_trial {
            self.here = 0.0;
        }
        is_trial
    }
}

/// A place at the server costs up to this many round trips more than sending the array.
const ROUND_TRIPS_OF_A_PLACE: f64 = 4.0;

/// Whether an array is worth a place at the server, so that the next call need not send it: if the
/// link is slower than the digest, and its transfer takes much longer than the additional messages.
pub fn keeps(bytes: f64, link: f64, latency: f64, digest: f64) -> bool {
    link < digest && bytes / link > 2.0 * ROUND_TRIPS_OF_A_PLACE * latency
}

/// Whether the server may be tried, after failures to reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reach {
    was_reached: bool,
    /// Not before this moment, in seconds of the process.
    not_before: f64,
    pause: f64,
}

/// The first pause after a server that was there has been lost, in seconds; each further failure
/// doubles it.
const FIRST_PAUSE: f64 = 10.0;

impl Reach {
    /// Whether to try now.
    pub fn may_try(&self, now: f64) -> bool {
        now >= self.not_before
    }

    /// The server has answered.
    pub fn reached(&mut self) {
        *self = Reach {
            was_reached: true,
            ..Reach::default()
        };
    }

    /// The server does not answer. If it never has, it is not asked again: a program loses the
    /// time of one attempt. Calls of several threads fail together, which is one failure.
    pub fn lost(&mut self, now: f64) {
        if !self.may_try(now) {
            return;
        }
        self.pause = match self.was_reached {
            true => (2.0 * self.pause).max(FIRST_PAUSE),
            false => f64::INFINITY,
        };
        self.not_before = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 1 Gbit/s line.
    const LINE: Promise = Promise {
        is_here: false,
        latency: 2e-4,
        wait: 0.0,
        computation: None,
        up: Some(1.1e8),
        down: Some(1.1e8),
    };

    fn speed(operations: f64, rate: f64) -> Speed {
        let mut speed = Speed::default();
        speed.learn(operations, operations / rate);
        speed
    }

    fn goes(demand: &Demand, way: &Promise, local: f64, remote: f64) -> bool {
        let here = here(demand.operations, &speed(demand.operations, local), 1);
        let promise = Promise {
            computation: Some(demand.operations / remote),
            ..*way
        };
        pays(here, there(demand, &promise, here))
    }

    fn dgemm(n: f64) -> Demand {
        Demand {
            operations: 2.0 * n * n * n,
            sent: 24.0 * n * n,
            returned: 8.0 * n * n,
        }
    }

    fn dsyevd(n: f64) -> Demand {
        Demand {
            operations: 16.0 / 3.0 * n * n * n,
            sent: 8.0 * n * n,
            returned: 8.0 * n * n,
        }
    }

    #[test]
    fn a_line_of_a_gigabit_pays_for_eigenvalues_and_not_for_products() {
        // Four times as fast a server; eigenvalues run at a fifth of the speed of a product.
        assert!(goes(&dsyevd(1500.0), &LINE, 1e10, 4e10));
        assert!(!goes(&dgemm(1500.0), &LINE, 5e10, 2e11));
        assert!(goes(&dgemm(20_000.0), &LINE, 5e10, 2e11));
    }

    #[test]
    fn an_equal_server_never_pays() {
        let near = Promise {
            up: Some(1e10),
            down: Some(1e10),
            ..LINE
        };
        for n in [100.0, 1000.0, 10_000.0] {
            assert!(!goes(&dgemm(n), &near, 5e10, 5e10));
            assert!(!goes(&dsyevd(n), &near, 1e10, 1e10));
        }
    }

    #[test]
    fn a_long_queue_keeps_calls_here() {
        let busy = Promise { wait: 60.0, ..LINE };
        assert!(!goes(&dsyevd(1500.0), &busy, 1e10, 4e10));
    }

    #[test]
    fn an_unknown_server_is_tried_if_the_data_travel_fast() {
        let here = here(1.8e10, &speed(1.8e10, 1e10), 1);
        assert!(pays(here, there(&dsyevd(1500.0), &LINE, here)) == (here * 0.3 > 0.33));
        let near = Promise {
            up: Some(1e10),
            down: Some(1e10),
            ..LINE
        };
        assert!(pays(here, there(&dsyevd(1500.0), &near, here)));
    }

    #[test]
    fn an_unknown_server_on_this_host_is_not_tried() {
        let here = here(1.8e10, &speed(1.8e10, 1e10), 1);
        let same = Promise {
            is_here: true,
            up: Some(1e10),
            down: Some(1e10),
            ..LINE
        };
        assert!(!pays(here, there(&dsyevd(1500.0), &same, here)));
    }

    #[test]
    fn a_server_that_was_slow_once_is_tried_again_at_small_cost() {
        let demand = dsyevd(1500.0);
        let here = here(demand.operations, &speed(demand.operations, 1e10), 1);
        // Half as fast as this process, because something else ran there.
        let slow = Promise {
            computation: Some(2.0 * here),
            ..LINE
        };
        let mut trials = Trials::default();
        let calls = (1..1000).find(|_| {
            trials.computed_here(here);
            trials.goes(&demand, &slow, here)
        });
        // A trial loses the time of a call and a transfer: 1.18 calls of 2 %.
        assert_eq!(calls, Some(60));
        assert!(!trials.goes(&demand, &slow, here), "the next trial waits");
        // Transfers alone take longer than a product: no idle server would help.
        let mut trials = Trials::default();
        trials.computed_here(1e9);
        assert!(!trials.goes(&dgemm(1500.0), &slow, 0.1));
    }

    #[test]
    fn an_unknown_server_is_tried_once_where_that_is_expected_to_lose_nothing() {
        let demand = dsyevd(800.0);
        let here = here(demand.operations, &speed(demand.operations, 1e10), 1);
        assert!(
            !pays(here, there(&demand, &LINE, here)),
            "not by the margin"
        );
        let mut trials = Trials::default();
        assert!(
            !trials.goes(&demand, &LINE, here),
            "the first call shows the local speed"
        );
        trials.computed_here(here);
        assert!(trials.goes(&demand, &LINE, here));
        assert!(!trials.goes(&demand, &LINE, here), "once");
        let mut trials = Trials::default();
        trials.computed_here(1e9);
        assert!(
            !trials.goes(&dsyevd(400.0), &LINE, here / 8.0),
            "the transfers take longer"
        );
        let same = Promise {
            is_here: true,
            up: Some(1e10),
            down: Some(1e10),
            ..LINE
        };
        assert!(
            !trials.goes(&demand, &same, here),
            "its processors are the same"
        );
    }

    #[test]
    fn an_unknown_speed_is_that_of_the_nearest_size() {
        let mut known = speed(2e6, 1e9);
        known.learn(1e12, 1e12 / 3e10);
        assert_eq!(known.rate(1e6), Some(1e9));
        assert!((known.rate(3e11).unwrap() - 3e10).abs() < 1.0);
        assert_eq!(Speed::default().rate(1e9), None);
    }

    #[test]
    fn speeds_follow_the_latest_calls() {
        let mut speed = speed(1e9, 1e9);
        for _ in 0..20 {
            speed.learn(1e9, 0.1);
        }
        assert!((speed.rate(1e9).unwrap() - 1e10).abs() < 1e6);
    }

    #[test]
    fn large_arrays_stay_at_the_end_of_slow_links() {
        let digest = 1.5e9;
        assert!(keeps(8e6, 1.1e8, 2e-4, digest));
        assert!(!keeps(1e4, 1.1e8, 2e-4, digest));
        assert!(!keeps(8e6, 6e9, 2e-5, digest));
        assert!(!keeps(8e6, 1.1e8, 2e-2, digest));
    }

    #[test]
    fn a_server_that_never_answered_is_asked_once() {
        let mut reach = Reach::default();
        assert!(reach.may_try(0.0));
        reach.lost(1.0);
        assert!(!reach.may_try(1e9));
    }

    #[test]
    fn a_lost_server_is_asked_again_after_longer_and_longer_pauses() {
        let mut reach = Reach::default();
        reach.reached();
        reach.lost(100.0);
        assert!(!reach.may_try(109.0) && reach.may_try(110.0));
        reach.lost(110.0);
        assert!(!reach.may_try(129.0) && reach.may_try(130.0));
        reach.reached();
        assert!(reach.may_try(131.0));
    }

    #[test]
    fn calls_that_fail_together_count_as_one_failure() {
        let mut reach = Reach::default();
        reach.reached();
        for now in [100.0, 100.0, 100.1, 101.0] {
            reach.lost(now);
        }
        assert!(!reach.may_try(109.0) && reach.may_try(110.0));
    }
}
