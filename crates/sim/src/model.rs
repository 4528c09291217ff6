//! The state of a history, said in the plainest way: every value that a key
//! ever had, by the operation that gave it. It shares no code with what decides
//! and stores, and is what they are compared with.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use headwater_core::change::Resolved;
use headwater_core::operation::{KeyRange, Mutation, Precondition, Request};
use headwater_core::receipt::MutationResult;

/// An operation by its place: the version that it is part of, and its position
/// in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) version: u64,
    pub(crate) position: u32,
}

/// A moment between two operations: what is before this place has happened.
pub(crate) type Moment = Place;

/// The moment after the whole of a version.
pub(crate) fn after(version: u64) -> Moment {
    Moment { version, position: u32::MAX }
}

/// Every value of every key.
#[derive(Debug, Default)]
pub(crate) struct Model {
    keys: BTreeMap<Bytes, Vec<Written>>,
    /// Deletions by range, which count for keys that did not exist as well.
    ranges: Vec<(KeyRange, Place)>,
}

#[derive(Debug)]
struct Written {
    by: Place,
    value: Option<Bytes>,
}

/// Why a request would not be accepted at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A precondition is false, or an addition does not work out.
    False,
}

/// The last of what was written to a key before a moment.
fn last_of(written: &[Written], at: Moment) -> Option<&Written> {
    written[..written.partition_point(|it| it.by < at)].last()
}

impl Model {
    fn last(&self, key: &[u8], at: Moment) -> Option<&Written> {
        last_of(self.keys.get(key)?, at)
    }

    /// The value of a key, and the version that wrote it.
    pub(crate) fn value(&self, key: &[u8], at: Moment) -> Option<(&Bytes, u64)> {
        let last = self.last(key, at)?;
        last.value.as_ref().map(|it| (it, last.by.version))
    }

    /// The newest version that wrote or deleted the key.
    fn changed(&self, key: &[u8], at: Moment) -> Option<u64> {
        let by_key = self.last(key, at).map(|it| it.by.version);
        let by_range = self.ranges.iter().rev().find(|(range, by)| *by < at && range.contains(key));
        by_key.max(by_range.map(|it| it.1.version))
    }

    /// The newest version that wrote or deleted anything in the range.
    fn changed_in(&self, range: &KeyRange, at: Moment) -> Option<u64> {
        let written = self.keys_in(range).filter_map(|(_, written)| last_of(written, at));
        let by_key = written.map(|it| it.by.version).max();
        let by_range = self.ranges.iter().rev().find(|(other, by)| *by < at && meet(range, other));
        by_key.max(by_range.map(|it| it.1.version))
    }

