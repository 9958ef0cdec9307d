//! Feeds any bytes to the decoder of calls. It must not panic or take memory beyond its input, and
//! a call must encode to bytes that decode and encode to themselves.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::rpc_call::run(data));
