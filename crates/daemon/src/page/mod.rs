//! The status page of a process, on its admin port: how it stands, for people
//! (`/`) and for programs (`/status.json`).
//!
//! ```text
//! writer, replica ── overviews ──┐
//! health, meter ─────────────────┼─▶ Status ─┬─▶ html ─▶ /
//! samples (a task, once a second)┘           └────────▶ /status.json
//! ```
//!
//! In here: putting a [`Status`] together, the last five minutes of it, HTML,
//! and the page's files. Not in here: what a driver knows ([`crate::overview`]
//! has its shape, writer and replica fill it).
//!
//! # Invariants
//!
//! - Nothing here asks a driver or the store, and nothing that it holds makes
//!   one wait.
//! - The page changes nothing: every route is a GET, and none has an effect.
//! - Nothing is loaded from anywhere else, and nothing inline is run: the content
//!   security policy says so, and a test that it is sent with every answer.
//! - Whatever the number of open histories, a page has a number of them that it
//!   was asked for, up to [`Window::LIMIT_MAX`].

mod html;
mod http;
mod samples;
mod status;
pub mod words;

use std::sync::Arc;

use axum::Router;
use headwater_store::{Meter, Outcome, Readings};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use self::samples::Samples;
pub use self::status::{
    CheckStatus, ProcessStatus, Readiness, Sample, Status, StoreCalls, StoreStatus, WindowStatus,
};
use crate::health::Health;
use crate::overview::{ReplicaSource, Window, WriterSource};

/// What the page is about.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What the process was started as: `serve`, `writer`, `replica`.
    pub name: &'static str,
    /// The store's URL, as it was given.
    pub store: String,
    /// When the process began.
    pub began: Instant,
    /// Whether it is to be sent work.
    pub health: Health,
    /// Counts the calls to the store.
    pub meter: Option<Arc<Meter>>,
    /// Its writer, if it has one.
    pub writer: Option<Arc<dyn WriterSource>>,
    /// Its replica, if it has one.
    pub replica: Option<Arc<dyn ReplicaSource>>,
}

/// A page that counts. Dropping it ends that; what was made of it goes on
/// showing what there was.
#[derive(Debug)]
pub struct Page {
    parts: Arc<Parts>,
    samples: Samples,
    _sampling: AbortOnDropHandle<()>,
}

impl Page {
    /// Begins to count.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn start(parts: Parts) -> Self {
        let (parts, samples) = (Arc::new(parts), Samples::default());
        let sampling = tokio::spawn(samples.clone().take(Arc::clone(&parts)));
        Self { parts, samples, _sampling: AbortOnDropHandle::new(sampling) }
    }

    /// Its routes: a part of the admin port.
    pub fn router(&self) -> Router {
        http::router(Arc::clone(&self.parts), self.samples.clone())
    }

    /// How the process stands, with a page of its histories.
    pub fn status(&self, window: &Window) -> Status {
        self.parts.status(window, &self.samples)
    }
}

impl Parts {
    fn status(&self, window: &Window, samples: &Samples) -> Status {
        let one_more = window.and_one_more();
        let readings = self.meter.as_deref().map(Meter::read).unwrap_or_default();
        let mut status = Status {
            format: Status::FORMAT,
            process: ProcessStatus {
                name: self.name.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                store: without_secrets(&self.store),
            },
            readiness: readiness(&self.health),
            writer: self.writer.as_ref().map(|it| it.overview(&one_more)),
            replica: self.replica.as_ref().map(|it| it.overview(&one_more)),
            store: store(&readings),
            window: WindowStatus::default(),
            samples: samples.list(),
        };
        status.cut_to(window);
        status
    }
}

fn readiness(health: &Health) -> Readiness {
    let checks = health.findings().into_iter().map(|it| CheckStatus {
        name: it.name.to_owned(),
        is_needed: it.is_needed,
        trouble: it.trouble,
    });
    Readiness {
        is_ready: health.is_ready(),
        is_draining: health.is_draining(),
        checks: checks.collect(),
    }
}

fn store(readings: &Readings) -> StoreStatus {
    let requests = readings.requests();
    let kinds = headwater_store::Call::ALL
        .iter()
        .flat_map(|call| Outcome::ALL.iter().map(move |outcome| (*call, *outcome)));
    let counted = kinds.map(|(call, outcome)| StoreCalls {
        call: call.as_str().to_owned(),
        outcome: outcome.as_str().to_owned(),
        count: readings.count(call, outcome),
    });
    StoreStatus {
        puts: requests.puts,
        gets: requests.gets,
        deletes: requests.deletes,
        bytes_up: readings.bytes_up(),
        bytes_down: readings.bytes_down(),
        failures: failures(readings),
        calls: counted.filter(|it| it.count != 0).collect(),
    }
}

/// Calls that the store is to blame for. One that nobody waited for is not: a
/// second try of a slow read gives up the first one.
fn failures(readings: &Readings) -> u64 {
    let failed = [Outcome::NoAnswer, Outcome::Unavailable, Outcome::Denied];
    let of_call = |call| failed.iter().map(move |it| readings.count(call, *it)).sum::<u64>();
    headwater_store::Call::ALL.iter().map(|call| of_call(*call)).sum()
}

/// Where the store is, and nothing that it is opened with: a URL may have a
/// password, and settings after the question mark that nobody else should see.
fn without_secrets(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            url.set_query(None);
            url.set_fragment(None);
            // Refused for URLs without a host, which have no password either.
            let _has_none = url.set_username("");
            let _has_none = url.set_password(None);
            url.into()
        }
        Err(_) => "not a URL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_what_it_is_opened_with() {
        let shown = without_secrets("s3://id:key@bucket/prefix?secret_access_key=x#y");
        assert_eq!(shown, "s3://bucket/prefix");
        assert_eq!(without_secrets("file:///var/lib/h"), "file:///var/lib/h");
        assert_eq!(without_secrets("memory:"), "memory:");
        assert_eq!(without_secrets("not a url, with a secret"), "not a URL");
    }
}
