//! Feeds any bytes, cut anywhere, to a client that has requests of every kind open. It must not
//! panic. Each request must end at most once, and no call may receive more data than it expects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::rpc_client::run(data));
