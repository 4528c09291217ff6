//! The page's routes, and the headers of its answers.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::Parts;
use super::html::{self, Files};
use super::samples::Samples;
use crate::overview::Window;

/// Scripts, styles and pictures from here and nowhere else, nothing inline, no
/// frame around it, and no form that goes elsewhere.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'";

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");
const ICON: &str = include_str!("../../assets/icon.svg");

/// Longest name that can be asked for, in bytes: as long as a history's.
const NAME_LEN_BYTES_MAX: usize = 256;

#[derive(Clone)]
struct Shown {
    parts: Arc<Parts>,
    samples: Samples,
    files: Arc<Files>,
}

/// What the query may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Asked {
    prefix: String,
    after: String,
    limit: Option<usize>,
}

/// A query that cannot be.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Asked {
    fn window(self) -> Result<Window, Refused> {
        let Self { prefix, after, limit } = self;
        for (name, value) in [("prefix", &prefix), ("after", &after)] {
            if NAME_LEN_BYTES_MAX < value.len() {
                return Err(Refused(format!("`{name}` is longer than {NAME_LEN_BYTES_MAX} bytes")));
            }
        }
        let limit = limit.unwrap_or(Window::LIMIT_DEFAULT);
        if !(1..=Window::LIMIT_MAX).contains(&limit) {
            return Err(Refused(format!("`limit` is not from 1 to {}", Window::LIMIT_MAX)));
        }
        Ok(Window { prefix, after, limit })
    }
}

pub(super) fn router(parts: Arc<Parts>, samples: Samples) -> Router {
    // Their names change with what is in them, so that a browser may keep them
    // and still has the right ones after an upgrade.
    let named = |name: &str, extension: &str, text: &str| {
        let hash = blake3::hash(text.as_bytes()).to_hex();
        format!("assets/{name}-{}.{extension}", &hash[..12])
    };
    let files = Files {
        style: named("page", "css", STYLE),
        script: named("page", "js", SCRIPT),
        icon: named("icon", "svg", ICON),
    };
    let route = |name: &str| format!("/{name}");
    Router::new()
        .route("/", get(page))
        .route("/status.json", get(json))
        .route(&route(&files.style), get(async || file("text/css; charset=utf-8", STYLE)))
        .route(&route(&files.script), get(async || file("text/javascript; charset=utf-8", SCRIPT)))
        .route(&route(&files.icon), get(async || file("image/svg+xml", ICON)))
        .with_state(Shown { parts, samples, files: Arc::new(files) })
}

async fn page(State(shown): State<Shown>, asked: Result<Query<Asked>, QueryRejection>) -> Response {
    let window = match window(asked) {
        Ok(window) => window,
        Err(refused) => return refusal(&refused),
    };
    let status = shown.parts.status(&window, &shown.samples);
    let text = html::page(&status, &shown.files).into_string();
    answer(StatusCode::OK, "text/html; charset=utf-8", text)
}

async fn json(State(shown): State<Shown>, asked: Result<Query<Asked>, QueryRejection>) -> Response {
    let window = match window(asked) {
        Ok(window) => window,
        Err(refused) => return refusal(&refused),
    };
    let status = shown.parts.status(&window, &shown.samples);
    match serde_json::to_string(&status) {
        Ok(text) => answer(StatusCode::OK, "application/json", text),
        Err(error) => {
            let text = format!("{error}\n");
            answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text)
        }
    }
}

fn window(asked: Result<Query<Asked>, QueryRejection>) -> Result<Window, Refused> {
    let Query(asked) = asked.map_err(|error| Refused(error.body_text()))?;
    asked.window()
}

fn refusal(refused: &Refused) -> Response {
    answer(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", format!("{refused}\n"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [(header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (guards(kind), headers, text).into_response()
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response {
    (status, guards(kind), [(header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// What every answer has.
fn guards(kind: &'static str) -> [(HeaderName, &'static str); 6] {
    [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]
}

#[cfg(test)]
#[path = "http_test.rs"]
mod tests;
