//! The header of every frame: 12 bytes after the Ethernet header, all numbers big-endian. The
//! messages after it are in `control`, and `trunk` extends the numbers to 64 bits.
//!
//! ```text
//! byte 0     version (2 bits, 1) | kind (2) | address mode (2) | waits for grants (1) | resent (1)
//!            kinds: 0 data, 1 control, 2 and 3 data sealed with a key of an even or odd number
//! byte 1     session: the low byte of the sender's session
//! bytes 2-3  data: EtherType of the frame carried; control: bytes of the message
//! bytes 4-7  data: number in the peer's sequence; control: the next number to be used
//! bytes 8-11 data: number on this link; control: the next number to be used on it
//! ```

use crate::SHIM_BYTES;
use crate::address::Address;

const VERSION: u8 = 1;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A frame of the virtual interface follows.
    Data,
    /// A control message follows.
    Control,
    /// An encrypted frame of the virtual interface and its tag follow.
    Sealed {
        /// Whether the number of the key is odd.
        odd: bool,
    },
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// What follows the header.
    pub kind: Kind,
    /// How the receiver rebuilds the inner Ethernet header.
    pub address: Address,
    /// Whether the sender has frames that wait only for the receiver's grant.
    pub limited: bool,
    /// Whether the frame was sent before, on this or another link.
    pub resent: bool,
    /// Low byte of the sender's session.
    pub session: u8,
    /// EtherType of the inner frame, or length of the control message in bytes.
    pub protocol: u16,
    /// Number in the sequence from this sender to this receiver; in a control message the next one.
    pub number: u32,
    /// Number in the sequence on this link; in a control message the next one.
    pub link_number: u32,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShimError {
    /// There are fewer bytes than a header has.
    #[error("the frame is shorter than the header of a trunk frame")]
    Short,
    /// The frame has another version of the format.
    #[error("the frame has version {0} of the format; this trunk uses version {VERSION}")]
    Version(u8),
}

impl Shim {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; SHIM_BYTES] {
        let mut bytes = [0; SHIM_BYTES];
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Control => 1,
            Kind::Sealed { odd } => 2 | u8::from(odd),
        };
        bytes[0] = VERSION << 6
            | kind << 4
            | self.address.code() << 2
            | u8::from(self.limited) << 1
            | u8::from(self.resent);
        bytes[1] = self.session;
        bytes[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.link_number.to_be_bytes());
        bytes
    }

    /// Decodes a header from the first bytes after the Ethernet header.
    ///
    /// # Errors
    /// Returns the reason if the bytes are not a header.
    pub fn decode(bytes: &[u8]) -> Result<Shim, ShimError> {
        let bytes: &[u8; SHIM_BYTES] = bytes.first_chunk().ok_or(ShimError::Short)?;
        let first = bytes[0];
        if first >> 6 != VERSION {
            return Err(ShimError::Version(first >> 6));
        }
        let kind = match first >> 4 & 3 {
            0 => Kind::Data,
            1 => Kind::Control,
            kind => Kind::Sealed { odd: kind == 3 },
        };
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Shim {
            kind,
            address: Address::from_code(first >> 2 & 3),
            limited: first & 2 != 0,
            resent: first & 1 != 0,
            session: bytes[1],
            protocol: u16::from_be_bytes([bytes[2], bytes[3]]),
            number: word(4),
            link_number: word(8),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let kinds = [
            Kind::Data,
            Kind::Control,
            Kind::Sealed { odd: false },
            Kind::Sealed { odd: true },
        ];
        for (code, kind) in (0..4).zip(kinds) {
            let shim = Shim {
                kind,
                address: Address::from_code(code),
                limited: code & 1 == 1,
                resent: code & 2 == 2,
                session: 0xa5,
                protocol: 0x86dd,
                number: 0xdead_beef,
                link_number: 7,
            };
            assert_eq!(Shim::decode(&shim.encode()), Ok(shim));
        }
    }

    #[test]
    fn broken_headers_are_refused() {
        assert_eq!(Shim::decode(&[0x40; 11]), Err(ShimError::Short));
        assert_eq!(Shim::decode(&[0xc0; 12]), Err(ShimError::Version(3)));
    }
}
