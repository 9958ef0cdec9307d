//! Feeds any bytes to the decoder of the messages between daemons and front ends. A message that it
//! reads must encode to bytes that read the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::gang_message::run(data));
