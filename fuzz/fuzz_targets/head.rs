//! Arbitrary bytes as a head.
#![no_main]

#[path = "../../crates/core/tests/hostile/decoders.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    decoders::run("head", bytes);
    decoders::run("sealed head", bytes);
});
