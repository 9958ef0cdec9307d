//! Feeds any bytes to the decoders of a metaserver's messages and records, and what they read to a
//! directory. Nothing may panic, and a message must encode to the bytes that were read.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::directory_message::run(data));
