use std::time::Duration;

use headwater_core::decide::{Conflict, Place};
use headwater_core::version::StateVersion;
use tokio::time::advance;

use super::*;

fn asked(id: &str) -> AskedBy {
    AskedBy { operation: Some(OperationId::parse(id).unwrap()), at: Instant::now() }
}

fn history() -> HistoryName {
    HistoryName::parse("a/b").unwrap()
}

fn rejected(kinds: &[ConflictKind]) -> Answer {
    let conflict = |kind| Conflict {
        kind,
        key: "secret-key".into(),
        version_seen: StateVersion::new(7),
        place: Place::Precondition(0),
    };
    let conflicts = kinds.iter().copied().map(conflict).collect();
    Answer::Rejected { at: StateVersion::new(9), conflicts }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_remembered_with_its_reason_and_without_a_key() {
    let figures = Figures::default();
    let kinds = [ConflictKind::ValueDiffers, ConflictKind::Changed, ConflictKind::ValueDiffers];
    figures.answered(&history(), &asked("op-1"), &rejected(&kinds));
    advance(Duration::from_secs(5)).await;

    let [incident] = figures.conflicts().try_into().unwrap();
    assert_eq!((incident.kind, incident.age_ms), (IncidentKind::Rejected, 5_000));
    assert_eq!((&*incident.history, &*incident.operation_id), ("a/b", "op-1"));
    assert_eq!(incident.detail, "1 × changed since, 2 × value differs, at v9");
    assert_eq!(figures.counted().rejected, 1);
    assert!(!format!("{figures:?}").contains("secret-key"));
}

#[tokio::test]
async fn rejections_do_not_push_out_what_is_in_doubt() {
    let figures = Figures::default();
    let in_doubt = Answer::Failed(SubmitError::InDoubt);
    figures.answered(&history(), &asked("doubtful"), &in_doubt);
    for _ in 0..3 * INCIDENTS_MAX {
        figures.answered(&history(), &asked("op"), &rejected(&[ConflictKind::Changed]));
    }
    assert_eq!(figures.conflicts().len(), INCIDENTS_MAX);
    assert_eq!(figures.doubts()[0].operation_id, "doubtful");
    assert_eq!(figures.doubts()[0].kind, IncidentKind::InDoubt);
    assert_eq!(figures.counted().in_doubt, 1);
}

#[tokio::test]
async fn a_callers_mistake_is_counted_and_no_news() {
    let figures = Figures::default();
    figures.answered(&history(), &asked("op"), &Answer::Failed(SubmitError::HistoryMissing));
    assert_eq!(figures.counted().failed, 1);
    assert!(figures.conflicts().is_empty() && figures.doubts().is_empty());
}

#[tokio::test]
async fn a_reason_has_a_length_that_fits_a_page() {
    let figures = Figures::default();
    let error = SubmitError::StoredDataBad { key: "ä".repeat(9_000), what: String::new() };
    figures.answered(&history(), &asked("op"), &Answer::Failed(error));
    assert_eq!(figures.doubts()[0].detail.chars().count(), DETAIL_CHARS_MAX + 1);
}
