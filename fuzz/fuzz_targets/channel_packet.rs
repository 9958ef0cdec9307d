#![no_main]

#[path = "../src/channel_packet.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
