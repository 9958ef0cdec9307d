//! Computes the Internet checksum (RFC 1071). It adds 32 bits at a time, in the byte order of this
//! machine, which gives the same checksum.

/// A partial sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes. All pieces except the last must have an even length.
    pub(crate) fn add(self, bytes: &[u8]) -> Sum {
        let words = bytes.chunks_exact(4);
        let mut rest = [0; 4];
        rest[..words.remainder().len()].copy_from_slice(words.remainder());
        let last = u64::from(u32::from_ne_bytes(rest));
        let mut sum = last;
        for word in words {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        // The sum of fewer than 2^32 words of 32 bits fits into 64 bits.
        Sum(self.0 + sum)
    }

    /// Adds one word.
    pub(crate) fn word(self, word: u16) -> Sum {
        self.add(&word.to_be_bytes())
    }

    /// The folded sum in the byte order of a packet, not complemented.
    pub(crate) fn folded(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (sum as u16).to_ne_bytes()
    }

    /// The checksum.
    pub(crate) fn finish(self) -> [u8; 2] {
        let [a, b] = self.folded();
        [!a, !b]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = Sum::default()
            .add(&[0x00, 0x01, 0xf2, 0x03])
            .add(&[0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), [0xdd, 0xf2]);
        assert_eq!(Sum::default().add(&[0xff]).word(1).folded(), [0xff, 0x01]);
    }
}
