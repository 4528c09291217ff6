//! What a name or an id may be.

use std::string::{String, ToString as _};

use super::*;

#[test]
fn names_that_are_right() {
    let long = "x".repeat(HistoryName::PART_LEN_BYTES_MAX);
    let longest = ["x".repeat(100), "y".repeat(155)].join("/");
    assert_eq!(longest.len(), HistoryName::LEN_BYTES_MAX);
    for text in ["a", "datasets/events", "A-b_c.d/0", "..a", "a/.b", "changes.old", &long, &longest]
    {
        assert_eq!(HistoryName::parse(text).map(|it| it.to_string()), Ok(text.to_string()));
    }
}

#[test]
fn a_prefix_is_the_beginning_of_a_name() {
    for prefix in ["a", "a/", "a/b", "a/.", "a/..", "changes", "a/data", "x-"] {
        assert!(HistoryName::may_begin_with(prefix), "{prefix:?}");
    }
    for prefix in ["/", "../", "./", "a//", "a b", "changes/", "a/data/"] {
        assert!(!HistoryName::may_begin_with(prefix), "{prefix:?}");
    }
}

#[test]
fn each_rule_of_a_name_is_checked() {
    use HistoryNameError::{
        BadCharacter, DotPart, Empty, EmptyPart, PartTooLong, Reserved, TooLong,
    };
    let long = "x".repeat(HistoryName::LEN_BYTES_MAX + 1);
    let part = String::from;
    let cases = [
        ("", Empty),
        (&long, TooLong { len_bytes: 257 }),
        (&long[..256], PartTooLong { len_bytes: 256 }),
        ("/a", EmptyPart),
        ("a/", EmptyPart),
        ("a//b", EmptyPart),
        ("/", EmptyPart),
        (".", DotPart { part: part(".") }),
        ("a/../b", DotPart { part: part("..") }),
        ("...", DotPart { part: part("...") }),
        ("a./b", DotPart { part: part("a.") }),
        ("a b", BadCharacter { at_byte: 1 }),
        ("ä", BadCharacter { at_byte: 0 }),
        ("a\\b", BadCharacter { at_byte: 1 }),
        ("a\0", BadCharacter { at_byte: 1 }),
        ("a%2e%2e", BadCharacter { at_byte: 1 }),
    ];
    for (text, error) in cases {
        assert_eq!(HistoryName::parse(text), Err(error), "{text:?}");
    }
    for word in keys::RESERVED_PARTS {
        for text in [(*word).to_string(), std::format!("a/{word}"), std::format!("{word}/a")] {
            let error = Reserved { part: part(word) };
            assert_eq!(HistoryName::parse(&text), Err(error), "{text}");
        }
    }
}

#[test]
fn each_rule_of_an_operation_id_is_checked() {
    use OperationIdError::{BadCharacter, Empty, TooLong};
    let long = "x".repeat(OperationId::LEN_BYTES_MAX);
    for text in ["a", "A-b_c.d:0", "..", &long] {
        assert_eq!(OperationId::parse(text).map(|it| it.to_string()), Ok(text.to_string()));
    }
    let longer = "x".repeat(OperationId::LEN_BYTES_MAX + 1);
    let cases = [
        ("", Empty),
        (longer.as_str(), TooLong { len_bytes: 65 }),
        ("a/b", BadCharacter { at_byte: 1 }),
        ("op\n", BadCharacter { at_byte: 2 }),
        ("é", BadCharacter { at_byte: 0 }),
    ];
    for (text, error) in cases {
        assert_eq!(OperationId::parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn random_ids_are_32_lower_case_hex_digits() {
    let bytes = [0, 1, 0x0f, 0xf0, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xab];
    let text = "00010ff0ff05060708090a0b0c0d0eab";
    assert_eq!(HistoryId::from_bytes(bytes).to_string(), text);
    assert_eq!(HistoryId::parse(text), Ok(HistoryId::from_bytes(bytes)));
    assert_eq!(Nonce::parse(text), Ok(Nonce::from_bytes(bytes)));
    for wrong in [
        "",
        &text[1..],
        &text.to_uppercase(),
        &text.replace('f', "g"),
        "ä0010ff0ff05060708090a0b0c0d0eab",
    ] {
        assert_eq!(HistoryId::parse(wrong), Err(HexIdError), "{wrong:?}");
    }
}

#[test]
fn a_tag_is_whatever_the_store_gave_and_never_nothing() {
    assert_eq!(Tag::from_parts(None, None), None);
    let tag = Tag::from_parts(Some("\"e\"".into()), Some("7".into())).unwrap();
    assert_eq!((tag.e_tag(), tag.version()), (Some("\"e\""), Some("7")));
    assert_eq!(Tag::from_parts(Some("e".into()), None), Some(Tag::new("e")));
    assert_ne!(Tag::new("e"), Tag::new("\"e\""));
}
