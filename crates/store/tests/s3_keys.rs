//! Keys that expire, and permissions that are missing.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_s3_double::{ACCESS_KEY_ID, Conduct, Op, S3Double, SECRET_ACCESS_KEY};
use headwater_store::{
    Entropy, HeadRead, HeadWrite, Layers, LayersConfig, NoAnswerKind, PutError, ReadError,
    S3Bucket, S3Credentials, S3Options, Store,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

const HEAD: &str = "h/head.json";

/// How long each key lasts; longer than a request waits on a busy machine.
const LIFETIME: Duration = Duration::from_secs(2);

/// A store that gets its keys as a machine does.
fn machine(double: &S3Double) -> S3Bucket {
    let options = S3Options::parse(&double.url("")).unwrap();
    let metadata_endpoint = Some(double.metadata_endpoint());
    S3Bucket::open(&S3Options { metadata_endpoint, ..options }).unwrap()
}

fn known(double: &S3Double) -> S3Bucket {
    let credentials = Some(S3Credentials {
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
    });
    let options = S3Options::parse(&double.url("")).unwrap();
    S3Bucket::open(&S3Options { credentials, ..options }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_are_renewed_under_load_before_they_expire() {
    let double = S3Double::start().await.unwrap();
    double.set_key_lifetime(LIFETIME);
    let store = Arc::new(machine(&double));
    let created = store.create_head(HEAD, Bytes::from_static(b"0")).await;
    assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");

    // Two keys expire meanwhile.
    let until = Instant::now() + 2 * LIFETIME + LIFETIME / 2;
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut n_replaced = 0;
            for n in 0.. {
                if until < Instant::now() {
                    break;
                }
                let key = format!("objects/{task}/{n}");
                store.put(&key, Bytes::from(key.clone())).await.unwrap();
                assert_eq!(store.get(&key).await.unwrap(), key);
                let HeadRead::Found { tag, .. } = store.read_head(HEAD, None).await.unwrap() else {
                    panic!("the head was created before");
                };
                match store.replace_head(HEAD, &tag, Bytes::from(key)).await {
                    HeadWrite::Replaced { .. } => n_replaced += 1,
                    HeadWrite::Mismatch => (),
                    other => panic!("{other:?}"),
                }
            }
            n_replaced
        });
    }
    let n_replaced: u64 = tasks.join_all().await.into_iter().sum();

    assert!(0 < n_replaced);
    assert!(3 <= double.n_keys_fetched(), "{}", double.n_keys_fetched());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_that_expire_too_early_cost_repeats_and_no_errors() {
    let double = Arc::new(S3Double::start().await.unwrap());
    double.set_key_lifetime(LIFETIME);
    let adapter = Arc::new(machine(&double));
    let store = Layers::around(adapter, LayersConfig::default(), Entropy::from_os()).store;
    let n_revoked = AtomicU64::new(0);
    let working = async {
        for n in 0..200 {
            let key = format!("objects/{n}");
            store.put(&key, Bytes::from(key.clone())).await.unwrap();
            assert_eq!(store.get(&key).await.unwrap(), key);
        }
    };
    let revoking = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            double.expire_keys();
            n_revoked.fetch_add(1, Ordering::Relaxed);
        }
    };

    tokio::select! {
        () = working => (),
        () = revoking => unreachable!("it goes on"),
    }
    // At least once, whatever the machine's speed: the next call meets it.
    double.expire_keys();
    store.put("after", Bytes::new()).await.unwrap();
}

/// What a call that is not allowed says: the key, and that it was refused.
fn assert_denied<T: std::fmt::Debug>(what: &str, answer: Result<T, ReadError>) {
    match answer {
        Err(ReadError::Denied { key, cause }) => {
            assert!(!key.is_empty(), "{what}");
            let text = format!("{cause} {cause:?}");
            assert!(text.contains("403") || text.contains("AccessDenied"), "{what}: {text}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_not_allowed_is_denied_and_is_not_repeated() {
    let double = S3Double::start().await.unwrap();
    let store = known(&double);
    store.put("a", Bytes::from_static(b"a")).await.unwrap();
    let created = store.create_head(HEAD, Bytes::from_static(b"1")).await;
    let HeadWrite::Replaced { tag } = created else { panic!("{created:?}") };
    let store = Layers::around(Arc::new(store), LayersConfig::default(), Entropy::from_os()).store;

    let deny = |ops: &[Op]| {
        let denied: BTreeSet<Op> = ops.iter().copied().collect();
        double.set_conduct(Conduct { denied, ..Conduct::default() });
        double.clear_requests();
    };
    deny(&[Op::List]);
    assert_denied("list", store.list("a", None, 1).await);
    assert_denied("list_folder", store.list_folder("a/").await);
    assert_eq!(double.requests().all().len(), 2);
    // Who may not list is not told what is missing.
    assert_denied("get", store.get("none").await);
    assert_eq!(store.get("a").await.unwrap(), "a");
    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);

    deny(&[Op::Delete]);
    assert_denied("delete", store.delete("a").await);
    assert_eq!(double.requests().all().len(), 1);
    store.put("b", Bytes::new()).await.unwrap();

    deny(&[Op::Put, Op::Delete]);
    match store.put("c", Bytes::new()).await {
        Err(PutError::Store(error)) => assert_denied::<()>("put", Err(error)),
        other => panic!("{other:?}"),
    }
    match store.put("large", Bytes::from(vec![7; 33 << 20])).await {
        Err(PutError::Store(error)) => assert_denied::<()>("put", Err(error)),
        other => panic!("{other:?}"),
    }
    match store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await {
        HeadWrite::NoAnswer(it) => assert_eq!(it.kind, NoAnswerKind::Denied),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.get("a").await.unwrap(), "a");
    assert_eq!(store.list("", None, 9).await.unwrap().len(), 3);
    assert_eq!(double.object(HEAD).unwrap(), "1");
}
