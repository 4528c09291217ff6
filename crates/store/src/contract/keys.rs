//! Rules for the names of objects. Every store takes the same ones and refuses
//! the same ones, so that a history can move from any to any.

use bytes::Bytes;

use super::{Broken, Place, broken, done, ensure};
use crate::{
    HeadWrite, KEY_LEN_BYTES_MAX, KEY_PART_LEN_BYTES_MAX, KeyError, NoAnswerKind, PutError,
    ReadError,
};

/// Names that stores have been seen to mangle.
const ODD_NAMES: [&str; 18] = [
    "sp ace",
    " lead and trail ",
    "per%cent",
    "per%2Fcent",
    "per%252Fcent",
    "plus+plus",
    "q?uery#hash",
    "a&b=c;d,e:f@g$h!i*j",
    "quo'te\"s",
    "<xml>&amp;</xml>",
    "[x]{y}^`~|",
    "dots..in",
    ".hidden",
    "grün/日本/🔑",
    // The same to a reader, other bytes.
    "e\u{301}",
    "\u{e9}",
    "UPPER/upper/Upper",
    "0123456789-_.~",
];

pub(super) async fn odd(place: &Place) -> Result<(), Broken> {
    let rule = "odd keys are kept as they are";
    let part = "k".repeat(KEY_PART_LEN_BYTES_MAX);
    let mut keys: Vec<String> = Vec::new();
    for name in ODD_NAMES.into_iter().chain([part.as_str()]) {
        let key = place.key(&format!("odd/{name}"));
        done(rule, place.one.put(&key, Bytes::from(key.clone())).await)?;
        keys.push(key);
    }
    for key in &keys {
        let found = done(rule, place.other.get(key).await)?;
        ensure(rule, found == *key, (key, found))?;
    }
    keys.sort_unstable();
    let listed = done(rule, place.other.list(&place.key("odd/"), None, 100).await)?;
    let listed: Vec<_> = listed.into_iter().map(|it| it.key).collect();
    ensure("a listing has every key, in byte order", listed == keys, (&listed, &keys))?;
    for key in &keys {
        done(rule, place.one.delete(key).await)?;
    }
    let listed = done(rule, place.one.list(&place.key("odd/"), None, 1).await)?;
    ensure(rule, listed.is_empty(), listed)
}

/// A key of `len_bytes`, in parts that are as long as they may be.
fn key_of(place: &Place, len_bytes: usize) -> String {
    let mut key = place.key("long");
    while key.len() < len_bytes {
        let room = len_bytes - key.len() - 1;
        // What is left must not be a lone `/`.
        let part = room.min(KEY_PART_LEN_BYTES_MAX - 1);
        key.push('/');
        key.push_str(&"k".repeat(part.max(1)));
    }
    key
}

pub(super) async fn longest(place: &Place) -> Result<(), Broken> {
    let rule = "a key of 1,024 bytes is taken, and one of 1,025 is refused";
    // The place may be below a root that counts: the refusal says how long it is.
    let whole = key_of(place, KEY_LEN_BYTES_MAX + 1);
    let answer = place.one.put(&whole, Bytes::new()).await;
    let Err(PutError::Store(ReadError::Denied { cause, .. })) = &answer else {
        return Err(broken(rule, (whole, answer)));
    };
    let Some(KeyError::TooLong { len_bytes, .. }) = cause.downcast_ref() else {
        return Err(broken(rule, cause));
    };
    let key = key_of(place, KEY_LEN_BYTES_MAX + whole.len() - len_bytes);
    done(rule, place.one.put(&key, Bytes::from(key.clone())).await)?;
    let found = done(rule, place.other.get(&key).await)?;
    ensure(rule, found == key, found)?;
    let listed = done(rule, place.other.list(&place.key("long/"), None, 2).await)?;
    ensure(rule, listed.len() == 1 && listed[0].key == key, listed)?;
    done(rule, place.one.delete(&key).await)
}

pub(super) async fn bad(place: &Place) -> Result<(), Broken> {
    let rule = "a key that would leave its place, or become another one, is refused";
    let keys = [
        String::new(),
        "/".into(),
        "a//b".into(),
        "/a".into(),
        "a/".into(),
        "..".into(),
        "a/./b".into(),
        "a./b".into(),
        "a\\b".into(),
        "a\0b".into(),
        "a\nb".into(),
        "a\u{ffff}b".into(),
        place.key("../above"),
        place.key("dots.."),
        place.key(&"k/".repeat(600)),
        place.key(&format!("{}k", "k/".repeat(260))),
        place.key(&"k".repeat(KEY_PART_LEN_BYTES_MAX + 1)),
    ];
    for key in &keys {
        let answer = place.one.put(key, Bytes::new()).await;
        let is_denied = matches!(answer, Err(PutError::Store(ReadError::Denied { .. })));
        ensure(rule, is_denied, (key, answer))?;
        let answer = place.one.get(key).await;
        ensure(rule, matches!(answer, Err(ReadError::Denied { .. })), (key, answer))?;
        let answer = place.one.delete(key).await;
        ensure(rule, matches!(answer, Err(ReadError::Denied { .. })), (key, answer))?;
        let answer = place.one.read_head(key, None).await;
        ensure(rule, matches!(answer, Err(ReadError::Denied { .. })), (key, answer))?;
        match place.one.create_head(key, Bytes::new()).await {
            HeadWrite::NoAnswer(it) if it.kind == NoAnswerKind::Denied => (),
            answer @ (HeadWrite::Replaced { .. }
            | HeadWrite::Mismatch
            | HeadWrite::Gone
            | HeadWrite::NoAnswer(_)) => return Err(broken(rule, (key, answer))),
        }
    }
    Ok(())
}
