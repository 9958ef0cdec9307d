//! The two forms of a trunk's frames on a link, and their headers.
//!
//! *Ethernet*: the trunk's header follows the Ethernet header. *Datagram*: it follows UDP over
//! IPv4, so that the kernel and fast interfaces split and join many frames at once (UDP
//! segmentation offload). A datagram goes from no IP address to the broadcast address, in an
//! Ethernet frame to one station. Therefore it needs no address on the link, no router forwards it,
//! and no host answers it.

use crate::checksum::Sum;
use crate::segment::{ETHERNET, OFFLOAD_BYTES, OffloadHeader};
use bytes::Bytes;
use farcall_trunk_proto::{ETHERTYPE, Mac, SHIM_BYTES, Transmit};

/// Bytes of the IPv4 and UDP headers.
pub(crate) const DATAGRAM_BYTES: usize = 28;
/// UDP port of both ends; unassigned by IANA.
const PORT: u16 = 37170;
/// The most frames in one datagram that is split later.
const SEGMENTS: usize = 44;
/// The most bytes in one such datagram.
const LONGEST: usize = 65_000;
const GSO_UDP: u8 = 5;
const IP: usize = OFFLOAD_BYTES + ETHERNET;
/// Bytes of all headers before the first frame's own header.
const PREFIX: usize = IP + DATAGRAM_BYTES;

/// The headers before a group of frames on the socket.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    bytes: [u8; PREFIX],
    length: usize,
    /// Number of frames that follow.
    pub(crate) frames: usize,
}

impl Prefix {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The headers of one frame in the Ethernet form.
    pub(crate) fn ethernet(source: Mac, frame: &Transmit) -> Prefix {
        let mut prefix = Prefix {
            bytes: [0; PREFIX],
            length: IP,
            frames: 1,
        };
        prefix.addresses(source, frame.destination, ETHERTYPE);
        prefix
    }

    /// The headers of a datagram that holds as many of the first frames as possible. They must go
    /// to one station and have one length; only the last may be shorter.
    pub(crate) fn datagram(source: Mac, frames: &[Transmit]) -> Option<Prefix> {
        let length = |frame: &Transmit| SHIM_BYTES + frame.body.len();
        let first = frames.first()?;
        let segment = length(first);
        let mut count = 1;
        let mut bytes = segment;
        for frame in &frames[1..frames.len().min(SEGMENTS)] {
            let next = length(frame);
            if frame.destination != first.destination || next > segment || bytes + next > LONGEST {
                break;
            }
            count += 1;
            bytes += next;
            if next < segment {
                break;
            }
        }
        let mut prefix = Prefix {
            bytes: [0; PREFIX],
            length: PREFIX,
            frames: count,
        };
        prefix.addresses(source, first.destination, 0x0800);
        prefix.datagram_headers(bytes);
        if count > 1 {
            let offload = OffloadHeader {
                needs_checksum: true,
                segments: GSO_UDP,
                header_bytes: (ETHERNET + DATAGRAM_BYTES) as u16,
                segment_bytes: segment as u16,
                checksum_start: (ETHERNET + 20) as u16,
                checksum_offset: 6,
            };
            prefix.bytes[..OFFLOAD_BYTES].copy_from_slice(&offload.encode());
            let ip = &prefix.bytes[IP..];
            let pseudo = Sum::default().add(&ip[12..20]).word(17).add(&ip[24..26]);
            prefix.bytes[PREFIX - 2..].copy_from_slice(&pseudo.folded());
        }
        Some(prefix)
    }

    fn addresses(&mut self, source: Mac, destination: Mac, protocol: u16) {
        let header = &mut self.bytes[OFFLOAD_BYTES..];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&source.0);
        header[12..14].copy_from_slice(&protocol.to_be_bytes());
    }

    fn datagram_headers(&mut self, payload: usize) {
        let ip = &mut self.bytes[IP..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((payload + DATAGRAM_BYTES) as u16).to_be_bytes());
        // Set "don't fragment", a TTL that no router forwards, and the protocol UDP.
        ip[6] = 0x40;
        ip[8..10].copy_from_slice(&[1, 17]);
        ip[16..20].fill(0xff);
        let sum = Sum::default().add(&ip[..20]).finish();
        ip[10..12].copy_from_slice(&sum);
        ip[20..22].copy_from_slice(&PORT.to_be_bytes());
        ip[22..24].copy_from_slice(&PORT.to_be_bytes());
        ip[24..26].copy_from_slice(&((payload + 8) as u16).to_be_bytes());
    }
}

