//! Feeds any frames to a trunk that has a peer, with and without a key. It must not panic, its
//! memory must be bounded, and each frame of the peer must be delivered at most once. With a key no
//! other frame must be delivered.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_frame::run(data));
