//! Joins consecutive frames of one TCP stream into one large packet, so that the kernel receives
//! them in one system call. `segment` splits packets in the other direction. Each joined frame has
//! a correct checksum: otherwise the new checksum of the packet would hide the damage.

use crate::checksum::Sum;
use crate::segment::{
    ETHERNET, GSO_NONE, GSO_TCPV4, GSO_TCPV6, OffloadHeader, PSH, pseudo_header, set_length,
};
use bytes::Bytes;
use farcall_trunk_proto::Deliver;

/// The most bytes of headers: Ethernet, IPv6, TCP with all options.
const HEADERS: usize = 14 + 40 + 60;
/// Bytes of the longest IP packet.
const LONGEST: usize = 65_535;
/// The largest number of pieces of one packet.
const PIECES: usize = 64;

/// One or more frames that are joined into one packet of the virtual interface.
#[derive(Debug)]
pub(crate) struct Packet {
    header: [u8; HEADERS],
    header_bytes: usize,
    /// Offset of the TCP header; 0 if no frame can be joined.
    tcp: usize,
    segment: usize,
    bytes: usize,
    next: u32,
    /// The first frame, until its checksum is checked. It is checked only if another frame joins.
    first: Option<Deliver>,
    pub(crate) pieces: Vec<Bytes>,
    closed: bool,
}

/// The fields of a TCP frame that can be joined with others.
struct Segment {
    tcp: usize,
    data: usize,
    sequence: u32,
    /// End of the data, without the padding of the frame.
    end: usize,
}

impl Packet {
    pub(crate) fn new() -> Packet {
        Packet {
            header: [0; HEADERS],
            header_bytes: 0,
            tcp: 0,
            segment: 0,
            bytes: 0,
            next: 0,
            first: None,
            pieces: Vec::with_capacity(PIECES),
            closed: true,
        }
    }

    /// Starts a packet with a frame.
    pub(crate) fn start(&mut self, deliver: Deliver) {
        self.pieces.clear();
        self.closed = true;
        self.tcp = 0;
        self.header[..ETHERNET].copy_from_slice(&deliver.header);
        self.header_bytes = ETHERNET;
        if let Some(segment) = parse(&deliver) {
            let Segment {
                tcp,
                data,
                sequence,
                end,
            } = segment;
            let headers = data - ETHERNET;
            self.header[ETHERNET..data].copy_from_slice(&deliver.body[..headers]);
            self.header_bytes = data;
            self.tcp = tcp;
            self.segment = end - data;
            self.bytes = end;
            self.next = sequence.wrapping_add(self.segment as u32);
            self.closed = self.header[tcp + 13] & PSH != 0;
            self.pieces
                .push(deliver.body.slice(headers..end - ETHERNET));
            self.first = Some(deliver);
        } else {
            self.pieces.push(deliver.body);
            self.first = None;
        }
    }

    /// Adds the frame if it follows the packet. Returns whether it was added.
    pub(crate) fn join(&mut self, deliver: &Deliver) -> bool {
        if self.closed || self.tcp == 0 || self.pieces.len() == PIECES {
            return false;
        }
        if deliver.header != self.header[..ETHERNET] {
            return false;
        }
        let Some(Segment {
            tcp,
            data,
            sequence,
            end,
        }) = parse(deliver)
        else {
            return false;
        };
        let length = end - data;
        let fits = length <= self.segment && self.bytes + length <= LONGEST;
        if tcp != self.tcp || data != self.header_bytes || sequence != self.next || !fits {
            return false;
        }
        if !self.same_stream(&deliver.body, tcp - ETHERNET, data - ETHERNET) {
            return false;
        }
        // The new checksum of the whole packet would hide a damaged frame, so check each frame.
        if let Some(first) = self.first.take()
            && !is_sound(&first, tcp, self.bytes)
        {
            self.closed = true;
            return false;
        }
        if !is_sound(deliver, tcp, end) {
            self.closed = true;
            return false;
        }
        self.header[tcp + 13] |= deliver.body[tcp - ETHERNET + 13];
        self.closed = length < self.segment || deliver.body[tcp - ETHERNET + 13] & PSH != 0;
        self.bytes += length;
        self.next = sequence.wrapping_add(length as u32);
        self.pieces
            .push(deliver.body.slice(data - ETHERNET..end - ETHERNET));
        true
    }

    /// Whether all fields of the headers are equal, except lengths, numbers, checksums and the push
    /// flag.
    fn same_stream(&self, body: &[u8], tcp: usize, data: usize) -> bool {
        let own = &self.header[ETHERNET..self.header_bytes];
        let ip_alike = match own[0] >> 4 {
            4 => {
                own[..2] == body[..2] && own[6..10] == body[6..10] && own[12..tcp] == body[12..tcp]
            }
            _ => own[..4] == body[..4] && own[6..tcp] == body[6..tcp],
        };
        ip_alike
            && own[tcp..tcp + 4] == body[tcp..tcp + 4]
            && own[tcp + 8..tcp + 13] == body[tcp + 8..tcp + 13]
            && own[tcp + 13] | PSH == body[tcp + 13] | PSH
            && own[tcp + 14..tcp + 16] == body[tcp + 14..tcp + 16]
            && own[tcp + 18..] == body[tcp + 18..data]
    }

