//! Any bytes as a request for a durable call: decoding ends without a panic and without memory
//! beyond its input. A request that is accepted encodes to bytes that decode and encode to
//! themselves.

use farcall_rpc_proto::SubmitRequest;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(submission) = SubmitRequest::decode(data) else {
        return;
    };
    let mut once = Vec::new();
    submission.encode(&mut once);
    let again = SubmitRequest::decode(&once).expect("what was encoded here decodes");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(once, twice);
}
