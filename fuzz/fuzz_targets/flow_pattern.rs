#![no_main]

#[path = "../src/flow_pattern.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
