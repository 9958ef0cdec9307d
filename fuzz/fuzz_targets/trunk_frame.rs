#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_frame::run(data));
