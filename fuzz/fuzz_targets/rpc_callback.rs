//! Feeds any bytes to the decoders of callbacks and their answers. They must not panic or take
//! memory beyond their input, and a message must encode to bytes that decode to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::rpc_callback::run(data));
