//! Every conduct, as a client meets it.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use futures::TryStreamExt;
use headwater_s3_double::{
    ACCESS_KEY_ID, BUCKET, Compared, Conditions, Conduct, LifecycleRule, Op, Refusal, S3Double,
    SECRET_ACCESS_KEY, Tags, Versioning, WriteLimit,
};
use http::StatusCode;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult, RetryConfig, UpdateVersion,
};

/// Long enough for two requests to meet on a busy machine.
const GAP: Duration = Duration::from_millis(300);

const HOUR: Duration = Duration::from_secs(3600);

fn builder(double: &S3Double) -> AmazonS3Builder {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    AmazonS3Builder::new()
        .with_endpoint(double.endpoint())
        .with_bucket_name(BUCKET)
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_allow_http(true)
        .with_retry(retry)
}

fn client(double: &S3Double) -> AmazonS3 {
    let builder = builder(double);
    builder
        .with_access_key_id(ACCESS_KEY_ID)
        .with_secret_access_key(SECRET_ACCESS_KEY)
        .build()
        .unwrap()
}

async fn start(conduct: Conduct) -> (S3Double, AmazonS3) {
    let double = S3Double::start().await.unwrap();
    double.set_conduct(conduct);
    let client = client(&double);
    (double, client)
}

async fn put(client: &AmazonS3, key: &str, text: &str, mode: PutMode) -> Result<PutResult, Error> {
    let options = PutOptions { mode, ..PutOptions::default() };
    client.put_opts(&Path::from(key), text.to_owned().into(), options).await
}

async fn replace(
    client: &AmazonS3,
    key: &str,
    text: &str,
    tag: Option<String>,
) -> Result<PutResult, Error> {
    put(client, key, text, PutMode::Update(UpdateVersion { e_tag: tag, version: None })).await
}

/// The status and the code of a failed call, out of what the client says.
fn has(error: &Error, parts: &[&str]) -> bool {
    let text = format!("{error:?}");
    parts.iter().all(|it| text.contains(it))
}

fn conditions(conditions: Conditions) -> Conduct {
    Conduct { conditions, ..Conduct::default() }
}

#[tokio::test]
async fn a_condition_that_is_ignored_holds_never() {
    let (double, client) = start(conditions(Conditions::IfMatchIgnored)).await;
    put(&client, "a", "1", PutMode::Create).await.unwrap();
    replace(&client, "a", "2", Some("\"stale\"".into())).await.unwrap();
    let taken = put(&client, "a", "3", PutMode::Create).await;
    assert!(matches!(taken, Err(Error::AlreadyExists { .. })), "{taken:?}");
    assert_eq!(double.object("a").unwrap(), "2");

    double.set_conduct(conditions(Conditions::Ignored));
    put(&client, "a", "3", PutMode::Create).await.unwrap();
    replace(&client, "none", "4", Some("\"stale\"".into())).await.unwrap();
    assert_eq!(double.object("a").unwrap(), "3");
}

#[tokio::test]
async fn in_a_race_two_creates_or_two_replacements_succeed() {
    for (conduct, both_replace) in
        [(Conditions::CreatesRace(GAP), false), (Conditions::Race(GAP), true)]
    {
        let (_double, client) = start(conditions(conduct)).await;
        let create = |text| put(&client, "a", text, PutMode::Create);
        let (one, other) = tokio::join!(create("1"), create("2"));
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
        let taken = create("3").await;
        assert!(matches!(taken, Err(Error::AlreadyExists { .. })), "one at a time it holds");

        let tag = client.head(&Path::from("a")).await.unwrap().e_tag;
        let replace = |text| replace(&client, "a", text, tag.clone());
        let (one, other) = tokio::join!(replace("x"), replace("y"));
        assert_eq!(one.is_ok() && other.is_ok(), both_replace, "{one:?} {other:?}");
        let stale = replace("z").await;
        assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
    }
}

#[tokio::test]
async fn a_failed_condition_may_be_answered_with_304() {
    let conduct = Conduct { refusal: Refusal::NotModified, ..Conduct::default() };
    let (double, client) = start(conduct).await;
    put(&client, "a", "1", PutMode::Create).await.unwrap();

    for _ in 0..2 {
        let stale = replace(&client, "a", "2", Some("\"stale\"".into())).await;
        assert!(matches!(stale, Err(Error::NotModified { .. })), "{stale:?}");
    }

    assert_eq!(double.object("a").unwrap(), "1");
}