/// Passes each frame for `own` in a packet of the socket, in either form, to `take`.
pub(crate) fn parse(packet: &[u8], own: Mac, mut take: impl FnMut(Mac, Bytes)) -> Option<()> {
    let (offload, packet) = packet.split_first_chunk::<OFFLOAD_BYTES>()?;
    let offload = OffloadHeader::decode(offload);
    let (header, payload) = packet.split_first_chunk::<ETHERNET>()?;
    // A switch floods frames for unknown stations, and the socket receives all of them.
    if header[..6] != own.0 && header[..6] != Mac::BROADCAST.0 {
        return None;
    }
    let source = Mac(*header[6..].first_chunk()?);
    if header[12..] == ETHERTYPE.to_be_bytes() {
        take(source, Bytes::copy_from_slice(payload));
        return Some(());
    }
    let total = usize::from(u16::from_be_bytes(*payload.get(2..)?.first_chunk()?));
    let frames = payload.get(DATAGRAM_BYTES..total)?;
    if offload.segments != GSO_UDP || offload.segment_bytes == 0 {
        take(source, Bytes::copy_from_slice(frames));
        return Some(());
    }
    let mut frames = Bytes::copy_from_slice(frames);
    while !frames.is_empty() {
        take(
            source,
            frames.split_to(frames.len().min(usize::from(offload.segment_bytes))),
        );
    }
    Some(())
}

/// Instructions of classic BPF (code, jumps, value) that accept both forms and nothing else. Frames
/// of a VLAN are those of another network, but the socket sees them without their tag. A tag with
/// the number 0 only has a priority.
pub(crate) const FILTER: [(u16, u8, u8, u32); 16] = [
    (0x30, 0, 0, VLAN_PRESENT),     // ldb: whether the frame had a tag
    (0x15, 3, 0, 0),                // it had none: go on
    (0x28, 0, 0, VLAN_TAG),         // ldh: the tag
    (0x54, 0, 0, 0xfff),            // and: the number of the VLAN
    (0x15, 0, 10, 0),               // not 0: refuse
    (0x28, 0, 0, 12),               // ldh [12]: the EtherType
    (0x15, 7, 0, ETHERTYPE as u32), // ours: accept
    (0x15, 0, 7, 0x0800),           // not IPv4: refuse
    (0x30, 0, 0, 14),               // ldb [14]: version and header length
    (0x15, 0, 5, 0x45),             // options: refuse
    (0x30, 0, 0, 23),               // ldb [23]: the protocol
    (0x15, 0, 3, 17),               // not UDP: refuse
    (0x28, 0, 0, 36),               // ldh [36]: the port
    (0x15, 0, 1, PORT as u32),      // not ours: refuse
    (0x06, 0, 0, u32::MAX),         // accept
    (0x06, 0, 0, 0),                // refuse
];

