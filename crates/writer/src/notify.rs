//! Telling replicas that heads moved, and where to. It makes them catch up
//! earlier and nothing more.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, Stream};
use headwater_core::id::HistoryName;
use headwater_daemon::auth::{Caller, Role, allow_caller};
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::v1;
use tokio::sync::broadcast::{self, error::RecvError};
use tonic::{Status, Streaming};

use crate::histories::HeadNotice;
use crate::request::Checks;
use crate::subscribers::Entry;

/// Histories in one subscription.
const HISTORIES_MAX: usize = 4_096;

struct Session {
    entry: Entry,
    caller: Option<Arc<Caller>>,
    notices: broadcast::Receiver<HeadNotice>,
    requests: Option<Streaming<v1::SubscribeHeadsRequest>>,
    histories: BTreeSet<HistoryName>,
}

pub(crate) fn serve(
    notices: broadcast::Receiver<HeadNotice>,
    entry: Entry,
    caller: Option<Arc<Caller>>,
    requests: Streaming<v1::SubscribeHeadsRequest>,
) -> impl Stream<Item = Result<v1::SubscribeHeadsResponse, Status>> + Send {
    let requests = Some(requests);
    let session = Session { entry, caller, notices, requests, histories: BTreeSet::new() };
    stream::unfold(Some(session), |session| async {
        let mut session = session?;
        match session.next().await {
            Ok(Some(notice)) => Some((Ok(notice), Some(session))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl Session {
    async fn next(&mut self) -> Result<Option<v1::SubscribeHeadsResponse>, Status> {
        loop {
            tokio::select! {
                // What is asked for first: a notice of it may be next. There is
                // an end to what one stream may ask for.
                biased;
                request = read(self.requests.as_mut()) => match request? {
                    Some(request) => self.add(&request)?,
                    // Half-closed: nothing is added any more.
                    None => self.requests = None,
                },
                notice = self.notices.recv() => match notice {
                    Ok(notice) if self.histories.contains(&notice.history) => {
                        self.entry.told();
                        return Ok(Some(shown(&notice)));
                    }
                    // Missed ones are no loss: polling and reads make up.
                    Ok(_) | Err(RecvError::Lagged(_)) => (),
                    Err(RecvError::Closed) => return Ok(None),
                },
            }
        }
    }

    fn add(&mut self, request: &v1::SubscribeHeadsRequest) -> Result<(), Status> {
        let mut checks = Checks::default();
        for (n, name) in request.histories.iter().enumerate() {
            let Some(name) = checks.history(&format!("histories[{n}]"), name) else { continue };
            // Left out: what it may read is told all the same. A replica asks
            // for all that it has open, and one name must not end the rest.
            if allow_caller(self.caller.as_deref(), Role::Read, name.as_str()).is_err() {
                tracing::debug!(history = %name, "not told: the caller may not read it");
                continue;
            }
            self.histories.insert(name);
            if HISTORIES_MAX < self.histories.len() {
                let rule = format!("more than {HISTORIES_MAX} in one subscription");
                return Err(status::field_invalid([FieldViolation::new("histories", rule)]));
            }
        }
        self.entry.follows(&self.histories);
        checks.finish(Some(()))
    }
}

async fn read(
    requests: Option<&mut Streaming<v1::SubscribeHeadsRequest>>,
) -> Result<Option<v1::SubscribeHeadsRequest>, Status> {
    match requests {
        Some(requests) => requests.message().await,
        None => std::future::pending().await,
    }
}

fn shown(notice: &HeadNotice) -> v1::SubscribeHeadsResponse {
    v1::SubscribeHeadsResponse {
        history: notice.history.to_string(),
        history_id: notice.history_id.to_string(),
        revision: notice.revision.get(),
        state_version: notice.state_version.get(),
        published: notice.published.as_deref().map(|it| v1::PublishedHead {
            head: it.bytes.clone(),
            etag: it.tag.e_tag().map(str::to_owned),
            store_version: it.tag.version().map(str::to_owned),
            changes: it.changes.clone(),
        }),
    }
}
