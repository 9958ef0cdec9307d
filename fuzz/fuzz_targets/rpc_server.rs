#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::rpc_server::run(data));
