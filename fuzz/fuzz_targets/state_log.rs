//! Feeds any bytes as the logs of a state folder to the merge, the ledger and the writer of a new
//! log. Nothing may panic, and the new log must have the same calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::state_log::run(data));
