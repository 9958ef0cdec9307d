//! Feeds any bytes to the reader of the JSON of a call through a gateway. It must not panic, and
//! what it accepts must be bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::gateway_arguments::run(data));
