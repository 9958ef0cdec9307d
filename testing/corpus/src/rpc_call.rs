//! Any bytes as a call: decoding ends without a panic and without memory beyond its input. A call
//! that is accepted encodes to bytes that decode and encode to themselves.

use farcall_rpc_proto::Call;

/// Most entries in each list of a call.
const MOST: usize = 4096;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(call) = Call::decode(data) else {
        return;
    };
    assert!(call.scalars.len() <= MOST && call.elements.len() <= MOST);
    let mut once = Vec::new();
    call.encode(&mut once);
    let again = Call::decode(&once).expect("what was encoded here decodes");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(once, twice);
}
