//! Any bytes in the place of packets: of a link, of the virtual interface, and frames for it. No
//! panic, no more bytes than came in, and frames that are joined keep each byte of their data.
//!
//! The first byte chooses. Packets of a link and of the virtual interface follow whole. Frames are
//! a list: two bytes of length, an Ethernet header, and what follows it.

use bytes::Bytes;
use farcall_trunk_device::decoders::{joined, received, sent};
use farcall_trunk_proto::{Deliver, Mac};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ETHERNET: usize = 14;
/// The longest headers of a segment: Ethernet, and of IP and TCP what their lengths can say.
const HEADERS: usize = ETHERNET + (1 << 16);

/// Runs the decoders on the bytes.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let frames = received(data, OWN);
            let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
            assert!(bytes <= data.len(), "{bytes} bytes of {}", data.len());
        }
        1 => {
            let frames = sent(data);
            assert!(frames.iter().all(|frame| frame.len() <= data.len()));
            assert!(frames.len() <= data.len().max(1), "{}", frames.len());
        }
        _ => {
            let frames = frames(data);
            let longest = frames.iter().map(|frame| frame.body.len()).sum::<usize>();
            let count = frames.len();
            let packets = joined(frames.into_iter());
            assert!(packets.len() <= count.max(1));
            let bytes: usize = packets.iter().map(Vec::len).sum();
            assert!(bytes <= longest + count * ETHERNET);
            assert!(packets.iter().all(|packet| packet.len() <= HEADERS));
        }
    }
}

fn frames(mut data: &[u8]) -> Vec<Deliver> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>()
        && let Some((header, rest)) = rest.split_first_chunk::<ETHERNET>()
    {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (body, rest) = rest.split_at(length);
        frames.push(Deliver {
            header: *header,
            body: Bytes::copy_from_slice(body),
        });
        data = rest;
    }
    frames
}
