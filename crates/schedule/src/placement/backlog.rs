//! When a server's processor elements become free.

/// A place in a server's future: when a job starts, and on how many processor elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Seconds from now.
    pub start_s: f64,
    /// Processor elements.
    pub pes: u32,
}

/// The work that a server has, as the times at which its processor elements become free if jobs
/// start in the order in which their arguments are there (first come, first served).
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// Seconds from now until each processor element has done what computes and waits, in order.
    free_in: Vec<f64>,
    /// Jobs whose arguments are on the way, in the order in which they will be there.
    coming: Vec<Coming>,
}

#[derive(Clone, Debug, PartialEq)]
struct Coming {
    ready_s: f64,
    pes: u32,
    seconds: f64,
    /// As [`Backlog::free_in`], with this job and those before it.
    free_in: Vec<f64>,
}

impl Backlog {
    /// A server with so many processor elements, at least one, that has nothing to do.
    pub fn new(pes: u32) -> Backlog {
        Backlog {
            free_in: vec![0.0; pes.max(1) as usize],
            coming: Vec::new(),
        }
    }

    /// Processor elements there are.
    pub fn pes(&self) -> u32 {
        self.free_in.len() as u32
    }

    /// Processor elements that have nothing to do.
    pub fn free(&self) -> u32 {
        self.free_in.partition_point(|free_in| *free_in <= 0.0) as u32
    }

    /// Where a job would start whose arguments are there in so many seconds: behind those whose
    /// arguments are there sooner, as soon as its fewest processor elements are free, on all that
    /// are free by then and of which it makes use. The server's queue does the same where nobody
    /// else waits.
    pub fn slot(&self, ready_s: f64, fewest: u32, most: u32) -> Slot {
        let sooner = self.coming.partition_point(|one| one.ready_s <= ready_s);
        let free_in = self.behind(sooner);
        let fewest = fewest.clamp(1, self.pes());
        let start_s = free_in[fewest as usize - 1].max(ready_s);
        let useful = &free_in[..most.clamp(fewest, self.pes()) as usize];
        Slot {
            start_s,
            pes: useful.partition_point(|free_in| *free_in <= start_s) as u32,
        }
    }

    /// Jobs whose arguments will be there later than in so many seconds.
    pub fn later(&self, ready_s: f64) -> usize {
        self.coming.len() - self.coming.partition_point(|one| one.ready_s <= ready_s)
    }

    /// A job is taken in whose arguments are there in so many seconds, or at once, and that will
    /// compute for so many seconds on so many processor elements. Jobs that compute come first,
    /// then those that wait, in their order; of those that are on the way any order will do.
    pub fn take(&mut self, ready_s: f64, pes: u32, seconds: f64) {
        let pes = pes.clamp(1, self.pes());
        if !(ready_s.is_finite() && seconds.is_finite()) {
            return;
        }
        if ready_s <= 0.0 {
            occupy(&mut self.free_in, 0.0, pes, seconds);
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

    /// Time goes by.
    pub fn elapse(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let there = self.coming.partition_point(|one| one.ready_s <= seconds);
        if let Some(last) = self.coming.drain(..there).next_back() {
            self.free_in = last.free_in;
        }
        let coming = self.coming.iter_mut();
        coming.for_each(|one| one.ready_s -= seconds);
        let states = self.coming.iter_mut().map(|one| &mut one.free_in);
        for free_in in states.chain([&mut self.free_in]).flatten() {
            *free_in = (*free_in - seconds).max(0.0);
        }
    }

    /// When the processor elements are free behind the first few that come.
    fn behind(&self, jobs: usize) -> &[f64] {
        match jobs.checked_sub(1) {
            Some(last) => &self.coming[last].free_in,
            None => &self.free_in,
        }
    }

    /// Brings those that come up to date, from a place on.
    fn follow(&mut self, from: usize) {
        for place in from..self.coming.len() {
            let mut free_in = self.behind(place).to_vec();
            let one = &mut self.coming[place];
            occupy(&mut free_in, one.ready_s, one.pes, one.seconds);
            one.free_in = free_in;
        }
    }
}

/// A job computes as soon as so many processor elements are free; none behind it starts sooner.
fn occupy(free_in: &mut [f64], ready_s: f64, pes: u32, seconds: f64) {
    let pes = pes as usize;
    let start_s = free_in[pes - 1].max(ready_s);
    free_in[..pes].fill(start_s + seconds.max(0.0));
    for free_in in free_in.iter_mut() {
        *free_in = free_in.max(start_s);
    }
    free_in.sort_by(f64::total_cmp);
}
