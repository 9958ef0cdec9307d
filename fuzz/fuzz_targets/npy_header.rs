//! Feeds any bytes to the reader of `.npy` headers. It must not panic. A header must agree with
//! itself, and bytes after it must not matter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::npy_header::run(data));
