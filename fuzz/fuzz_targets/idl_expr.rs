//! Feeds any interface with any scalars to the evaluation of expressions and layouts. Every
//! expression must have a value or an error, and every layout must be consistent or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farcall_corpus::idl_expr::run(data));
