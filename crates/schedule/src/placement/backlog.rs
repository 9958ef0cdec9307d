//! The backlog of a server: when its processor elements become free. It predicts what the queue of
//! the server will do, and decides nothing itself. No call is predicted to start on elements that
//! are reserved for others.

/// A predicted start: when, and on how many processor elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Seconds from now.
    pub start_s: f64,
    /// Processor elements.
    pub pes: u32,
}

/// Processor elements that are reserved for others for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusyElements {
    /// Number of elements, including those in use.
    pub pes: u32,
    /// Seconds until the reservation begins.
    pub from_s: f64,
    /// Seconds until it ends.
    pub until_s: f64,
}

impl BusyElements {
    fn covers(&self, time_s: f64) -> bool {
        (self.from_s..self.until_s).contains(&time_s)
    }
}

/// The work of a server, as the times at which its processor elements become free. Calls start in
/// the order in which their arguments arrive (first come, first served). While elements are
/// reserved, no call starts that would still hold them.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// Seconds until each processor element has finished its running and waiting calls, sorted.
    free_in: Vec<f64>,
    /// Calls whose arguments are travelling, in the order of their arrival.
    coming: Vec<Coming>,
    kept: Vec<BusyElements>,
}

#[derive(Clone, Debug, PartialEq)]
struct Coming {
    ready_s: f64,
    pes: u32,
    seconds: f64,
    /// As [`Backlog::free_in`], with this call and those before it.
    free_in: Vec<f64>,
}

