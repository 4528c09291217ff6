//! Answers of writers: each is compared with what the bucket has by then.

use headwater_core::decide::{Conflict, ConflictKind};
use headwater_core::id::OperationId;
use headwater_core::publish::{Answer, Determinacy, SubmitError};
use headwater_core::receipt::Receipt;

use super::{History, Truth};
use crate::model::{Moment, after};

/// One question and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) head_key: &'a str,
    pub(crate) id: &'a OperationId,
    /// The events at which it was sent, and answered.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

impl Truth {
    /// An attempt whose answer will never be looked at, or that a network has
    /// repeated: it may be applied whatever other attempts are told.
    pub(crate) fn left_open(&mut self, head_key: &str, id: &OperationId) {
        let history = self.histories.get_mut(head_key);
        if let Some(known) = history.and_then(|it| it.operations.get_mut(id)) {
            known.is_open = true;
        }
    }

    /// A submission is sent.
    pub(crate) fn asked(&mut self, head_key: &str, id: &OperationId) {
        let history = self.histories.get_mut(head_key);
        if let Some(known) = history.and_then(|it| it.operations.get_mut(id)) {
            known.is_asked = true;
        }
    }

    /// A submission is over, answered or not.
    pub(crate) fn over(&mut self, head_key: &str, id: &OperationId) {
        let history = self.histories.get_mut(head_key);
        if let Some(known) = history.and_then(|it| it.operations.get_mut(id)) {
            known.is_asked = false;
        }
    }

    /// A submission was answered.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "anything else is no answer to a submission"
    )]
    pub(crate) fn submitted(&mut self, attempt: Attempt<'_>, answer: &Answer) {
        let Some(history) = self.histories.get_mut(attempt.head_key) else { return };
        let found = match answer {
            Answer::Accepted { receipt, .. } => {
                if let Some(known) = history.operations.get_mut(attempt.id) {
                    known.is_open = true;
                }
                history.check_receipt(attempt, receipt)
            }
            Answer::Rejected { at, conflicts } => {
                history.check_rejection(attempt, at.get(), conflicts)
            }
            Answer::Unknown { earliest, coverage_from } => {
                history.check_unknown(attempt, earliest.get(), coverage_from.get())
            }
            Answer::Failed(error) => history.check_failure(attempt, error),
            _ => Some(format!("a submission was answered {answer:?}")),
        };
        self.note(attempt, found);
    }

    /// A look-up was answered.
    #[expect(clippy::wildcard_enum_match_arm, reason = "anything else is no answer to a look-up")]
    pub(crate) fn looked_up(&mut self, attempt: Attempt<'_>, answer: &Answer) {
        let Some(history) = self.histories.get_mut(attempt.head_key) else { return };
        let found = match answer {
            Answer::Accepted { receipt, .. } => history.check_receipt(attempt, receipt),
            Answer::NotAccepted { through } => history.check_absence(attempt, through.get()),
            Answer::Unknown { coverage_from, .. } => {
                let coverage = history.coverage();
                (coverage < coverage_from.get()).then(|| format!("coverage is from v{coverage}"))
            }
            Answer::Failed(error) => unexpected(error),
            _ => Some("a look-up was answered as something else".into()),
        };
        self.note(attempt, found);
    }

    fn note(&mut self, attempt: Attempt<'_>, found: Option<String>) {
        if let Some(what) = found {
            let Attempt { head_key, id, sent, answered } = attempt;
            self.violation(format!(
                "{head_key}: {id}, sent at {sent}, answered at {answered}: {what}"
            ));
        }
    }
}

impl History {
    fn coverage(&self) -> u64 {
        self.head.as_ref().map_or(1, |it| it.receipt_coverage_from.get())
    }

    fn check_receipt(&self, attempt: Attempt<'_>, receipt: &Receipt) -> Option<String> {
        let known = self.operations.get(attempt.id)?;
        let Some(accepted) = &known.accepted else {
            return Some(format!("it is told {receipt:?}, and no head has it"));
        };
        let told = (receipt.accepted_at.get(), receipt.position);
        let is_same = told == (accepted.place.version, accepted.place.position)
            && receipt.results == accepted.results
            && receipt.request_hash == known.request_hash
            && receipt.operation_id == *attempt.id;
        if !is_same {
            return Some(format!("it is told {receipt:?}, and is in as {accepted:?}"));
        }
        let version = usize::try_from(accepted.place.version).ok()?;
        let published = self.versions.get(version)?;
        (published.event < known.first_sent).then(|| format!("v{version} came before it was sent"))
    }

