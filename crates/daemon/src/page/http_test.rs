use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, advance};
use tower::ServiceExt as _;

use super::*;
use crate::health::{For, Health};
use crate::overview::{WriterHistory, WriterOverview, WriterSource, WriterTotals};
use crate::page::{Page, Status};
use crate::tally::Durations;

/// A writer with so many histories open.
#[derive(Debug)]
struct Fake(usize);

impl WriterSource for Fake {
    fn overview(&self, window: &Window) -> WriterOverview {
        let names = (0..self.0).map(|it| format!("h/{it:05}"));
        let meant = names
            .filter(|it| it.starts_with(&window.prefix) && window.after < *it)
            .take(window.limit)
            .map(|name| WriterHistory {
                name,
                head: None,
                receipts: 0,
                queue_operations: 0,
                queue_operations_max: 1,
            });
        WriterOverview {
            histories_open: self.0 as u64,
            histories: meant.collect(),
            ..WriterOverview::default()
        }
    }

    fn totals(&self) -> WriterTotals {
        let latencies = Durations::default();
        for _ in 0..10 {
            latencies.record(Duration::from_millis(3));
        }
        WriterTotals { commits: 10, operations: 40, latencies: latencies.read() }
    }
}

fn page_of(open: usize) -> Page {
    let health = Health::new();
    health.check("store", For::All).ready();
    Page::start(Parts {
        name: "writer",
        store: "s3://bucket/prefix?secret_access_key=s3cr3t".into(),
        began: Instant::now(),
        health,
        meter: None,
        writer: Some(Arc::new(Fake(open))),
        replica: None,
    })
}

async fn asked(page: &Page, path: &str) -> (StatusCode, Vec<(String, String)>, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = page.router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let headers = parts.headers.iter();
    let headers = headers.map(|(name, it)| (name.to_string(), it.to_str().unwrap().to_owned()));
    let headers = headers.collect();
    let text = body.collect().await.unwrap().to_bytes();
    (parts.status, headers, String::from_utf8(text.to_vec()).unwrap())
}

