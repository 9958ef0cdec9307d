//! Feeds any bytes to the decoders of a checkpoint of a gang job: the head of the file, the
//! messages of a process, and the head of its arrays. What is read encodes to the same again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::gang_checkpoint::run(data));
