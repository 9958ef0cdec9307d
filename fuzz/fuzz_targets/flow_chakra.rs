//! Feeds any bytes to the reader of Chakra execution traces. An error must say a reason. Traces
//! must run to their end or to a deadlock, as flows and as packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::flow_chakra::run(data));
