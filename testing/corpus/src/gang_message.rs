//! Any bytes as a message of a front end or a daemon: they are read or refused. A message that is
//! read encodes to bytes that read the same.

use farcall_gang_proto::Message;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(Some((message, length))) = Message::decode(data) else {
        return;
    };
    assert!(length <= data.len());
    let mut written = Vec::new();
    message.encode(&mut written);
    // NaN is not equal to itself.
    if !format!("{message:?}").contains("NaN") {
        let (again, _) = Message::decode(&written).unwrap().unwrap();
        assert_eq!(again, message);
    }
}
