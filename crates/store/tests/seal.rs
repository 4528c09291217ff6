//! What a bucket sees of a sealed store, and what it can do with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;

use bytes::Bytes;
use headwater_store::contract::{Notes, Place, check_all};
use headwater_store::{
    Entropy, HeadRead, HeadWrite, Keyring, Listed, LocalDir, Memory, Plain, PutError, ReadError,
    SealError, Sealed, Store,
};

const NAMES: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const FIRST: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222222222222222222222222222";

/// A hash as chunks are named by.
const HASH: &str = "a3f1c2d4e5b60718293a4b5c6d7e8f90a3f1c2d4e5b60718293a4b5c6d7e8f90";

fn keyring(keys: &[(&str, &str)]) -> Keyring {
    let lines = keys.iter().map(|(id, secret)| format!("key {id} {secret}\n"));
    Keyring::parse(&format!("names {NAMES}\n{}", lines.collect::<String>())).unwrap()
}

fn sealed(bucket: &Memory, keys: &[(&str, &str)]) -> Sealed {
    Sealed::new(Arc::new(bucket.clone()), keyring(keys))
}

fn first(bucket: &Memory) -> Sealed {
    sealed(bucket, &[("first", FIRST)])
}

fn chunk(hash: &str) -> String {
    format!("h/chunks/00000000000000000007-{hash}")
}

async fn stored(bucket: &Memory) -> Vec<(String, Bytes)> {
    let mut objects = Vec::new();
    for Listed { key, .. } in bucket.list("", None, 100).await.unwrap() {
        let bytes = bucket.get(&key).await.unwrap();
        objects.push((key, bytes));
    }
    objects
}

/// Puts other bytes in the place of an object, as whoever owns the bucket can.
async fn overwrite(bucket: &Memory, key: &str, bytes: Bytes) {
    bucket.delete(key).await.unwrap();
    bucket.put(key, bytes).await.unwrap();
}

