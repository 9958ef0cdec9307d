//! Feeds any text to the parsers of platforms, patterns and placements. What they build must not
//! take memory in proportion to a number in the text, and routes must stay inside the platform.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::flow_platform::run(data));
