//! Rules for the one object that is replaced.

use bytes::Bytes;
use headwater_core::id::Tag;

use super::{Broken, Notes, Place, broken, done, ensure, gone, mismatch, read, replaced};
use crate::{HeadRead, HeadWrite};

pub(super) async fn create(place: &Place) -> Result<(), Broken> {
    let rule = "a head is created where there is none, and not where there is one";
    let key = place.key("create/head.json");
    let tag = replaced(rule, place.one.create_head(&key, Bytes::from_static(b"1")).await)?;
    mismatch(rule, &place.other.create_head(&key, Bytes::from_static(b"2")).await)?;
    mismatch(rule, &place.one.create_head(&key, Bytes::from_static(b"1")).await)?;
    let found = read(rule, &*place.other, &key).await?;
    ensure("a read gives the tag that the write gave", found.1 == tag, (&found, &tag))?;
    ensure(rule, found.0 == "1", found)
}

pub(super) async fn replace(place: &Place) -> Result<(), Broken> {
    let rule = "a head is replaced where the tag matches, and not where it is stale";
    let key = place.key("replace/head.json");
    let first = replaced(rule, place.one.create_head(&key, Bytes::from_static(b"1")).await)?;
    let two = Bytes::from_static(b"2");
    let second = replaced(rule, place.other.replace_head(&key, &first, two).await)?;
    ensure("other bytes have another tag", first != second, &second)?;
    for stale in [&first, &foreign(&first)] {
        mismatch(rule, &place.one.replace_head(&key, stale, Bytes::from_static(b"3")).await)?;
    }
    let found = read(rule, &*place.one, &key).await?;
    ensure(rule, found == (Bytes::from_static(b"2"), second.clone()), &found)?;
    let three = Bytes::from_static(b"3");
    let third = replaced(rule, place.one.replace_head(&key, &second, three).await)?;
    let found = read(rule, &*place.other, &key).await?;
    ensure("a read sees the write before it", found == (Bytes::from_static(b"3"), third), found)
}

/// A tag in the form of `tag` that no head has.
fn foreign(tag: &Tag) -> Tag {
    let version = tag.version().map(|_| "1".to_owned());
    let e_tag = "\"00000000000000000000000000000000\"".to_owned();
    Tag::from_parts(Some(e_tag), version).unwrap_or_else(|| tag.clone())
}

/// Whether a replacement tells that there is no head.
pub(super) async fn missing(place: &Place) -> Result<bool, Broken> {
    let rule = "a head that does not exist is missing, and cannot be replaced";
    let other = place.key("missing/other.json");
    let form = replaced(rule, place.one.create_head(&other, Bytes::from_static(b"1")).await)?;
    let tag = foreign(&form);
    let key = place.key("missing/head.json");
    for known in [None, Some(&tag)] {
        let seen = done(rule, place.one.read_head(&key, known).await)?;
        ensure(rule, seen == HeadRead::Missing, seen)?;
    }
    let answer = place.one.replace_head(&key, &tag, Bytes::from_static(b"1")).await;
    let tells_gone = gone(rule, answer)?;
    let seen = done(rule, place.other.read_head(&key, None).await)?;
    ensure(rule, seen == HeadRead::Missing, seen)?;
    Ok(tells_gone)
}

pub(super) async fn conditional_read(place: &Place) -> Result<(), Broken> {
    let rule = "a conditional read tells whether the head changed";
    let key = place.key("conditional/head.json");
    let first = replaced(rule, place.one.create_head(&key, Bytes::from_static(b"1")).await)?;
    for store in [&place.one, &place.other] {
        let seen = done(rule, store.read_head(&key, Some(&first)).await)?;
        ensure(rule, seen == HeadRead::Unchanged, seen)?;
    }
    let two = Bytes::from_static(b"2");
    let tag = replaced(rule, place.one.replace_head(&key, &first, two.clone()).await)?;
    for store in [&place.one, &place.other] {
        let seen = done(rule, store.read_head(&key, Some(&first)).await)?;
        ensure(rule, seen == HeadRead::Found { bytes: two.clone(), tag: tag.clone() }, seen)?;
    }
    Ok(())
}

/// Whether equal bytes get the tag again that they had before a deletion, and
/// whether a replacement tells that the head was deleted.
pub(super) async fn delete_and_recreate(place: &Place) -> Result<Notes, Broken> {
    let rule = "a deleted head is missing, and can be created again";
    let key = place.key("recreate/head.json");
    let bytes = Bytes::from_static(b"1");
    let first = replaced(rule, place.one.create_head(&key, bytes.clone()).await)?;
    done(rule, place.one.delete(&key).await)?;
    let seen = done(rule, place.other.read_head(&key, Some(&first)).await)?;
    ensure(rule, seen == HeadRead::Missing, seen)?;
    let answer = place.other.replace_head(&key, &first, Bytes::from_static(b"2")).await;
    let tells_gone = gone(rule, answer)?;
    let again = replaced(rule, place.other.create_head(&key, bytes.clone()).await)?;
    let tags_recur = again == first;
    let reads_recur = match done(rule, place.one.read_head(&key, Some(&first)).await)? {
        HeadRead::Unchanged => true,
        HeadRead::Found { tag, bytes: found } if tag == again && found == bytes => {
            ensure("a tag that recurs is known again", !tags_recur, &tag)?;
            false
        }
        seen @ (HeadRead::Found { .. } | HeadRead::Missing) => {
            return Err(broken("a tag is either that of the first head or another one", seen));
        }
    };
    let two = Bytes::from_static(b"2");
    let answer = place.one.replace_head(&key, &first, two.clone()).await;
    if tags_recur {
        replaced("a tag that recurs is compared as equal", answer)?;
    } else {
        old_tag(place, &key, &first, &again, &answer).await?;
    }
    Ok(Notes { tags_recur, reads_recur, tells_gone })
}

/// An old tag replaces nothing, and whoever holds it gets the new one from the
/// next read, even where a read had told that the bytes are the same.
async fn old_tag(
    place: &Place,
    key: &str,
    old: &Tag,
    now: &Tag,
    answer: &HeadWrite,
) -> Result<(), Broken> {
    let rule = "the tag of a deleted head does not become valid again";
    mismatch(rule, answer)?;
    match done(rule, place.one.read_head(key, Some(old)).await)? {
        HeadRead::Found { tag, .. } if tag == *now => (),
        seen @ (HeadRead::Found { .. } | HeadRead::Unchanged | HeadRead::Missing) => {
            return Err(broken("after a mismatch a read gives the head", seen));
        }
    }
    replaced(rule, place.one.replace_head(key, now, Bytes::from_static(b"2")).await).map(drop)
}

/// A head has bytes that no other head had (PROTOCOL 3), so on every store the
/// tag from before a deletion is stale for ever.
pub(super) async fn recreate_with_other_bytes(place: &Place) -> Result<(), Broken> {
    let rule = "the tag of a deleted head is not that of a head with other bytes";
    let key = place.key("recreate-other/head.json");
    let first = replaced(rule, place.one.create_head(&key, Bytes::from_static(b"1")).await)?;
    done(rule, place.other.delete(&key).await)?;
    let two = Bytes::from_static(b"2");
    let second = replaced(rule, place.other.create_head(&key, two.clone()).await)?;
    ensure(rule, first != second, &first)?;
    let seen = done(rule, place.one.read_head(&key, Some(&first)).await)?;
    ensure(rule, seen == HeadRead::Found { bytes: two, tag: second }, seen)?;
    mismatch(rule, &place.one.replace_head(&key, &first, Bytes::from_static(b"3")).await)
}
