//! The published policies. RI2N uses the links in turn, RI2N+ weights them by the number of peers
//! on a link, and RI2N++ by the traffic that arrives. All three count packets.

use crate::MAX_LINKS;

/// The order of the links: up to `burst` frames in a row on each link, and no more than its budget
/// until the weights change.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    weights: [f64; MAX_LINKS],
    burst: [u32; MAX_LINKS],
    budget: Option<[f64; MAX_LINKS]>,
    left: [f64; MAX_LINKS],
    at: usize,
    run: u32,
}

impl Turns {
    /// Each link in turn: RI2N.
    pub(crate) fn equal() -> Turns {
        Turns {
            weights: [1.0; MAX_LINKS],
            burst: [1; MAX_LINKS],
            budget: None,
            left: [0.0; MAX_LINKS],
            at: 0,
            run: 0,
        }
    }

    /// The weight of a link for the operator.
    pub(crate) fn weight(&self, link: usize) -> f64 {
        self.weights[link]
    }

    /// RI2N+ (section 3.1): weights inverse to the number of peers on each link, as the smallest
    /// whole numbers. The weight is the number of frames in a row. `peers` is 0 for an unused link.
    pub(crate) fn by_link_count(&mut self, peers: &[u32; MAX_LINKS]) {
        let counts = peers.map(|count| u128::from(count.clamp(1, 4096)));
        let in_use = |link: &usize| peers[*link] > 0;
        let multiple = (0..MAX_LINKS)
            .filter(in_use)
            .fold(1, |acc, link| lcm(acc, counts[link]));
        for link in (0..MAX_LINKS).filter(in_use) {
            let weight = multiple / counts[link];
            self.weights[link] = weight as f64;
            self.burst[link] = u32::try_from(weight).unwrap_or(u32::MAX);
        }
        self.budget = None;
    }

    /// RI2N++ (section 3.2): `W = R(i,j,k) / Q(j,k) * A(i,j,k)` with `Q = R(j,k) / R(j)` and `A =
    /// R(i,j,k) / S(i,j,k)`; none for an unused link. At most `W / min W` frames go in a row, and
    /// `W` in all until the weights change. After all budgets are spent, all are refilled.
    pub(crate) fn by_traffic(&mut self, counts: &[Option<Traffic>; MAX_LINKS]) {
        let silent = counts.iter().flatten().all(|count| count.arrive == 0);
        if silent {
            *self = Turns {
                at: self.at,
                ..Turns::equal()
            };
            return;
        }
        let weights = counts.map(|count| count.map(|count| count.weight()));
        let least = weights
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        for (link, weight) in weights.iter().enumerate() {
            let weight = weight.unwrap_or(1.0);
            self.weights[link] = weight;
            self.burst[link] = ((weight / least) as u32).max(1);
        }
        self.budget = Some(self.weights);
        self.left = self.weights;
    }

    /// Returns the link for the next frame, among those in `usable` (a bit for each).
    pub(crate) fn pick(&mut self, usable: u32) -> Option<usize> {
        if usable == 0 {
            return None;
        }
        let is_usable = |link: usize| usable >> link & 1 == 1;
        for _ in 0..2 {
            if is_usable(self.at) && self.run < self.burst[self.at] && self.has_budget(self.at) {
                return Some(self.at);
            }
            let next = (1..=MAX_LINKS)
                .map(|step| (self.at + step) % MAX_LINKS)
                .find(|link| is_usable(*link) && self.has_budget(*link));
            if let Some(next) = next {
                self.at = next;
                self.run = 0;
                return Some(next);
            }
            self.left = self.budget.unwrap_or(self.weights);
        }
        None
    }

    /// Records a frame sent on the link that [`Turns::pick`] returned.
    pub(crate) fn sent(&mut self) {
        self.run += 1;
        self.left[self.at] -= 1.0;
    }