fn cause<T: std::fmt::Debug>(answer: Result<T, ReadError>) -> (String, SealError) {
    match answer.unwrap_err() {
        ReadError::Sealed { key, cause } => (key, cause),
        error @ (ReadError::Unavailable { .. }
        | ReadError::Missing { .. }
        | ReadError::Denied { .. }) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sealed_store_keeps_the_contract() {
    let entropy = Entropy::from_os();
    let bucket = Memory::new();
    let open = || Arc::new(sealed(&bucket, &[("second", SECOND), ("first", FIRST)]));
    let notes = check_all(&Place::new(open(), open(), "scratch", entropy.clone())).await.unwrap();
    assert_eq!(notes, Notes { tags_recur: false, reads_recur: false, tells_gone: true });

    let root = tempfile::tempdir().unwrap();
    let open = || {
        let adapter = Arc::new(LocalDir::open(root.path().join("data")).unwrap());
        Arc::new(Sealed::new(adapter, keyring(&[("first", FIRST)])))
    };
    let notes = check_all(&Place::new(open(), open(), "scratch", entropy)).await.unwrap();
    assert_eq!(notes, Notes { tags_recur: true, reads_recur: true, tells_gone: true });
}

/// Two writers in the middle of a rotation: each seals with another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_contract_holds_between_processes_that_seal_with_different_keys() {
    let bucket = Memory::new();
    let old = Arc::new(sealed(&bucket, &[("first", FIRST), ("second", SECOND)]));
    let new = Arc::new(sealed(&bucket, &[("second", SECOND), ("first", FIRST)]));

    check_all(&Place::new(old, new, "scratch", Entropy::from_os())).await.unwrap();
}

#[tokio::test]
async fn the_bucket_learns_neither_content_nor_hashes() {
    let bucket = Memory::new();
    let store = first(&bucket);
    let secret = "a secret of some length, which would be found again";
    let head = format!("{{\"format\":1,\"revision\":57,\"of\":\"{secret}\"}}");
    let answer = store.create_head("h/head.json", head.clone().into()).await;
    assert!(matches!(answer, HeadWrite::Replaced { .. }));
    store.put(&chunk(HASH), secret.into()).await.unwrap();
    store.put(&format!("h/requests/{HASH}"), secret.into()).await.unwrap();

    let objects = stored(&bucket).await;
    assert_eq!(objects.len(), 3);
    for (key, bytes) in &objects {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(secret) && !text.contains("of\""), "{text}");
        for part in HASH.as_bytes().windows(8) {
            assert!(!key.contains(std::str::from_utf8(part).unwrap()), "{key}");
        }
    }
    // The sealed hash is another one under another name.
    let digits = |key: &str| key[key.len() - 96..].to_owned();
    assert_ne!(digits(&objects[0].0), digits(&objects[2].0));
    // What routes is in plain: format, key, revision. On one line.
    let (key, bytes) = &objects[1];
    assert_eq!(key, "h/head.json");
    let line = String::from_utf8(bytes[..144].to_vec()).unwrap();
    assert!(line.contains(r#""format":1,"key":"first","check":""#), "{line}");
    assert!(line.trim_end_matches([' ', '\n']).ends_with(r#","revision":57}"#), "{line}");
    assert_eq!(line.find('\n'), Some(143));

    // And whoever has the keys sees it as it was.
    let listed = store.list("h/", None, 10).await.unwrap();
    let size = |it: &str| it.len() as u64;
    let expected = [
        Listed { key: chunk(HASH), size_bytes: size(secret) },
        Listed { key: "h/head.json".into(), size_bytes: size(&head) },
        Listed { key: format!("h/requests/{HASH}"), size_bytes: size(secret) },
    ];
    assert_eq!(listed, expected);
    let rest = store.list("h/", Some(&chunk(HASH)), 10).await.unwrap();
    assert_eq!(rest, expected[1..]);
    let folder = store.list_folder("h/chunks/").await.unwrap();
    assert_eq!(folder.objects, expected[..1]);
    store.delete(&chunk(HASH)).await.unwrap();
    assert!(
        matches!(store.get(&chunk(HASH)).await, Err(ReadError::Missing { key }) if key == chunk(HASH))
    );
    assert_eq!(stored(&bucket).await.len(), 2);
}

#[tokio::test]
async fn ciphertext_swapped_between_two_objects_is_refused_by_name() {
    let bucket = Memory::new();
    let store = first(&bucket);
    let (one, other) = (chunk(HASH), chunk(NAMES));
    store.put(&one, "one".into()).await.unwrap();
    store.put(&other, "two".into()).await.unwrap();
    let objects = stored(&bucket).await;
    overwrite(&bucket, &objects[0].0, objects[1].1.clone()).await;
    overwrite(&bucket, &objects[1].0, objects[0].1.clone()).await;

    for key in [&one, &other] {
        let refused = SealError::Refused { id: "first".into() };
        assert_eq!(cause(store.get(key).await), (key.clone(), refused));
        let answer = store.put(key, "one".into()).await;
        assert!(matches!(answer, Err(PutError::Store(ReadError::Sealed { .. }))), "{answer:?}");
    }

    // The head of one history, put in the place of another's.
    let head: Bytes = r#"{"revision":3}"#.into();
    store.create_head("a/head.json", head).await;
    let moved = bucket.get("a/head.json").await.unwrap();
    bucket.put("b/head.json", moved).await.unwrap();
    let (key, _) = cause(store.read_head("b/head.json", None).await);
    assert_eq!(key, "b/head.json");
}

#[tokio::test]
async fn a_key_that_is_missing_is_named() {
    let bucket = Memory::new();
    first(&bucket).put(&chunk(HASH), "one".into()).await.unwrap();
    first(&bucket).create_head("h/head.json", "{}".into()).await;

    let second = sealed(&bucket, &[("second", SECOND)]);
    let missing = SealError::KeyMissing { id: "first".into() };
    assert!(missing.to_string().contains("`first`"));
    assert_eq!(cause(second.get(&chunk(HASH)).await), (chunk(HASH), missing.clone()));
    let head = cause(second.read_head("h/head.json", None).await);
    assert_eq!(head, ("h/head.json".into(), missing));

    let other = SealError::OtherKey { id: "first".into() };
    let same_id = sealed(&bucket, &[("first", SECOND)]);
    assert_eq!(cause(same_id.read_head("h/head.json", None).await).1, other);
    // Another secret for names would look under other names: the head tells.
    let text = format!("names {SECOND}\nkey first {FIRST}");
    let other_names = Sealed::new(Arc::new(bucket.clone()), Keyring::parse(&text).unwrap());
    assert_eq!(cause(other_names.read_head("h/head.json", None).await).1, other);

    let plain = Plain::new(Arc::new(bucket.clone()));
    let no_keys = SealError::NoKeys { id: "first".into() };
    assert_eq!(cause(plain.read_head("h/head.json", None).await).1, no_keys);
    let (key, _) = stored(&bucket).await.remove(0);
    assert_eq!(cause(plain.get(&key).await), (key, no_keys));
}

#[tokio::test]
async fn after_a_rotation_old_objects_are_read_and_written_once_under_one_name() {
    let bucket = Memory::new();
    first(&bucket).put(&chunk(HASH), "one".into()).await.unwrap();
    let rotated = sealed(&bucket, &[("second", SECOND), ("first", FIRST)]);

    assert_eq!(rotated.get(&chunk(HASH)).await.unwrap(), "one");
    rotated.put(&chunk(HASH), "one".into()).await.unwrap();
    let answer = rotated.put(&chunk(HASH), "two".into()).await;
    assert!(matches!(answer, Err(PutError::Occupied { key }) if key == chunk(HASH)));
    assert_eq!(stored(&bucket).await.len(), 1);
    rotated.put(&chunk(NAMES), "new".into()).await.unwrap();
    assert_eq!(cause(first(&bucket).get(&chunk(NAMES)).await).1, {
        SealError::KeyMissing { id: "second".into() }
    });
}

#[tokio::test]
async fn what_is_not_sealed_is_refused_where_there_are_keys() {
    let bucket = Memory::new();
    bucket.put("h/head.json", r#"{"format":1}"#.into()).await.unwrap();
    let (key, cause) = cause(first(&bucket).read_head("h/head.json", None).await);
    assert_eq!((key.as_str(), cause), ("h/head.json", SealError::NotSealed));
    // And is read where there are none.
    let plain = Plain::new(Arc::new(bucket));
    assert!(matches!(plain.read_head("h/head.json", None).await, Ok(HeadRead::Found { .. })));
}

#[tokio::test]
async fn no_byte_can_be_altered_and_no_end_cut_off() {
    let bucket = Memory::new();
    let store = first(&bucket);
    store.put("h/changes/x", "content".into()).await.unwrap();
    let whole = bucket.get("h/changes/x").await.unwrap();
    for at in 0..whole.len() {
        let mut altered = whole.to_vec();
        altered[at] ^= 1;
        overwrite(&bucket, "h/changes/x", altered.into()).await;
        assert_eq!(cause(store.get("h/changes/x").await).0, "h/changes/x", "byte {at}");
        overwrite(&bucket, "h/changes/x", whole.slice(..at)).await;
        assert_eq!(cause(store.get("h/changes/x").await).0, "h/changes/x", "{at} bytes");
    }
    overwrite(&bucket, "h/changes/x", whole).await;
    assert_eq!(store.get("h/changes/x").await.unwrap(), "content");
}

#[tokio::test]
async fn a_newer_seal_is_reported_as_newer() {
    let bucket = Memory::new();
    let newer = format!("{:144}", r#"{"headwater":"sealed","format":2,"colour":"red"}"#);
    bucket.put("h/changes/x", newer.into()).await.unwrap();
    let expected = SealError::TooNew { found: 2 };
    assert_eq!(cause(first(&bucket).get("h/changes/x").await).1, expected);
    let plain = Plain::new(Arc::new(bucket));
    assert_eq!(cause(plain.get("h/changes/x").await).1, expected);
}

/// Bytes of format 1, which buckets out there hold: this test is not changed.
#[tokio::test]
async fn format_1_is_what_it_was() {
    let bucket = Memory::new();
    let store = first(&bucket);
    store.put(&chunk(HASH), "content".into()).await.unwrap();

    let (key, bytes) = stored(&bucket).await.remove(0);
    let hash = blake3::hash(&bytes).to_hex();
    assert_eq!(
        key,
        "h/chunks/00000000000000000007-a8c19fbf9c59e98a7d575ec3d850d9ce23a51e71e5acdbca81faadad\
         840af763bb7ce451c25d866e082c8a9729e629a0"
    );
    assert_eq!(hash.as_str(), "7b92f3c15c88cb8266bbe02451c7bdcaddcf01a9198704b654615e7070944782");
}

#[test]
fn a_keyring_says_which_line_is_wrong_and_never_what_stands_there() {
    let error = |text: &str| Keyring::parse(text).unwrap_err().to_string();
    let names = format!("names {NAMES}\n");
    let key = format!("key first {FIRST}\n");
    assert!(Keyring::parse(&format!("# ours\n\n{names}{key}")).is_ok());
    assert!(error(&key).contains("0 lines `names"));
    assert!(error(&format!("{names}{names}{key}")).contains("2 lines `names"));
    assert!(error(&names).contains("0 lines `key"));
    assert!(error(&format!("{names}{key}{key}")).contains("`first` twice"));
    for bad in
        [&format!("key {FIRST}"), &format!("key first {}", &FIRST[1..]), "names x", "key fir/st x"]
    {
        let text = error(&format!("{names}{key}{bad}"));
        assert!(text.starts_with("line 3 ") && !text.contains("1111"), "{text}");
    }
    let long = "#".repeat(65 << 10);
    assert!(error(&long).contains("limit"));
    assert_eq!(format!("{:?}", keyring(&[("first", FIRST), ("b", SECOND)])), "[first, b]");
}
