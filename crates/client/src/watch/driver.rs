//! The loop behind a watch.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::v1;
use headwater_proto::v1::key_filter::Keys;
use headwater_proto::v1::watch_request::SnapshotMode as WireMode;
use headwater_proto::v1::watch_response::Event;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Streaming;

use super::event::{SnapshotMode, WatchEvent, WatchedMutation};
use super::{WatchError, WatchOptions};
use crate::client::watch_service;
use crate::failure::Failure;
use crate::id::Token;
use crate::read::{Entry, ReadError, proof_age};
use crate::session::Session;

/// How much later than it should a message may be, before the connection counts
/// as broken.
const LATE_MAX: Duration = Duration::from_secs(5);

pub(super) struct Driver {
    session: Session,
    options: WatchOptions,
    /// Everything up to here was given.
    after: Option<u64>,
    /// The version whose parts are being put together.
    parts: Option<Parts>,
    /// The state that is being given.
    snapshot: Option<u64>,
    connection: Option<Connection>,
    /// Connections that broke since the last message.
    failures: u32,
    /// When the next one may be made.
    retry_at: Option<Instant>,
    /// By when a message has to come; none while there is a connection that
    /// works.
    trouble_until: Option<Instant>,
}

struct Connection {
    messages: Streaming<v1::WatchResponse>,
    from: SocketAddr,
}

struct Parts {
    version: u64,
    mutations: Vec<WatchedMutation>,
    size_bytes: usize,
}

impl Driver {
    pub(super) fn new(session: Session, options: WatchOptions) -> Self {
        Self {
            session,
            after: options.after,
            options,
            parts: None,
            snapshot: None,
            connection: None,
            failures: 0,
            retry_at: None,
            trouble_until: None,
        }
    }

    pub(super) fn position(&self) -> Option<Token> {
        let history_id = self.session.token()?.history_id;
        Some(Token { history_id, state_version: self.after? })
    }

    pub(super) async fn next(&mut self) -> Result<WatchEvent, WatchError> {
        let silence_max = self.options.progress_interval.saturating_mul(2).saturating_add(LATE_MAX);
        loop {
            let Some(connection) = &mut self.connection else {
                self.connect().await?;
                continue;
            };
            let failure = match timeout(silence_max, connection.messages.message()).await {
                Ok(Ok(Some(message))) => {
                    self.failures = 0;
                    self.trouble_until = None;
                    match self.take(message) {
                        Ok(Some(event)) => return Ok(event),
                        Ok(None) => continue,
                        Err(error) => {
                            self.drop_connection();
                            return Err(error);
                        }
                    }
                }
                Ok(Ok(None)) => Failure::not_sent("the replica ended the watch without a reason"),
                Ok(Err(status)) => Failure::from_status(&status),
                Err(_) => Failure::unanswered(),
            };
            self.broke(failure)?;
        }
    }

    /// Connects to a replica, within what is left of the client's deadline.
    async fn connect(&mut self) -> Result<(), WatchError> {
        if let Some(moment) = self.retry_at {
            sleep_until(moment).await;
            self.retry_at = None;
        }
        let request = self.request();
        let client = &self.session.client;
        let deadline = *self.trouble_until.get_or_insert_with(|| client.deadline_from_now());
        let call = client.to_replicas(None).by(deadline);
        // No time-out goes with the request: it would end the stream.
        let answer = call.run(|channel, attempt| {
            let request = attempt.open_ended(request.clone());
            async move { watch_service(channel).watch(request).await }
        });
        match answer.await {
            Ok(answer) => {
                self.connection = Some(Connection { messages: answer.value, from: answer.from });
                Ok(())
            }
            Err(gave_up) => {
                // Whoever asks again has as long again.
                self.trouble_until = None;
                Err(WatchError::Read(gave_up.into()))
            }
        }
    }

    /// A connection ended. Another is made, unless that cannot help.
    fn broke(&mut self, failure: Failure) -> Result<(), WatchError> {
        let client = self.session.client.clone();
        if let Some(connection) = &self.connection
            && failure.is_the_peers()
        {
            client.inner.replicas.failed(connection.from);
        }
        self.drop_connection();
        if !failure.is_worth_repeating() {
            return Err(WatchError::Read(failure.into()));
        }
        tracing::debug!(%failure, "a watch goes on elsewhere");
        // A watch that was told something is as good as new: the first try is
        // made at once.
        let asked = failure.retry_after.filter(|it| !it.is_zero());
        if 0 < self.failures || asked.is_some() {
            let inner = &client.inner;
            let pause = inner.retry.backoff.pause(self.failures.max(1), asked, &inner.random);
            self.retry_at = Some(Instant::now() + pause);
        }
        self.failures = self.failures.saturating_add(1);
        let until = *self.trouble_until.get_or_insert_with(|| client.deadline_from_now());
        if until <= Instant::now() {
            self.trouble_until = None;
            return Err(WatchError::Read(ReadError::Expired(Box::new(failure))));
        }
        Ok(())
    }