    fn keys_in<'a>(
        &'a self,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Vec<Written>)> {
        let from = self.keys.range(range.start().clone()..);
        from.take_while(|(key, _)| range.contains(key))
    }

    /// All entries of a range, or those after a key of it: key, value, and the
    /// version that wrote it.
    pub(crate) fn entries<'a>(
        &'a self,
        range: &'a KeyRange,
        after: Option<&Bytes>,
        at: Moment,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes, u64)> {
        let start = after.map_or(Bound::Included(range.start()), Bound::Excluded);
        let keys = self.keys.range::<Bytes, _>((start, Bound::Unbounded));
        let keys = keys.take_while(|(key, _)| range.contains(key));
        keys.filter_map(move |(key, written)| {
            let last = last_of(written, at)?;
            last.value.as_ref().map(|it| (key, it, last.by.version))
        })
    }

    /// What stands in the way of a request at a moment.
    pub(crate) fn obstacle(&self, request: &Request, at: Moment) -> Option<Obstacle> {
        let holds = request.preconditions().iter().all(|it| self.holds(it, at));
        (!holds || self.resolve(request, at).is_none()).then_some(Obstacle::False)
    }

    fn holds(&self, precondition: &Precondition, at: Moment) -> bool {
        let value = |key: &[u8]| self.value(key, at);
        match precondition {
            Precondition::KeyExists(key) => value(key.as_ref()).is_some(),
            Precondition::KeyAbsent(key) => value(key.as_ref()).is_none(),
            Precondition::KeyAtVersion(key, version) => {
                value(key.as_ref()).is_some_and(|it| it.1 == version.get())
            }
            Precondition::KeyUnchangedSince(key, since) => {
                self.changed(key.as_ref(), at).is_none_or(|it| it <= since.get())
            }
            Precondition::RangeUnchangedSince(range, since) => {
                self.changed_in(range, at).is_none_or(|it| it <= since.get())
            }
            Precondition::ValueEquals(key, expected) => {
                value(key.as_ref()).is_some_and(|it| it.0 == expected)
            }
            Precondition::ValueHashEquals(key, expected) => value(key.as_ref())
                .is_some_and(|it| blake3::hash(it.0).as_bytes() == expected.as_bytes()),
        }
    }

    /// What a request comes to at a moment; `None` when an addition is not
    /// possible.
    pub(crate) fn resolve(
        &self,
        request: &Request,
        at: Moment,
    ) -> Option<(Vec<Resolved>, Vec<MutationResult>)> {
        let mut resolved: Vec<Resolved> = Vec::new();
        let mut results = Vec::new();
        for (index, mutation) in (0..).zip(request.mutations()) {
            resolved.push(match mutation {
                Mutation::Put(key, value) => Resolved::Put(key.clone(), value.clone()),
                Mutation::Delete(key) => Resolved::Delete(key.clone()),
                Mutation::DeleteRange(range) => Resolved::DeleteRange(range.clone()),
                Mutation::Add(key, delta) => {
                    let before = match own_write(&resolved, key.as_ref()) {
                        Own::Put(value) => Some(value),
                        Own::Deleted => None,
                        Own::Nothing => self.value(key.as_ref(), at).map(|it| it.0.clone()),
                    };
                    let before = match before {
                        None => 0,
                        Some(bytes) => i64::from_be_bytes(bytes.as_ref().try_into().ok()?),
                    };
                    let sum = before.checked_add(*delta)?;
                    results.push(MutationResult { mutation: index, sum });
                    Resolved::Put(key.clone(), Bytes::copy_from_slice(&sum.to_be_bytes()))
                }
            });
        }
        Some((resolved, results))
    }

    /// The same up to a moment, for a history that goes on from there.
    pub(crate) fn at(&self, at: Moment) -> Self {
        let written = |all: &Vec<Written>| {
            let until = all.partition_point(|it| it.by < at);
            let all = all[..until].iter();
            all.map(|it| Written { by: it.by, value: it.value.clone() }).collect()
        };
        Self {
            keys: self.keys.iter().map(|(key, it)| (key.clone(), written(it))).collect(),
            ranges: self.ranges.iter().filter(|it| it.1 < at).cloned().collect(),
        }
    }

    /// Takes down what an operation did.
    pub(crate) fn apply(&mut self, by: Place, mutations: &[Resolved]) {
        for mutation in mutations {
            match mutation {
                Resolved::Put(key, value) => {
                    self.write(key.as_bytes().clone(), by, Some(value.clone()));
                }
                Resolved::Delete(key) => self.write(key.as_bytes().clone(), by, None),
                Resolved::DeleteRange(range) => {
                    let gone: Vec<Bytes> = self.keys_in(range).map(|it| it.0.clone()).collect();
                    for key in gone {
                        self.write(key, by, None);
                    }
                    self.ranges.push((range.clone(), by));
                }
            }
        }
    }

    fn write(&mut self, key: Bytes, by: Place, value: Option<Bytes>) {
        let written = self.keys.entry(key).or_default();
        // One operation may write a key twice; the last one counts.
        written.pop_if(|it| it.by == by);
        written.push(Written { by, value });
    }
}

/// What the mutations so far of one operation made of a key.
fn own_write(resolved: &[Resolved], key: &[u8]) -> Own {
    for it in resolved.iter().rev() {
        match it {
            Resolved::Put(written, value) if written.as_ref() == key => {
                return Own::Put(value.clone());
            }
            Resolved::Delete(written) if written.as_ref() == key => return Own::Deleted,
            Resolved::DeleteRange(range) if range.contains(key) => return Own::Deleted,
            Resolved::Put(..) | Resolved::Delete(_) | Resolved::DeleteRange(_) => (),
        }
    }
    Own::Nothing
}

enum Own {
    Put(Bytes),
    Deleted,
    Nothing,
}

fn meet(a: &KeyRange, b: &KeyRange) -> bool {
    a.end().is_none_or(|end| b.start() < end) && b.end().is_none_or(|end| a.start() < end)
}
