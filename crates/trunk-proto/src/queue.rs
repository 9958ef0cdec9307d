//! The queue of frames for one peer. It applies active queue management before frames get their
//! numbers: CoDel (RFC 8289), which marks packets that support ECN (RFC 3168) and drops others.

use crate::address::Packed;
use crate::{MILLISECOND, Nanos};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The acceptable waiting time.
const TARGET: Nanos = 4 * MILLISECOND;
/// The time that senders need to react: some round trips of a local network with a full queue.
const INTERVAL: Nanos = 30 * MILLISECOND;
/// A queue of at most this many bytes is never too long: two full segments.
const SHORT: usize = 3028;
/// The fewest bytes that a frame counts for: the shortest payload of Ethernet (IEEE 802.3). It
/// bounds the number of frames that have no body, or hardly any.
const SHORTEST: usize = 46;

/// Bytes that a frame takes in the queue.
fn cost(frame: &Packed) -> usize {
    frame.body.len().max(SHORTEST)
}

#[derive(Debug)]
struct Waiting {
    since: Nanos,
    frame: Packed,
}

/// The frames for one peer in order of arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    limit: usize,
    /// When the waiting time will have exceeded the target for a whole interval.
    above_until: Option<Nanos>,
    dropping: bool,
    next_drop: Nanos,
    count: u32,
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
}

impl Queue {
    /// Creates a queue of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Queue {
        Queue {
            waiting: VecDeque::new(),
            bytes: 0,
            limit,
            above_until: None,
            dropping: false,
            next_drop: 0,
            count: 0,
            dropped: 0,
            marked: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the frame, or drops it if the queue is full.
    pub(crate) fn push(&mut self, now: Nanos, frame: Packed) {
        let bytes = cost(&frame);
        if self.bytes + bytes > self.limit {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes;
        self.waiting.push_back(Waiting { since: now, frame });
    }

    /// Takes the next frame to send.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Packed> {
        let (mut frame, late) = self.take(now)?;
        if !self.dropping {
            if late {
                self.dropping = true;
                // Starts near the previous drop rate if dropping ended recently.
                let recent = now < self.next_drop.saturating_add(8 * INTERVAL);
                self.count = if recent && self.count > 2 {
                    self.count - 2
                } else {
                    1
                };
                frame = self.signal(now, frame)?;
                self.next_drop = now + INTERVAL / root(self.count);
            }
            return Some(frame);
        }
        let mut late = late;
        while late && now >= self.next_drop {
            self.count += 1;
            self.next_drop += INTERVAL / root(self.count);
            match mark(&frame) {
                Some(marked) => {
                    self.marked += 1;
                    return Some(marked);
                }
                None => self.dropped += 1,
            }
            (frame, late) = self.take(now)?;
        }
        self.dropping = late;
        Some(frame)
    }

    /// Marks the frame, or drops it and takes the next one.
    fn signal(&mut self, now: Nanos, frame: Packed) -> Option<Packed> {
        if let Some(marked) = mark(&frame) {
            self.marked += 1;
            return Some(marked);
        }
        self.dropped += 1;
        self.take(now).map(|(frame, _)| frame)
    }

    /// Takes the first frame, and tells whether frames have waited too long for an interval.
    fn take(&mut self, now: Nanos) -> Option<(Packed, bool)> {
        let Some(Waiting { since, frame }) = self.waiting.pop_front() else {
            self.above_until = None;
            self.dropping = false;
            return None;
        };
        self.bytes -= cost(&frame);
        if now.saturating_sub(since) < TARGET || self.bytes <= SHORT {
            self.above_until = None;
            return Some((frame, false));
        }
        let until = *self.above_until.get_or_insert(now + INTERVAL);
        Some((frame, now >= until))
    }
}

/// The integer square root, at least 1.
fn root(value: u32) -> Nanos {
    u64::from(value.isqrt().max(1))
}

/// Returns the frame with its IP packet marked "congestion experienced", or none if it does not
/// support ECN.
fn mark(frame: &Packed) -> Option<Packed> {
    let at = match frame.address {
        crate::address::Address::Whole => crate::address::HEADER_BYTES,
        _ => 0,
    };
    let packet = frame.body.get(at..)?;
    let mut bytes = Vec::new();
    match frame.protocol {
        0x0800 if packet.len() >= 20 && packet[1] & 3 != 0 => {
            bytes.extend_from_slice(&frame.body);
            let packet = &mut bytes[at..];
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            // RFC 1624: the new header checksum follows from the change of one word.
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let mut sum = u32::from(!sum) + u32::from(!before) + u32::from(after);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        0x86dd if packet.len() >= 40 && packet[1] & 0x30 != 0 => {
            bytes.extend_from_slice(&frame.body);
            bytes[at + 1] |= 0x30;
        }
        _ => return None,
    }
    Some(Packed {
        body: bytes.into(),
        ..*frame
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use bytes::Bytes;

    fn frame(protocol: u16, body: &[u8]) -> Packed {
        Packed {
            address: Address::Unicast,
            protocol,
            body: Bytes::copy_from_slice(body),
        }
    }

    fn ip_sum(header: &[u8]) -> u16 {
        let sum: u32 = header
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    #[test]
    fn a_persistent_queue_is_shortened() {
        let mut queue = Queue::new(1 << 20);
        let mut now = 0;
        // Two frames come for one that leaves every 120 us.
        for _ in 0..4000 {
            queue.push(now, frame(0, &[0; 1500]));
            queue.push(now, frame(0, &[0; 1500]));
            queue.pop(now);
            now += 120_000;
        }
        assert!(queue.dropped > 50, "{}", queue.dropped);
        assert!(queue.bytes() <= 1 << 20);
    }

    #[test]
    fn a_burst_is_carried_without_loss() {
        let mut queue = Queue::new(1 << 20);
        (0..100).for_each(|_| queue.push(0, frame(0, &[0; 1500])));
        assert_eq!((0..100).filter_map(|i| queue.pop(i * 120_000)).count(), 100);
        assert!(queue.pop(0).is_none());
    }

    #[test]
    fn frames_without_a_body_are_bounded() {
        let mut queue = Queue::new(10 * SHORTEST);
        (0..100).for_each(|_| queue.push(0, frame(0, &[])));
        assert_eq!((queue.bytes(), queue.dropped), (10 * SHORTEST, 90));
        assert_eq!((0..100).filter_map(|_| queue.pop(0)).count(), 10);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn packets_with_ecn_support_are_marked() {
        let mut v4 = [0; 40];
        v4[..2].copy_from_slice(&[0x45, 2]);
        v4[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = ip_sum(&v4[..20]);
        v4[10..12].copy_from_slice(&sum.to_be_bytes());
        let marked = mark(&frame(0x0800, &v4)).unwrap();
        assert_eq!(marked.body[1], 3);
        assert_eq!(ip_sum(&marked.body[..20]), 0);
        let mut v6 = [0; 60];
        v6[1] = 0x10;
        assert_eq!(mark(&frame(0x86dd, &v6)).unwrap().body[1], 0x30);
        v6[1] = 0;
        assert!(mark(&frame(0x86dd, &v6)).is_none());
        assert!(mark(&frame(0x0800, &v4[..19])).is_none());
        assert!(mark(&frame(0x0806, &v4)).is_none());
    }
}
