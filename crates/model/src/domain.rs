//! The state of a history in the plainest words: what decisions are compared
//! with. It shares no code with `headwater_core::decide`.
//!
//! It knows the mutations that the worlds use. An addition is among them, since
//! it shows an operation that was applied twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_core::change::{AcceptedOperation, Resolved};
use headwater_core::decide::{Facts, KeyFact, Needs};
use headwater_core::operation::{Key, Mutation, Precondition, Request, integer};
use headwater_core::receipt::MutationResult;
use headwater_core::version::StateVersion;

/// Every key that was ever touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    keys: BTreeMap<Key, (Option<Bytes>, StateVersion)>,
}

/// What a request does to a state: resolved mutations, and results.
pub type Outcome = (Vec<Resolved>, Vec<MutationResult>);

impl State {
    fn value(&self, key: &Key) -> Option<&Bytes> {
        self.keys.get(key)?.0.as_ref()
    }

    /// The keys with a value, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Bytes, StateVersion)> {
        self.keys.iter().filter_map(|(key, (value, at))| Some((key, value.as_ref()?, *at)))
    }

    /// What a driver would look up in this state.
    ///
    /// # Panics
    ///
    /// When ranges are asked for: no world has preconditions on them.
    pub fn facts(&self, needs: &Needs) -> Facts {
        let fact = |key: &Key| KeyFact {
            value: self.value(key).cloned(),
            newest_change: self.keys.get(key).map(|it| it.1),
        };
        assert!(needs.ranges.is_empty(), "the worlds ask about keys only");
        Facts {
            keys: needs.keys.iter().map(|it| (it.clone(), fact(it))).collect(),
            ..Facts::default()
        }
    }

    /// Replays one accepted operation of `version`.
    pub fn apply(&mut self, version: StateVersion, operation: &AcceptedOperation) {
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
            Resolved::DeleteRange(_) => unreachable!("no world deletes a range"),
        }
    }

    fn allows(&self, precondition: &Precondition) -> bool {
        match precondition {
            Precondition::KeyExists(key) => self.value(key).is_some(),
            Precondition::KeyAbsent(key) => self.value(key).is_none(),
            Precondition::KeyUnchangedSince(key, since) => {
                self.keys.get(key).is_none_or(|it| it.1 <= *since)
            }
            Precondition::ValueEquals(key, value) => self.value(key) == Some(value),
            Precondition::KeyAtVersion(..)
            | Precondition::RangeUnchangedSince(..)
            | Precondition::ValueHashEquals(..) => unreachable!("no world asks for this"),
        }
    }

    /// What `request` does on top of this state as part of `version`; `None` if
    /// it is rejected.
    pub fn carry_out(&self, version: StateVersion, request: &Request) -> Option<Outcome> {
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
                    let before = after.value(key).map_or(Some(0), |it| integer::decode(it))?;
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