#[tokio::test]
async fn tags_are_weak_or_never_the_same() {
    let (double, client) = start(Conduct { tags: Tags::Weak, ..Conduct::default() }).await;
    let weak = put(&client, "a", "1", PutMode::Create).await.unwrap().e_tag;
    assert!(weak.as_ref().unwrap().starts_with("W/\""), "{weak:?}");
    let refused = replace(&client, "a", "2", weak).await;
    assert!(matches!(refused, Err(Error::Precondition { .. })), "{refused:?}");

    double.set_conduct(Conduct { tags: Tags::Unique, ..Conduct::default() });
    let first = put(&client, "b", "1", PutMode::Create).await.unwrap().e_tag;
    let second = replace(&client, "b", "1", first.clone()).await.unwrap().e_tag;
    assert_ne!(first, second);
    let stale = replace(&client, "b", "2", first).await;
    assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
}

#[tokio::test]
async fn a_tag_may_match_in_one_form_only() {
    for (compared, quoted_matches, bare_matches) in [
        (Compared::Both, true, true),
        (Compared::Quoted, true, false),
        (Compared::Unquoted, false, true),
    ] {
        let (_double, client) = start(Conduct { compared, ..Conduct::default() }).await;
        for (is_bare, matches) in [(false, quoted_matches), (true, bare_matches)] {
            let key = format!("{is_bare}");
            let tag = put(&client, &key, "1", PutMode::Create).await.unwrap().e_tag.unwrap();
            let bare = tag.trim_matches('"').to_owned();

            let tag = if is_bare { bare } else { tag };
            let answer = replace(&client, &key, "2", Some(tag)).await;

            match (&answer, matches) {
                (Ok(_), true) | (Err(Error::Precondition { .. }), false) => (),
                _ => panic!("{compared:?}, bare: {is_bare}: {answer:?}"),
            }
            let stale = replace(&client, &key, "3", Some("stale".into())).await;
            assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
        }
    }
}

#[tokio::test]
async fn a_listing_gets_to_know_late() {
    let late = Conduct { listing_delay: HOUR, ..Conduct::default() };
    let (double, client) = start(late.clone()).await;
    let list = || async { client.list(None).try_collect::<Vec<_>>().await.unwrap().len() };

    put(&client, "a", "1", PutMode::Create).await.unwrap();
    assert_eq!(list().await, 0);
    client.get(&Path::from("a")).await.unwrap();
    double.set_conduct(Conduct::default());
    assert_eq!(list().await, 1);
    double.set_conduct(late);
    client.delete(&Path::from("a")).await.unwrap();
    assert_eq!(list().await, 1);
    double.set_conduct(Conduct { listing_delay: Duration::from_millis(1), ..Conduct::default() });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(list().await, 0);
}

