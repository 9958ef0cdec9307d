//! Splits the large segments that the kernel provides into frames, and completes their checksums.
//! `coalesce` does the reverse. A packet that contradicts its offload header is dropped.

use crate::checksum::Sum;
use bytes::{Bytes, BytesMut};

/// `struct virtio_net_hdr`, which precedes every packet of the virtual interface, in host byte
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffloadHeader {
    pub(crate) needs_checksum: bool,
    /// Kind of segmentation, `GSO_*`.
    pub(crate) segments: u8,
    pub(crate) header_bytes: u16,
    pub(crate) segment_bytes: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

pub(crate) const OFFLOAD_BYTES: usize = 10;
pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

pub(crate) const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;

const FIN: u8 = 0x01;
pub(crate) const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl OffloadHeader {
    pub(crate) fn decode(bytes: &[u8; OFFLOAD_BYTES]) -> OffloadHeader {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        OffloadHeader {
            needs_checksum: bytes[0] & 1 != 0,
            segments: bytes[1],
            header_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub(crate) fn encode(&self) -> [u8; OFFLOAD_BYTES] {
        let mut bytes = [0; OFFLOAD_BYTES];
        bytes[0] = u8::from(self.needs_checksum);
        bytes[1] = self.segments;
        bytes[2..4].copy_from_slice(&self.header_bytes.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes
    }
}

/// Passes each frame of a packet of the virtual interface to `take`. A packet that contradicts its
/// offload header is dropped.
pub(crate) fn split(header: OffloadHeader, packet: &[u8], mut take: impl FnMut(Bytes)) {
    match header.segments & !GSO_ECN {
        GSO_NONE => {
            let mut frame = BytesMut::from(packet);
            if header.needs_checksum && complete(&header, &mut frame).is_none() {
                return;
            }
            take(frame.freeze());
        }
        GSO_TCPV4 => split_tcp(IPV4, &header, packet, &mut take).unwrap_or_default(),
        GSO_TCPV6 => split_tcp(IPV6, &header, packet, &mut take).unwrap_or_default(),
        _ => {}
    }
}

/// Fills in the checksum; its field holds the sum of the pseudo header so far.
fn complete(header: &OffloadHeader, frame: &mut [u8]) -> Option<()> {
    let start = usize::from(header.checksum_start);
    let at = start + usize::from(header.checksum_offset);
    let mut sum = Sum::default().add(frame.get(start..)?).finish();
    if sum == [0, 0] {
        // In UDP a checksum of zero means that there is none.
        sum = [0xff, 0xff];
    }
    frame.get_mut(at..at + 2)?.copy_from_slice(&sum);
    Some(())
}

/// The sum of the TCP pseudo header for `tcp_bytes` bytes of TCP.
pub(crate) fn pseudo_header(ip: &[u8], tcp_bytes: usize) -> Sum {
    let addresses = if ip[0] >> 4 == 4 {
        &ip[12..20]
    } else {
        &ip[8..40]
    };
    Sum::default().add(addresses).word(6).word(tcp_bytes as u16)
}

/// Sets the length in an IP header, and its checksum if it has one.
pub(crate) fn set_length(ip: &mut [u8], bytes: usize) {
    if ip[0] >> 4 == 4 {
        ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        ip[10..12].fill(0);
        let header = usize::from(ip[0] & 15) * 4;
        let sum = Sum::default().add(&ip[..header.min(ip.len())]).finish();
        ip[10..12].copy_from_slice(&sum);
    } else {
        ip[4..6].copy_from_slice(&((bytes - IPV6) as u16).to_be_bytes());
    }
}

/// Where the IP header begins: behind the Ethernet header, and the tags of VLANs on this interface.
fn ip_of(packet: &[u8]) -> Option<usize> {
    let mut ip = ETHERNET;
    while let [0x81, 0x00] | [0x88, 0xa8] = packet.get(ip - 2..ip)? {
        ip += 4;
    }
    Some(ip)
}

fn split_tcp(
    ip_least: usize,
    header: &OffloadHeader,
    packet: &[u8],
    take: &mut impl FnMut(Bytes),
) -> Option<()> {
    // Use the kernel's offset of the TCP header, because there may be IP options or extensions.
    let (ip, tcp) = (ip_of(packet)?, usize::from(header.checksum_start));
    let segment = usize::from(header.segment_bytes);
    if tcp < ip + ip_least || packet.len() < tcp + TCP || segment == 0 {
        return None;
    }
    let payload = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
    if payload < tcp + TCP || packet.len() < payload {
        return None;
    }
    let data = &packet[payload..];
    let count = data.len().div_ceil(segment).max(1);
    // All frames share one block of memory.
    let mut block = BytesMut::with_capacity(count * payload + data.len());
    let sequence = u32::from_be_bytes(*packet[tcp + 4..].first_chunk()?);
    let identification = u16::from_be_bytes(*packet[ip + 4..].first_chunk()?);
    for index in 0..count {
        let part = &data[index * segment..data.len().min((index + 1) * segment)];
        let start = block.len();
        block.extend_from_slice(&packet[..payload]);
        block.extend_from_slice(part);
        let frame = &mut block[start..];
        let ip_bytes = frame.len() - ip;
        if ip_least == IPV4 {
            let number = identification.wrapping_add(index as u16);
            frame[ip + 4..ip + 6].copy_from_slice(&number.to_be_bytes());
        }
        set_length(&mut frame[ip..tcp], ip_bytes);
        let number = sequence.wrapping_add((index * segment) as u32);
        frame[tcp + 4..tcp + 8].copy_from_slice(&number.to_be_bytes());
        if index > 0 {
            frame[tcp + 13] &= !CWR;
        }
        if index + 1 < count {
            frame[tcp + 13] &= !(FIN | PSH);
        }
        frame[tcp + 16..tcp + 18].fill(0);
        let pseudo = pseudo_header(&frame[ip..], frame.len() - tcp);
        let sum = pseudo.add(&frame[tcp..]).finish();
        frame[tcp + 16..tcp + 18].copy_from_slice(&sum);
        take(block.split_to(block.len()).freeze());
    }
    Some(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A TCP segment in an Ethernet frame, without checksums.
    pub(crate) fn tcp_packet(version: u8, data: usize) -> Vec<u8> {
        let ip = if version == 4 { IPV4 } else { IPV6 };
        let mut packet = vec![0; ETHERNET + ip + 32 + data];
        packet[12..14].copy_from_slice(if version == 4 { &[8, 0] } else { &[0x86, 0xdd] });
        packet[ETHERNET] = if version == 4 { 0x45 } else { 0x60 };
        let bytes = packet.len() - ETHERNET;
        if version == 4 {
            packet[ETHERNET + 6] = 0x40;
            packet[ETHERNET + 8..ETHERNET + 10].copy_from_slice(&[64, 6]);
            packet[ETHERNET + 12..ETHERNET + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            packet[ETHERNET + 6] = 6;
            packet[ETHERNET + 8..ETHERNET + 40].fill(0xfd);
        }
        set_length(&mut packet[ETHERNET..ETHERNET + ip], bytes);
        let tcp = ETHERNET + ip;
        packet[tcp..tcp + 4].copy_from_slice(&[1, 2, 3, 4]);
        packet[tcp + 4..tcp + 8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        packet[tcp + 12] = 8 << 4;
        packet[tcp + 13] = 0x10 | PSH | FIN | CWR;
        for (index, byte) in packet[tcp + 32..].iter_mut().enumerate() {
            *byte = index as u8;
        }
        packet
    }

    pub(crate) fn offload(version: u8, segment: u16) -> OffloadHeader {
        OffloadHeader {
            needs_checksum: true,
            segments: if version == 4 { GSO_TCPV4 } else { GSO_TCPV6 },
            header_bytes: 0,
            segment_bytes: segment,
            checksum_start: (ETHERNET + if version == 4 { IPV4 } else { IPV6 }) as u16,
            checksum_offset: 16,
        }
    }

    pub(crate) fn frames(header: OffloadHeader, packet: &[u8]) -> Vec<Bytes> {
        let mut frames = Vec::new();
        split(header, packet, |frame| frames.push(frame));
        frames
    }

    #[test]
    fn segments_are_split_with_right_numbers_and_sums() {
        for version in [4, 6] {
            let packet = tcp_packet(version, 3000);
            let header = offload(version, 1400);
            let tcp = usize::from(header.checksum_start);
            let frames = frames(header, &packet);
            assert_eq!(
                frames
                    .iter()
                    .map(|f| f.len() - tcp - 32)
                    .collect::<Vec<_>>(),
                [1400, 1400, 200]
            );
            for (index, frame) in frames.iter().enumerate() {
                let number = u32::from_be_bytes(*frame[tcp + 4..].first_chunk().unwrap());
                assert_eq!(number, 0xffff_ff00_u32.wrapping_add(index as u32 * 1400));
                let pseudo = pseudo_header(&frame[ETHERNET..], frame.len() - tcp);
                assert_eq!(pseudo.add(&frame[tcp..]).finish(), [0, 0]);
                if version == 4 {
                    assert_eq!(Sum::default().add(&frame[ETHERNET..tcp]).finish(), [0, 0]);
                }
            }
            let flags: Vec<u8> = frames.iter().map(|frame| frame[tcp + 13]).collect();
            assert_eq!(flags, [0x10 | CWR, 0x10, 0x10 | PSH | FIN]);
        }
    }

    #[test]
    fn the_tag_of_a_vlan_stays_before_the_ip_header() {
        for version in [4, 6] {
            let mut packet = tcp_packet(version, 3000);
            let mut header = offload(version, 1400);
            let plain = frames(header, &packet);
            packet.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
            header.checksum_start += 4;
            let tagged = frames(header, &packet);
            assert_eq!(tagged.len(), plain.len());
            for (tagged, plain) in tagged.iter().zip(&plain) {
                assert_eq!(tagged[12..16], [0x81, 0x00, 0x00, 0x05]);
                assert_eq!([&tagged[..12], &tagged[16..]].concat(), plain[..]);
            }
        }
    }

    #[test]
    fn packets_that_contradict_their_header_are_dropped() {
        let packet = tcp_packet(4, 100);
        for (start, segment) in [(0, 10), (33, 10), (34, 0), (u16::MAX, 10)] {
            let header = OffloadHeader {
                checksum_start: start,
                segment_bytes: segment,
                ..offload(4, 1)
            };
            assert_eq!(frames(header, &packet), Vec::<Bytes>::new());
        }
        let header = OffloadHeader {
            segments: GSO_NONE,
            checksum_start: 200,
            ..offload(4, 1)
        };
        assert_eq!(frames(header, &packet), Vec::<Bytes>::new());
    }

    #[test]
    fn missing_checksums_are_completed() {
        let mut packet = tcp_packet(4, 77);
        let header = OffloadHeader {
            segments: GSO_NONE,
            ..offload(4, 0)
        };
        let sum = pseudo_header(&packet[ETHERNET..], packet.len() - 34).folded();
        packet[50..52].copy_from_slice(&sum);
        let frames = frames(header, &packet);
        let pseudo = pseudo_header(&frames[0][ETHERNET..], packet.len() - 34);
        assert_eq!(pseudo.add(&frames[0][34..]).finish(), [0, 0]);
    }
}