    /// The offload header and the headers of the packet, which are written before the pieces.
    pub(crate) fn finish(&mut self) -> (OffloadHeader, &[u8]) {
        if self.tcp == 0 || self.pieces.len() == 1 {
            return (OffloadHeader::default(), &self.header[..self.header_bytes]);
        }
        let tcp = self.tcp;
        let is_v4 = self.header[ETHERNET] >> 4 == 4;
        set_length(&mut self.header[ETHERNET..tcp], self.bytes - ETHERNET);
        let sum = pseudo_header(&self.header[ETHERNET..tcp], self.bytes - tcp).folded();
        self.header[tcp + 16..tcp + 18].copy_from_slice(&sum);
        let offload = OffloadHeader {
            needs_checksum: true,
            segments: if is_v4 { GSO_TCPV4 } else { GSO_TCPV6 },
            header_bytes: self.header_bytes as u16,
            segment_bytes: self.segment as u16,
            checksum_start: tcp as u16,
            checksum_offset: 16,
        };
        debug_assert!(offload.segments != GSO_NONE);
        (offload, &self.header[..self.header_bytes])
    }
}

/// Parses a TCP segment with data and no flags except ACK and PSH, in an IP packet without options.
fn parse(deliver: &Deliver) -> Option<Segment> {
    let body = &deliver.body[..];
    let (ip, total) = match deliver.header[12..] {
        [0x08, 0x00] => {
            let fragment = body.get(6..8)?;
            let plain = body[0] == 0x45 && body.get(9) == Some(&6);
            if !plain || fragment[0] & 0xbf != 0 || fragment[1] != 0 {
                return None;
            }
            (20, usize::from(u16::from_be_bytes([body[2], body[3]])))
        }
        [0x86, 0xdd] => {
            if body.first()? >> 4 != 6 || body.get(6) != Some(&6) {
                return None;
            }
            (40, 40 + usize::from(u16::from_be_bytes([body[4], body[5]])))
        }
        _ => return None,
    };
    let tcp = body.get(ip..total)?;
    let headers = usize::from(tcp.get(12)? >> 4) * 4;
    if headers < 20 || tcp.len() <= headers || tcp[13] & !PSH != 0x10 {
        return None;
    }
    Some(Segment {
        tcp: ETHERNET + ip,
        data: ETHERNET + ip + headers,
        sequence: u32::from_be_bytes(*tcp[4..].first_chunk()?),
        end: ETHERNET + total,
    })
}

/// Whether the TCP checksum of a frame is correct.
fn is_sound(deliver: &Deliver, tcp: usize, end: usize) -> bool {
    let (tcp, end) = (tcp - ETHERNET, end - ETHERNET);
    let sum: Sum = pseudo_header(&deliver.body, end - tcp).add(&deliver.body[tcp..end]);
    sum.finish() == [0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::tests::{frames, offload, tcp_packet};

    fn deliver(frame: &Bytes) -> Deliver {
        Deliver {
            header: *frame.first_chunk().unwrap(),
            body: frame.slice(ETHERNET..),
        }
    }

    /// Joins frames, and returns the lengths of the pieces of each packet.
    fn joined(frames: &[Bytes]) -> Vec<usize> {
        let mut counts = Vec::new();
        let mut packet = Packet::new();
        for frame in frames {
            if counts.is_empty() || !packet.join(&deliver(frame)) {
                packet.start(deliver(frame));
                counts.push(0);
            }
            *counts.last_mut().unwrap() = packet.pieces.len();
        }
        counts
    }

    fn stream(version: u8, bytes: usize) -> Vec<Bytes> {
        let mut packet = tcp_packet(version, bytes);
        let tcp = ETHERNET + if version == 4 { 20 } else { 40 };
        packet[tcp + 13] = 0x10 | PSH;
        frames(offload(version, 1400), &packet)
    }

    #[test]
    fn split_segments_are_joined_again() {
        for version in [4, 6] {
            let tcp = ETHERNET + if version == 4 { 20 } else { 40 };
            let mut whole = tcp_packet(version, 10_000);
            whole[tcp + 13] = 0x10 | PSH;
            let frames = stream(version, 10_000);
            let mut packet = Packet::new();
            packet.start(deliver(&frames[0]));
            assert!(frames[1..].iter().all(|frame| packet.join(&deliver(frame))));
            let pieces: Vec<u8> = packet.pieces.concat();
            let (header, headers) = packet.finish();
            assert_eq!(
                (header.segment_bytes, header.header_bytes),
                (1400, tcp as u16 + 32)
            );
            assert_eq!(pieces, whole[tcp + 32..]);
            let sum = pseudo_header(&whole[ETHERNET..], whole.len() - tcp).folded();
            whole[tcp + 16..tcp + 18].copy_from_slice(&sum);
            assert_eq!(headers, &whole[..tcp + 32]);
        }
    }

    #[test]
    fn gaps_damage_and_other_streams_end_a_packet() {
        let mut frames = stream(4, 10_000);
        assert_eq!(joined(&frames), [8]);
        frames.remove(3);
        assert_eq!(joined(&frames), [3, 4]);
        let mut frames = stream(4, 10_000);
        let mut damaged = frames[3].to_vec();
        damaged[700] ^= 1;
        frames[3] = damaged.into();
        assert_eq!(joined(&frames), [3, 1, 4]);
        let mut frames = stream(4, 4000);
        frames.extend(stream(4, 4000));
        assert_eq!(joined(&frames), [3, 3]);
        assert_eq!(
            joined(&[Bytes::from_static(&[0; 60]), Bytes::from_static(&[0; 60])]),
            [1, 1]
        );
    }

    #[test]
    fn padding_does_not_count_as_data() {
        let frames = stream(4, 2);
        let mut padded = frames[0].to_vec();
        padded.resize(80, 7);
        let mut packet = Packet::new();
        packet.start(deliver(&padded.into()));
        assert_eq!(packet.pieces[0].len(), 2);
    }
}
