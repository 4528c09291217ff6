//! What a driver measures, and the spans of what it does for callers that are
//! traced.
//!
//! One publication serves many operations. Its span is below the one that waits
//! longest of those that are traced, which is in that publication, or waits for
//! it to end; and it has a link to each that it answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_core::publish::{Answer, BatchId, Effect, PublishReply, Ticket};
use headwater_daemon::metrics::Label as _;
use headwater_daemon::trace::ROOT_TARGET;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::effects::rest;
use super::{Done, Driver};
use crate::metrics::{AnswerKind, Publication, Stage, Upkeep};

/// What is under way, as far as it is measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Replacements sent since the last one that was found to be the head.
    attempts: u64,
    /// Candidates that are uploaded, or being uploaded, and in no head yet: one
    /// for each batch of the pipeline at most.
    staged: BTreeMap<BatchId, u64>,
    /// The publication whose answer is being looked at.
    published: Option<Span>,
}

impl Measured {
    pub(super) fn end_span(&mut self) {
        self.published = None;
    }

    /// The batches from `from` on are decided again, as others: what was staged
    /// for them. A batch that comes out the same finds its candidate and stages
    /// nothing, so that this is more than a sweep will find.
    fn roll_back(&mut self, from: BatchId) -> BTreeMap<BatchId, u64> {
        self.staged.split_off(&from)
    }
}

impl Driver {
    /// A span for work that callers wait for; a disabled one where none of them
    /// is traced.
    pub(super) fn span_of(&self, stage: Stage) -> Span {
        self.span_beside(stage, &[])
    }

    /// The same, where some callers are answered by `beside` and wait no longer.
    pub(super) fn span_beside(&self, stage: Stage, beside: &[Effect]) -> Span {
        let Some(origin) = self.waiting.first_origin(|| answered(beside)) else {
            return Span::none();
        };
        let span = tracing::info_span!(
            target: ROOT_TARGET,
            parent: None,
            "stage",
            otel.name = stage.as_str(),
            headwater.history = %self.parts.history,
            headwater.publication.outcome = Empty,
            headwater.publication.operations = Empty,
        );
        origin.adopt(&span);
        span
    }

    /// Begins work that is measured, after a pause that is not.
    pub(super) fn begin_stage(
        &self,
        stage: Stage,
        pause: Duration,
        work: impl Future<Output = Done> + Send + 'static,
    ) {
        let (span, metrics) = (self.span_of(stage), Arc::clone(&self.parts.metrics));
        self.begin(async move {
            rest(pause).await;
            let began = Instant::now();
            let done = work.instrument(span).await;
            metrics.stages.record(stage, began.elapsed());
            done
        });
    }

    pub(super) fn measure_published(&mut self, reply: &PublishReply, took: Duration, span: Span) {
        let outcome = Publication::of(reply);
        self.parts.metrics.publications.add(outcome);
        self.parts.metrics.stages.record(Stage::Publish, took);
        if !span.is_disabled() {
            span.record("headwater.publication.outcome", outcome.as_str());
            self.measured.published = Some(span);
        }
    }

    /// Looks at what is about to be done.
    pub(super) fn measure_effects(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Publish { .. } => self.measured.attempts += 1,
                Effect::Stage { batch, change: Some(change), .. } => {
                    let size_bytes = change.bytes.len() as u64;
                    self.parts.metrics.staged_bytes.add(size_bytes, &[]);
                    // Decided otherwise than before: what was uploaded then
                    // fits nothing.
                    let before = self.measured.staged.insert(*batch, size_bytes);
                    self.orphaned(before.into_iter());
                }
                Effect::RolledBack { from } => {
                    let rolled_back = self.measured.roll_back(*from);
                    self.orphaned(rolled_back.into_values());
                }
                Effect::Advanced { observed, batches } => {
                    let size_bytes = self.publisher.head_bytes();
                    self.parts.metrics.published(&observed.head, size_bytes);
                    self.measure_advanced(batches, effects);
                }
                Effect::Maintained { maintenance, is_applied } => {
                    let metrics = &self.parts.metrics;
                    let counts = if *is_applied { &metrics.applied } else { &metrics.dropped };
                    counts.add(Upkeep::of(maintenance));
                }
                Effect::ReadHead { .. }
                | Effect::FindFacts { .. }
                | Effect::Decided { .. }
                | Effect::Stage { .. }
                | Effect::Answer { .. } => {}
            }
        }
    }

    /// Our own publication is the head, with these batches in it.
    fn measure_advanced(&mut self, batches: &[BatchId], effects: &[Effect]) {
        let attempts = std::mem::take(&mut self.measured.attempts);
        let Some(last) = batches.last().copied() else { return };
        let is_accepted = |it: &&Effect| {
            matches!(
                it,
                Effect::Answer { answer: Answer::Accepted { is_from_receipt: false, .. }, .. }
            )
        };
        let operations = effects.iter().filter(is_accepted).count() as u64;
        self.parts.metrics.attempts.record(attempts.max(1), &[]);
        self.parts.metrics.batch.record(operations, &[]);
        if let Some(span) = &self.measured.published {
            span.record("headwater.publication.operations", operations);
        }
        for batch in batches {
            self.measured.staged.remove(batch);
        }
        // Batches go in order: one before these that is not among them accepted
        // nothing in the end.
        let rest = self.measured.staged.split_off(&last);
        let passed = std::mem::replace(&mut self.measured.staged, rest);
        self.orphaned(passed.into_values());
    }

    fn orphaned(&self, parts: impl Iterator<Item = u64>) {
        let size_bytes = parts.sum();
        if size_bytes != 0 {
            self.parts.metrics.orphaned_bytes.add(size_bytes, &[]);
        }
    }

    /// A caller is about to be told.
    pub(super) fn measure_answer(&self, ticket: Ticket, answer: &Answer) {
        let Some(waiter) = self.waiting.find(ticket) else { return };
        self.parts.metrics.answers.record(AnswerKind::of(answer), waiter.asked.at.elapsed());
        self.parts.figures.answered(&self.parts.history, &waiter.asked, answer);
        if let (Some(span), Some(origin)) = (&self.measured.published, &waiter.origin) {
            origin.link(span);
        }
    }
}

/// Who is told by `effects`.
fn answered(effects: &[Effect]) -> BTreeSet<Ticket> {
    let tickets = effects.iter().filter_map(|it| match it {
        Effect::Answer { ticket, .. } => Some(*ticket),
        Effect::ReadHead { .. }
        | Effect::FindFacts { .. }
        | Effect::Decided { .. }
        | Effect::Stage { .. }
        | Effect::Publish { .. }
        | Effect::Advanced { .. }
        | Effect::RolledBack { .. }
        | Effect::Maintained { .. } => None,
    });
    tickets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of a pipeline that never gets anything through are not added up.
    #[test]
    fn what_is_rolled_back_is_measured_no_longer() {
        let mut measured = Measured::default();
        for id in 0..1_000 {
            measured.staged.extend([(BatchId(2 * id), 3), (BatchId(2 * id + 1), 4)]);
            let gone = measured.roll_back(BatchId(2 * id + 1));
            assert_eq!(gone, [(BatchId(2 * id + 1), 4)].into());
            let gone = measured.roll_back(BatchId(2 * id));
            assert_eq!(gone, [(BatchId(2 * id), 3)].into());
        }
        assert!(measured.staged.is_empty());
    }
}
