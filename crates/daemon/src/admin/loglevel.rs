//! `/loglevel`: what is logged, shown and changed.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode};

use crate::audit;
use crate::auth::Caller;
use crate::logs::{LENGTH_MAX, LogFilter, LogLevel};

/// `GET` shows the filter, `POST` with a filter as its body changes it, until
/// the process ends or is told otherwise.
pub(crate) fn router(level: LogLevel) -> Router {
    let shown = level.clone();
    let show = move || async move { format!("{}\n", shown.now()) };
    let change = move |caller: Option<Extension<Arc<Caller>>>, headers: HeaderMap, body: String| {
        let level = level.clone();
        async move { change(&level, caller.as_deref(), &headers, &body) }
    };
    // A little more than a filter, so that one that is too long is told why.
    let limit = DefaultBodyLimit::max(2 * LENGTH_MAX);
    Router::new().route("/loglevel", get(show).post(change).layer(limit))
}

fn change(
    level: &LogLevel,
    caller: Option<&Arc<Caller>>,
    headers: &HeaderMap,
    body: &str,
) -> (StatusCode, String) {
    // A page of somebody else's, open in an operator's browser, could send this
    // otherwise.
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    if site.is_some_and(|it| it != b"same-origin" && it != b"none") {
        return (StatusCode::FORBIDDEN, "not from another site\n".to_owned());
    }
    match body.trim().parse::<LogFilter>() {
        Ok(filter) => {
            let name = caller.map_or("-", |it| &it.name);
            let peer = caller.and_then(|it| it.peer);
            // Before it is in use: it may leave this line out.
            audit::process("SetLogLevel", &filter.to_string(), name, peer, "OK");
            level.set(filter.clone());
            (StatusCode::OK, format!("{filter}\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}
