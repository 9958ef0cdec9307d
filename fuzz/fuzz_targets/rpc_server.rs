//! Feeds any bytes, cut anywhere, to the server's end of a connection. It must not panic, each call
//! must pass through its states in order, and memory must be bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::rpc_server::run(data));
