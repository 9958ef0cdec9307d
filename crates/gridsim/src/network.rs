//! Transfers that share links by max-min, in virtual time.

use farcall_flow::platform::LinkId;
use farcall_flow::solver::MaxMin;

/// Seconds of a transfer that are too few to tell from none.
const NOTHING_S: f64 = 1e-9;

/// A transfer under way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) call: usize,
    pub(crate) left: f64,
    /// The link of its server, the second of its path.
    link: LinkId,
    /// The integral of the part of that link which falls to each transfer on it, in seconds.
    alone_s: f64,
    begun_s: f64,
}

impl Transfer {
    /// How many transfers, on average, had to share the server's link.
    pub(crate) fn sharing(&self, now_s: f64) -> f64 {
        ((now_s - self.begun_s) / self.alone_s).max(1.0)
    }

    /// Seconds since it began.
    pub(crate) fn age(&self, now_s: f64) -> f64 {
        now_s - self.begun_s
    }
}

/// Links and the transfers on them.
#[derive(Debug)]
pub(crate) struct Network {
    solver: MaxMin,
    transfers: Vec<Option<Transfer>>,
    /// Transfers whose server has this link.
    on: Vec<u32>,
    now_s: f64,
}

impl Network {
    /// Links of so many bytes per second.
    pub(crate) fn new(rates: &[f64]) -> Network {
        Network {
            solver: MaxMin::new(rates.iter().copied(), 2),
            transfers: Vec::new(),
            on: vec![0; rates.len()],
            now_s: 0.0,
        }
    }

    /// A transfer begins over a client's and a server's link; its place until it has ended.
    pub(crate) fn begin(&mut self, call: usize, path: [LinkId; 2], bytes: u64) -> usize {
        let free = self.transfers.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.transfers.len());
        if slot == self.transfers.len() {
            self.transfers.push(None);
        }
        self.transfers[slot] = Some(Transfer {
            call,
            left: bytes.max(1) as f64,
            link: path[1],
            alone_s: 0.0,
            begun_s: self.now_s,
        });
        self.on[path[1] as usize] += 1;
        self.solver.begin(0, 1);
        self.solver.add(slot as u32, &path);
        self.solver.solve();
        slot
    }

    /// Bytes left of a transfer.
    pub(crate) fn left(&self, slot: usize) -> f64 {
        self.transfers[slot].as_ref().map_or(0.0, |one| one.left)
    }

    /// When the next transfer ends.
    pub(crate) fn next_s(&self) -> f64 {
        let active = self.transfers.iter().enumerate();
        let ends = active.filter_map(|(slot, one)| {
            let left = one.as_ref()?.left;
            Some(self.now_s + left / self.solver.rate(slot as u32))
        });
        ends.fold(f64::INFINITY, f64::min)
    }

    /// Time goes by, no further than to the next end.
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

    /// A transfer that has ended, if one has.
    pub(crate) fn take_ended(&mut self) -> Option<Transfer> {
        let slot = self.transfers.iter().enumerate().position(|(slot, one)| {
            one.as_ref()
                .is_some_and(|one| one.left <= self.solver.rate(slot as u32) * NOTHING_S)
        })?;
        let ended = self.transfers[slot].take()?;
        self.on[ended.link as usize] -= 1;
        self.solver.begin(1, 0);
        self.solver.remove(slot as u32);
        self.solver.solve();
        Some(ended)
    }
}
