#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::trunk_control::run(data));
