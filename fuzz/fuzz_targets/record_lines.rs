//! Feeds any bytes to the reader of records of calls. It must not panic, and each line that it
//! reads must be a line again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::record_lines::run(data));
