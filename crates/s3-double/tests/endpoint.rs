//! The endpoint, as `object_store`'s own client sees it.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use headwater_s3_double::{
    ACCESS_KEY_ID, BUCKET, Fault, Gate, Op, Rule, S3Double, SECRET_ACCESS_KEY, Wait,
};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult, RetryConfig,
    UpdateVersion,
};
use tokio::time::Instant;

/// A client that sends each request once.
fn client(endpoint: &str, secret: Option<&str>) -> AmazonS3 {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let builder = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_bucket_name(BUCKET)
        .with_allow_http(true)
        .with_retry(retry);
    let builder = match secret {
        Some(secret) => builder.with_access_key_id(ACCESS_KEY_ID).with_secret_access_key(secret),
        None => builder.with_skip_signature(true),
    };
    builder.build().unwrap()
}

async fn start() -> (S3Double, AmazonS3) {
    let double = S3Double::start().await.unwrap();
    let client = client(&double.endpoint(), Some(SECRET_ACCESS_KEY));
    (double, client)
}

async fn put(client: &AmazonS3, key: &str, text: &str, mode: PutMode) -> Result<PutResult, Error> {
    let options = PutOptions { mode, ..PutOptions::default() };
    client.put_opts(&Path::from(key), text.to_owned().into(), options).await
}

fn if_match(put: &PutResult) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: put.e_tag.clone(), version: None })
}

#[tokio::test]
async fn conditions_hold_and_tags_are_the_md5_of_the_bytes() {
    let (double, client) = start().await;
    let first = put(&client, "a", "hello", PutMode::Create).await.unwrap();
    assert_eq!(first.e_tag.as_deref(), Some("\"5d41402abc4b2a76b9719d911017c592\""));
    let second = put(&client, "a", "2", if_match(&first)).await.unwrap();

    let stale = put(&client, "a", "3", if_match(&first)).await;
    assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
    let taken = put(&client, "a", "3", PutMode::Create).await;
    assert!(matches!(taken, Err(Error::AlreadyExists { .. })), "{taken:?}");
    let missing = put(&client, "b", "3", if_match(&second)).await.unwrap_err();
    assert!(format!("{missing:?}").contains("NoSuchKey"), "404, as S3 has it: {missing:?}");
    let known = GetOptions { if_none_match: second.e_tag.clone(), ..GetOptions::default() };
    let unchanged = client.get_opts(&Path::from("a"), known).await;
    assert!(matches!(unchanged, Err(Error::NotModified { .. })), "{unchanged:?}");
    assert_eq!(double.object("a").unwrap(), "2");
    assert_eq!(double.keys(), ["a"]);
}

#[tokio::test]
async fn parts_and_sizes_of_objects_are_told() {
    let (_double, client) = start().await;
    put(&client, "a", "0123456789", PutMode::Overwrite).await.unwrap();
    let path = Path::from("a");

    assert_eq!(client.get_range(&path, 3..6).await.unwrap(), "345");
    let head = client.head(&path).await.unwrap();
    assert_eq!(head.size, 10);
    assert!(head.e_tag.is_some());
}

#[tokio::test]
async fn many_are_deleted_at_once() {
    let (double, client) = start().await;
    for key in ["a", "b", "c"] {
        put(&client, key, "x", PutMode::Create).await.unwrap();
    }
    let keys = futures::stream::iter(["a", "none", "c"].map(|it| Ok(Path::from(it))));

    let deleted: Vec<_> = client.delete_stream(Box::pin(keys)).try_collect().await.unwrap();

    assert_eq!((deleted.len(), double.keys()), (3, vec!["b".to_owned()]));
}

#[tokio::test]
async fn a_wrong_signature_is_refused_and_none_is_taken() {
    let (double, _) = start().await;
    put(&client(&double.endpoint(), None), "a", "x", PutMode::Create).await.unwrap();

    let wrong = put(&client(&double.endpoint(), Some("wrong")), "b", "x", PutMode::Create).await;

    assert!(matches!(wrong, Err(Error::PermissionDenied { .. })), "{wrong:?}");
}

#[tokio::test]
async fn a_repeated_replacement_is_refused_by_its_own_success() {
    let (double, client) = start().await;
    let first = put(&client, "a", "1", PutMode::Create).await.unwrap();
    double.faults().on_next(Op::Put, "a", Fault::repeat());

    let answer = put(&client, "a", "2", if_match(&first)).await;

    assert!(matches!(answer, Err(Error::Precondition { .. })), "{answer:?}");
    assert_eq!(double.object("a").unwrap(), "2");
}

#[tokio::test]
async fn rules_name_requests_by_kind_key_and_count() {
    let (double, client) = start().await;
    let rule = Rule::new(Fault::status_before(500)).on(Op::Put).key_has("x/").skip(1).times(2);
    double.faults().add(rule);
    let mut seen = Vec::new();
    for key in ["y", "x/1", "x/2", "y", "x/3", "x/4"] {
        seen.push((key, put(&client, key, "", PutMode::Overwrite).await.is_ok()));
    }
    let failed: Vec<_> = seen.iter().filter(|it| !it.1).map(|it| it.0).collect();
    assert_eq!(failed, ["x/2", "x/3"]);
    assert_eq!(double.requests().count(Op::Put), 6);
    assert_eq!(double.requests().count_with(Op::Put, "x/"), 4);

    double.faults().add(Rule::new(Fault::close_before()));
    client.get(&Path::from("y")).await.unwrap_err();
    double.faults().clear();
    client.get(&Path::from("y")).await.unwrap();
}

#[tokio::test]
async fn an_answer_waits_after_its_request_was_applied() {
    let (double, client) = start().await;
    let gate = Gate::new();
    let fault = Fault::none().wait_after(Wait::Gate(gate.clone()));
    double.faults().on_next(Op::Put, "a", fault);
    let sending = tokio::spawn(async move { put(&client, "a", "1", PutMode::Create).await });

    gate.arrived(1).await;

    assert_eq!(double.object("a").unwrap(), "1");
    assert!(!sending.is_finished());
    gate.open();
    sending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_delay_is_at_least_as_long_as_ordered() {
    let (double, client) = start().await;
    let delay = Duration::from_millis(50);
    double.faults().on_next(Op::Put, "a", Fault::none().wait_before(Wait::Time(delay)));
    let began = Instant::now();

    put(&client, "a", "1", PutMode::Create).await.unwrap();

    assert!(delay <= began.elapsed());
}

#[tokio::test]
async fn the_endpoint_runs_as_a_process() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headwater-s3-double"))
        .args(["--port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let endpoint = output.lines().next().unwrap().unwrap();

    let written = put(&client(&endpoint, None), "a", "1", PutMode::Create).await;

    child.kill().unwrap();
    child.wait().unwrap();
    written.unwrap();
}

#[tokio::test]
async fn a_large_object_comes_back_whole() {
    let (_double, client) = start().await;
    let bytes = Bytes::from(vec![7; 20 << 20]);
    client.put(&Path::from("a"), bytes.clone().into()).await.unwrap();

    assert!(client.get(&Path::from("a")).await.unwrap().bytes().await.unwrap() == bytes);
}
