//! Frames: a 16-byte header and a payload. `kind` has the kinds, and `receiver` cuts a stream into
//! frames. A header is checked before anything of its payload is read.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | payload length, little endian |
//! | 4 | kind |
//! | 5 | flags; bit 0 of a frame with array elements: they are big endian |
//! | 6..8 | zero |
//! | 8..16 | call number, little endian; 0 for frames about the connection |

use crate::{CallId, Kind};
use alloc::vec::Vec;

/// Length of a frame header in bytes.
pub const HEADER_BYTES: usize = 16;

/// Flag of a frame with array elements: the sender's byte order is big endian.
pub(crate) const BIG_ENDIAN: u8 = 1;

/// A checked frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the payload is.
    pub kind: Kind,
    /// Flags of this kind.
    pub flags: u8,
    /// The request that the frame belongs to.
    pub call: CallId,
    /// Payload length in bytes.
    pub length: u32,
}

/// Why sixteen bytes are not a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The kind is not one of this protocol version.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// A flag that the kind does not have, or a reserved byte that is not zero.
    #[error("reserved bits are set")]
    Reserved,
    /// The payload is longer than the limit of its kind.
    #[error("payload of {length} bytes where at most {limit} are allowed")]
    TooLong {
        /// Announced length.
        length: u32,
        /// The limit of this connection.
        limit: u32,
    },
}

impl Header {
    /// Reads a header and checks everything that does not depend on the connection.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let kind = Kind::from_repr(bytes[4]).ok_or(FrameError::Kind(bytes[4]))?;
        let flags = bytes[5];
        let allowed = match kind {
            Kind::Data | Kind::Callback | Kind::Answer => BIG_ENDIAN,
            _ => 0,
        };
        if flags & !allowed != 0 || bytes[6] != 0 || bytes[7] != 0 {
            return Err(FrameError::Reserved);
        }
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut call = [0; 8];
        call.copy_from_slice(&bytes[8..]);
        Ok(Header {
            kind,
            flags,
            call: CallId::from_le_bytes(call),
            length,
        })
    }

    /// The encoded header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[8..].copy_from_slice(&self.call.to_le_bytes());
        bytes
    }
}

/// Appends a control frame whose payload `write` produces.
pub(crate) fn append_control(
    out: &mut Vec<u8>,
    kind: Kind,
    call: CallId,
    write: impl FnOnce(&mut Vec<u8>),
) {
    append_flagged(out, kind, 0, call, write);
}

/// Appends a control frame with flags.
pub(crate) fn append_flagged(
    out: &mut Vec<u8>,
    kind: Kind,
    flags: u8,
    call: CallId,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let length = (out.len() - start - HEADER_BYTES) as u32;
    let header = Header {
        kind,
        flags,
        call,
        length,
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        for kind in 1..=17 {
            let header = Header {
                kind: Kind::from_repr(kind).unwrap(),
                flags: 0,
                call: 7,
                length: 99,
            };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(
            Header::decode(b"GET / HTTP/1.1\r\n"),
            Err(FrameError::Kind(b'/'))
        );
        let mut bytes = Header {
            kind: Kind::Call,
            flags: 0,
            call: 1,
            length: 0,
        }
        .encode();
        bytes[6] = 1;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Reserved));
    }
}
