#![no_main]

#[path = "../src/directory_message.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
