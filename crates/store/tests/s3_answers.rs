//! What a bucket's answers prove, over a real socket and the real client.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_s3_double::{
    ACCESS_KEY_ID, Conduct, Fault, Gate, Op, Rule, S3Double, SECRET_ACCESS_KEY, Wait,
};
use headwater_store::{
    Call, Cause, Entropy, HeadRead, HeadWrite, Meter, NoAnswer, NoAnswerKind, NoBucket, PutError,
    ReadError, Retry, RetryConfig, S3Bucket, S3Credentials, S3Options, Store,
};

const HEAD: &str = "h/head.json";

fn open(double: &S3Double, secret: &str) -> S3Bucket {
    let credentials =
        S3Credentials { access_key_id: ACCESS_KEY_ID.into(), secret_access_key: secret.into() };
    let options = S3Options::parse(&double.url("")).unwrap();
    S3Bucket::open(&S3Options { credentials: Some(credentials), ..options }).unwrap()
}

/// A bucket with a head, a client whose connection was used before, and the
/// head's tag.
async fn bucket() -> (S3Double, S3Bucket, Tag) {
    let double = S3Double::start().await.unwrap();
    let store = open(&double, SECRET_ACCESS_KEY);
    let HeadWrite::Replaced { tag } = store.create_head(HEAD, Bytes::from_static(b"1")).await
    else {
        panic!("a new head");
    };
    double.clear_requests();
    (double, store, tag)
}

