//! Answers of replicas: whole versions only, and as fresh as was asked for.

use std::time::Duration;

use bytes::Bytes;
use headwater_core::operation::{Key, KeyRange};
use headwater_replica::{Consistency, ReadFailure};

use super::{History, Truth};
use crate::model::after;

/// A read that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head_key: String,
    pub(crate) consistency: Consistency,
    /// The event at which it was sent, and when that was.
    pub(crate) sent: u64,
    pub(crate) sent_at: Duration,
}

/// What a view held.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) version: u64,
    pub(crate) revision: u64,
    pub(crate) value: T,
}

/// Which part of a range was read. Pages of one version, each after the one
/// before, are the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) range: &'a KeyRange,
    /// The last key of the page before.
    pub(crate) after: Option<&'a Bytes>,
    /// Nothing comes after.
    pub(crate) is_end: bool,
}

/// Key, value, and the version that wrote it.
pub(crate) type Row = (Bytes, Bytes, u64);

impl Truth {
    /// A key was read.
    pub(crate) fn read_key(
        &mut self,
        asked: &Asked,
        answered: u64,
        key: &Key,
        found: &Found<Option<(Bytes, u64)>>,
    ) {
        let Some(history) = self.histories.get(&asked.head_key) else { return };
        let mut what = history.check_freshness(asked, answered, found.version, found.revision);
        let expected = history.model.value(key.as_ref(), after(found.version));
        if expected != found.value.as_ref().map(|it| (&it.0, it.1)) {
            let value = &found.value;
            what = Some(format!("{key} at v{} is {value:?}, and was {expected:?}", found.version));
        }
        self.note_read(asked, answered, what);
    }

    /// A page of a range was read.
    pub(crate) fn read_page(
        &mut self,
        asked: &Asked,
        answered: u64,
        found: &Found<Vec<Row>>,
        page: Page<'_>,
    ) {
        let Some(history) = self.histories.get(&asked.head_key) else { return };
        let mut what = history.check_freshness(asked, answered, found.version, found.revision);
        if !history.is_page(found, page) {
            what = Some(format!("{page:?} at v{} is another: {:?}", found.version, found.value));
        }
        self.note_read(asked, answered, what);
    }

    /// Change entries were read: the operations of consecutive versions.
    pub(crate) fn read_changes(
        &mut self,
        asked: &Asked,
        answered: u64,
        found: &Found<Vec<(u64, Vec<String>)>>,
    ) {
        let Some(history) = self.histories.get(&asked.head_key) else { return };
        let mut what = history.check_freshness(asked, answered, found.version, found.revision);
        for (version, ids) in &found.value {
            let published = usize::try_from(*version).ok().and_then(|it| history.versions.get(it));
            let is_whole = published.is_some_and(|it| it.operations as usize == ids.len());
            let is_in = (0..).zip(ids).all(|(position, id)| {
                let id = headwater_core::id::OperationId::parse(id).ok();
                let known = id.and_then(|it| history.operations.get(&it));
                let accepted = known.and_then(|it| it.accepted.as_ref());
                accepted
                    .is_some_and(|it| (it.place.version, it.place.position) == (*version, position))
            });
            if !is_whole || !is_in {
                what = Some(format!("v{version} is told as {ids:?}"));
            }
        }
        self.note_read(asked, answered, what);
    }

    /// A read was refused.
    pub(crate) fn read_failed(&mut self, asked: &Asked, answered: u64, failure: &ReadFailure) {
        let Some(history) = self.histories.get(&asked.head_key) else { return };
        let what = match failure {
            ReadFailure::FreshnessUnverified { .. }
            | ReadFailure::StoreUnavailable { .. }
            | ReadFailure::Expired { .. }
            | ReadFailure::TooManyHistories { .. }
            | ReadFailure::ShuttingDown => None,
            ReadFailure::VersionRetired { wanted, newest, .. } => {
                let is_asked = asked.consistency == Consistency::Exact(*wanted);
                (!is_asked || newest < wanted).then(|| format!("it is told {failure:?}"))
            }
            ReadFailure::VersionAhead { wanted, .. } => {
                let existed = wanted.get() <= history.newest_at(asked.sent);
                existed.then(|| format!("it is told {failure:?}"))
            }
            ReadFailure::HistoryMissing { .. }
            | ReadFailure::StoredDataBad { .. }
            | ReadFailure::FormatTooNew { .. }
            | ReadFailure::Denied { .. } => Some(format!("it is told {failure:?}")),
        };
        self.note_read(asked, answered, what);
    }

    fn note_read(&mut self, asked: &Asked, answered: u64, what: Option<String>) {
        if let Some(what) = what {
            let Asked { head_key, consistency, sent, .. } = asked;
            self.violation(format!(
                "{head_key}: {consistency:?}, sent at {sent}, answered at {answered}: {what}"
            ));
        }
    }
}

impl History {
    /// Whether a page begins with these rows, and the range ends with them at
    /// its end.
    fn is_page(&self, found: &Found<Vec<Row>>, page: Page<'_>) -> bool {
        let mut expected = self.model.entries(page.range, page.after, after(found.version));
        let mut found = found.value.iter().map(|(key, value, version)| (key, value, *version));
        let is_same = found.all(|row| expected.next() == Some(row));
        is_same && !(page.is_end && expected.next().is_some())
    }

    fn check_freshness(
        &self,
        asked: &Asked,
        answered: u64,
        version: u64,
        revision: u64,
    ) -> Option<String> {
        let newest = self.newest_at(answered);
        let (oldest, most) = match asked.consistency {
            Consistency::Strong => (self.newest_at(asked.sent), newest),
            Consistency::AtLeast(wanted) => (wanted.get(), newest),
            Consistency::Exact(wanted) => (wanted.get(), wanted.get().min(newest)),
            Consistency::MaxStaleness(age) => {
                (self.newest_at_time(asked.sent_at.saturating_sub(age)), newest)
            }
            Consistency::Any => (0, newest),
        };
        if !(oldest..=most).contains(&version) {
            return Some(format!("served v{version}, allowed were v{oldest} to v{most}"));
        }
        let revisions = self.revision_at(asked.sent)..=self.revision_at(answered);
        let is_strong = asked.consistency == Consistency::Strong;
        if (is_strong && !revisions.contains(&revision)) || *revisions.end() < revision {
            return Some(format!("served revision {revision}, current were {revisions:?}"));
        }
        None
    }
}
