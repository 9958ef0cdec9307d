//! Feeds any bytes to the interface of the process manager of MPI, as two processes would send
//! them. They are answered or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::gang_pmi::run(data));
