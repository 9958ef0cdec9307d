//! Any bytes as a packet: they are read or refused. A packet that is read encodes to the same
//! bytes, and neither end of a channel panics on it.

use farcall_channel_proto::{Config, Header, Receiver, Sender};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok((header, body)) = Header::decode(data) else {
        return;
    };
    assert_eq!(header.encode()[..], data[..data.len() - body.len()]);
    let mut sender = Sender::new(Config::default(), header.epoch);
    for count in 1..5 {
        sender.handle_queued(count, u32::from(count) * 8);
    }
    while sender.poll_transmit(0).is_some() {}
    let freed = sender.handle_answer(&header, 1);
    assert!(freed + sender.queued_bytes() == 80);
    let mut receiver = Receiver::new(header.epoch);
    let verdict = receiver.handle_data(&header, |skip| if skip == 0 { 99 } else { 0 });
    assert!(u64::from(verdict.deliver) == receiver.expected());
}
