//! The file of a checkpoint: a head with the gang job and the lengths of everything, then for each
//! rank the messages of its channels and the state of its program. A checksum follows the head and
//! each of these parts. A reader of a file cannot trust it, so a length that the file cannot have
//! is an error before any memory is taken for it.

use crate::{JobSpec, Lengths};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// The first bytes of a file, before its version.
const MAGIC: &[u8; 8] = b"FARCGANG";

/// The version of the form that is written and read.
pub const VERSION: u32 = 1;

/// Bytes before the encoded head: a magic number, the version and the length of the head.
pub const PREFIX: usize = 16;

/// Bytes of the longest encoded head.
pub const MAX_HEAD: u32 = 8 << 20;

/// Bytes of a checksum: CRC-32 (IEEE 802.3) in little-endian order.
pub const CHECKSUM: usize = 4;

/// The most bytes of the messages of one rank.
pub const MAX_NETWORK: u64 = 1 << 30;

/// Why bytes are not the beginning of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The file is something else.
    #[error("it is not a checkpoint of a gang job")]
    Foreign,
    /// It was written by another version of Farcall.
    #[error("it is a checkpoint of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// The file is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// The head of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Head {
    /// The gang job as it was started.
    #[n(0)]
    pub spec: JobSpec,
    /// The parts of each rank.
    #[n(1)]
    pub ranks: Vec<Lengths>,
}

impl Head {
    /// The beginning of the file, without the checksum that follows it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        // Writing to a Vec cannot fail.
        let _ = minicbor::encode(self, &mut out);
        let length = (out.len() - PREFIX) as u32;
        out[12..PREFIX].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// The length of the encoded head that follows the first bytes of a file.
    ///
    /// # Errors
    /// See [`HeadError`].
    pub fn length(prefix: &[u8; PREFIX]) -> Result<usize, HeadError> {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&prefix[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if prefix[..8] != *MAGIC {
            return Err(HeadError::Foreign);
        }
        match (word(8), word(12)) {
            (VERSION, length) if length <= MAX_HEAD => Ok(length as usize),
            (VERSION, _) => Err(HeadError::Damaged("its head is too long".to_string())),
            (version, _) => Err(HeadError::Version(version)),
        }
    }

    /// Decodes the head after the first bytes of a file, whose checksum is right.
    ///
    /// # Errors
    /// The head is not one, or has lengths that no gang job has.
    pub fn decode(encoded: &[u8]) -> Result<Head, HeadError> {
        let mut decoder = minicbor::Decoder::new(encoded);
        let head: Head = decoder
            .decode()
            .map_err(|error| HeadError::Damaged(error.to_string()))?;
        let damaged = |text: &str| Err(HeadError::Damaged(text.to_string()));
        if decoder.position() != encoded.len() {
            return damaged("bytes follow its head");
        }
        if head.spec.processes == 0 || head.ranks.len() != usize::from(head.spec.processes) {
            return damaged("its ranks are not those of the gang job");
        }
        if head.ranks.iter().any(|rank| rank.network > MAX_NETWORK) {
            return damaged("the messages of a rank are too long");
        }
        match head.parts() {
            Some(_) => Ok(head),
            None => damaged("its lengths are too long"),
        }
    }

    /// Bytes of all parts after the head and its checksum, with their checksums.
    pub fn parts(&self) -> Option<u64> {
        self.ranks.iter().try_fold(0u64, |sum, rank| {
            let own = rank.network.checked_add(rank.program)?;
            sum.checked_add(own)?.checked_add(2 * CHECKSUM as u64)
        })
    }
}

/// The text for a file that ends too early or too late.
pub fn torn(has: u64, wants: u64) -> String {
    format!(
        "it is damaged: it has {has} bytes, and its head says {wants}. Perhaps it was not copied \
         to its end"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_head_that_is_written_is_read() {
        let head = Head {
            spec: JobSpec {
                processes: 2,
                command: vec!["solver".to_string()],
                ..JobSpec::default()
            },
            ranks: vec![
                Lengths {
                    network: 8,
                    program: 1 << 40
                };
                2
            ],
        };
        let bytes = head.encode();
        let (prefix, encoded) = bytes.split_first_chunk().expect("long enough");
        assert_eq!(Head::length(prefix), Ok(encoded.len()));
        assert_eq!(Head::decode(encoded), Ok(head.clone()));
        assert_eq!(head.parts(), Some(2 * (8 + (1 << 40) + 8)));
        for end in 0..encoded.len() {
            assert!(Head::decode(&encoded[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn what_no_job_has_is_refused() {
        let mut prefix = [0; PREFIX];
        assert_eq!(Head::length(&prefix), Err(HeadError::Foreign));
        prefix[..8].copy_from_slice(MAGIC);
        prefix[8] = 9;
        assert_eq!(Head::length(&prefix), Err(HeadError::Version(9)));
        prefix[8] = 1;
        prefix[12..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Head::length(&prefix), Err(HeadError::Damaged(_))));
        let of = |processes, ranks: Vec<Lengths>| {
            let spec = JobSpec {
                processes,
                ..JobSpec::default()
            };
            let head = Head { spec, ranks }.encode();
            Head::decode(&head[PREFIX..])
        };
        let endless = Lengths {
            network: 0,
            program: u64::MAX - 4,
        };
        let long = Lengths {
            network: MAX_NETWORK + 1,
            program: 0,
        };
        assert!(of(0, vec![]).is_err());
        assert!(of(2, vec![Lengths::default()]).is_err());
        assert!(of(1, vec![endless]).is_err());
        assert!(of(1, vec![long]).is_err());
        assert!(of(1, vec![Lengths::default()]).is_ok());
    }
}
