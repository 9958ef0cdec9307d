//! Feeds any bytes to the reader of binary GOAL schedules. An error must say a reason. A schedule
//! must run to its end or to a deadlock, as flows and as packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::flow_schedule::run(data));
