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
/// start in the order in which they were taken in (first come, first served).
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// Seconds from now, in their order; one for each processor element.
    free_in: Vec<f64>,
}

impl Backlog {
    /// A server with so many processor elements, at least one, that has nothing to do.
    pub fn new(pes: u32) -> Backlog {
        Backlog {
            free_in: vec![0.0; pes.max(1) as usize],
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

    /// Where a job would start whose arguments are there in so many seconds: as soon as its fewest
    /// processor elements are free, on all that are free by then and of which it makes use. The
    /// server's queue does the same where nobody else waits.
    pub fn slot(&self, ready_s: f64, fewest: u32, most: u32) -> Slot {
        let fewest = fewest.clamp(1, self.pes());
        let start_s = self.free_in[fewest as usize - 1].max(ready_s);
        let free = self.free_in.partition_point(|free_in| *free_in <= start_s) as u32;
        Slot {
            start_s,
            pes: free.min(most).max(fewest),
        }
    }

    /// A job has a slot for so many seconds.
    pub fn take(&mut self, slot: Slot, seconds: f64) {
        let until = slot.start_s.max(0.0) + seconds.max(0.0);
        if !until.is_finite() {
            return;
        }
        // The processor elements that become free last before it starts: earlier ones are left to
        // jobs whose arguments are there sooner.
        let pes = (slot.pes as usize).clamp(1, self.free_in.len());
        let free = self
            .free_in
            .partition_point(|free_in| *free_in <= slot.start_s)
            .max(pes);
        self.free_in[free - pes..free].fill(until);
        self.free_in.sort_by(f64::total_cmp);
    }

    /// Time goes by.
    pub fn elapse(&mut self, seconds: f64) {
        for free_in in &mut self.free_in {
            *free_in = (*free_in - seconds.max(0.0)).max(0.0);
        }
    }
}
