//! Feeds any bytes to what reads packets of links and of the virtual interface of a trunk. It must
//! not panic, and nothing of a frame may be lost or come twice.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_packet::run(data));
