#![no_main]

#[path = "../src/idl_expr.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
