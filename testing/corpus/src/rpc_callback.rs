//! Any bytes as a callback or its answer: decoding ends without a panic and without memory beyond
//! its input. A message that is accepted encodes to bytes that decode to the same.

use farcall_rpc_proto::{Callback, CallbackAnswer};

/// Most scalars of a callback.
const MOST: usize = 4096;

/// The body of the target.
pub fn run(data: &[u8]) {
    if let Ok(callback) = Callback::decode(data, false) {
        assert!(callback.scalars.len() <= MOST && callback.data.len() <= data.len());
        let mut once = Vec::new();
        callback.encode(&mut once);
        let again = Callback::decode(&once, false).expect("what was encoded here decodes");
        let mut twice = Vec::new();
        again.encode(&mut twice);
        assert_eq!(once, twice);
    }
    if let Ok(answer) = CallbackAnswer::decode(data, true) {
        assert!(answer.data.len() <= data.len());
    }
}
