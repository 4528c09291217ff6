//! Checking requests, and taking them into core types.

use bytes::Bytes;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use headwater_daemon::status::{FieldViolation, field_invalid};
use headwater_proto::v1::consistency::Level;
use headwater_proto::{duration, v1};
use tonic::Status;

use crate::consistency::Consistency;

/// Most violations that are collected. More help nobody.
const VIOLATIONS_MAX: usize = 16;

/// The fields that every request has.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) history: HistoryName,
    pub(super) history_id: Option<HistoryId>,
    pub(super) consistency: Consistency,
}

/// Everything that is wrong with a request.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<FieldViolation>);

impl Violations {
    pub(super) fn add(&mut self, field: &str, rule: impl Into<String>) {
        if self.0.len() < VIOLATIONS_MAX {
            self.0.push(FieldViolation::new(field, rule));
        }
    }

    /// What was checked, if all of it was right.
    pub(super) fn finish<T>(self, checked: Option<T>) -> Result<T, Status> {
        checked.filter(|_| self.0.is_empty()).ok_or_else(|| field_invalid(self.0))
    }

    pub(super) fn common(
        &mut self,
        history: &str,
        history_id: &str,
        consistency: Option<&v1::Consistency>,
    ) -> Option<Checked> {
        let history = self.take("history", HistoryName::parse(history));
        let history_id = match history_id {
            "" => Some(None),
            text => self.take("history_id", HistoryId::parse(text)).map(Some),
        };
        let consistency = self.consistency(consistency);
        Some(Checked { history: history?, history_id: history_id?, consistency: consistency? })
    }

    fn consistency(&mut self, consistency: Option<&v1::Consistency>) -> Option<Consistency> {
        Some(match consistency.and_then(|it| it.level.as_ref()) {
            None | Some(Level::Strong(_)) => Consistency::Strong,
            Some(Level::AtLeastVersion(version)) => {
                Consistency::AtLeast(StateVersion::new(*version))
            }
            Some(Level::ExactVersion(version)) => Consistency::Exact(StateVersion::new(*version)),
            Some(Level::MaxStaleness(age)) => {
                let age = duration::from_wire(*age)
                    .ok_or("it is a valid duration, and not a negative one");
                Consistency::MaxStaleness(self.take("consistency.max_staleness", age)?)
            }
            Some(Level::Any(_)) => Consistency::Any,
        })
    }

    pub(super) fn key(&mut self, field: &str, key: &Bytes) -> Option<Key> {
        self.take(field, Key::new(key.clone()))
    }

    pub(super) fn range(&mut self, range: Option<&v1::KeyRange>) -> Option<KeyRange> {
        let Some(range) = range else { return Some(KeyRange::everything()) };
        self.range_in("range", range)
    }

    pub(super) fn range_in(&mut self, field: &str, range: &v1::KeyRange) -> Option<KeyRange> {
        let v1::KeyRange { start, end } = range;
        let end = (!end.is_empty()).then(|| end.clone());
        self.take(field, KeyRange::new(start.clone(), end))
    }

    /// A page size, 0 being the default.
    pub(super) fn page_size(&mut self, size: u32, default: u32, max: u32) -> Option<u32> {
        match size {
            0 => Some(default),
            size if size <= max => Some(size),
            size => {
                self.add("page_size", format!("{size} is above the limit of {max}"));
                None
            }
        }
    }

    pub(super) fn take<T, E: ToString>(&mut self, field: &str, checked: Result<T, E>) -> Option<T> {
        checked.map_err(|error| self.add(field, error.to_string())).ok()
    }
}
