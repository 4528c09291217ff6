//! Carrying out what the publisher wants done.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::head::ChangeBody;
use headwater_core::id::{HistoryName, Tag};
use headwater_core::operation::RequestRecord;
use headwater_core::publish::{
    BatchId, Effect, Event, FoundRecord, PublishReply, RecordSays, StagedChange, Ticket, Trouble,
};
use headwater_daemon::telemetry::with_causes;
use headwater_state::StateError;
use headwater_store::{HeadWrite, NoAnswerKind, PutError, Store, planted};
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use super::read::{Read, backoff_bound, read, read_trouble, state_trouble};
use super::{Done, Driver, Predicted, Told};
use crate::histories::PUSHED_BYTES_MAX;
use crate::metrics::Stage;

/// Request records of one batch written at a time.
const RECORDS_AT_ONCE: usize = 32;

impl Driver {
    pub(super) fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::ReadHead { known, failures } => self.read_head(known, failures),
            Effect::FindFacts { batch, needs, failures } => {
                let unpredicted = self.confirmed.as_ref().map(|it| it.view.clone());
                let unpredicted = unpredicted.filter(|_| planted!(PredictedUnseen));
                let Some(view) = unpredicted.or(self.newest_view()) else {
                    panic!("facts are looked up after a head was read")
                };
                let (pause, key) = (self.pause(failures), self.parts.history.head_key());
                self.begin_stage(Stage::Facts, pause, async move {
                    Done::Event(match view.facts(&needs).await {
                        Ok(facts) => Event::FactsFound { batch, facts },
                        Err(StateError::Missing { key }) => {
                            Event::FactsFailed { batch, trouble: Trouble::Overtaken { key } }
                        }
                        Err(error) => {
                            let trouble = state_trouble(&key, &error);
                            let error = with_causes(&error);
                            tracing::warn!(error, "facts could not be looked up");
                            Event::FactsFailed { batch, trouble }
                        }
                    })
                });
            }
            Effect::Decided { batch, version, change, hash, bytes } => {
                if let Some(view) = self.newest_view() {
                    let view = view.apply(&change, hash);
                    assert_eq!(view.version(), version, "batches are decided in order");
                    // A small one is in the head in any case.
                    let inline_max = self.parts.config.inline_bytes_max;
                    let is_told = inline_max < bytes.len() && bytes.len() <= PUSHED_BYTES_MAX;
                    let entry = is_told.then_some(bytes);
                    self.predicted.push_back(Predicted { batch, view, entry });
                }
            }
            Effect::Stage { batch, change, records, failures } => {
                let pause = self.pause(failures);
                let (store, history) = (Arc::clone(&self.parts.store), self.parts.history.clone());
                self.begin_stage(Stage::Upload, pause, async move {
                    if planted!(UploadUnawaited)
                        && let Some(change) = change
                    {
                        let key = history.object_key(&change.object.key);
                        tokio::spawn(async move { store.put(&key, change.bytes).await });
                        return Done::Event(Event::Staged { batch, records: Vec::new() });
                    }
                    Done::Event(stage(&*store, &history, batch, change, records).await)
                });
            }
            Effect::Publish { if_match, bytes } => self.publish(if_match, bytes, &[]),
            Effect::Advanced { observed, batches } => self.on_advanced(&observed, &batches),
            Effect::RolledBack { from } => {
                if let Some(at) = self.predicted.iter().position(|it| from <= it.batch)
                    && !planted!(PredictedKept)
                {
                    self.predicted.truncate(at);
                }
            }
            Effect::Maintained { maintenance, is_applied } => {
                if let Some(at) = self.maintained.iter().position(|(it, ..)| *it == maintenance) {
                    let (_, reply, _permit) = self.maintained.remove(at);
                    let _nobody = reply.send(is_applied);
                }
                self.on_maintained(&maintenance, is_applied);
            }
            Effect::Answer { ticket, answer } if self.moves_on(ticket, &answer) => (),
            Effect::Answer { ticket, answer } => {
                let history_id = self.publisher.observed().map(|it| it.head.history_id);
                self.measure_answer(ticket, &answer);
                self.waiting.answer(ticket, Told { answer, history_id });
            }
        }
    }

    fn read_head(&mut self, known: Option<Tag>, failures: u32) {
        // From scratch, where the state at hand has lost something.
        let known = known.filter(|_| self.reopening.is_none());
        let confirmed = self.confirmed.clone().filter(|_| self.reopening.is_none());
        let pause = self.pause(failures);
        let store = Arc::clone(&self.parts.store);
        let loader = self.parts.loader.clone();
        let seen = self.parts.seen.position(&self.parts.history);
        let is_unread = planted!(HeadUnread) && known.is_some() && failures == 0;
        self.begin_stage(Stage::ReadHead, pause, async move {
            if is_unread {
                return Done::Read(Box::new(Read::unchanged()));
            }
            Done::Read(Box::new(read(store, loader, known, confirmed, seen).await))
        });
    }

    /// `beside` is what is carried out after it.
    pub(super) fn publish(&mut self, if_match: Tag, bytes: Bytes, beside: &[Effect]) {
        let store = Arc::clone(&self.parts.store);
        let key = self.parts.history.head_key();
        self.sent.begin(bytes.clone());
        let span = self.span_beside(Stage::Publish, beside);
        let mut publishing = async move {
            let began = Instant::now();
            let head = bytes.clone();
            let replacing = store.replace_head(&key, &if_match, bytes);
            let reply = replacing.instrument(span.clone()).await;
            if planted!(CandidateDeleted) && matches!(reply, HeadWrite::NoAnswer(_)) {
                delete_candidate(&*store, &head).await;
            }
            Done::Published { reply, took: began.elapsed(), span }
        }
        .boxed();
        // On its way before anything else is done here. The loop polls it again,
        // with a waker.
        match publishing.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.work.push(publishing),
            Poll::Ready(done) => self.begin(async { done }),
        }
    }

    /// Jittered, so that writers that collided do not meet again.
    fn pause(&self, failures: u32) -> Duration {
        let doubled = backoff_bound(self.attempt, failures);
        self.parts.entropy.jitter(self.bound_of_pause(doubled))
    }
}