    /// A rejection was true of some state between question and answer.
    fn check_rejection(
        &self,
        attempt: Attempt<'_>,
        at: u64,
        conflicts: &[Conflict],
    ) -> Option<String> {
        let known = self.operations.get(attempt.id)?;
        let (oldest, newest) = (self.newest_at(attempt.sent), self.newest_at(attempt.answered));
        if !(oldest..=newest).contains(&at) {
            return Some(format!("rejected by v{at}, current were v{oldest} to v{newest}"));
        }
        if conflicts.is_empty() {
            return Some("rejected without a conflict".into());
        }
        // What an absent key's deletion is concerned, the record ends at the
        // snapshot.
        let too_old = conflicts.iter().any(|it| it.kind == ConflictKind::SinceTooOld);
        if too_old {
            let snapshot = self.head.as_ref().map_or(0, |it| it.snapshot.version.get());
            let is_so = known.request.preconditions().iter().any(|it| since(it) < snapshot);
            return (!is_so).then(|| format!("deletions are on record from v{snapshot}"));
        }
        let operations = self.versions.get(usize::try_from(at).ok()?)?.operations;
        // Inside of a version that was current already nothing can be told
        // from; of a later one, every moment is between question and answer.
        let inside = if at == oldest { operations..operations } else { 0..operations };
        let mut moments =
            inside.map(|position| Moment { version: at, position }).chain([after(at)]);
        let is_true = moments.any(|it| self.model.obstacle(&known.request, it).is_some());
        (!is_true).then(|| format!("rejected by v{at} for {conflicts:?}, which it was not"))
    }

    fn check_unknown(
        &mut self,
        attempt: Attempt<'_>,
        earliest: u64,
        told_coverage: u64,
    ) -> Option<String> {
        let coverage = self.coverage();
        let known = self.operations.get_mut(attempt.id)?;
        known.is_open = true;
        known.unknown = Some(attempt.answered);
        if coverage < told_coverage || told_coverage <= earliest {
            return Some(format!(
                "unknown: coverage {told_coverage}, earliest {earliest}; it is {coverage}"
            ));
        }
        let is_client_kept = known.issued_from.is_some_and(|it| it + 1 != earliest);
        is_client_kept.then(|| format!("unknown from v{earliest}, issued {:?}", known.issued_from))
    }

    fn check_failure(&mut self, attempt: Attempt<'_>, error: &SubmitError) -> Option<String> {
        let now = self.head.as_ref().map_or(0, |it| it.writer_epoch);
        let known = self.operations.get_mut(attempt.id)?;
        match error.determinacy() {
            Determinacy::MaybeApplied => known.is_open = true,
            // No other attempt can have been what got it in.
            Determinacy::NotApplied if !known.is_open && known.accepted.is_some() => {
                return Some(format!("not applied, {error:?}, and is in as {:?}", known.accepted));
            }
            Determinacy::NotApplied => (),
        }
        if let SubmitError::Fenced { writer_epoch } = error
            && (now < *writer_epoch || *writer_epoch == known.writer_epoch)
        {
            return Some(format!(
                "fenced by {writer_epoch} under {}, it is {now}",
                known.writer_epoch
            ));
        }
        unexpected(error)
    }

    fn check_absence(&self, attempt: Attempt<'_>, through: u64) -> Option<String> {
        let known = self.operations.get(attempt.id)?;
        let (oldest, newest) = (self.newest_at(attempt.sent), self.newest_at(attempt.answered));
        if !(oldest..=newest).contains(&through) {
            return Some(format!(
                "not accepted through v{through}, current: v{oldest} to v{newest}"
            ));
        }
        let accepted = known.accepted.as_ref().filter(|it| it.place.version <= through)?;
        Some(format!("not accepted through v{through}, and is in as {accepted:?}"))
    }
}

/// The version since which nothing may have changed; the last one that there can
/// be where that is not what a precondition is about.
fn since(precondition: &headwater_core::operation::Precondition) -> u64 {
    use headwater_core::operation::Precondition;
    match precondition {
        Precondition::KeyUnchangedSince(_, since) | Precondition::RangeUnchangedSince(_, since) => {
            since.get()
        }
        Precondition::KeyExists(_)
        | Precondition::KeyAbsent(_)
        | Precondition::KeyAtVersion(..)
        | Precondition::ValueEquals(..)
        | Precondition::ValueHashEquals(..) => u64::MAX,
    }
}

/// Failures that nothing in a run brings about.
#[expect(clippy::wildcard_enum_match_arm, reason = "what no run brings about is a violation")]
fn unexpected(error: &SubmitError) -> Option<String> {
    match error {
        SubmitError::Fenced { .. }
        | SubmitError::HeadTooLarge
        | SubmitError::Expired
        | SubmitError::Contended
        | SubmitError::StoreUnavailable
        | SubmitError::InDoubt => None,
        _ => Some(format!("it is told {error:?}")),
    }
}