    fn has_budget(&self, link: usize) -> bool {
        self.budget.is_none() || self.left[link] > 0.0
    }
}

/// Packets of one span on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// `S(i,j,k)`: packets that this node sent to the peer on the link.
    pub(crate) sent: u32,
    /// `R(i,j,k)`: packets of these that arrived.
    pub(crate) arrive: u32,
    /// `R(j,k)`: packets from all nodes that arrived at the peer on the link.
    pub(crate) path_total: u32,
    /// `R(j)`: packets from all nodes that arrived at the peer on all links.
    pub(crate) arrive_total: u32,
}

impl Traffic {
    /// `W(i,j,k)`, at least 1.
    fn weight(&self) -> f64 {
        let rate = (f64::from(self.arrive) / f64::from(self.sent.max(1))).min(1.0);
        let share = f64::from(self.path_total.max(1)) / f64::from(self.arrive_total.max(1));
        (f64::from(self.arrive) / share.min(1.0) * rate).max(1.0)
    }
}

fn lcm(a: u128, b: u128) -> u128 {
    // Beyond this bound the ratio of weights no longer matters for frames in a row.
    (a / gcd(a, b)).saturating_mul(b).min(1 << 32)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn order(turns: &mut Turns, usable: u32, count: usize) -> Vec<usize> {
        let next = |_| {
            let link = turns.pick(usable).unwrap();
            turns.sent();
            link
        };
        (0..count).map(next).collect()
    }

    fn traffic(counts: [(u32, u32, u32); 2]) -> [Option<Traffic>; MAX_LINKS] {
        let total = counts.iter().map(|count| count.2).sum();
        let mut all = [None; MAX_LINKS];
        for (slot, (sent, arrive, path_total)) in all.iter_mut().zip(counts) {
            *slot = Some(Traffic {
                sent,
                arrive,
                path_total,
                arrive_total: total,
            });
        }
        all
    }

    #[test]
    fn links_take_turns() {
        assert_eq!(order(&mut Turns::equal(), 0b101, 5), [0, 2, 0, 2, 0]);
        assert_eq!(Turns::equal().pick(0), None);
    }

    #[test]
    fn counts_3_to_2_give_weights_2_to_3() {
        let mut turns = Turns::equal();
        turns.by_link_count(&[3, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!((turns.weight(0), turns.weight(1)), (2.0, 3.0));
        let order = order(&mut turns, 0b11, 10);
        assert_eq!(order.iter().filter(|link| **link == 1).count(), 6);
        assert_eq!(order[..5], [0, 0, 1, 1, 1]);
    }

    #[test]
    fn traffic_moves_to_the_emptier_link() {
        let mut turns = Turns::equal();
        // Half of the frames on each link, but two thirds of all arrive on link 0.
        turns.by_traffic(&traffic([(100, 100, 200), (100, 100, 100)]));
        assert_eq!((turns.weight(0), turns.weight(1)), (150.0, 300.0));
        let order = order(&mut turns, 0b11, 450);
        assert_eq!(order.iter().filter(|link| **link == 1).count(), 300);
        assert_eq!(order[1..4], [1, 1, 0]);
    }

    #[test]
    fn losses_lower_a_weight_and_silence_makes_them_equal() {
        let mut turns = Turns::equal();
        turns.by_traffic(&traffic([(200, 100, 100), (100, 100, 100)]));
        assert_eq!((turns.weight(0), turns.weight(1)), (100.0, 200.0));
        turns.by_traffic(&traffic([(0, 0, 50), (0, 0, 0)]));
        assert_eq!((turns.weight(0), turns.weight(1)), (1.0, 1.0));
    }

    #[test]
    fn spent_budgets_are_filled_again() {
        let mut turns = Turns::equal();
        turns.by_traffic(&traffic([(1, 1, 1), (3, 3, 3)]));
        let order = order(&mut turns, 0b11, 1000);
        assert!(order.contains(&0) && order.contains(&1));
    }
}
