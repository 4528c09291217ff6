//! Rules for objects that are written once, and for listings.

use bytes::Bytes;

use super::{Broken, Place, done, ensure};
use crate::{Listed, PutError, ReadError};

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
    for (name, bytes) in [("empty", Bytes::new()), ("large", large(place))] {
        let key = place.key(&format!("sizes/{name}"));
        done(rule, place.one.put(&key, bytes.clone()).await)?;
        let found = done(rule, place.other.get(&key).await)?;
        ensure(rule, found == bytes, (name, found.len()))?;
        let listed = done(rule, place.one.list(&key, None, 2).await)?;
        ensure(rule, listed == [Listed { key, size_bytes: bytes.len() as u64 }], listed)?;
    }
    Ok(())
}

/// Large objects may go in parts: that the key is free is then a condition of
/// the last step.
pub(super) async fn large_once(place: &Place) -> Result<(), Broken> {
    let rule = "a large object is written once, and again only with the same bytes";
    let key = place.key("sizes/large");
    let bytes = large(place);
    done(rule, place.other.put(&key, bytes.clone()).await)?;
    let mut other = Vec::from(bytes.clone());
    if let Some(last) = other.last_mut() {
        *last ^= 1;
    }
    let answer = place.other.put(&key, other.into()).await;
    ensure(rule, matches!(answer, Err(PutError::Occupied { .. })), answer)?;
    let found = done(rule, place.one.get(&key).await)?;
    ensure(rule, found == bytes, found.len())
}

/// A large object is read by ranges where its size is known. A size that is not
/// the object's changes how it is read, and never what.
pub(super) async fn ranges(place: &Place) -> Result<(), Broken> {
    let rule = "a read of known size is a read, in however many ranges";
    let large_key = place.key("sizes/large");
    let bytes = large(place);
    let size_bytes = bytes.len() as u64;
    for told in [size_bytes, size_bytes.saturating_sub(1), size_bytes + 1] {
        let found = done(rule, place.other.get_sized(&large_key, told).await)?;
        ensure(rule, found == bytes, (told, found.len()))?;
    }
    let empty_key = place.key("sizes/empty");
    for told in [0, size_bytes] {
        let found = done(rule, place.other.get_sized(&empty_key, told).await)?;
        ensure(rule, found.is_empty(), (told, found.len()))?;
        let answer = place.other.get_sized(&place.key("sizes/none"), told).await;
        ensure(rule, matches!(answer, Err(ReadError::Missing { .. })), answer)?;
    }
    Ok(())
}

/// Bytes that differ from block to block.
fn large(place: &Place) -> Bytes {
    const BLOCK_LEN_BYTES: usize = 4 << 10;
    let mut bytes = vec![7; place.large_len_bytes];
    for (n, block) in bytes.chunks_mut(BLOCK_LEN_BYTES).enumerate() {
        if let Some(start) = block.first_chunk_mut() {
            *start = n.to_le_bytes();
        }
    }
    bytes.into()
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
