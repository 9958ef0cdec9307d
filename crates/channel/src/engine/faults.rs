//! What a test's network does to datagrams.

/// Loses some datagrams and lets others come twice, by chance that a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Of a million datagrams, so many are lost.
    pub lost: u32,
    /// Of a million, so many come twice.
    pub repeated: u32,
    /// Where the chances begin.
    pub seed: u64,
}

impl Faults {
    /// How often the next datagram comes.
    pub(super) fn copies(&mut self) -> u32 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = (self.seed >> 33) as u32 % 1_000_000;
        match draw {
            draw if draw < self.lost => 0,
            draw if draw < self.lost.saturating_add(self.repeated) => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_lost_as_was_asked_for() {
        let mut faults = Faults {
            lost: 10_000,
            repeated: 20_000,
            seed: 1,
        };
        let mut counts = [0u32; 3];
        for _ in 0..100_000 {
            counts[faults.copies() as usize] += 1;
        }
        assert!((800..1200).contains(&counts[0]), "{counts:?}");
        assert!((1700..2300).contains(&counts[2]), "{counts:?}");
    }
}
