//! Any frames to a trunk that has a peer: no panic, bounded memory, and each frame of the peer is
//! delivered at most once. With a key, nothing but the peer's frames is delivered.
//!
//! The input is a list of frames: a byte that chooses link, source and pause, a length, the bytes.
//! A frame that begins with 0xff is replaced by a genuine frame of the peer. One that begins with
//! 0xfe is the newest genuine frame, changed by the other bytes.

use bytes::Bytes;
use farcall_trunk_proto::{
    Config, Kind, Limits, LinkConfig, Mac, Nanos, Policy, Shim, Transmit, Trunk,
};

const MILLISECOND: Nanos = 1_000_000;

fn trunk(host: u8, key: Option<&[u8]>) -> Trunk {
    let link = |link: u8| LinkConfig {
        name: String::new(),
        address: Mac([2, 0, 0, 0, link, host]),
        rate: 12.5e6,
        mtu: 1500,
    };
    let limits = Limits {
        peers: 4,
        queue_bytes: 1 << 16,
        held_frames: 32,
        held_bytes: 1 << 16,
        ring_frames: 32,
    };
    let config = Config {
        node: Mac([2, 0, 0, 0, 9, host]),
        links: vec![link(0), link(1)],
        policy: Policy::MaxMin,
        repair: true,
        order: true,
        counts_only: false,
        span: 50 * MILLISECOND,
        key: key.map(<[u8]>::to_vec),
        session: 7 + u32::from(host),
        seed: [host; 32],
        limits,
    };
    Trunk::new(config, MILLISECOND).expect("a good configuration")
}

fn deliver(now: Nanos, frames: Vec<Transmit>, from: u8, to: &mut Trunk) {
    for frame in frames {
        let source = Mac([2, 0, 0, 0, frame.link as u8, from]);
        let payload: Bytes = [&frame.header[..], &frame.body].concat().into();
        to.handle_frame(now, frame.link, source, &payload, now);
    }
}

fn drain(now: Nanos, trunk: &mut Trunk) -> Vec<Transmit> {
    let mut frames = Vec::new();
    while let Some(frame) = trunk.poll_transmit(now) {
        frames.push(frame);
        assert!(frames.len() < 10_000, "frames without end");
    }
    frames
}

/// The body of the target.
pub fn run(data: &[u8]) {
    run_with(data, None);
    run_with(data, Some(b"a key of the laboratory"));
}

/// The newest data frame, changed by these bytes.
fn changed(newest: &(usize, Bytes), change: &[u8]) -> Bytes {
    let mut frame = newest.1.to_vec();
    frame
        .iter_mut()
        .zip(change)
        .for_each(|(byte, by)| *byte ^= by);
    frame.into()
}

/// Returns the number of frames that were delivered.
fn run_with(mut data: &[u8], key: Option<&[u8]>) -> u64 {
    let (mut own, mut peer) = (trunk(0, key), trunk(1, key));
    let mut newest = (0, Bytes::new());
    let mut now = MILLISECOND;
    let mut delivered = 0_u64;
    let mut offered = 0_u64;
    let mut steps = 0;
    while steps < 12 || !data.is_empty() {
        steps += 1;
        now += MILLISECOND * if steps < 12 { 10 } else { 1 };
        // First the two trunks find each other.
        if steps >= 12 {
            let [choice, length, rest @ ..] = data else {
                break;
            };
            let (frame, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            data = rest;
            now += Nanos::from(choice >> 4) * 3 * MILLISECOND;
            if frame.first() == Some(&0xff) {
                offered += 1;
                let mut honest = vec![2, 0, 0, 0, 9, 0, 2, 0, 0, 0, 9, 1, 8, 0];
                honest.extend(frame);
                peer.handle_outgoing(now, &honest.into());
            } else if let [0xfe, change @ ..] = frame {
                let source = Mac([2, 0, 0, 0, newest.0 as u8, 1]);
                let payload = changed(&newest, change);
                own.handle_frame(now, newest.0, source, &payload, now);
            } else {
                let source = Mac([2, 0, 0, 0, choice & 1, choice >> 1 & 3]);
                let payload = Bytes::copy_from_slice(frame);
                own.handle_frame(now, usize::from(choice & 1), source, &payload, now);
            }
        }
        for trunk in [&mut own, &mut peer] {
            if trunk.poll_timeout(now) <= now {
                trunk.handle_timeout(now);
            }
        }
        let (ours, theirs) = (drain(now, &mut own), drain(now, &mut peer));
        for frame in &theirs {
            let payload: Bytes = [&frame.header[..], &frame.body].concat().into();
            if Shim::decode(&payload).is_ok_and(|shim| shim.kind != Kind::Control) {
                newest = (frame.link, payload);
            }
        }
        deliver(now, ours, 0, &mut peer);
        deliver(now, theirs, 1, &mut own);
        while own.poll_deliver().is_some() {
            delivered += 1;
        }
        let status = own.status();
        assert!(status.peers.len() <= 4);
        assert!(status.peers.iter().all(|peer| peer.held_frames <= 33));
    }
    // Without a key, forged data frames may be delivered too, but none of them twice.
    let forged = if key.is_none() { steps as u64 } else { 0 };
    assert!(delivered <= offered + forged);
    delivered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_frames_reach_the_decoder_and_are_not_delivered_with_a_key() {
        let genuine = [0, 4, 0xff, 1, 2, 3];
        let copy = [0, 1, 0xfe];
        // The next numbers: in the peer's order, and on the link.
        let changed = [&[0, 13, 0xfe][..], &[0; 7], &[1, 0, 0, 0, 1]].concat();
        let input = [&genuine[..], &copy, &changed].concat();
        assert_eq!(run_with(&input, Some(b"a key of the laboratory")), 1);
        assert_eq!(run_with(&input, None), 2);
    }
}