#[tokio::test]
async fn one_object_may_be_written_once_in_an_interval() {
    for status in [429, 503] {
        let interval = HOUR;
        let limit = WriteLimit { interval, status, retry_after_s: Some(7) };
        let (double, client) = start(Conduct { limit: Some(limit), ..Conduct::default() }).await;
        let first = put(&client, "a", "1", PutMode::Create).await.unwrap().e_tag;

        let soon = replace(&client, "a", "2", first.clone()).await.unwrap_err();

        assert!(has(&soon, &[&format!("status: {status}")]), "{soon:?}");
        put(&client, "b", "1", PutMode::Create).await.unwrap();
        let interval = Duration::from_millis(1);
        let limit = WriteLimit { interval, ..limit };
        double.set_conduct(Conduct { limit: Some(limit), ..Conduct::default() });
        tokio::time::sleep(interval).await;
        replace(&client, "a", "2", first).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_denied_is_refused_and_nothing_else() {
    let (double, client) = start(Conduct::default()).await;
    put(&client, "a", "1", PutMode::Create).await.unwrap();
    let path = Path::from("a");
    for denied in [Op::Put, Op::Get, Op::Delete, Op::List] {
        let denied = BTreeSet::from([denied]);
        double.set_conduct(Conduct { denied: denied.clone(), ..Conduct::default() });
        let answers = [
            (Op::Get, client.get(&path).await.err()),
            (Op::List, client.list(None).try_collect::<Vec<_>>().await.err()),
            (Op::Put, put(&client, "a", "1", PutMode::Overwrite).await.err()),
            (Op::Delete, client.delete(&path).await.err()),
        ];
        for (op, error) in answers {
            let refused = error.is_some_and(|it| has(&it, &["403"]) || has(&it, &["AccessDenied"]));
            assert_eq!(refused, denied.contains(&op), "{denied:?}: {op:?}");
        }
        double.set_conduct(Conduct::default());
        put(&client, "a", "1", PutMode::Overwrite).await.unwrap();
    }

    let denied = BTreeSet::from([Op::List]);
    double.set_conduct(Conduct { denied, ..Conduct::default() });
    let missing = client.get(&Path::from("none")).await.unwrap_err();
    assert!(matches!(missing, Error::PermissionDenied { .. }), "who may not list: {missing:?}");
}

#[tokio::test]
async fn a_temporary_key_is_taken_until_it_expires() {
    let (double, _) = start(Conduct::default()).await;
    let key = double.issue_key(HOUR);
    let client = builder(&double)
        .with_access_key_id(key.access_key_id)
        .with_secret_access_key(key.secret_access_key)
        .with_token(key.session_token)
        .build()
        .unwrap();
    put(&client, "a", "1", PutMode::Create).await.unwrap();

    double.expire_keys();

    let late = put(&client, "b", "1", PutMode::Create).await.unwrap_err();
    assert!(has(&late, &["ExpiredToken"]), "{late:?}");
    assert_eq!(double.keys(), ["a"]);
}

#[tokio::test]
async fn keys_are_handed_out_to_machines_and_containers() {
    let (double, _) = start(Conduct::default()).await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "a token").unwrap();
    let machine = builder(&double).with_metadata_endpoint(double.metadata_endpoint());
    let full_uri = AmazonS3ConfigKey::ContainerCredentialsFullUri;
    let token_file = AmazonS3ConfigKey::ContainerAuthorizationTokenFile;
    let container = builder(&double)
        .with_config(full_uri, double.container_credentials_uri())
        .with_config(token_file, token.path().to_str().unwrap());

    for (n, builder) in [machine, container].into_iter().enumerate() {
        let client = builder.build().unwrap();
        put(&client, &n.to_string(), "1", PutMode::Create).await.unwrap();
        assert_eq!(double.n_keys_fetched(), n as u64 + 1);
    }

    assert_eq!(double.requests().all().len(), 2, "only what is asked of the bucket");
}

/// Sends a GET without a client that would know the answer's form.
async fn get(double: &S3Double, path: &str) -> (StatusCode, String, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let addr = double.endpoint().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(&addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.into())
}

#[tokio::test]
async fn the_bucket_says_its_settings_and_a_time() {
    let (double, _) = start(Conduct::default()).await;
    let (status, _, body) = get(&double, &format!("/{BUCKET}?versioning")).await;
    assert_eq!(status, 200);
    assert!(!body.contains("Status"), "{body}");
    let (status, _, body) = get(&double, &format!("/{BUCKET}?lifecycle")).await;
    assert_eq!(status, 404);
    assert!(body.contains("NoSuchLifecycleConfiguration"), "{body}");

    let rule = LifecycleRule { id: "r".into(), expire_days: Some(9), ..LifecycleRule::default() };
    double.set_conduct(Conduct {
        versioning: Versioning::Enabled,
        lifecycle: vec![rule],
        clock_ahead_s: -400 * 24 * 3600,
        ..Conduct::default()
    });
    let (_, head, body) = get(&double, &format!("/{BUCKET}?versioning")).await;
    assert!(body.contains("<Status>Enabled</Status>"), "{body}");
    let (_, _, body) = get(&double, &format!("/{BUCKET}?lifecycle")).await;
    assert!(body.contains("<Days>9</Days>"), "{body}");
    double.set_conduct(Conduct::default());
    let (_, head_now, _) = get(&double, &format!("/{BUCKET}?versioning")).await;
    let year = |head: &str| {
        let date = head.lines().find_map(|it| it.strip_prefix("date: ")).unwrap().to_owned();
        date.split(' ').nth(3).unwrap().parse::<u32>().unwrap()
    };
    assert!(year(&head) < year(&head_now), "{head} {head_now}");
    assert_eq!(double.requests().count(Op::Settings), 5);
}
