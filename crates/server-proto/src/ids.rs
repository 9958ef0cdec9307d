//! Ids that nobody can guess, from a seed of the shell's entropy. The same seed gives the same ids,
//! for simulation.

use sha2::{Digest, Sha256};

/// Makes ids from a seed. The same seed gives the same ids, and no id reveals another one.
#[derive(Debug)]
pub(crate) struct Ids {
    seed: [u8; 32],
    made: u64,
}

impl Ids {
    pub(crate) fn new(seed: [u8; 32]) -> Ids {
        Ids { seed, made: 0 }
    }

    /// A new id.
    pub(crate) fn next(&mut self) -> [u8; 16] {
        self.made += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.made.to_le_bytes());
        let hash = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        id
    }
}
