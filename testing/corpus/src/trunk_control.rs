//! Any bytes as a control message of a trunk: decoding ends without a panic. A message that is read
//! encodes to the same bytes.

use farcall_trunk_proto::Message;

/// The body of the target.
pub fn run(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data);
    }
}
