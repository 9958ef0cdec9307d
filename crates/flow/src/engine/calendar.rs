//! The finish times of the active flows, as a tree of minima over blocks of slots. The engine
//! sets the times. A changed time is only stored; the minima are computed when the next finish time
//! is asked for, and are then exact.

const BLOCK: usize = 16;

/// Finish times by slot. Setting one only stores it. The calendar computes the minima of the
/// changed blocks when the next finish time is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Calendar {
    finish: Vec<f64>,
    /// Minimum of each block of `finish`, then of each block of those minima, and so on.
    minima: Vec<Vec<f64>>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
}

impl Calendar {
    /// Makes space for `slots` places, all without a flow.
    pub(super) fn grow(&mut self, slots: usize) {
        if slots <= self.finish.len() {
            return;
        }
        let slots = slots.next_power_of_two().max(BLOCK);
        self.finish.resize(slots, f64::INFINITY);
        self.is_touched.resize(slots.div_ceil(BLOCK), false);
        self.minima.clear();
        let mut below = slots;
        while below > 1 {
            below = below.div_ceil(BLOCK);
            self.minima.push(vec![f64::INFINITY; below]);
        }
        for block in 0..self.is_touched.len() as u32 {
            if !self.is_touched[block as usize] {
                self.is_touched[block as usize] = true;
                self.touched.push(block);
            }
        }
    }

    #[inline]
    pub(super) fn set(&mut self, slot: u32, finish: f64) {
        self.finish[slot as usize] = finish;
        let block = slot as usize / BLOCK;
        if !self.is_touched[block] {
            self.is_touched[block] = true;
            self.touched.push(block as u32);
        }
    }

    /// Whether a place has a flow that has not ended.
    pub(super) fn has_flow(&self, slot: u32) -> bool {
        self.finish[slot as usize] < f64::INFINITY
    }

    /// The earliest finish time, infinite without flows.
    pub(super) fn earliest(&mut self) -> f64 {
        if self.minima.is_empty() {
            return f64::INFINITY;
        }
        for &block in &self.touched {
            self.is_touched[block as usize] = false;
            self.minima[0][block as usize] = minimum(&self.finish, block as usize);
        }
        for level in 1..self.minima.len() {
            let (lower, upper) = self.minima.split_at_mut(level);
            let (lower, upper) = (&lower[level - 1], &mut upper[0]);
            if self.touched.len() * BLOCK >= lower.len() || level > 1 {
                for (i, value) in upper.iter_mut().enumerate() {
                    *value = minimum(lower, i);
                }
            } else {
                for &block in &self.touched {
                    upper[block as usize / BLOCK] = minimum(lower, block as usize / BLOCK);
                }
            }
        }
        self.touched.clear();
        self.minima[self.minima.len() - 1][0]
    }

    /// Appends all slots that end no later than `until`. Call after [`Calendar::earliest`].
    pub(super) fn due(&self, until: f64, out: &mut Vec<u32>) {
        if let Some(top) = self.minima.len().checked_sub(1)
            && self.minima[top][0] <= until
        {
            self.collect(top, 0, until, out);
        }
    }

    /// Appends the slots below a block whose minimum is early enough.
    fn collect(&self, level: usize, block: usize, until: f64, out: &mut Vec<u32>) {
        let Some(below) = level.checked_sub(1) else {
            let slots = early(&self.finish, block, until);
            return out.extend(slots.map(|slot| slot as u32));
        };
        let blocks = early(&self.minima[below], block, until);
        blocks.for_each(|block| self.collect(below, block, until, out));
    }
}

/// The entries of one block that are no later than `until`. They are found without branches,
/// because few are.
#[inline]
fn early(values: &[f64], block: usize, until: f64) -> impl Iterator<Item = usize> + use<> {
    let start = block * BLOCK;
    let values = &values[start..(start + BLOCK).min(values.len())];
    let mut left = 0u32;
    for (at, &value) in values.iter().enumerate() {
        left |= u32::from(value <= until) << at;
    }
    std::iter::from_fn(move || {
        let at = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (at < BLOCK as u32).then_some(start + at as usize)
    })
}

/// Minimum of one block. Several running minima let the compiler vectorise it.
#[inline]
fn minimum(values: &[f64], block: usize) -> f64 {
    let end = ((block + 1) * BLOCK).min(values.len());
    let values = &values[block * BLOCK..end];
    let mut lanes = [f64::INFINITY; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value < *lane { value } else { *lane };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(f64::INFINITY, |a, &b| if b < a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_random::SplitMix64;

    #[test]
    fn finds_the_same_flows_as_a_scan() {
        let mut generator = SplitMix64::new(3);
        let mut calendar = Calendar::default();
        let mut plain = vec![f64::INFINITY; 9000];
        calendar.grow(70);
        for step in 0..2000usize {
            let slots = if step < 100 { 70 } else { 9000 };
            calendar.grow(slots);
            for _ in 0..generator.below(20) {
                let slot = generator.below(slots as u64) as u32;
                let finish = if generator.below(4) == 0 {
                    f64::INFINITY
                } else {
                    generator.below(1000) as f64
                };
                calendar.set(slot, finish);
                plain[slot as usize] = finish;
            }
            let earliest = plain.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(calendar.earliest(), earliest);
            let mut due = Vec::new();
            calendar.due(earliest.min(1e9), &mut due);
            let expected: Vec<u32> = (0..9000)
                .filter(|&s| plain[s as usize] <= earliest.min(1e9))
                .collect();
            assert_eq!(due, expected);
        }
    }
}