async fn status_of(page: &Page, query: &str) -> Status {
    let (code, _, text) = asked(page, &format!("/status.json{query}")).await;
    assert_eq!(code, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn every_answer_has_the_policy_and_tells_browsers_to_guess_nothing() {
    let page = page_of(1);
    let (_, _, html) = asked(&page, "/").await;
    let files = html.split(['"']).filter(|it| it.starts_with("assets/")).collect::<Vec<_>>();
    assert_eq!(files.len(), 4, "two icons, a style and a script: {files:?}");
    let paths = files.iter().map(|it| format!("/{it}"));
    for path in paths.chain(["/", "/status.json", "/?limit=0"].map(str::to_owned)) {
        let (code, headers, text) = asked(&page, &path).await;
        assert!(code == StatusCode::OK || path.ends_with("=0"), "{path}");
        let has = |name: &str, value: &str| {
            assert!(headers.contains(&(name.into(), value.into())), "{path} {headers:?}");
        };
        has(
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        );
        has("x-content-type-options", "nosniff");
        has("x-frame-options", "DENY");
        has("referrer-policy", "no-referrer");
        assert!(!text.is_empty());
    }
}

#[tokio::test]
async fn figures_are_never_kept_and_files_always_are() {
    let page = page_of(1);
    let cached = |headers: &[(String, String)]| {
        headers.iter().find(|(name, _)| name == "cache-control").unwrap().1.clone()
    };
    let (_, headers, html) = asked(&page, "/").await;
    assert_eq!(cached(&headers), "no-store");
    assert_eq!(cached(&asked(&page, "/status.json").await.1), "no-store");
    let style = html.split('"').find(|it| it.contains("page-") && it.contains("css")).unwrap();
    let (_, headers, text) = asked(&page, &format!("/{style}")).await;
    assert_eq!(cached(&headers), "public, max-age=31536000, immutable");
    assert_eq!(text, STYLE);
}

#[test]
fn the_files_do_what_the_policy_allows() {
    for word in ["eval(", "innerHTML", "document.write", "new Function", "setAttribute(\"style"] {
        assert!(!SCRIPT.contains(word), "{word}");
    }
    assert!(!SCRIPT.contains("http:") && !SCRIPT.contains("https:"));
    for word in ["@import", "url("] {
        assert!(!STYLE.contains(word), "{word}");
    }
    assert!(!ICON.contains("<script") && !ICON.contains("style="));
}

#[tokio::test]
async fn ten_thousand_histories_are_pages_that_meet_at_their_ends() {
    let page = page_of(10_000);
    let (mut names, mut query) = (Vec::new(), "?limit=200".to_owned());
    loop {
        let status = status_of(&page, &query).await;
        let listed = status.writer.unwrap();
        assert_eq!(listed.histories_open, 10_000);
        assert!(listed.histories.len() <= 200);
        names.extend(listed.histories.into_iter().map(|it| it.name));
        match status.window.next {
            Some(next) => query = format!("?limit=200&after={next}"),
            None => break,
        }
    }
    let expected: Vec<_> = (0..10_000).map(|it| format!("h/{it:05}")).collect();
    assert_eq!(names, expected);

    let (_, _, html) = asked(&page, "/").await;
    assert_eq!(html.matches("<details").count(), Window::LIMIT_DEFAULT);
    assert!(html.len() < 300 << 10, "{}", html.len());
}

#[tokio::test]
async fn a_query_that_cannot_be_is_refused_with_the_reason() {
    let page = page_of(1);
    let long = format!("?prefix={}", "x".repeat(257));
    for (query, reason) in [
        ("?limit=0", "`limit` is not from 1 to 200"),
        ("?limit=201", "`limit` is not from 1 to 200"),
        ("?limit=many", "limit"),
        ("?afer=x", "afer"),
        (&long, "`prefix` is longer than 256 bytes"),
    ] {
        for path in ["/", "/status.json"] {
            let (code, headers, text) = asked(&page, &format!("{path}{query}")).await;
            assert_eq!(code, StatusCode::BAD_REQUEST, "{query}");
            assert!(text.contains(reason), "{text}");
            let kind = headers.iter().find(|(name, _)| name == "content-type").unwrap();
            assert_eq!(kind.1, "text/plain; charset=utf-8", "a refusal is not HTML");
        }
    }
}

#[tokio::test]
async fn secrets_of_the_store_are_nowhere() {
    let page = page_of(1);
    assert_eq!(status_of(&page, "").await.process.store, "s3://bucket/prefix");
    for path in ["/", "/status.json"] {
        assert!(!asked(&page, path).await.2.contains("s3cr3t"));
    }
}

#[tokio::test]
async fn only_get_is_answered() {
    let page = page_of(1);
    for path in ["/", "/status.json"] {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = page.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_five_minutes_are_kept_a_second_at_a_time() {
    let page = page_of(1);
    for _ in 0..310 {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    let samples = status_of(&page, "").await.samples;
    assert_eq!(samples.len(), 300);
    assert!(samples.windows(2).all(|it| it[0].at_ms < it[1].at_ms));
    // Counters that stand still are no commits.
    assert!(samples.iter().all(|it| it.commits == 0 && it.latency_p50_us.is_none()));
}

#[tokio::test]
async fn the_names_of_fields_are_those_that_are_documented() {
    let page = page_of(1);
    let (_, _, text) = asked(&page, "/status.json").await;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names = |it: &serde_json::Value| {
        it.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&value), "format process readiness replica samples store window writer");
    assert_eq!(names(&value["process"]), "name store uptimeMs version");
    assert_eq!(names(&value["readiness"]), "checks isDraining isReady");
    assert_eq!(names(&value["window"]), "after limit next prefix");
    assert_eq!(value["format"], 1);
    assert_eq!(value["replica"], serde_json::Value::Null);
}
