//! `headwater.v1.WatchService`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use headwater_core::change::Resolved;
use headwater_core::id::HistoryName;
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_daemon::auth::{Role, allow};
use headwater_daemon::serve::Leaving;
use headwater_daemon::{deadline, status as say};
use headwater_proto::v1::key_filter::Keys;
use headwater_proto::v1::watch_request::SnapshotMode as WireMode;
use headwater_proto::v1::watch_response::Event;
use headwater_proto::v1::watch_service_server::WatchService;
use headwater_proto::v1::watched_mutation::Kind;
use headwater_proto::{duration, v1};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::answer::{entry, status};
use super::changes::key_range;
use super::request::Violations;
use crate::failure::RETRY_AFTER;
use crate::histories::Histories;
use crate::reader::Reader;
use crate::watch::{
    KeyFilter, SnapshotMode, Watch, WatchEnd, WatchEvent, WatchFailure, WatchMessage, WatchOptions,
    WatchedChange, WatchedMutation, prefix_range,
};

const PROGRESS_DEFAULT: Duration = Duration::from_secs(10);
const PROGRESS_MIN: Duration = Duration::from_millis(100);
const PROGRESS_MAX: Duration = Duration::from_secs(60 * 60);

/// `headwater.v1.WatchService` of one replica.
#[derive(Clone, Debug)]
pub struct WatchRpc {
    histories: Arc<Histories>,
    drain: CancellationToken,
}

/// A watch as the wire has it.
#[derive(Debug)]
pub struct WatchStream {
    watch: Watch,
    history: HistoryName,
}

impl WatchRpc {
    pub(crate) fn new(histories: Arc<Histories>, drain: CancellationToken) -> Self {
        Self { histories, drain }
    }
}

#[tonic::async_trait]
impl WatchService for WatchRpc {
    type WatchStream = WatchStream;

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        let mut violations = Violations::default();
        let wire = request.get_ref();
        let checked = violations.common(&wire.history, &wire.history_id, None);
        let options = options(&mut violations, wire);
        let (checked, options) = violations.finish(checked.zip(options))?;

        let metadata = request.metadata();
        let begin_by = deadline::of(metadata, self.histories.config().request_timeout());
        let deadline = deadline::of_stream(metadata);
        let history = checked.history.clone();
        // With the process or with its connection, whichever ends first.
        let drain = Leaving::or(request.extensions(), &self.drain);
        let reader =
            Reader::new(Arc::clone(&self.histories), checked.history).of_id(checked.history_id);
        let watch = reader.watch_until(options, begin_by, drain, deadline).await;
        let watch = watch.map_err(|it| failed(&it, &history))?;
        Ok(Response::new(WatchStream { watch, history }))
    }
}

impl Stream for WatchStream {
    type Item = Result<v1::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.watch.poll_next_unpin(cx);
        polled.map(|it| it.map(|it| it.map(message).map_err(|it| end(&it, &self.history))))
    }
}

