#![no_main]

#[path = "../src/rpc_submission.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