/// A planted fault: the newest candidate that an unanswered head names.
async fn delete_candidate(store: &dyn Store, head: &[u8]) {
    let Ok(head) = format::head::decode(head) else { return };
    let candidate = head.changes.last().map(|it| &it.body);
    if let Some(ChangeBody::Staged(object)) = candidate {
        let _unheard = store.delete(&head.history.object_key(&object.key)).await;
    }
}

/// What the publisher is told. What to do about the store is the pace's.
pub(super) fn published(reply: HeadWrite) -> PublishReply {
    match reply {
        HeadWrite::Replaced { tag } => PublishReply::Replaced { tag },
        // The head is read next in either case, and tells.
        HeadWrite::Mismatch | HeadWrite::Gone => PublishReply::Mismatch,
        HeadWrite::NoAnswer(no_answer) => {
            // Reading the head settles what happened; it does not tell an
            // operator why. Refused credentials do not pass by themselves.
            let error = with_causes(&no_answer);
            match no_answer.kind {
                NoAnswerKind::Denied => tracing::warn!(error, "a replacement was refused"),
                NoAnswerKind::Throttled | NoAnswerKind::Conflict | NoAnswerKind::Other => {
                    tracing::info!(error, "a replacement got no answer");
                }
            }
            PublishReply::NoAnswer
        }
    }
}

/// A timer takes a millisecond at least, even for no time at all: most of what
/// a local store takes for the whole operation.
pub(super) async fn rest(pause: Duration) {
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

async fn stage(
    store: &dyn Store,
    history: &HistoryName,
    batch: BatchId,
    change: Option<StagedChange>,
    records: Vec<(Ticket, RequestRecord)>,
) -> Event {
    let upload = async {
        let Some(change) = change else { return Ok(()) };
        let key = history.object_key(&change.object.key);
        store.put(&key, change.bytes).await.map_err(|error| put_trouble(&error))
    };
    let records = stream::iter(records)
        .map(|(ticket, record)| put_record(store, history, ticket, record))
        .buffer_unordered(RECORDS_AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect::<Vec<FoundRecord>>();
    match futures::try_join!(upload, records) {
        Ok(((), records)) => Event::Staged { batch, records },
        Err(trouble) => Event::StageFailed { batch, trouble },
    }
}

/// Creates a request record; the one that is there already otherwise.
async fn put_record(
    store: &dyn Store,
    history: &HistoryName,
    ticket: Ticket,
    record: RequestRecord,
) -> Result<Option<FoundRecord>, Trouble> {
    let key = history.request_key(record.history_id, &record.operation_id);
    let bytes = Bytes::from(format::record::encode(&record));
    match store.put(&key, bytes).await {
        Ok(()) => return Ok(None),
        Err(PutError::Occupied { .. }) if planted!(RecordUnread) => return Ok(None),
        Err(PutError::Occupied { .. }) => (),
        Err(error) => return Err(put_trouble(&error)),
    }
    match read_record(store, &key, &record).await {
        // The whole batch is tried again.
        Err(Trouble::Unavailable) => Err(Trouble::Unavailable),
        says => Ok(Some(FoundRecord { ticket, says })),
    }
}

async fn read_record(
    store: &dyn Store,
    key: &str,
    record: &RequestRecord,
) -> Result<RecordSays, Trouble> {
    let bytes = store.get(key).await.map_err(|error| read_trouble(&error))?;
    let found = format::record::decode(&bytes).map_err(|error| record_trouble(key, error))?;
    if found.operation_id != record.operation_id || found.history_id != record.history_id {
        let what = "the record is of another operation".to_owned();
        return Err(Trouble::BadData { key: key.to_owned(), what });
    }
    Ok(RecordSays { request_hash: found.request_hash, issued_from: found.issued_from })
}

pub(crate) fn record_trouble(key: &str, error: format::DecodeError) -> Trouble {
    let key = key.to_owned();
    match error {
        format::DecodeError::Malformed { .. } => Trouble::BadData { key, what: error.to_string() },
        format::DecodeError::TooNew { found } => Trouble::TooNew { key, format: found.into() },
    }
}

pub(crate) fn put_trouble(error: &PutError) -> Trouble {
    match error {
        PutError::Store(error) => read_trouble(error),
        PutError::Occupied { key } => {
            Trouble::BadData { key: key.clone(), what: "the key holds other bytes".to_owned() }
        }
    }
}