fn options(violations: &mut Violations, wire: &v1::WatchRequest) -> Option<WatchOptions> {
    let ranges = wire.filters.iter().enumerate().map(|(n, it)| {
        let field = format!("filters[{n}]");
        match &it.keys {
            Some(Keys::Prefix(prefix)) => violations.take(&field, prefix_range(prefix.clone())),
            Some(Keys::Range(range)) => violations.range_in(&field, range),
            None => {
                violations.add(&field, "a prefix or a range is to be given");
                None
            }
        }
    });
    // All of them, so that all that are wrong are named.
    let ranges: Vec<Option<KeyRange>> = ranges.collect();
    let filter = ranges.into_iter().collect::<Option<Vec<_>>>().and_then(|ranges| {
        let max = KeyFilter::RANGES_MAX;
        let filter = KeyFilter::of(ranges);
        if filter.is_none() {
            violations.add("filters", format!("there may be {max}, not {}", wire.filters.len()));
        }
        filter
    });
    let progress = match wire.progress_interval {
        None => Some(PROGRESS_DEFAULT),
        Some(interval) => {
            let fit = duration::from_wire(interval);
            let fit = fit.filter(|it| (PROGRESS_MIN..=PROGRESS_MAX).contains(it));
            if fit.is_none() {
                violations.add("progress_interval", "it is 100 ms to an hour");
            }
            fit
        }
    };
    let after = wire.after_version.map(StateVersion::new);
    let snapshot = match WireMode::try_from(wire.snapshot) {
        Ok(WireMode::Never) => Some(SnapshotMode::Never),
        Ok(WireMode::IfRetired) => Some(SnapshotMode::IfRetired),
        Ok(WireMode::First) if after.is_none() => Some(SnapshotMode::First),
        Ok(WireMode::First) => {
            violations.add("after_version", "the state comes first: it is left out");
            None
        }
        Err(_) => {
            violations.add("snapshot", format!("there is no mode {}", wire.snapshot));
            None
        }
    };
    Some(WatchOptions {
        after,
        filter: filter?,
        previous_values: wire.previous_values,
        progress: progress?,
        snapshot: snapshot?,
    })
}

fn message(message: WatchMessage) -> v1::WatchResponse {
    let WatchMessage { history_id, resume_after, event } = message;
    let event = match event {
        WatchEvent::Change(it) => Event::Change(change(it)),
        WatchEvent::Progress { newest, proof_age } => Event::Progress(v1::WatchProgress {
            newest_version: newest.get(),
            // Nothing is older than the process, so the age always fits.
            proof_age: proof_age.try_into().ok(),
        }),
        WatchEvent::SnapshotBegin(version) => {
            Event::SnapshotBegin(v1::SnapshotBegin { version: version.get() })
        }
        WatchEvent::SnapshotEntries(entries) => {
            let entries = entries.into_iter().map(entry).collect();
            Event::SnapshotEntries(v1::SnapshotEntries { entries })
        }
        WatchEvent::SnapshotEnd(version) => {
            Event::SnapshotEnd(v1::SnapshotEnd { version: version.get() })
        }
    };
    v1::WatchResponse {
        history_id: history_id.to_string(),
        resume_after_version: resume_after.get(),
        event: Some(event),
    }
}

fn change(change: WatchedChange) -> v1::WatchedChange {
    let WatchedChange { version, mutations, is_continued } = change;
    let mutations = mutations.into_iter().map(|it| mutation(it, version)).collect();
    v1::WatchedChange { version: version.get(), mutations, continued: is_continued }
}

fn mutation(mutation: WatchedMutation, version: StateVersion) -> v1::WatchedMutation {
    let WatchedMutation { operation_id, kind, previous } = mutation;
    let kind = match kind {
        Resolved::Put(key, value) => {
            Kind::Put(v1::Entry { key: key.into_bytes(), value, version: version.get() })
        }
        Resolved::Delete(key) => Kind::Delete(key.into_bytes()),
        Resolved::DeleteRange(range) => Kind::DeleteRange(key_range(&range)),
    };
    v1::WatchedMutation {
        operation_id: operation_id.as_str().to_owned(),
        kind: Some(kind),
        previous: previous.into_iter().map(entry).collect(),
    }
}

fn end(end: &WatchEnd, history: &HistoryName) -> Status {
    say::with_resume(&failed(&end.why, history), end.resume_after.get())
}

fn failed(failure: &WatchFailure, history: &HistoryName) -> Status {
    match failure {
        WatchFailure::Read(failure) => status(failure, history),
        WatchFailure::Slow { stalled } => say::watcher_slow(*stalled),
        WatchFailure::Expired => say::expired("the watch ends here"),
        WatchFailure::TooMany { limit, of } => {
            say::queue_full("watches", &format!("{limit} of {of}"), RETRY_AFTER)
        }
    }
}
