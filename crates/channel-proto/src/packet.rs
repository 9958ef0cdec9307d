//! The header of a packet and its encoding: fixed fields, little-endian. What the messages after it
//! contain does not matter here. Bytes that are not a packet are refused with the reason.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

const MAGIC: u16 = 0xfc7a;
const VERSION: u8 = 1;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages, the first with number `sequence`.
    Data,
    /// All messages below `sequence` fitted into the receive FIFO.
    Ack,
    /// The receive FIFO is full: send again from `sequence`, after a pause.
    Full,
    /// Messages are missing: send again from `sequence`.
    Gap,
    /// The receiving side is not running yet: send again from `sequence`, after a pause.
    Early,
}

/// The gang job, the channel, and the two processes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Number of the gang job; never reused.
    pub job: u64,
    /// Channel of the gang job.
    pub channel: u8,
    /// Rank that sends the messages (and receives the answers).
    pub source: u16,
    /// Rank that receives the messages.
    pub destination: u16,
}

/// The header before the messages of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the packet.
    pub kind: Kind,
    /// The gang job, channel and processes of the packet.
    pub address: Address,
    /// Epoch of the gang job in which the messages were sent; an answer repeats it.
    pub epoch: u32,
    /// Messages in the packet; 0 in an answer.
    pub count: u16,
    /// Number of the first message, or the one that the receiver expects next.
    pub sequence: u64,
    /// Number of the transmission; an answer repeats it.
    pub transmission: u64,
    /// Bytes after the header.
    pub bytes: u32,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The bytes are fewer than a header, or than the header announces.
    #[error("the packet is shorter than its header announces")]
    Short,
    /// The packet belongs to another protocol or version.
    #[error("the packet belongs to another protocol or version")]
    Foreign,
    /// A field has an impossible value.
    #[error("a field of the packet is out of its range")]
    Field,
}

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        out[2] = VERSION;
        out[3] = match self.kind {
            Kind::Data => 0,
            Kind::Ack => 1,
            Kind::Full => 2,
            Kind::Gap => 3,
            Kind::Early => 4,
        };
        out[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&self.address.job.to_le_bytes());
        out[16..18].copy_from_slice(&self.address.source.to_le_bytes());
        out[18..20].copy_from_slice(&self.address.destination.to_le_bytes());
        out[20..22].copy_from_slice(&self.count.to_le_bytes());
        out[22] = self.address.channel;
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.transmission.to_le_bytes());
        out[40..44].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Decodes a packet into its header and the messages after it.
    pub fn decode(packet: &[u8]) -> Result<(Header, &[u8]), PacketError> {
        let Some((head, body)) = packet.split_at_checked(HEADER_BYTES) else {
            return Err(PacketError::Short);
        };
        if number(head, 0, 2) != u64::from(MAGIC) || head[2] != VERSION {
            return Err(PacketError::Foreign);
        }
        let kind = match head[3] {
            0 => Kind::Data,
            1 => Kind::Ack,
            2 => Kind::Full,
            3 => Kind::Gap,
            4 => Kind::Early,
            _ => return Err(PacketError::Field),
        };
        let header = Header {
            kind,
            epoch: number(head, 4, 4) as u32,
            address: Address {
                job: number(head, 8, 8),
                source: number(head, 16, 2) as u16,
                destination: number(head, 18, 2) as u16,
                channel: head[22],
            },
            count: number(head, 20, 2) as u16,
            sequence: number(head, 24, 8),
            transmission: number(head, 32, 8),
            bytes: number(head, 40, 4) as u32,
        };
        let is_data = kind == Kind::Data;
        let room = header.sequence.checked_add(u64::from(header.count));
        let reserved = head[23] != 0 || number(head, 44, 4) != 0;
        if is_data != (header.count > 0) || room.is_none() || reserved {
            return Err(PacketError::Field);
        }
        if header.bytes as usize != body.len() || (!is_data && !body.is_empty()) {
            return Err(PacketError::Short);
        }
        Ok((header, body))
    }
}

/// A little-endian number of at most eight bytes.
fn number(bytes: &[u8], start: usize, count: usize) -> u64 {
    let field = &bytes[start..start + count];
    field
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn header() -> Header {
        Header {
            kind: Kind::Data,
            address: Address {
                job: 0x0123_4567_89ab_cdef,
                channel: 3,
                source: 1,
                destination: 1023,
            },
            epoch: 77,
            count: 2,
            sequence: 1 << 40,
            transmission: 9,
            bytes: 3,
        }
    }

    #[test]
    fn written_records_are_read() {
        let mut packet = Vec::from(header().encode());
        packet.extend_from_slice(b"abc");
        let read = Header::decode(&packet);
        assert_eq!(read, Ok((header(), &b"abc"[..])));
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let mut packet = Vec::from(header().encode());
        packet.extend_from_slice(b"abc");
        for cut in 0..packet.len() {
            assert_eq!(Header::decode(&packet[..cut]), Err(PacketError::Short));
        }
        let with = |place: usize, byte: u8| {
            let mut packet = packet.clone();
            packet[place] = byte;
            Header::decode(&packet).map(|(header, _)| header)
        };
        assert_eq!(with(0, 0), Err(PacketError::Foreign));
        assert_eq!(with(2, 9), Err(PacketError::Foreign));
        assert_eq!(with(3, 9), Err(PacketError::Field));
        assert_eq!(with(3, 1), Err(PacketError::Field));
        assert_eq!(with(20, 0), Err(PacketError::Field));
        assert_eq!(with(23, 1), Err(PacketError::Field));
    }
}