/// Waits until the head has another tag.
async fn replaced(store: &S3Bucket, tag: &Tag) {
    for _ in 0..1_000 {
        if store.read_head(HEAD, Some(tag)).await.unwrap() != HeadRead::Unchanged {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the head was never replaced");
}

fn no_answer(answer: HeadWrite) -> NoAnswer {
    match answer {
        HeadWrite::NoAnswer(it) => it,
        HeadWrite::Replaced { .. } | HeadWrite::Mismatch | HeadWrite::Gone => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn only_a_failed_condition_is_a_mismatch_and_nothing_is_sent_twice() {
    use NoAnswerKind::{Conflict, Denied, Other, Throttled};

    let cases: &[(Fault, Option<NoAnswerKind>, &str)] = &[
        (Fault::status_before(412), None, "1"),
        (Fault::status_before(409), Some(Conflict), "1"),
        (Fault::status_before(429), Some(Throttled), "1"),
        (Fault::status_before(503), Some(Throttled), "1"),
        (Fault::status_before(401), Some(Denied), "1"),
        (Fault::status_before(403), Some(Denied), "1"),
        (Fault::status_before(304), Some(Other), "1"),
        (Fault::status_before(400), Some(Other), "1"),
        (Fault::status_before(408), Some(Other), "1"),
        (Fault::status_before(500), Some(Other), "1"),
        (Fault::status_before(599), Some(Other), "1"),
        (Fault::close_before(), Some(Other), "1"),
        // Applied all the same.
        (Fault::status_after(409), Some(Conflict), "2"),
        (Fault::status_after(500), Some(Other), "2"),
        (Fault::status_after(503), Some(Throttled), "2"),
        (Fault::close_after(), Some(Other), "2"),
        (Fault::reset_after(), Some(Other), "2"),
        // A success without a tag.
        (Fault::status_after(200), Some(Other), "2"),
    ];
    for (fault, kind, head) in cases {
        let (double, store, tag) = bucket().await;
        double.faults().on_next(Op::Put, HEAD, fault.clone());

        let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;

        let seen = match &answer {
            HeadWrite::NoAnswer(it) => Some(it.kind),
            HeadWrite::Mismatch => None,
            HeadWrite::Replaced { .. } | HeadWrite::Gone => panic!("{fault:?}: {answer:?}"),
        };
        assert_eq!(seen, *kind, "{fault:?}: {answer:?}");
        assert_eq!(double.object(HEAD).unwrap(), *head, "{fault:?}");
        assert_eq!(double.requests().count(Op::Put), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_replacement_where_nothing_is_finds_the_head_gone() {
    let (double, store, tag) = bucket().await;
    double.faults().on_next(Op::Put, HEAD, Fault::status_before(404));
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;
    assert!(matches!(answer, HeadWrite::Gone), "{answer:?}");

    store.delete(HEAD).await.unwrap();
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;

    assert!(matches!(answer, HeadWrite::Gone), "{answer:?}");
    assert_eq!(double.object(HEAD), None);
    assert_eq!(double.requests().count(Op::Put), 2);
}

fn blames_bucket(cause: &Cause, name: &str) -> bool {
    let text = cause.to_string();
    let cause = cause.downcast_ref::<NoBucket>();
    cause.is_some_and(|it| it.bucket == name && it.status == 404) && text.contains(name)
}

fn denied<T: std::fmt::Debug>(answer: Result<T, ReadError>) -> Cause {
    match answer {
        Err(ReadError::Denied { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_is_named_by_every_call() {
    let (double, _, tag) = bucket().await;
    let credentials = S3Credentials {
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
    };
    let url = double.url("root").replace(double.bucket(), "bukcet");
    let options = S3Options::parse(&url).unwrap();
    let store = S3Bucket::open(&S3Options { credentials: Some(credentials), ..options }).unwrap();

    let put = match store.put("a", Bytes::new()).await {
        Err(PutError::Store(error)) => denied::<()>(Err(error)),
        other => panic!("{other:?}"),
    };
    let creation = no_answer(store.create_head(HEAD, Bytes::new()).await);
    let replacement = no_answer(store.replace_head(HEAD, &tag, Bytes::new()).await);
    assert_eq!((creation.kind, replacement.kind), (NoAnswerKind::Denied, NoAnswerKind::Denied));
    let causes = [
        ("put", put),
        ("create_head", creation.cause),
        ("replace_head", replacement.cause),
        ("read_head", denied(store.read_head(HEAD, None).await)),
        ("get", denied(store.get("a").await)),
        ("list", denied(store.list("", None, 1).await)),
        ("list_folder", denied(store.list_folder("").await)),
        ("delete", denied(store.delete("a").await)),
    ];
    for (call, cause) in &causes {
        assert!(blames_bucket(cause, "bukcet"), "{call}: {cause:?}");
    }
    assert_eq!(double.requests().all().len(), causes.len(), "nothing is sent twice");
}

#[tokio::test]
async fn a_404_is_never_a_missing_object_to_a_write() {
    let (double, store, _) = bucket().await;
    // With an empty body, as by a proxy: there is no code to go by.
    double.faults().on_next(Op::Put, "object", Fault::status_before(404));

    let PutError::Store(error) = store.put("object", Bytes::new()).await.unwrap_err() else {
        panic!("not occupied");
    };

    assert!(blames_bucket(&denied::<()>(Err(error)), double.bucket()));
    // To a read it is.
    double.faults().on_next(Op::Get, HEAD, Fault::status_before(404));
    assert_eq!(store.read_head(HEAD, None).await.unwrap(), HeadRead::Missing);
}

#[tokio::test]
async fn a_create_is_judged_by_its_status_too() {
    let (double, store, _) = bucket().await;
    let key = "new/head.json";
    for (fault, kind) in [
        (Fault::status_before(409), NoAnswerKind::Conflict),
        (Fault::status_before(404), NoAnswerKind::Denied),
        (Fault::close_before(), NoAnswerKind::Other),
        (Fault::close_after(), NoAnswerKind::Other),
    ] {
        double.faults().on_next(Op::Put, key, fault);
        assert_eq!(no_answer(store.create_head(key, Bytes::new()).await).kind, kind);
    }
    let answer = store.create_head(key, Bytes::new()).await;
    assert!(matches!(answer, HeadWrite::Mismatch), "{answer:?}");
    assert_eq!(double.requests().count(Op::Put), 5);
}

#[tokio::test]
async fn retry_after_reaches_the_caller_from_every_call() {
    let (double, store, tag) = bucket().await;
    let two_s = Some(Duration::from_secs(2));
    double.faults().add(Rule::new(Fault::status_before(503).with_retry_after(2)));

    let replaced = no_answer(store.replace_head(HEAD, &tag, Bytes::new()).await);
    assert_eq!((replaced.kind, replaced.retry_after), (NoAnswerKind::Throttled, two_s));
    assert_eq!(store.read_head(HEAD, None).await.unwrap_err().retry_after(), two_s);
    assert_eq!(store.get("a").await.unwrap_err().retry_after(), two_s);
    assert_eq!(store.list("", None, 1).await.unwrap_err().retry_after(), two_s);
    assert_eq!(store.list_folder("").await.unwrap_err().retry_after(), two_s);
    assert_eq!(store.delete("a").await.unwrap_err().retry_after(), two_s);
    let PutError::Store(error) = store.put("a", Bytes::new()).await.unwrap_err() else {
        panic!("not occupied");
    };
    assert_eq!(error.retry_after(), two_s);
    assert_eq!(double.requests().all().len(), 7);
}

#[tokio::test]
async fn a_write_may_be_applied_long_after_its_answer_was_lost() {
    let (double, store, tag) = bucket().await;
    let gate = Gate::new();
    double.faults().on_next(Op::Put, HEAD, Fault::apply_late(Wait::Gate(gate.clone())));
    no_answer(store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await);
    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);

    gate.open();

    replaced(&store, &tag).await;
    assert_eq!(double.object(HEAD).unwrap(), "2");
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_take_back_what_it_sent() {
    let (double, store, tag) = bucket().await;
    let gate = Gate::new();
    let wait = Fault::none().wait_before(Wait::Gate(gate.clone()));
    double.faults().on_next(Op::Put, HEAD, wait);
    let sending = tokio::spawn({
        let tag = tag.clone();
        async move { store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await }
    });
    gate.arrived(1).await;
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());

    gate.open();

    let store = open(&double, SECRET_ACCESS_KEY);
    replaced(&store, &tag).await;
}

#[tokio::test]
async fn a_connection_that_died_idle_costs_at_most_one_request() {
    for _ in 0..20 {
        let (mut double, store, tag) = bucket().await;
        double.restart().await.unwrap();

        let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;

        assert!(!matches!(answer, HeadWrite::Mismatch), "{answer:?}");
        assert!(double.requests().count(Op::Put) <= 1);
    }
}

#[tokio::test]
async fn a_stopped_bucket_is_unavailable_and_comes_back_with_its_objects() {
    let (mut double, store, tag) = bucket().await;
    double.stop().await;
    assert!(matches!(store.get(HEAD).await, Err(ReadError::Unavailable { .. })));
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;
    assert_eq!(no_answer(answer).kind, NoAnswerKind::Other);

    double.restart().await.unwrap();

    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
}

#[tokio::test]
async fn a_conflict_on_an_immutable_object_is_tried_again_and_is_not_occupied() {
    let (double, store, _) = bucket().await;
    double.faults().on_next(Op::Put, "object", Fault::status_before(409));
    let answer = store.put("object", Bytes::from_static(b"x")).await;
    assert!(matches!(answer, Err(PutError::Store(ReadError::Unavailable { .. }))), "{answer:?}");

    for fault in [Fault::status_before(409), Fault::close_after(), Fault::status_after(500)] {
        double.faults().on_next(Op::Put, "object", fault);
    }
    let config = RetryConfig { pause_first: Duration::from_millis(1), ..RetryConfig::default() };
    let store = Retry::new(Arc::new(store), config, Entropy::from_seed(1));
    store.put("object", Bytes::from_static(b"x")).await.unwrap();

    assert_eq!(double.requests().count_with(Op::Put, "object"), 5);
    let other = store.put("object", Bytes::from_static(b"y")).await;
    assert!(matches!(other, Err(PutError::Occupied { .. })), "{other:?}");
}

#[tokio::test]
async fn half_a_body_is_an_error_and_is_not_patched_up_by_the_client() {
    let (double, store, _) = bucket().await;
    store.put("object", Bytes::from(vec![7; 100_000])).await.unwrap();
    double.faults().on_next(Op::Get, "object", Fault::half_body());

    let answer = store.get("object").await;

    assert!(matches!(answer, Err(ReadError::Unavailable { .. })), "{answer:?}");
    assert_eq!(double.requests().count(Op::Get), 1);
    assert_eq!(store.get("object").await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn a_store_without_tags_is_refused() {
    let (double, store, _) = bucket().await;
    double.faults().on_next(Op::Get, HEAD, Fault::status_before(200));

    match store.read_head(HEAD, None).await {
        Err(ReadError::Denied { cause, .. }) => assert!(cause.to_string().contains("ETag")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reads_tell_refusal_from_absence_and_from_trouble() {
    let (double, store, tag) = bucket().await;
    for (status, is_denied) in [(401, true), (403, true), (409, false), (500, false), (304, false)]
    {
        double.faults().on_next(Op::Get, HEAD, Fault::status_before(status));
        let answer = store.read_head(HEAD, None).await;
        match (is_denied, &answer) {
            (true, Err(ReadError::Denied { .. })) | (false, Err(ReadError::Unavailable { .. })) => {
            }
            _ => panic!("{status}: {answer:?}"),
        }
    }
    assert!(matches!(store.get("none").await, Err(ReadError::Missing { .. })));
    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
    let stranger = open(&double, "wrong");
    assert!(matches!(stranger.get(HEAD).await, Err(ReadError::Denied { .. })));
    let answer = stranger.replace_head(HEAD, &tag, Bytes::new()).await;
    assert_eq!(no_answer(answer).kind, NoAnswerKind::Denied);
}

#[tokio::test]
async fn a_long_listing_takes_as_many_requests_as_it_has_pages() {
    let (double, store, _) = bucket().await;
    for n in 0..2_500 {
        store.put(&format!("many/{:04}/x", n / 2), Bytes::from(n.to_string())).await.ok();
    }
    double.clear_requests();

    let listed = store.list("many/", None, 10_000).await.unwrap();
    let folder = store.list_folder("many/").await.unwrap();

    assert_eq!((listed.len(), folder.folders.len()), (1_250, 1_250));
    assert!(listed.is_sorted_by_key(|it| it.key.clone()) && folder.folders.is_sorted());
    assert_eq!(double.requests().count(Op::List), 4);
}

#[tokio::test]
async fn a_large_object_is_counted_as_the_requests_that_it_is() {
    let (double, store, _) = bucket().await;
    let meter = Meter::new(Arc::new(store));
    meter.put("small", Bytes::from_static(b"x")).await.unwrap();
    meter.put("large", large()).await.unwrap();

    let readings = meter.read();

    assert_eq!(readings.calls(Call::Put), 2);
    let n_sent = double.requests().all().len();
    assert_eq!((readings.requests().puts, n_sent), (6, 6), "one, and three parts in five");
    assert_eq!(readings.since(&readings).requests().puts, 0);
    assert_eq!(readings.plus(&readings).requests().puts, 12);
}

#[tokio::test]
async fn a_large_object_of_known_size_comes_in_parts_and_otherwise_whole() {
    let (double, store, _) = bucket().await;
    store.put("large", large()).await.unwrap();
    let size_bytes = large().len() as u64;
    let meter = Meter::new(Arc::new(store));
    for (told, conduct, n_requests) in [
        (size_bytes, "unique-tags", 3),
        // Three parts that are no such parts, and the whole.
        (size_bytes, "ranges-ignored", 4),
        (size_bytes + 1, "unique-tags", 4),
        (1, "unique-tags", 1),
    ] {
        double.set_conduct(Conduct::default().with(conduct).unwrap());
        double.clear_requests();

        assert_eq!(meter.get_sized("large", told).await.unwrap(), large(), "{told}, {conduct}");

        // Parts that are under way when the first one is wrong may not be sent.
        let n_sent = double.requests().count(Op::Get);
        assert!(n_sent <= n_requests && (n_requests != 3 || n_sent == 3), "{told}: {n_sent}");
    }
    assert_eq!(meter.read().requests().gets, 3 + 3 + 3 + 1);
    assert_eq!(meter.read().calls(Call::Get), 4);
}

#[tokio::test]
async fn a_part_that_is_not_answered_is_a_read_that_is_not() {
    let (double, store, _) = bucket().await;
    store.put("large", large()).await.unwrap();
    let size_bytes = large().len() as u64;
    for fault in [Fault::status_before(503), Fault::close_before(), Fault::half_body()] {
        double.faults().add(Rule::new(fault.clone()).on(Op::Get).skip(2).times(1));
        let answer = store.get_sized("large", size_bytes).await;
        assert!(matches!(answer, Err(ReadError::Unavailable { .. })), "{fault:?}: {answer:?}");
        double.faults().clear();
    }
    double.faults().add(Rule::new(Fault::status_before(404)).on(Op::Get).times(1));
    let answer = store.get_sized("large", size_bytes).await;
    assert!(matches!(answer, Err(ReadError::Missing { .. })), "{answer:?}");
    let answer = store.get_sized("none", size_bytes).await;
    assert!(matches!(answer, Err(ReadError::Missing { .. })), "{answer:?}");
}

/// Goes in three parts.
fn large() -> Bytes {
    Bytes::from(vec![7; (33 << 20) + 1])
}

#[tokio::test]
async fn a_large_object_is_created_by_its_last_step_and_leaves_nothing_when_it_is_not() {
    let (double, store, _) = bucket().await;
    store.put("small", Bytes::from_static(b"first")).await.unwrap();
    let taken = store.put("small", large()).await;
    assert!(matches!(taken, Err(PutError::Occupied { .. })), "{taken:?}");
    assert_eq!((double.object("small").unwrap(), double.n_open_uploads()), ("first".into(), 0));

    // Each step fails once: the start, a part, the completion.
    for (skip, fault) in [
        (0, Fault::status_before(503)),
        (2, Fault::status_before(500)),
        (4, Fault::status_before(409)),
        (4, Fault::close_before()),
    ] {
        double.faults().add(Rule::new(fault.clone()).on(Op::Upload).skip(skip).times(1));
        let answer = store.put("large", large()).await;
        let is_tried_again = matches!(answer, Err(PutError::Store(ReadError::Unavailable { .. })));
        assert!(is_tried_again, "{fault:?}: {answer:?}");
        double.faults().clear();
        assert_eq!((double.object("large"), double.n_open_uploads()), (None, 0), "{fault:?}");
    }
    double.faults().add(Rule::new(Fault::status_before(403)).on(Op::Upload).skip(1).times(1));
    let denied = store.put("large", large()).await;
    assert!(matches!(denied, Err(PutError::Store(ReadError::Denied { .. }))), "{denied:?}");

    // Completed, and the answer lost: the next attempt finds it.
    double.faults().add(Rule::new(Fault::close_after()).on(Op::Upload).skip(4).times(1));
    store.put("large", large()).await.unwrap_err();
    assert_eq!(double.object("large").unwrap(), large());
    store.put("large", large()).await.unwrap();
    assert_eq!(double.n_open_uploads(), 0);
}