impl Backlog {
    /// The backlog of an idle server with this many processor elements, at least one.
    pub fn new(pes: u32) -> Backlog {
        Backlog {
            free_in: vec![0.0; pes.max(1) as usize],
            coming: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Adds a reservation of others.
    pub fn keep(&mut self, kept: BusyElements) {
        if kept.from_s.is_finite() && kept.until_s > 0.0 {
            self.kept.push(kept);
        }
    }

    /// Processor elements that are reserved for others in this many seconds.
    pub fn kept(&self, in_s: f64) -> u32 {
        let kept = self.kept.iter().filter(|kept| kept.covers(in_s));
        kept.fold(0u32, |sum, kept| sum.saturating_add(kept.pes))
    }

    /// Number of processor elements.
    pub fn pes(&self) -> u32 {
        self.free_in.len() as u32
    }

    /// Processor elements that are idle and not reserved.
    pub fn free(&self) -> u32 {
        self.open(&self.free_in, 0.0, 0.0)
    }

    /// When a call would start whose arguments arrive in this many seconds: behind calls whose
    /// arguments arrive sooner, as soon as its fewest processor elements are free, on all free ones
    /// that it can use. The server's queue does the same if nobody else waits.
    ///
    /// A call does not start before it can end without holding reserved elements, if it takes
    /// `seconds` on its fewest elements.
    pub fn slot(
        &self,
        ready_s: f64,
        (fewest, most): (u32, u32),
        seconds: impl FnOnce(u32) -> f64,
    ) -> Slot {
        let sooner = self.coming.partition_point(|one| one.ready_s <= ready_s);
        let free_in = self.behind(sooner);
        let fewest = fewest.clamp(1, self.pes());
        let start_s = free_in[fewest as usize - 1].max(ready_s);
        let most = most.clamp(fewest, self.pes());
        if self.kept.is_empty() {
            let useful = &free_in[..most as usize];
            return Slot {
                start_s,
                pes: useful.partition_point(|free_in| *free_in <= start_s) as u32,
            };
        }
        let seconds = seconds(fewest).max(0.0);
        let start_s = self.start_beside_kept(free_in, start_s, fewest, seconds);
        Slot {
            start_s,
            pes: self.open(free_in, start_s, seconds).clamp(fewest, most),
        }
    }

    /// The first time from `start_s` on at which `pes` elements are free and not reserved for
    /// `seconds`.
    fn start_beside_kept(&self, free_in: &[f64], start_s: f64, pes: u32, seconds: f64) -> f64 {
        let ends = self.kept.iter().map(|kept| kept.until_s);
        let ends = ends.chain(free_in.iter().copied());
        let mut starts: Vec<f64> = ends.filter(|end_s| *end_s > start_s).collect();
        starts.push(start_s);
        starts.sort_by(f64::total_cmp);
        let last = starts.last().copied().unwrap_or(start_s);
        let fits = |start_s: &f64| self.open(free_in, *start_s, seconds) >= pes;
        starts.into_iter().find(fits).unwrap_or(last)
    }

    /// Processor elements that are free and not reserved from `from_s` on for `seconds`.
    fn open(&self, free_in: &[f64], from_s: f64, seconds: f64) -> u32 {
        let begins = self.kept.iter().map(|kept| kept.from_s);
        let begins = begins.filter(|begin_s| (from_s..from_s + seconds).contains(begin_s));
        let times = begins.chain([from_s]);
        let open = times.map(|time_s| {
            let free = free_in.partition_point(|free_in| *free_in <= time_s) as u32;
            free.saturating_sub(self.kept(time_s))
        });
        open.min().unwrap_or(0)
    }

    /// Number of calls whose arguments arrive later than in this many seconds.
    pub fn later(&self, ready_s: f64) -> usize {
        self.coming.len() - self.coming.partition_point(|one| one.ready_s <= ready_s)
    }

    /// Adds a call whose arguments arrive in `ready_s` seconds and that computes for `seconds` on
    /// `pes` elements. Add running calls first, then waiting ones in order. Calls whose arguments
    /// travel may come in any order.
    pub fn take(&mut self, ready_s: f64, pes: u32, seconds: f64) {
        let pes = pes.clamp(1, self.pes());
        if !(ready_s.is_finite() && seconds.is_finite()) {
            return;
        }
        if ready_s <= 0.0 {
            let mut free_in = std::mem::take(&mut self.free_in);
            self.occupy(&mut free_in, (0.0, pes, seconds));
            self.free_in = free_in;
            return self.follow(0);
        }
        let place = self.coming.partition_point(|one| one.ready_s <= ready_s);
        let coming = Coming {
            ready_s,
            pes,
            seconds,
            free_in: Vec::new(),
        };
        self.coming.insert(place, coming);
        self.follow(place);
    }

    /// Adds calls of which only this is known: together they keep all elements busy for `seconds`.
    /// They do not wait for reserved elements.
    pub fn delay(&mut self, seconds: f64) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        for free_in in &mut self.free_in {
            *free_in += seconds;
        }
        self.follow(0);
    }

    /// Advances the time.
    pub fn elapse(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let there = self.coming.partition_point(|one| one.ready_s <= seconds);
        if let Some(last) = self.coming.drain(..there).next_back() {
            self.free_in = last.free_in;
        }
        let coming = self.coming.iter_mut();
        coming.for_each(|one| one.ready_s -= seconds);
        for kept in &mut self.kept {
            kept.from_s -= seconds;
            kept.until_s -= seconds;
        }
        self.kept.retain(|kept| kept.until_s > 0.0);
        let states = self.coming.iter_mut().map(|one| &mut one.free_in);
        for free_in in states.chain([&mut self.free_in]).flatten() {
            *free_in = (*free_in - seconds).max(0.0);
        }
    }

    /// When the elements are free behind the first calls whose arguments travel.
    fn behind(&self, jobs: usize) -> &[f64] {
        match jobs.checked_sub(1) {
            Some(last) => &self.coming[last].free_in,
            None => &self.free_in,
        }
    }

    /// Updates the calls whose arguments travel, from a position on.
    fn follow(&mut self, from: usize) {
        for place in from..self.coming.len() {
            let mut free_in = self.behind(place).to_vec();
            let one = &self.coming[place];
            self.occupy(&mut free_in, (one.ready_s, one.pes, one.seconds));
            self.coming[place].free_in = free_in;
        }
    }

    /// Lets a call compute as soon as enough elements are free. No later call starts sooner, unless
    /// this one waits for reserved elements.
    fn occupy(&self, free_in: &mut [f64], (ready_s, pes, seconds): (f64, u32, f64)) {
        let (first, seconds) = (pes as usize, seconds.max(0.0));
        let free_s = free_in[first - 1].max(ready_s);
        let start_s = match self.kept.is_empty() {
            true => free_s,
            false => self.start_beside_kept(free_in, free_s, pes, seconds),
        };
        free_in[..first].fill(start_s + seconds);
        for free_in in free_in.iter_mut() {
            *free_in = free_in.max(free_s);
        }
        free_in.sort_by(f64::total_cmp);
    }
}
