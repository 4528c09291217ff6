//! Directory buckets, as far as can be seen of what is sent: there is no server
//! for tests that plays them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};

use super::*;
use crate::{HeadWrite, Store as _};

/// What was sent: method, URL, headers.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    url: url::Url,
    headers: http::HeaderMap,
}

impl Sent {
    fn query(&self, name: &str) -> Option<String> {
        self.url.query_pairs().find(|it| it.0 == name).map(|it| it.1.into_owned())
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|it| it.to_str().unwrap())
    }
}

/// Answers as AWS's reference has it, with listings in no order.
#[derive(Clone, Debug, Default)]
struct Directory(Arc<Mutex<Vec<Sent>>>);

const SESSION: &str = "<CreateSessionResult><Credentials><SessionToken>token</SessionToken>\
    <SecretAccessKey>secret</SecretAccessKey><AccessKeyId>session</AccessKeyId>\
    <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>";

fn page(keys: &[&str], next: Option<&str>) -> String {
    let object = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><Size>1</Size><ETag>\"e\"</ETag>\
             <LastModified>2025-01-01T00:00:00Z</LastModified></Contents>"
        )
    };
    let objects: String = keys.iter().map(object).collect();
    let next = next.map(|it| format!("<NextContinuationToken>{it}</NextContinuationToken>"));
    format!("<ListBucketResult>{objects}{}</ListBucketResult>", next.unwrap_or_default())
}

#[async_trait]
impl HttpService for Directory {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let sent = Sent { method, url: request.uri().to_string().parse().unwrap(), headers };
        let body = if sent.query("session").is_some() {
            SESSION.to_owned()
        } else if sent.query("list-type").is_some() {
            match sent.query("continuation-token").as_deref() {
                None => page(&["r/a/4", "r/a/2"], Some("second")),
                // A page may be empty and not be the last.
                Some("second") => page(&[], Some("third")),
                Some(_) => page(&["r/a/3", "r/a/1", "r/a/b/0"], None),
            }
        } else {
            String::new()
        };
        self.0.lock().unwrap().push(sent);
        let answer = Response::builder().status(StatusCode::OK).header("etag", "\"e\"");
        Ok(answer.body(Bytes::from(body).into()).unwrap())
    }
}

impl HttpConnector for Directory {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

fn open() -> (Directory, S3Bucket) {
    let url = "s3://b--usw2-az1--x-s3/r?region=us-west-2";
    let credentials =
        Some(S3Credentials { access_key_id: "k".into(), secret_access_key: "s".into() });
    let options = S3Options { credentials, ..S3Options::parse(url).unwrap() };
    let directory = Directory::default();
    let connector = NotingConnector::over(directory.clone());
    (directory, S3Bucket::open_over(&options, &connector).unwrap())
}

#[tokio::test]
async fn writes_are_signed_by_a_session_of_the_zone_and_keep_their_conditions() {
    let (directory, bucket) = open();

    let created = bucket.create_head("h/head.json", Bytes::from_static(b"1")).await;
    let HeadWrite::Replaced { tag } = created else { panic!("{created:?}") };
    bucket.replace_head("h/head.json", &tag, Bytes::from_static(b"2")).await;

    let sent = directory.0.lock().unwrap().clone();
    let [session, create, replace] = &sent[..] else { panic!("{sent:?}") };
    let host = "b--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com";
    for request in &sent {
        assert_eq!(request.url.host_str(), Some(host));
    }
    assert_eq!(session.method, Method::GET);
    assert_eq!(create.url.path(), "/r/h/head.json");
    assert_eq!(create.header("x-amz-s3session-token"), Some("token"));
    assert_eq!(create.header("if-none-match"), Some("*"));
    assert_eq!(replace.header("if-match"), Some("\"e\""));
    assert!(replace.header("authorization").unwrap().contains("Credential=session/"));
}

#[tokio::test]
async fn listings_without_an_order_are_put_in_order() {
    let (directory, bucket) = open();
    let list = async |prefix: &str, after: Option<&str>, limit: usize| {
        let listed = bucket.list(prefix, after, limit).await.unwrap();
        listed.into_iter().map(|it| it.key).collect::<Vec<_>>()
    };

    assert_eq!(list("a/", None, 9).await, ["a/1", "a/2", "a/3", "a/4", "a/b/0"]);
    assert_eq!(list("a/", None, 2).await, ["a/1", "a/2"]);
    assert_eq!(list("a/", Some("a/2"), 2).await, ["a/3", "a/4"]);
    assert_eq!(list("a/b", None, 9).await, ["a/b/0"]);
    assert_eq!(list("a/", None, 0).await, [""; 0]);

    for sent in directory.0.lock().unwrap().iter().filter(|it| it.query("list-type").is_some()) {
        // AWS, "ListObjectsV2", directory buckets: only prefixes that end with
        // a `/`, and no start-after.
        assert_eq!(sent.query("prefix").as_deref(), Some("r/a/"));
        assert_eq!(sent.query("start-after"), None);
    }
}
