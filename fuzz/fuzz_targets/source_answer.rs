//! Feeds any bytes to the server as answers of the connector that reads sources. It must not panic.
//! What it accepts must be bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::source_answer::run(data));
