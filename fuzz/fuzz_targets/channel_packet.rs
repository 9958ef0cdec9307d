//! Feeds any bytes to the decoder of channel packets, and each packet that it reads to both ends of
//! a channel. Nothing may panic, and a packet must encode to the bytes that were read.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::channel_packet::run(data));
