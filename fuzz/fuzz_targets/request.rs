//! Arbitrary bytes as a request.
#![no_main]

#[path = "../../crates/core/tests/hostile/decoders.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoders::run("request", bytes));
