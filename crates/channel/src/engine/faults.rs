//! What a test's network does to datagrams.

use farcall_random::SplitMix64;

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
    pub(super) fn copies(&self, random: &mut SplitMix64) -> u32 {
        match random.below(1_000_000) as u32 {
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
        let faults = Faults {
            lost: 10_000,
            repeated: 20_000,
            seed: 1,
        };
        let mut random = SplitMix64::new(faults.seed);
        let mut counts = [0u32; 3];
        for _ in 0..100_000 {
            counts[faults.copies(&mut random) as usize] += 1;
        }
        assert!((800..1200).contains(&counts[0]), "{counts:?}");
        assert!((1700..2300).contains(&counts[2]), "{counts:?}");
    }
}
