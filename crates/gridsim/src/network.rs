//! Transfers in virtual time that share links by max-min fairness. `farcall_flow` computes the
//! rates; this module advances the transfers and says when the next one ends. `simulation` decides
//! what a transfer means.

use farcall_flow::platform::LinkId;
use farcall_flow::solver::MaxMin;

/// A transfer with less than this time left, in seconds, has ended.
const NOTHING_S: f64 = 1e-9;

/// A transfer under way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) call: usize,
    pub(crate) left: f64,
    /// The last link of the path: that of the server.
    link: LinkId,
    /// The integral over time of this transfer's share of its last link, in seconds.
    alone_s: f64,
    begun_s: f64,
}

impl Transfer {
    /// Average number of transfers that shared its last link.
    pub(crate) fn sharing(&self, now_s: f64) -> f64 {
        ((now_s - self.begun_s) / self.alone_s).max(1.0)
    }

    /// Seconds since the transfer began.
    pub(crate) fn age(&self, now_s: f64) -> f64 {
        now_s - self.begun_s
    }
}

/// Links and the transfers on them.
#[derive(Debug)]
pub(crate) struct Network {
    solver: MaxMin,
    transfers: Vec<Option<Transfer>>,
    /// Number of transfers whose path ends with this link.
    on: Vec<u32>,
    now_s: f64,
}

impl Network {
    /// A network with one link for each rate, in bytes per second, and paths of at most `longest`
    /// links.
    pub(crate) fn new(rates: &[f64], longest: usize) -> Network {
        Network {
            solver: MaxMin::new(rates.iter().copied(), longest),
            transfers: Vec::new(),
            on: vec![0; rates.len()],
            now_s: 0.0,
        }
    }

    /// Starts a transfer over different links, at least one. Returns its slot, which is valid until
    /// the transfer ends.
    pub(crate) fn begin(&mut self, call: usize, path: &[LinkId], bytes: f64) -> usize {
        let last = path[path.len() - 1];
        let free = self.transfers.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.transfers.len());
        if slot == self.transfers.len() {
            self.transfers.push(None);
        }
        self.transfers[slot] = Some(Transfer {
            call,
            left: bytes.max(1.0),
            link: last,
            alone_s: 0.0,
            begun_s: self.now_s,
        });
        self.on[last as usize] += 1;
        self.solver.begin(0, 1);
        self.solver.add(slot as u32, path);
        self.solver.solve();
        slot
    }

    /// The transfers whose path ends with a link: their number and the sum of their rates.
    pub(crate) fn use_of(&self, link: LinkId) -> (usize, f64) {
        let flows = self.solver.flows();
        let here = flows.filter(|(_, path, _)| path.last() == Some(&link));
        here.fold((0, 0.0), |(count, sum), (_, _, rate)| {
            (count + 1, sum + rate)
        })
    }

    /// Number of bytes that a transfer has left.
    pub(crate) fn left(&self, slot: usize) -> f64 {
        self.transfers[slot].as_ref().map_or(0.0, |one| one.left)
    }

    /// Time at which the next transfer ends.
    pub(crate) fn next_s(&self) -> f64 {
        let active = self.transfers.iter().enumerate();
        let ends = active.filter_map(|(slot, one)| {
            let left = one.as_ref()?.left;
            Some(self.now_s + left / self.solver.rate(slot as u32))
        });
        ends.fold(f64::INFINITY, f64::min)
    }

    /// Advances the time, at most to the end of the next transfer.
    pub(crate) fn advance(&mut self, to_s: f64) {
        let seconds = to_s - self.now_s;
        self.now_s = to_s;
        for (slot, one) in self.transfers.iter_mut().enumerate() {
            if let Some(one) = one {
                one.left -= self.solver.rate(slot as u32) * seconds;
                one.alone_s += seconds / f64::from(self.on[one.link as usize]);
            }
        }
    }

    /// Removes and returns a transfer that has ended, if there is one.
    pub(crate) fn take_ended(&mut self) -> Option<Transfer> {
        let slot = self.transfers.iter().enumerate().position(|(slot, one)| {
            let rate = self.solver.rate(slot as u32);
            // Late in a long simulation, the next moment that can be told apart is further away.
            one.as_ref().is_some_and(|one| {
                one.left <= rate * NOTHING_S || self.now_s + one.left / rate <= self.now_s
            })
        })?;
        let ended = self.transfers[slot].take()?;
        self.on[ended.link as usize] -= 1;
        self.solver.begin(1, 0);
        self.solver.remove(slot as u32);
        self.solver.solve();
        Some(ended)
    }
}