    fn drop_connection(&mut self) {
        self.connection = None;
        // They come again, from the first.
        self.parts = None;
        self.snapshot = None;
    }

    fn request(&self) -> v1::WatchRequest {
        let filter = |it: &crate::range::KeyRange| v1::KeyFilter {
            keys: Some(Keys::Range(it.clone().into())),
        };
        let snapshot = match (self.options.snapshot, self.after) {
            (SnapshotMode::Never, _) => WireMode::Never,
            (SnapshotMode::First, None) => WireMode::First,
            // The state was given; what is left is to go on.
            (SnapshotMode::First, Some(_)) | (SnapshotMode::IfRetired, _) => WireMode::IfRetired,
        };
        v1::WatchRequest {
            history: self.session.history.to_string(),
            history_id: self.session.pinned_id(),
            after_version: self.after,
            filters: self.options.ranges.iter().map(filter).collect(),
            previous_values: self.options.previous_values,
            progress_interval: self.options.progress_interval.try_into().ok(),
            snapshot: snapshot.into(),
        }
    }

    /// Takes a message in; an event if that made one.
    fn take(&mut self, message: v1::WatchResponse) -> Result<Option<WatchEvent>, WatchError> {
        let v1::WatchResponse { history_id, resume_after_version: resume_after, event } = message;
        self.session.note(&history_id, Some(resume_after)).map_err(ReadError::from)?;
        if self.after.is_some_and(|after| resume_after < after) {
            return Err(malformed("a watch went back"));
        }
        match event {
            Some(Event::Change(change)) => self.take_change(change, resume_after),
            Some(Event::Progress(progress)) if self.parts.is_none() && self.snapshot.is_none() => {
                let proof_age = proof_age(progress.proof_age).map_err(ReadError::from)?;
                self.after = Some(resume_after);
                Ok(Some(WatchEvent::Progress {
                    newest_version: progress.newest_version,
                    proof_age,
                }))
            }
            Some(Event::SnapshotBegin(begin)) if self.parts.is_none() => {
                if self.after.is_some_and(|after| begin.version < after) {
                    return Err(malformed("a state is older than what was watched"));
                }
                self.snapshot = Some(begin.version);
                Ok(Some(WatchEvent::SnapshotBegin { version: begin.version }))
            }
            Some(Event::SnapshotEntries(entries)) if self.snapshot.is_some() => {
                let entries = entries.entries.into_iter().map(Entry::from).collect();
                Ok(Some(WatchEvent::SnapshotEntries(entries)))
            }
            Some(Event::SnapshotEnd(v1::SnapshotEnd { version }))
                if self.snapshot == Some(version) && resume_after == version =>
            {
                self.snapshot = None;
                self.after = Some(version);
                Ok(Some(WatchEvent::SnapshotEnd { version }))
            }
            // One that a newer replica knows of.
            None => Ok(None),
            Some(
                Event::Progress(_)
                | Event::SnapshotBegin(_)
                | Event::SnapshotEntries(_)
                | Event::SnapshotEnd(_),
            ) => Err(malformed("a message of a watch is out of place")),
        }
    }

    fn take_change(
        &mut self,
        change: v1::WatchedChange,
        resume_after: u64,
    ) -> Result<Option<WatchEvent>, WatchError> {
        let v1::WatchedChange { version, mutations, continued } = change;
        let is_next = self.after.is_none_or(|after| after < version);
        let is_same = self.parts.as_ref().is_none_or(|it| it.version == version);
        let resumes = if continued { version.checked_sub(1) } else { Some(version) };
        if !is_next || !is_same || resumes != Some(resume_after) || self.snapshot.is_some() {
            return Err(malformed("a version of a watch is out of place"));
        }
        let bytes_max = self.options.version_bytes_max;
        let new = Parts { version, mutations: Vec::new(), size_bytes: 0 };
        let parts = self.parts.get_or_insert(new);
        for mutation in mutations {
            let mutation = WatchedMutation::read(mutation).map_err(ReadError::from)?;
            parts.size_bytes += mutation.size_bytes();
            if bytes_max < parts.size_bytes {
                return Err(WatchError::VersionTooLarge { version, bytes_max });
            }
            parts.mutations.push(mutation);
        }
        if continued {
            return Ok(None);
        }
        self.after = Some(version);
        let mutations = self.parts.take().map(|it| it.mutations).unwrap_or_default();
        Ok(Some(WatchEvent::Version { version, mutations }))
    }
}

fn malformed(what: &str) -> WatchError {
    WatchError::Read(Failure::malformed(what).into())
}
