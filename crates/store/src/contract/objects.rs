//! Rules for objects that are written once, and for listings.

use bytes::Bytes;

use super::{Broken, Place, broken, done, ensure};
use crate::{HeadWrite, Listed, NoAnswerKind, PutError, ReadError};

/// Names that stores have been seen to mangle.
const ODD_NAMES: [&str; 17] = [
    "sp ace",
    " lead and trail ",
    "per%cent",
    "per%2Fcent",
    "plus+plus",
    "q?uery#hash",
    "a&b=c;d,e:f@g$h!i*j",
    "quo'te\"s",
    "<xml>&amp;</xml>",
    "back\\slash",
    "[x]{y}^`~|",
    "dots..",
    "...",
    ".hidden",
    "grün/日本/🔑",
    "UPPER/upper/Upper",
    "0123456789-_.~",
];

pub(super) async fn create_once(place: &Place) -> Result<(), Broken> {
    let rule = "an object is written once, and again only with the same bytes";
    let key = place.key("once/object");
    let bytes = Bytes::from_static(b"bytes");
    done(rule, place.one.put(&key, bytes.clone()).await)?;
    done(rule, place.other.put(&key, bytes.clone()).await)?;
    for other in ["bytex", "byte", "bytes and more", ""] {
        let answer = place.other.put(&key, Bytes::from_static(other.as_bytes())).await;
        ensure(rule, matches!(answer, Err(PutError::Occupied { .. })), answer)?;
    }
    let found = done(rule, place.other.get(&key).await)?;
    ensure(rule, found == bytes, found)
}

pub(super) async fn sizes(place: &Place) -> Result<(), Broken> {
    let rule = "empty and large objects come back as they were";
    let large: Vec<u8> = (0..1u32 << 21).flat_map(u32::to_le_bytes).collect();
    for (name, bytes) in [("empty", Bytes::new()), ("large", Bytes::from(large))] {
        let key = place.key(&format!("sizes/{name}"));
        done(rule, place.one.put(&key, bytes.clone()).await)?;
        done(rule, place.other.put(&key, bytes.clone()).await)?;
        let found = done(rule, place.other.get(&key).await)?;
        ensure(rule, found == bytes, (name, found.len()))?;
        let listed = done(rule, place.one.list(&key, None, 2).await)?;
        ensure(rule, listed == [Listed { key, size_bytes: bytes.len() as u64 }], listed)?;
    }
    Ok(())
}

pub(super) async fn odd_keys(place: &Place) -> Result<(), Broken> {
    let rule = "odd keys are kept as they are";
    let longest = "k".repeat(crate::KEY_PART_LEN_BYTES_MAX);
    let mut keys: Vec<String> = Vec::new();
    for name in ODD_NAMES.into_iter().chain([longest.as_str()]) {
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

pub(super) async fn bad_keys(place: &Place) -> Result<(), Broken> {
    let rule = "a key that would leave its place is refused";
    let above = place.key("../above");
    let long = place.key(&"k/".repeat(600));
    for key in ["", "/", "a//b", "/a", "a/", "..", "a/./b", "a\0b", "a\nb", &above, &long] {
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

pub(super) async fn delete(place: &Place) -> Result<(), Broken> {
    let rule = "a deleted object is missing, and deleting it again succeeds";
    let key = place.key("delete/object");
    done(rule, place.one.delete(&key).await)?;
    done(rule, place.one.put(&key, Bytes::from_static(b"1")).await)?;
    done(rule, place.other.delete(&key).await)?;
    let answer = place.one.get(&key).await;
    ensure(rule, matches!(answer, Err(ReadError::Missing { .. })), answer)?;
    done(rule, place.one.delete(&key).await)?;
    done(rule, place.one.put(&key, Bytes::from_static(b"2")).await)?;
    let found = done(rule, place.other.get(&key).await)?;
    ensure(rule, found == "2", found)
}

/// In byte order. A walk that sorts names and not keys gets them wrong: `-` and
/// `.` come before `/`, and `0` after it.
const ORDERED: [&str; 8] = ["a-b", "a.b/1", "a/-", "a/b/1", "a/b/2", "a/b0", "a0", "b"];

pub(super) async fn list(place: &Place) -> Result<(), Broken> {
    let rule = "a listing is in byte order, and goes on after any key";
    let prefix = place.key("list/");
    let keys = ORDERED.map(|it| format!("{prefix}{it}"));
    for key in keys.iter().rev() {
        done(rule, place.one.put(key, Bytes::from_static(b"x")).await)?;
    }
    let list = async |prefix: &str, after: Option<&str>, limit| {
        let listed = done(rule, place.other.list(prefix, after, limit).await)?;
        Ok::<_, Broken>(listed.into_iter().map(|it| it.key).collect::<Vec<_>>())
    };
    for limit in [1, 2, 3, 7, 8, 9] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned();
            let page = list(&prefix, after.as_deref(), limit).await?;
            let is_last = page.len() < limit;
            ensure(rule, page.len() <= limit, &page)?;
            found.extend(page);
            if is_last || keys.len() < found.len() {
                break;
            }
        }
        ensure(rule, found == keys, (limit, &found))?;
    }
    // After keys that do not exist, a folder's name and what sorts next to it
    // among them.
    for after in ["a", "a/", "a/b", "a/b/", "a/b/11", "a0", "a/c", "", "z"] {
        let after = format!("{prefix}{after}");
        let expected: Vec<_> = keys.iter().filter(|it| **it > after).collect();
        let found = list(&prefix, Some(&after), 100).await?;
        ensure(rule, found.iter().eq(expected.iter().copied()), (&after, &found))?;
    }
    for part in ["a", "a/", "a/b", "b", "c"] {
        let part = format!("{prefix}{part}");
        let expected: Vec<_> = keys.iter().filter(|it| it.starts_with(&part)).collect();
        let found = list(&part, None, 100).await?;
        ensure(rule, found.iter().eq(expected.iter().copied()), (&part, &found))?;
    }
    let found = list(&prefix, None, 0).await?;
    ensure(rule, found.is_empty(), found)
}

pub(super) async fn list_folder(place: &Place) -> Result<(), Broken> {
    let rule = "a listing by folder names objects and folders, and does not descend";
    let prefix = place.key("folder/");
    for name in ORDERED {
        let key = format!("{prefix}{name}");
        done(rule, place.one.put(&key, Bytes::from_static(b"x")).await)?;
    }
    let gone = format!("{prefix}gone/object");
    done(rule, place.one.put(&gone, Bytes::from_static(b"x")).await)?;
    done(rule, place.one.delete(&gone).await)?;
    for (folder, objects, folders) in [
        ("", &["a-b", "a0", "b"][..], &["a.b/", "a/"][..]),
        ("a/", &["a/-", "a/b0"], &["a/b/"]),
        ("a/b/", &["a/b/1", "a/b/2"], &[]),
        ("none/", &[], &[]),
        ("gone/", &[], &[]),
    ] {
        let folder = format!("{prefix}{folder}");
        let found = done(rule, place.other.list_folder(&folder).await)?;
        let is_full = |name: &&str, key: &str| format!("{prefix}{name}") == key;
        let holds = found.objects.len() == objects.len()
            && objects.iter().zip(&found.objects).all(|(name, it)| is_full(name, &it.key))
            && found.folders.len() == folders.len()
            && folders.iter().zip(&found.folders).all(|(name, it)| is_full(name, it));
        ensure(rule, holds, (folder, found))?;
    }
    Ok(())
}
