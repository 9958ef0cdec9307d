#![no_main]

#[path = "../src/rpc_server.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
