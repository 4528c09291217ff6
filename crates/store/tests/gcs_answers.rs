//! What a bucket of Google Cloud Storage proves, by generations.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_s3_double::{ACCESS_TOKEN, Conduct, Fault, GcsDouble, Op, WriteLimit};
use headwater_store::{
    GcsBucket, GcsOptions, HeadRead, HeadWrite, NoAnswerKind, NoBucket, PutError, ReadError, Store,
};

const HEAD: &str = "h/head.json";

fn open(url: &str, token: &str) -> GcsBucket {
    let options = GcsOptions::parse(url).unwrap();
    GcsBucket::open(&GcsOptions { access_token: Some(token.into()), ..options }).unwrap()
}

async fn bucket() -> (GcsDouble, GcsBucket, Tag) {
    let double = GcsDouble::start().await.unwrap();
    let store = open(&double.url(""), ACCESS_TOKEN);
    let tag = tag(store.create_head(HEAD, Bytes::from_static(b"1")).await);
    double.clear_requests();
    (double, store, tag)
}

fn tag(answer: HeadWrite) -> Tag {
    match answer {
        HeadWrite::Replaced { tag } => tag,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_proves_what_its_status_says_and_nothing_is_sent_twice() {
    use NoAnswerKind::{Conflict, Denied, Other, Throttled};

    for (fault, kind, head) in [
        (Fault::status_before(412), None, "1"),
        (Fault::status_before(409), Some(Conflict), "1"),
        (Fault::status_before(429), Some(Throttled), "1"),
        (Fault::status_before(401), Some(Denied), "1"),
        (Fault::close_before(), Some(Other), "1"),
        (Fault::status_after(503), Some(Throttled), "2"),
        (Fault::close_after(), Some(Other), "2"),
        // A success without a generation.
        (Fault::status_after(200), Some(Other), "2"),
    ] {
        let (double, store, tag) = bucket().await;
        // An object's name is one part of the URL here.
        double.faults().on_next(Op::Put, "h%2Fhead", fault.clone());
        let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;

        let seen = match &answer {
            HeadWrite::NoAnswer(it) => Some(it.kind),
            HeadWrite::Mismatch => None,
            HeadWrite::Replaced { .. } | HeadWrite::Gone => panic!("{fault:?}: {answer:?}"),
        };
        assert_eq!(seen, kind, "{fault:?}: {answer:?}");
        assert_eq!(double.object(HEAD).unwrap(), head, "{fault:?}");
        assert_eq!(double.requests().count(Op::Put), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_head_that_was_written_again_with_equal_bytes_is_replaced_after_one_mismatch() {
    let (_double, store, old) = bucket().await;
    // As when somebody rewrites it into another storage class: the ETag stays.
    store.delete(HEAD).await.unwrap();
    let now = tag(store.create_head(HEAD, Bytes::from_static(b"1")).await);
    assert_eq!(old.e_tag(), now.e_tag());
    assert_ne!(old.version(), now.version());
    assert_eq!(store.read_head(HEAD, Some(&old)).await.unwrap(), HeadRead::Unchanged);

    let answer = store.replace_head(HEAD, &old, Bytes::from_static(b"2")).await;
    assert!(matches!(answer, HeadWrite::Mismatch), "{answer:?}");

    let HeadRead::Found { tag: found, .. } = store.read_head(HEAD, Some(&old)).await.unwrap()
    else {
        panic!("a writer that is told `unchanged` now would never get on");
    };
    assert_eq!(found, now);
    tag(store.replace_head(HEAD, &found, Bytes::from_static(b"2")).await);
}

#[tokio::test]
async fn a_tag_of_another_store_replaces_nothing_and_is_not_sent() {
    let (double, store, _) = bucket().await;

    let answer = store.replace_head(HEAD, &Tag::new("\"x\""), Bytes::from_static(b"2")).await;

    assert!(matches!(answer, HeadWrite::NoAnswer(_)), "{answer:?}");
    assert_eq!((double.requests().count(Op::Put), double.object(HEAD).unwrap()), (0, "1".into()));
}

#[tokio::test]
async fn one_object_may_be_written_once_a_second() {
    let (double, store, tag) = bucket().await;
    let limit = WriteLimit { retry_after_s: Some(1), ..WriteLimit::ONE_A_SECOND };
    double.set_conduct(Conduct { limit: Some(limit), ..Conduct::default() });

    match store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await {
        HeadWrite::NoAnswer(it) => {
            let second = Some(Duration::from_secs(1));
            assert_eq!((it.kind, it.retry_after), (NoAnswerKind::Throttled, second));
        }
        other => panic!("{other:?}"),
    }
    store.put("other", Bytes::new()).await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_and_a_token_that_does_not_do_are_named() {
    let (double, store, tag) = bucket().await;
    let nowhere = open(&double.url("").replace(double.bucket(), "bukcet"), ACCESS_TOKEN);
    let is_named = |error: &ReadError| match error {
        ReadError::Denied { cause, .. } => {
            cause.downcast_ref::<NoBucket>().is_some_and(|it| it.bucket == "bukcet")
        }
        _ => false,
    };
    assert!(is_named(&nowhere.get("a").await.unwrap_err()));
    assert!(is_named(&nowhere.delete("a").await.unwrap_err()));
    assert!(is_named(&nowhere.list("", None, 1).await.unwrap_err()));
    match nowhere.put("a", Bytes::new()).await {
        Err(PutError::Store(error)) => assert!(is_named(&error)),
        other => panic!("{other:?}"),
    }
    match nowhere.replace_head(HEAD, &tag, Bytes::new()).await {
        HeadWrite::NoAnswer(it) => assert!(it.cause.downcast_ref::<NoBucket>().is_some()),
        other => panic!("{other:?}"),
    }

    let stranger = open(&double.url(""), "stolen");
    assert!(matches!(stranger.get(HEAD).await, Err(ReadError::Denied { .. })));
    // What is not there is no error of a deletion, though GCS answers 404.
    store.delete("none").await.unwrap();
}
