//! Hostile bytes: whatever a decoder is given, it neither panics nor allocates
//! more than the bytes could stand for, and it says what is wrong.
//!
//! The allocator counts what the whole process takes. So this is a process of
//! its own, with a single test in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod decoders;
#[path = "../formats/samples.rs"]
mod samples;

use std::alloc::System;

use cap::Cap;
use headwater_core::format::chunk::Codec;
use headwater_core::format::{
    archive, change, chunk, head, receipts, record, request, segment, snapshot, snapshot_page,
};
use proptest::prelude::*;

use decoders::{DECODERS, Decoder};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What a byte may cost: a list of the smallest parts takes some ten times the
/// space of its bytes, and grows by doubling.
const BYTES_PER_BYTE: usize = 200;
/// What nothing at all may cost: an error, a few maps.
const BYTES_FLAT: usize = 16 << 10;

fn check(decoder: &Decoder, bytes: &[u8]) {
    let before = ALLOCATOR.total_allocated();
    let result = (decoder.decode)(bytes);
    let cost = ALLOCATOR.total_allocated() - before;
    let may = BYTES_FLAT + BYTES_PER_BYTE * bytes.len();
    assert!(cost <= may, "{}: {cost} bytes were allocated for {}", decoder.name, bytes.len());
    if let Err(what) = result {
        assert!(!what.is_empty(), "{} does not say what is wrong", decoder.name);
    }
}

/// A valid object for each decoder, in their order.
fn valid() -> Vec<Vec<u8>> {
    let block = chunk::encode_block(&samples::entries());
    vec![
        head::encode(&samples::head_with_address()),
        record::encode(&samples::record()),
        change::encode(&samples::change()),
        segment::encode(&samples::segment()),
        snapshot::encode(&samples::snapshot_in_pages()),
        snapshot_page::encode(&samples::chunks()),
        chunk::encode_envelope(Codec::Plain, block.len(), &block),
        block,
        receipts::encode(&samples::receipts()),
        request::encode(&samples::request()),
        archive::encode(&samples::archive()),
        head::encode(&samples::head()),
    ]
}

/// One thing that is done to bytes. Places are taken modulo the length.
#[derive(Clone, Debug)]
enum Edit {
    Flip(usize, u8),
    /// A length or a count that is not true.
    Number(usize, u32),
    Cut(usize),
    Insert(usize, Vec<u8>),
    /// A part once more, somewhere else.
    Repeat(usize, usize, usize),
    /// Digits, where JSON has a number.
    Digits(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let number =
        prop_oneof![Just(u32::MAX), Just(i32::MAX as u32), 0..300_u32, any::<u32>(), Just(1 << 24)];
    prop_oneof![
        (any::<usize>(), 1..=255_u8).prop_map(|(at, mask)| Edit::Flip(at, mask)),
        (any::<usize>(), number).prop_map(|(at, number)| Edit::Number(at, number)),
        any::<usize>().prop_map(Edit::Cut),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<usize>(), any::<usize>(), any::<usize>())
            .prop_map(|(from, len, to)| Edit::Repeat(from, len, to)),
        any::<usize>().prop_map(Edit::Digits),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    match edit {
        Edit::Flip(at, mask) => bytes[at % len] ^= mask,
        Edit::Number(at, number) => {
            let at = at % len;
            let end = (at + 4).min(len);
            bytes[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
        }
        Edit::Cut(at) => bytes.truncate(at % len),
        Edit::Insert(at, new) => {
            let at = at % len;
            bytes.splice(at..at, new.iter().copied());
        }
        Edit::Repeat(from, count, to) => {
            let from = from % len;
            let part = bytes[from..(from + count % 200).min(len)].to_vec();
            let to = to % len;
            bytes.splice(to..to, part);
        }
        Edit::Digits(at) => {
            let digits: Vec<_> = (0..len).filter(|it| bytes[*it].is_ascii_digit()).collect();
            if let Some(at) = digits.get(at % digits.len().max(1)).copied() {
                bytes.splice(at..=at, *b"18446744073709551616");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        for decoder in DECODERS {
            check(decoder, &bytes);
        }
    }

    fn any_bytes_that_begin_well(
        begin in 0..20_usize,
        rest in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        for (decoder, valid) in DECODERS.iter().zip(valid()) {
            let bytes = [&valid[..begin.min(valid.len())], &rest].concat();
            check(decoder, &bytes);
        }
    }

    fn valid_bytes_with_something_done_to_them(
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        for (decoder, mut bytes) in DECODERS.iter().zip(valid()) {
            for edit in &edits {
                apply(&mut bytes, edit);
                check(decoder, &bytes);
            }
        }
    }

    fn one_object_in_the_place_of_another(at in 0..12_usize, edits in prop::collection::vec(edit(), 0..3)) {
        let mut bytes = valid().swap_remove(at);
        for edit in &edits {
            apply(&mut bytes, edit);
        }
        for decoder in DECODERS {
            check(decoder, &bytes);
        }
    }
}

/// A count of four thousand million parts in an object of forty bytes: refused
/// before anything is made room for.
fn every_place_may_hold_the_largest_number() {
    for (decoder, valid) in DECODERS.iter().zip(valid()) {
        for at in 0..valid.len().saturating_sub(4) {
            for number in [u32::MAX, 1 << 30, 1 << 20] {
                let mut bytes = valid.clone();
                bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
                check(decoder, &bytes);
            }
        }
    }
}

fn what_is_valid_is_read() {
    let all = valid();
    assert_eq!(all.len(), DECODERS.len());
    for (decoder, valid) in DECODERS.iter().zip(&all) {
        assert_eq!((decoder.decode)(valid), Ok(()), "{}", decoder.name);
        decoders::run(decoder.name, valid);
    }
}

#[test]
fn hostile_bytes_neither_stop_nor_bloat_a_decoder() {
    what_is_valid_is_read();
    every_place_may_hold_the_largest_number();
    any_bytes_at_all();
    any_bytes_that_begin_well();
    valid_bytes_with_something_done_to_them();
    one_object_in_the_place_of_another();
}
