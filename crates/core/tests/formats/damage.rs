//! Damaged objects, and objects of newer builds. In the system each object's
//! hash is verified first; a decoder must be safe all the same, since nothing
//! names the hash of a head, and a writer may be hostile.

use bytes::Bytes;
use headwater_core::format::chunk::{self, Codec, Envelope};
use headwater_core::format::head::HeadDecodeError;
use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts, SnapshotIndex};
use headwater_core::format::{self, snapshot, snapshot_page};
use headwater_core::hash::ContentHash;

use super::{KINDS, Kind, Refusal, samples};

/// Either refused, or read as what the very same bytes say.
fn check(kind: &Kind, damaged: Vec<u8>, how: &str) {
    let bytes = Bytes::from(damaged);
    if let Ok(again) = (kind.again)(bytes.clone()) {
        assert!(again == bytes, "{}, {how}: read as something that it is not", kind.file);
    }
}

/// The same head with the checksum of what is in it: whoever writes a head can
/// make one.
fn sealed(head: &str) -> Vec<u8> {
    let at = head.rfind(r#","checksum":"#).unwrap();
    let object = format!("{}}}", &head[..at]);
    let checksum = ContentHash::of(object.as_bytes()).to_hex();
    format!(r#"{},"checksum":"blake3:{checksum}"}}"#, &head[..at]).into_bytes()
}

/// A head that was altered is refused, with the checksum that it had and with a
/// new one. Why, in the second case.
fn refused(altered: &str) -> HeadDecodeError {
    assert!(format::head::decode(altered.as_bytes()).is_err(), "not its checksum: {altered}");
    let refused = format::head::decode(&sealed(altered));
    refused.expect_err("it must be refused with any checksum")
}

#[test]
fn a_truncated_object_is_refused_wherever_it_ends() {
    for kind in KINDS {
        let whole = Bytes::from((kind.encode_sample)());
        for len in 0..whole.len() {
            let result = (kind.again)(whole.slice(..len));
            assert!(result.is_err(), "{} of {len} bytes is taken for whole", kind.file);
        }
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    for kind in KINDS {
        for extra in [&b"\0"[..], b"{}", b"x"] {
            let mut bytes = (kind.encode_sample)();
            bytes.extend_from_slice(extra);
            assert!((kind.again)(bytes.into()).is_err(), "{} has more than all", kind.file);
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_read_as_what_it_says() {
    for kind in KINDS {
        let whole = (kind.encode_sample)();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                // A head is what everything else is verified by: it verifies itself.
                let is_head = kind.file.starts_with("head");
                assert!(!is_head || (kind.again)(damaged.clone().into()).is_err(), "{bit} of {at}");
                check(kind, damaged, &format!("bit {bit} of byte {at}"));
            }
        }
    }
}

#[test]
fn no_flipped_bit_of_a_head_goes_unnoticed() {
    let kind = KINDS.iter().find(|it| it.file == "head-with-address.json").unwrap();
    let whole = (kind.encode_sample)();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let result = (kind.again)(damaged.into());
            assert!(result.is_err(), "bit {bit} of byte {at} is taken for another head");
        }
    }
}

#[test]
fn huge_numbers_are_refused_or_read_as_what_they_say() {
    for kind in KINDS.iter().filter(|it| !it.is_json()) {
        let whole = (kind.encode_sample)();
        for len in [4, 8] {
            for at in 4..whole.len() - len {
                for byte in [0, 0x7f, 0x80, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at..at + len].fill(byte);
                    check(kind, damaged, &format!("{len} times {byte} at {at}"));
                }
            }
        }
    }
}

#[test]
fn numbers_at_their_end_in_a_head_are_no_panic() {
    let head = String::from_utf8(format::head::encode(&samples::head())).unwrap();
    for number in ["0", "1", "18446744073709551615", "18446744073709551616", "-1", "1e3", "null"] {
        for (at, field) in head.match_indices("\":").map(|it| (it.0 + 2, &head[..it.0])) {
            let len = head[at..].find(|it: char| !it.is_ascii_digit()).unwrap();
            if 0 < len {
                let damaged = [&head[..at], number, &head[at + len..]].concat();
                if let Ok(read) = format::head::decode(&sealed(&damaged)) {
                    // What is accepted can also be followed.
                    let next = (read.revision.next(), read.state_version.next());
                    assert!(next.0 > read.revision, "{field}");
                }
            }
        }
    }
}

#[test]
fn a_newer_format_is_reported_as_newer_and_not_as_damage() {
    for kind in KINDS {
        let whole = (kind.encode_sample)();
        let newer = if kind.is_json() {
            let text = String::from_utf8(whole.clone()).unwrap();
            // A newer build knows fields that this one does not.
            let text = text.replacen("\"format\":1", "\"format\":2,\"novelty\":[{}]", 1);
            text.into_bytes()
        } else {
            let mut bytes = whole.clone();
            bytes[3] = 2;
            bytes.truncate(9);
            bytes
        };
        assert_eq!((kind.again)(newer.into()), Err(Refusal::TooNew(2)), "{}", kind.file);
    }
}

#[test]
fn a_format_that_never_was_is_refused() {
    for kind in KINDS {
        let mut bytes = (kind.encode_sample)();
        let zero = if kind.is_json() {
            let text = String::from_utf8(bytes).unwrap();
            text.replacen("\"format\":1", "\"format\":0", 1).into_bytes()
        } else {
            bytes[3] = 0;
            bytes
        };
        assert!(matches!((kind.again)(zero.into()), Err(Refusal::Other(_))), "{}", kind.file);
    }
}

#[test]
fn an_address_of_a_head_that_leads_elsewhere_is_refused() {
    let with = String::from_utf8(format::head::encode(&samples::head_with_address())).unwrap();
    for altered in [
        with.replacen("https://writer-7f", "ftp://writer-7f", 1),
        with.replacen(":7410\"", ":7410/elsewhere\"", 1),
    ] {
        assert_ne!(altered, with);
        assert!(matches!(refused(&altered), HeadDecodeError::Address(_)), "{altered}");
    }
    let without = with.replacen("\"https://writer-7f.headwater:7410\"", "null", 1);
    assert_ne!(without, with);
    assert!(format::head::decode(without.as_bytes()).is_err(), "not its checksum: {without}");
}

#[test]
fn an_object_of_another_kind_is_refused() {
    for kind in KINDS {
        // Two samples of an index are of one kind, which four bytes tell.
        let magic = |it: &Kind| (it.encode_sample)()[..4].to_vec();
        for other in KINDS.iter().filter(|it| magic(it) != magic(kind)) {
            let bytes = (other.encode_sample)();
            assert!((kind.again)(bytes.into()).is_err(), "{} as {}", other.file, kind.file);
        }
    }
}

#[test]
fn a_field_that_is_not_understood_is_refused() {
    for kind in KINDS.iter().filter(|it| it.is_json()) {
        let text = String::from_utf8((kind.encode_sample)()).unwrap();
        let text = text.replacen("\"format\":1", "\"format\":1,\"novelty\":0", 1);
        assert!(matches!((kind.again)(text.into()), Err(Refusal::Other(_))), "{}", kind.file);
    }
}

#[test]
fn a_head_whose_parts_are_of_another_shape_is_refused() {
    let text = String::from_utf8(format::head::encode(&samples::head())).unwrap();
    for (before, after) in [
        ("\"archive\":{", "\"archive\":{\"novelty\":1,"),
        ("\"pins\":[", "\"pins\":[{\"version\":1},"),
        ("\"name\":\"audit\"", "\"name\":\"a b\""),
        ("\"retention\":{", "\"retention\":{\"novelty\":1,"),
        ("\"lifecycle\":\"live\"", "\"lifecycle\":\"paused\""),
    ] {
        let damaged = text.replacen(before, after, 1);
        assert_ne!(damaged, text);
        let is_pin = after.contains("a b");
        assert_eq!(matches!(refused(&damaged), HeadDecodeError::Pin { .. }), is_pin, "{after}");
    }
}

#[test]
fn numbers_in_a_head_that_contradict_each_other_are_refused_with_any_checksum() {
    let head = samples::head();
    let text = String::from_utf8(format::head::encode(&head)).unwrap();
    let number = |field: &str, from: u64, to: u64| {
        let altered =
            text.replacen(&format!("\"{field}\":{from}"), &format!("\"{field}\":{to}"), 1);
        assert_ne!(altered, text, "{field}");
        altered
    };
    let version = head.state_version.get();
    for altered in [
        number("stateVersion", version, version + 1),
        number("stateVersion", version, u64::MAX),
        number("revision", head.revision.get(), 0),
        number("revision", head.revision.get(), u64::MAX),
        number("operationCount", head.operation_count, 0),
        number("sweepFrom", head.sweep_from.get(), head.revision.get() + 1),
    ] {
        assert!(matches!(refused(&altered), HeadDecodeError::Invariant(_)), "{altered}");
    }
}

#[test]
fn a_change_in_a_head_has_one_body() {
    let text = String::from_utf8(format::head::encode(&samples::head())).unwrap();
    let at = text.find("\"inline\":").unwrap();
    let key = "\"key\":\"changes/00000000000000000055-c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1\",";
    let both = [&text[..at], key, &text[at..]].concat();
    let neither = text.replacen("\"inline\"", "\"nothing\"", 1);
    assert!(matches!(refused(&both), HeadDecodeError::Inline { .. }));
    assert!(matches!(refused(&neither), HeadDecodeError::Malformed(_)));
    let longer = text.replacen("\"inline\":\"", "\"inline\":\"AAAA", 1);
    assert!(matches!(refused(&longer), HeadDecodeError::Inline { .. }), "not its length");
    let other = text[at..].find("\",").unwrap() + at;
    let changed = if &text[other - 5..other - 4] == "A" { "B" } else { "A" };
    let other = [&text[..other - 5], changed, &text[other - 4..]].concat();
    assert!(matches!(refused(&other), HeadDecodeError::Invariant(_)), "not its hash");
}

#[test]
fn a_record_names_the_request_that_it_holds() {
    let record = samples::record();
    let other = headwater_core::operation::RequestRecord {
        request_hash: headwater_core::hash::RequestHash::from_bytes([1; 32]),
        ..record
    };
    assert!(format::record::decode(&format::record::encode(&other)).is_err());
}

#[test]
fn an_envelope_says_how_long_its_block_is_within_a_limit() {
    let envelope =
        |len| chunk::decode_envelope(&chunk::encode_envelope(Codec::Zstd, len, b"frame").into());
    let expected =
        Envelope { codec: Codec::Zstd, block_len: 700, payload: Bytes::from_static(b"frame") };
    assert_eq!(envelope(700), Ok(expected));
    assert!(envelope(chunk::BLOCK_BYTES_MAX).is_ok());
    assert!(envelope(chunk::BLOCK_BYTES_MAX + 1).is_err());
    let plain = chunk::encode_envelope(Codec::Plain, 4, b"block");
    assert!(chunk::decode_envelope(&plain.into()).is_err());
}

#[test]
fn entries_out_of_order_are_refused() {
    let entries = samples::entries();
    let swapped = |i: usize, j: usize| {
        let mut entries = entries.clone();
        entries.swap(i, j);
        entries
    };
    let twice = [entries.clone(), vec![entries[3].clone()]].concat();
    for wrong in [swapped(0, 1), swapped(2, 3), twice] {
        assert!(chunk::decode_block(chunk::encode_block(&wrong).into()).is_err());
    }

    let page = samples::receipts();
    let twice = [page.clone(), vec![page[2].clone()]].concat();
    let reversed = page.into_iter().rev().collect();
    for wrong in [twice, reversed] {
        assert!(format::receipts::decode(format::receipts::encode(&wrong).into()).is_err());
    }
}

#[test]
fn chunks_that_contradict_their_index_are_refused() {
    let breaks: [fn(&mut Vec<ChunkRef>); 5] = [
        |it| it.swap(0, 1),
        |it| it[1].first = samples::key("kilo"),
        |it| it[0].last = samples::key("A"),
        |it| it[1].count = 0,
        |it| it.push(it[2].clone()),
    ];
    for (change, number) in breaks.into_iter().zip(0..) {
        let mut chunks = samples::chunks();
        change(&mut chunks);
        let page = snapshot_page::encode(&chunks);
        assert!(snapshot_page::decode(page.into()).is_err(), "{number}");
        let index = SnapshotIndex { parts: Parts::Chunks(chunks), ..samples::snapshot() };
        assert!(snapshot::decode(snapshot::encode(&index).into()).is_err(), "{number}");
    }
    assert!(snapshot_page::decode(snapshot_page::encode(&[]).into()).is_err(), "an empty page");
}

#[test]
fn pages_that_contradict_their_index_are_refused() {
    let breaks: [fn(&mut Vec<PageRef>); 6] = [
        |it| it.swap(0, 1),
        |it| it[1].first = samples::key("kilo"),
        |it| it[0].last = samples::key("A"),
        |it| it[1].chunks = 0,
        |it| it.push(it[2].clone()),
        Vec::clear,
    ];
    for (change, number) in breaks.into_iter().zip(0..) {
        let mut index = samples::snapshot_in_pages();
        let Parts::Pages(pages) = &mut index.parts else { panic!("it is in pages") };
        change(pages);
        assert!(snapshot::decode(snapshot::encode(&index).into()).is_err(), "{number}");
    }
}

#[test]
fn entries_newer_than_their_snapshot_are_refused() {
    for mut index in [samples::snapshot(), samples::snapshot_in_pages()] {
        let newer = index.version.next();
        match &mut index.parts {
            Parts::Chunks(chunks) => chunks[0].newest = newer,
            Parts::Pages(pages) => pages[0].newest = newer,
        }
        assert!(snapshot::decode(snapshot::encode(&index).into()).is_err());
    }
}

#[test]
fn a_table_of_owners_names_those_that_are_used_and_in_order() {
    let whole = snapshot_page::encode(&samples::chunks());
    let (base, parent) = ("\0\0\0\x0ddatasets/base", "\0\0\0\x0fdatasets/parent");
    let with = |table: &[&str]| ["HWp\x01", &table.concat()].concat().into_bytes();
    let right = with(&["\x02", base, parent]);
    let chunks = whole.strip_prefix(&right[..]).unwrap();
    for wrong in [
        with(&["\x02", parent, base]),
        with(&["\x02", base, base]),
        with(&["\x01", base]),
        with(&["\x03", base, parent, "\0\0\0\x01x"]),
        with(&["\x02", base, "\0\0\0\x06chunks"]),
    ] {
        let bytes = [&wrong, chunks].concat();
        assert!(
            snapshot_page::decode(bytes.into()).is_err(),
            "{}",
            String::from_utf8_lossy(&wrong)
        );
    }
}

#[test]
fn a_segment_verifies_each_of_its_entries() {
    let mut segment = samples::segment();
    segment.entries.swap(0, 1);
    let (a, b) = (segment.entries[0].0, segment.entries[1].0);
    let whole = format::segment::encode(&segment);
    assert!(format::segment::decode(whole.into()).is_ok(), "in this order they are right");
    segment.entries[0].0 = b;
    segment.entries[1].0 = a;
    assert!(format::segment::decode(format::segment::encode(&segment).into()).is_err());
}
