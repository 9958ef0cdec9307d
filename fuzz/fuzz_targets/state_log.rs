#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::state_log::run(data));
