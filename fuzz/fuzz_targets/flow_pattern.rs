//! Feeds any text to the parser of pattern files. A pattern must run to its end or to a deadlock,
//! and each batch of flows must have rates that are max-min fair.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::flow_pattern::run(data));
