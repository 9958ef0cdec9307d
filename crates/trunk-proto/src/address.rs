//! Compression of inner Ethernet headers. A frame omits the header if the receiver can derive it
//! from the two nodes and the payload.

use bytes::Bytes;
use core::fmt;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address, which every station receives.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether this is a group address (broadcast or multicast).
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Bytes of an Ethernet header.
pub(crate) const HEADER_BYTES: usize = 14;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// How the receiver rebuilds the inner Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// From the sending node to the receiving one.
    Unicast,
    /// From the sending node to every station.
    Broadcast,
    /// From the sending node to the group of the IP destination (RFC 1112, RFC 2464).
    Multicast,
    /// The whole header precedes the payload.
    Whole,
}

impl Address {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Address {
        match code & 3 {
            0 => Address::Unicast,
            1 => Address::Broadcast,
            2 => Address::Multicast,
            _ => Address::Whole,
        }
    }
}

/// A frame of the virtual interface, without the parts of its header that the receiver can derive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) address: Address,
    pub(crate) protocol: u16,
    pub(crate) body: Bytes,
}

impl Packed {
    /// Packs `frame`, which node `own` sends to node `peer`. Returns none if the frame is shorter
    /// than an Ethernet header.
    pub(crate) fn pack(frame: &Bytes, own: Mac, peer: Mac) -> Option<Packed> {
        let destination = Mac(*frame.first_chunk()?);
        let source = Mac(*frame.get(6..)?.first_chunk()?);
        let protocol = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
        let payload = &frame[HEADER_BYTES..];
        let address = if source != own {
            Address::Whole
        } else if destination == peer {
            Address::Unicast
        } else if destination == Mac::BROADCAST {
            Address::Broadcast
        } else if group_of(protocol, payload) == Some(destination) {
            Address::Multicast
        } else {
            Address::Whole
        };
        let body = match address {
            Address::Whole => frame.clone(),
            _ => frame.slice(HEADER_BYTES..),
        };
        Some(Packed {
            address,
            protocol,
            body,
        })
    }

    /// Returns the original Ethernet header and payload, or none if the body cannot belong to such
    /// a frame.
    pub(crate) fn unpack(self, own: Mac, peer: Mac) -> Option<([u8; HEADER_BYTES], Bytes)> {
        let destination = match self.address {
            Address::Unicast => own,
            Address::Broadcast => Mac::BROADCAST,
            Address::Multicast => group_of(self.protocol, &self.body)?,
            Address::Whole => {
                let header = *self.body.first_chunk()?;
                return Some((header, self.body.slice(HEADER_BYTES..)));
            }
        };
        let mut header = [0; HEADER_BYTES];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&peer.0);
        header[12..].copy_from_slice(&self.protocol.to_be_bytes());
        Some((header, self.body))
    }
}

/// The Ethernet group address of an IP packet's destination, or none if the destination is not a
/// multicast group.
fn group_of(protocol: u16, packet: &[u8]) -> Option<Mac> {
    match protocol {
        IPV4 => {
            let &[a, b, c, d] = packet.get(16..20)? else {
                return None;
            };
            (a >> 4 == 0xe).then_some(Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        IPV6 => {
            let &[first, .., a, b, c, d] = packet.get(24..40)? else {
                return None;
            };
            (first == 0xff).then_some(Mac([0x33, 0x33, a, b, c, d]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn frame(destination: Mac, source: Mac, protocol: u16, payload: &[u8]) -> Bytes {
        let mut bytes = Vec::new();
        bytes.extend(destination.0);
        bytes.extend(source.0);
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(payload);
        bytes.into()
    }

    fn travels(frame: &Bytes) -> Address {
        let packed = Packed::pack(frame, OWN, PEER).unwrap();
        let address = packed.address;
        // The receiver is `PEER`, and knows the frame to come from `OWN`.
        let (header, body) = packed.unpack(PEER, OWN).unwrap();
        assert_eq!([&header[..], &body[..]].concat(), frame[..]);
        address
    }

    #[test]
    fn every_address_arrives_as_it_was() {
        let mut v4 = [0; 40];
        v4[16..20].copy_from_slice(&[239, 129, 2, 3]);
        let mut v6 = [0; 44];
        v6[24] = 0xff;
        v6[36..40].copy_from_slice(&[1, 2, 3, 4]);
        let group4 = Mac([1, 0, 0x5e, 1, 2, 3]);
        let group6 = Mac([0x33, 0x33, 1, 2, 3, 4]);
        assert_eq!(travels(&frame(PEER, OWN, IPV4, &v4)), Address::Unicast);
        assert_eq!(
            travels(&frame(Mac::BROADCAST, OWN, 0x806, b"who")),
            Address::Broadcast
        );
        assert_eq!(travels(&frame(group4, OWN, IPV4, &v4)), Address::Multicast);
        assert_eq!(travels(&frame(group6, OWN, IPV6, &v6)), Address::Multicast);
        assert_eq!(travels(&frame(group6, OWN, IPV4, &v4)), Address::Whole);
        assert_eq!(travels(&frame(PEER, group4, IPV4, &v4)), Address::Whole);
        assert_eq!(travels(&frame(Mac([4; 6]), OWN, IPV4, b"")), Address::Whole);
    }

    #[test]
    fn short_frames_are_refused() {
        assert_eq!(Packed::pack(&Bytes::from_static(&[0; 13]), OWN, PEER), None);
        for address in [Address::Whole, Address::Multicast] {
            let body = Bytes::from_static(&[0; 13]);
            let packed = Packed {
                address,
                protocol: IPV4,
                body,
            };
            assert_eq!(packed.unpack(OWN, PEER), None);
        }
    }
}
