//! The state, said in the plainest way: what the publisher's decisions are
//! compared with. It shares no code with `decide`.

use std::collections::BTreeMap;
use std::vec::Vec;

use bytes::Bytes;

use crate::change::{AcceptedOperation, Resolved};
use crate::decide::{Facts, KeyFact, Needs};
use crate::hash::ContentHash;
use crate::operation::{Key, KeyRange, Mutation, Precondition, Request, integer};
use crate::receipt::MutationResult;
use crate::version::StateVersion;

/// Every key that was ever touched, and every range that was ever deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    keys: BTreeMap<Key, (Option<Bytes>, StateVersion)>,
    deleted: Vec<(KeyRange, StateVersion)>,
}

impl State {
    pub(super) fn value(&self, key: &Key) -> Option<&Bytes> {
        self.keys.get(key)?.0.as_ref()
    }

    /// The version that last wrote or deleted the key; ranges count for every
    /// key in them.
    fn newest(&self, key: &Key) -> Option<StateVersion> {
        let by_key = self.keys.get(key).map(|it| it.1);
        let by_range = self.deleted.iter().filter(|it| it.0.contains(key.as_bytes()));
        by_key.max(by_range.map(|it| it.1).max())
    }

    fn newest_in(&self, range: &KeyRange) -> Option<(Key, StateVersion)> {
        let keys = self.keys.iter().filter(|it| range.contains(it.0.as_bytes()));
        let by_key = keys.map(|(key, it)| (key.clone(), it.1)).max_by_key(|it| it.1);
        let is_over = |it: &&(KeyRange, StateVersion)| {
            it.0.end().is_none_or(|end| range.start() < end)
                && range.end().is_none_or(|end| it.0.start() < end)
        };
        let by_range = self.deleted.iter().filter(is_over).map(|(deleted, version)| {
            let start = deleted.start().max(range.start()).clone();
            (Key::new(start).unwrap_or_else(|_| Key::new(&b"\0"[..]).unwrap()), *version)
        });
        by_key.into_iter().chain(by_range).max_by_key(|it| it.1)
    }

    pub(super) fn facts(&self, needs: &Needs) -> Facts {
        let fact = |key: &Key| {
            (
                key.clone(),
                KeyFact { value: self.value(key).cloned(), newest_change: self.newest(key) },
            )
        };
        let of_range = |(range, above): (&KeyRange, &StateVersion)| {
            (range.clone(), self.newest_in(range).filter(|it| *above < it.1))
        };
        Facts {
            keys: needs.keys.iter().map(fact).collect(),
            ranges: needs.ranges.iter().map(of_range).collect(),
            deletions_known_from: StateVersion::ZERO,
        }
    }

    pub(super) fn apply(&mut self, version: StateVersion, operation: &AcceptedOperation) {
        operation.mutations.iter().for_each(|it| self.apply_one(version, it));
    }

    fn apply_one(&mut self, version: StateVersion, mutation: &Resolved) {
        match mutation {
            Resolved::Put(key, value) => {
                self.keys.insert(key.clone(), (Some(value.clone()), version));
            }
            Resolved::Delete(key) => {
                self.keys.insert(key.clone(), (None, version));
            }
            Resolved::DeleteRange(range) => {
                for (key, entry) in &mut self.keys {
                    if range.contains(key.as_bytes()) {
                        *entry = (None, version);
                    }
                }
                self.deleted.push((range.clone(), version));
            }
        }
    }

    fn allows(&self, precondition: &Precondition) -> bool {
        match precondition {
            Precondition::KeyExists(key) => self.value(key).is_some(),
            Precondition::KeyAbsent(key) => self.value(key).is_none(),
            Precondition::KeyAtVersion(key, version) => {
                self.value(key).is_some() && self.newest(key) == Some(*version)
            }
            Precondition::KeyUnchangedSince(key, since) => self.newest(key) <= Some(*since),
            Precondition::RangeUnchangedSince(range, since) => {
                self.newest_in(range).is_none_or(|it| it.1 <= *since)
            }
            Precondition::ValueEquals(key, value) => self.value(key) == Some(value),
            Precondition::ValueHashEquals(key, hash) => {
                self.value(key).is_some_and(|it| ContentHash::of(it) == *hash)
            }
        }
    }

    /// What `request` does on top of this state as part of `version`; `None` if
    /// it is rejected.
    pub(super) fn carry_out(
        &self,
        version: StateVersion,
        request: &Request,
    ) -> Option<(Vec<Resolved>, Vec<MutationResult>)> {
        if !request.preconditions().iter().all(|it| self.allows(it)) {
            return None;
        }
        let mut after = self.clone();
        let (mut resolved, mut results) = (Vec::new(), Vec::new());
        for (mutation, index) in request.mutations().iter().zip(0..) {
            let one = match mutation {
                Mutation::Put(key, value) => Resolved::Put(key.clone(), value.clone()),
                Mutation::Delete(key) => Resolved::Delete(key.clone()),
                Mutation::DeleteRange(range) => Resolved::DeleteRange(range.clone()),
                Mutation::Add(key, delta) => {
                    let before = match after.value(key) {
                        None => 0,
                        Some(value) => integer::decode(value)?,
                    };
                    let sum = before.checked_add(*delta)?;
                    results.push(MutationResult { mutation: index, sum });
                    Resolved::Put(key.clone(), integer::encode(sum))
                }
            };
            after.apply_one(version, &one);
            resolved.push(one);
        }
        Some((resolved, results))
    }
}
