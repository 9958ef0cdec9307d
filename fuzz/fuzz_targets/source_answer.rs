#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::source_answer::run(data));
