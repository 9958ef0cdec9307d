//! Feeds any bytes to the decoder of a trunk's control messages. It must not panic, and a message
//! must encode to the bytes that were read.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_control::run(data));
