//! Feeds any text to the parser of plans. It must stay within its bounds, and a plan that it reads
//! must print to text that reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::plan_parse::run(data));
