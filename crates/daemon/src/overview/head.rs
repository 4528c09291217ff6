//! A head in figures.

use headwater_core::head::{ChangeBody, Head, Lifecycle, Pin};
use serde::{Deserialize, Serialize};

/// What a head says about its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadOverview {
    /// The history's id.
    pub history_id: String,
    /// Replacements of the head.
    pub revision: u64,
    /// Accepted transitions.
    pub state_version: u64,
    /// Accepted operations.
    pub operation_count: u64,
    /// `live`, `retiring` or `cleared`.
    pub lifecycle: String,
    /// Whether operations must carry the writer epoch.
    pub is_exclusive: bool,
    /// Epoch of an exclusive history's owner.
    pub writer_epoch: u64,
    /// The process that made this head.
    pub publisher: String,
    /// What the head takes, in bytes as stored.
    pub size_bytes: u64,
    /// The version that replay starts from.
    pub snapshot_version: u64,
    /// Versions after the snapshot's.
    pub tail_versions: u64,
    /// What their change entries take, in bytes.
    pub tail_bytes: u64,
    /// Change entries that the head names one by one.
    pub tail_changes: u64,
    /// Those of them that are in the head itself.
    pub tail_changes_inline: u64,
    /// Segments that hold the others.
    pub tail_segments: u64,
    /// First version of which every acceptance has its receipt.
    pub receipt_coverage_from: u64,
    /// Objects with receipts of versions up to the snapshot's.
    pub receipt_pages: u64,
    /// What they take, in bytes.
    pub receipt_pages_bytes: u64,
    /// Revision below which nothing unnamed can be named again.
    pub sweep_from: u64,
    /// Revision below which what nobody reaches is deleted.
    pub swept_to: u64,
    /// Versions before the newest that retention keeps.
    pub retention_versions: u64,
    /// How long retention keeps a version, in milliseconds.
    pub retention_age_ms: u64,
    /// First version from which on every version can be read.
    pub retained_from: u64,
    /// What the archive's index takes, in bytes; null where there is none.
    pub archive_bytes: Option<u64>,
    /// Versions that are kept by name.
    pub pins: Vec<PinOverview>,
    /// The history that this one was forked from, while it needs objects of
    /// there.
    pub base: Option<String>,
}

/// A version that is kept by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinOverview {
    /// Its name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// When it may go by itself, in milliseconds since 1970; null: never.
    pub expires_at_ms: Option<u64>,
    /// The forked history that needs it.
    pub child: Option<String>,
}

impl HeadOverview {
    /// Of a head that takes `size_bytes` as it is stored.
    pub fn of(head: &Head, size_bytes: usize) -> Self {
        let in_changes = head.changes.iter().map(|it| match &it.body {
            ChangeBody::Inline(bytes) => bytes.len() as u64,
            ChangeBody::Staged(object) => object.size_bytes,
        });
        let in_segments = head.segments.iter().map(|it| it.object.size_bytes);
        let is_inline = |it: &ChangeBody| matches!(it, ChangeBody::Inline(_));
        let (version, snapshot) = (head.state_version.get(), head.snapshot.version.get());
        Self {
            history_id: head.history_id.to_string(),
            revision: head.revision.get(),
            state_version: version,
            operation_count: head.operation_count,
            lifecycle: lifecycle(head.lifecycle).to_owned(),
            is_exclusive: head.is_exclusive,
            writer_epoch: head.writer_epoch,
            publisher: head.publisher.id.clone(),
            size_bytes: size_bytes as u64,
            snapshot_version: snapshot,
            tail_versions: version.saturating_sub(snapshot),
            tail_bytes: in_changes.chain(in_segments).sum(),
            tail_changes: head.changes.len() as u64,
            tail_changes_inline: head.changes.iter().filter(|it| is_inline(&it.body)).count()
                as u64,
            tail_segments: head.segments.len() as u64,
            receipt_coverage_from: head.receipt_coverage_from.get(),
            receipt_pages: head.receipt_pages.len() as u64,
            receipt_pages_bytes: head.receipt_pages.iter().map(|it| it.object.size_bytes).sum(),
            sweep_from: head.sweep_from.get(),
            swept_to: head.swept_to.get(),
            retention_versions: head.retention.versions,
            retention_age_ms: head.retention.age_ms,
            retained_from: head.retained_from().get(),
            archive_bytes: head.archive.as_ref().map(|it| it.object.size_bytes),
            pins: head.pins.iter().map(pin).collect(),
            base: head.base.as_ref().map(|it| it.source.history.to_string()),
        }
    }
}

fn pin(pin: &Pin) -> PinOverview {
    PinOverview {
        name: pin.name.as_str().to_owned(),
        version: pin.version.get(),
        expires_at_ms: pin.expires_at_ms,
        child: pin.child.as_ref().map(|it| it.history.to_string()),
    }
}

fn lifecycle(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Live => "live",
        Lifecycle::Retiring => "retiring",
        Lifecycle::Cleared => "cleared",
    }
}
