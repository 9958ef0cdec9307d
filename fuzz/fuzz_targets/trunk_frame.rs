//! Feeds any frames to a trunk that has a peer. It must not panic, its memory must be bounded, and
//! each frame of the peer must be delivered at most once.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_frame::run(data));
