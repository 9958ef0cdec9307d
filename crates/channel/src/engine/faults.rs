//! Deliberate network faults for tests: datagrams of the engine that are lost or sent twice, at a
//! requested share. The same seed gives the same faults.

use farcall_random::SplitMix64;

/// Drops some datagrams and delivers others twice, at random from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Datagrams dropped per million.
    pub lost: u32,
    /// Datagrams delivered twice per million.
    pub repeated: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Faults {
    /// How often the next datagram is delivered.
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
    fn the_requested_share_of_frames_is_lost() {
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
