//! Arbitrary bytes as a segment.
#![no_main]

#[path = "../../crates/core/tests/hostile/decoders.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoders::run("segment", bytes));
