//! Seeded random numbers: the same seed gives the same numbers on every machine and in every
//! version.
//!
//! Simulations, `--placement random:SEED` and the tests use [`SplitMix64`]. Secrets such as tokens
//! and keys come from the system instead.
#![no_std]

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, by the multiply-shift method. It is 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1), a multiple of 2^-40.
    pub fn unit(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1u64 << 40) as f64
    }

    /// True with this probability: never at 0, always at 1.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut generator = SplitMix64::new(1234567);
        assert_eq!(generator.next_u64(), 6457827717110365317);
        assert_eq!(generator.next_u64(), 3203168211198807973);
    }

    #[test]
    fn chances_match_their_probability() {
        let mut generator = SplitMix64::new(1);
        let hits = (0..10_000).filter(|_| generator.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!((0..100).all(|_| generator.chance(1.0) && !generator.chance(0.0)));
    }
}
