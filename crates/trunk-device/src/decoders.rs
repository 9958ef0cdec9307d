//! What reads bytes of others, by itself: for the fuzz target `trunk_packet`. A trunk calls the
//! same functions. The sockets that bring and take the bytes are left out.

use crate::coalesce::Packet;
use crate::packet::form;
use crate::segment::{OFFLOAD_BYTES, OffloadHeader, split};
use bytes::Bytes;
use farcall_trunk_proto::{Deliver, Mac};

/// The frames of a packet that the socket of a link has received, with their sources.
pub fn received(packet: &[u8], own: Mac) -> Vec<(Mac, Bytes)> {
    let mut frames = Vec::new();
    form::parse(packet, own, |source, frame| frames.push((source, frame)));
    frames
}

/// The frames of a packet that the virtual interface has sent.
pub fn sent(packet: &[u8]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    if let Some((header, packet)) = packet.split_first_chunk::<OFFLOAD_BYTES>() {
        split(OffloadHeader::decode(header), packet, |frame| {
            frames.push(frame);
        });
    }
    frames
}

/// The packets that the virtual interface gets for these frames.
pub fn joined(frames: impl Iterator<Item = Deliver>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut end = |packet: &mut Packet| {
        let (_, header) = packet.finish();
        let header = header.to_vec();
        packets.push([&header[..], &packet.pieces.concat()].concat());
    };
    let mut open = None;
    for frame in frames {
        let packet = open.get_or_insert_with(Packet::new);
        if !packet.join(&frame) {
            if !packet.pieces.is_empty() {
                end(packet);
            }
            packet.start(frame);
        }
    }
    if let Some(packet) = &mut open {
        end(packet);
    }
    packets
}
