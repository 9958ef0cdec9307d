//! Feeds any text to the parser of GOAL traces. An error must name a line. A trace must run to its
//! end or to a deadlock, as flows and as packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::flow_goal::run(data));