/// What the kernel knows of a frame's tag, for the filter (`SKF_AD_OFF` and what follows it).
const VLAN_TAG: u32 = 0xffff_f000 + 44;
const VLAN_PRESENT: u32 = 0xffff_f000 + 48;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with a packet after its offload header, which had this tag.
    fn accepts(packet: &[u8], tag: Option<u16>) -> bool {
        let byte = |at: u32| packet.get(at as usize).copied().map(u32::from);
        let mut value = 0;
        let mut next = 0;
        loop {
            let (code, yes, no, with) = FILTER[next];
            next += 1;
            let read = match (code, with) {
                (0x30, VLAN_PRESENT) => Some(u32::from(tag.is_some())),
                // Without a tag, the kernel may have that of an earlier frame there.
                (0x28, VLAN_TAG) => Some(tag.unwrap_or(0x1234).into()),
                (0x30, at) => byte(at),
                (0x28, at) => byte(at)
                    .zip(byte(at + 1))
                    .map(|(high, low)| high << 8 | low),
                (0x54, mask) => Some(value & mask),
                (0x15, wanted) => {
                    next += usize::from(if value == wanted { yes } else { no });
                    Some(value)
                }
                (0x06, length) => return length > 0,
                _ => panic!("an instruction {code:#x}"),
            };
            let Some(read) = read else { return false };
            value = read;
        }
    }

    #[test]
    fn frames_of_a_vlan_belong_to_another_network() {
        let one = [frame(OWN, 9, 100)];
        for prefix in [
            Prefix::ethernet(PEER, &one[0]),
            Prefix::datagram(PEER, &one).unwrap(),
        ] {
            let packet = on_wire(&prefix, &one);
            let packet = &packet[OFFLOAD_BYTES..];
            assert!(accepts(packet, None));
            assert!(accepts(packet, Some(0xe000)), "a priority");
            assert!(!accepts(packet, Some(5)) && !accepts(packet, Some(0xe005)));
        }
        let other = Prefix::ethernet(PEER, &one[0]);
        let mut other = on_wire(&other, &one);
        other[IP - 1] ^= 1;
        assert!(!accepts(&other[OFFLOAD_BYTES..], None));
    }

    const OWN: Mac = Mac([2; 6]);
    const PEER: Mac = Mac([4; 6]);

    fn frame(destination: Mac, fill: u8, length: usize) -> Transmit {
        let body = vec![fill; length].into();
        Transmit {
            link: 0,
            destination,
            header: [fill; SHIM_BYTES],
            body,
        }
    }

    fn on_wire(prefix: &Prefix, frames: &[Transmit]) -> Vec<u8> {
        let frames = frames.iter().take(prefix.frames);
        let frames = frames.flat_map(|frame| [&frame.header[..], &frame.body].concat());
        prefix.bytes().iter().copied().chain(frames).collect()
    }

    fn parsed(packet: &[u8]) -> Vec<Bytes> {
        let mut frames = Vec::new();
        parse(packet, OWN, |source, frame| {
            assert_eq!(source, PEER);
            frames.push(frame);
        });
        frames
    }

    #[test]
    fn frames_of_one_length_travel_together() {
        let mut frames: Vec<_> = (0..5).map(|fill| frame(OWN, fill, 1000)).collect();
        frames.push(frame(OWN, 5, 10));
        frames.push(frame(OWN, 6, 1000));
        let prefix = Prefix::datagram(PEER, &frames).unwrap();
        assert_eq!(prefix.frames, 6);
        let found = parsed(&on_wire(&prefix, &frames));
        let expected = frames[..6]
            .iter()
            .map(|f| [&f.header[..], &f.body].concat());
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn other_stations_and_longer_frames_go_alone() {
        let others = [frame(OWN, 0, 10), frame(PEER, 1, 10)];
        assert_eq!(Prefix::datagram(PEER, &others).unwrap().frames, 1);
        let longer = [frame(OWN, 0, 10), frame(OWN, 1, 11)];
        assert_eq!(Prefix::datagram(PEER, &longer).unwrap().frames, 1);
        let many = vec![frame(OWN, 0, 1448); 100];
        assert_eq!(Prefix::datagram(PEER, &many).unwrap().frames, SEGMENTS);
        let huge = vec![frame(OWN, 0, 8000); 100];
        assert_eq!(Prefix::datagram(PEER, &huge).unwrap().frames, 8);
    }

    #[test]
    fn both_forms_are_read_and_nothing_else() {
        let one = [frame(OWN, 9, 100)];
        for prefix in [
            Prefix::ethernet(PEER, &one[0]),
            Prefix::datagram(PEER, &one).unwrap(),
        ] {
            let mut packet = on_wire(&prefix, &one);
            assert_eq!(parsed(&packet).len(), 1);
            for end in 0..prefix.bytes().len() - 1 {
                assert_eq!(parsed(&packet[..end]).len(), 0, "{end}");
            }
            packet[OFFLOAD_BYTES] = 8;
            assert_eq!(parsed(&packet).len(), 0);
        }
    }
}
