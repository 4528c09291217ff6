//! Object keys: written once, read back, and nothing else taken for one.

use std::string::ToString as _;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn keys_read_back(kind in 0..ObjectKind::ALL.len(), staged in any::<u64>(), bytes in any::<[u8; 32]>()) {
        let kind = ObjectKind::ALL[kind];
        let staged = Revision::new(staged);
        let key = if kind == ObjectKind::Change {
            ObjectKey::change(staged, Nonce::from_bytes(bytes[..16].try_into().unwrap()))
        } else {
            ObjectKey::content(kind, staged, ContentHash::from_bytes(bytes))
        };
        prop_assert_eq!((key.kind(), key.staged()), (kind, staged));
        prop_assert_eq!(ObjectKey::parse(key.as_str()), Ok(key.clone()));
        prop_assert_eq!(key.to_string(), key.as_str());
    }

    #[test]
    fn listing_order_is_staging_order(a in any::<u64>(), b in any::<u64>()) {
        let key = |it| ObjectKey::change(Revision::new(it), Nonce::from_bytes([0xff; 16]));
        prop_assert_eq!(key(a).as_str().cmp(key(b).as_str()), a.cmp(&b));
    }
}

#[test]
fn what_is_not_a_key_is_refused() {
    let hash = "0".repeat(64);
    let nonce = "0".repeat(32);
    let right = [
        format!("changes/00000000000000000001-{nonce}"),
        format!("chunks/18446744073709551615-{hash}"),
    ];
    for text in &right {
        assert!(ObjectKey::parse(text).is_ok(), "{text}");
    }
    let wrong = [
        String::new(),
        "head.json".into(),
        format!("requests/{hash}"),
        format!("change/00000000000000000001-{nonce}"),
        format!("changes/0000000000000000001-{nonce}"),
        format!("changes/000000000000000000001-{nonce}"),
        format!("changes/+0000000000000000001-{nonce}"),
        format!("changes/18446744073709551616-{nonce}"),
        format!("changes/00000000000000000001-{hash}"),
        format!("chunks/00000000000000000001-{nonce}"),
        format!("chunks/00000000000000000001-{}", "A".repeat(64)),
        format!("chunks/00000000000000000001-{}", "g".repeat(64)),
        format!("chunks/00000000000000000001{hash}"),
        format!("chunks/00000000000000000001-{hash}/"),
        format!("/chunks/00000000000000000001-{hash}"),
        format!("chunks/../00000000000000000001-{hash}"),
        format!("chunks/00000000000000000001-{hash}\n"),
    ];
    for text in wrong {
        assert_eq!(ObjectKey::parse(&text), Err(ObjectKeyError { text: text.clone() }));
    }
}

#[test]
fn every_folder_is_a_reserved_word() {
    let mut folders: Vec<_> = ObjectKind::ALL.iter().map(|it| it.folder()).collect();
    folders.extend([HEAD, "requests"]);
    folders.sort_unstable();
    let mut reserved = RESERVED_PARTS.to_vec();
    reserved.sort_unstable();
    assert_eq!(folders, reserved);
}

#[test]
fn everything_of_a_history_is_below_its_name() {
    let name = HistoryName::parse("a/b").unwrap();
    let key = ObjectKey::content(ObjectKind::Chunk, Revision::new(7), ContentHash::of(b"x"));
    assert_eq!(name.head_key(), "a/b/head.json");
    assert_eq!(name.object_key(&key), format!("a/b/{key}"));
    assert!(name.object_key(&key).starts_with(&name.folder(ObjectKind::Chunk)));
}

#[test]
fn a_record_is_found_by_its_history_and_its_operation() {
    let name = HistoryName::parse("a").unwrap();
    let key = |history, id: &str| {
        name.request_key(HistoryId::from_bytes([history; 16]), &OperationId::parse(id).unwrap())
    };
    assert_eq!(key(1, "x"), key(1, "x"));
    assert_ne!(key(1, "x"), key(2, "x"));
    assert_ne!(key(1, "x"), key(1, "y"));
    assert!(key(1, "x").starts_with("a/requests/"));
    assert_eq!(key(1, "x").len(), "a/requests/".len() + 64);
}

#[test]
fn the_longest_key_fits_what_stores_take() {
    let name = HistoryName::parse(&["x".repeat(127), "y".repeat(128)].join("/")).unwrap();
    assert_eq!(name.as_str().len(), HistoryName::LEN_BYTES_MAX);
    let key = ObjectKey::content(ObjectKind::Snapshot, Revision::new(7), ContentHash::of(b"x"));
    assert!(name.object_key(&key).len() <= HistoryName::LEN_BYTES_MAX + 110);
}

#[test]
#[should_panic(expected = "named by a nonce")]
fn a_change_is_not_named_by_its_hash() {
    ObjectKey::content(ObjectKind::Change, Revision::new(7), ContentHash::of(b"x"));
}
