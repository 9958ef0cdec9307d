//! Feeds any texts, one a line, to the decoders of the messages of a proof. Each must be accepted
//! as a whole or refused, and no proof that was guessed may be accepted.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::scram_message::run(data));
