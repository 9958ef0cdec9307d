//! Feeds any text to the parser of interface files. It must not panic, and a document that it
//! accepts must print to text that parses back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::idl_parse::run(data));
