//! Deciding a batch: which operations are accepted, as what, and what the
//! others are told (PROTOCOL 4, step 2).
//!
//! ```text
//! needs(operations) -> driver looks the facts up -> decide(basis, facts, asks)
//! ```
//!
//! The order inside [`decide`] is the order of the protocol: receipts before
//! coverage before epoch before state. Each operation is decided against the
//! state after those before it in the batch; one that is not accepted leaves no
//! trace on its neighbours.

#[cfg(test)]
mod decide_test;
mod layer;
#[cfg(test)]
mod layer_test;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;

use self::layer::{Layer, Written};
use crate::change::{AcceptedOperation, Change, Resolved};
use crate::hash::ContentHash;
use crate::id::{HistoryId, OperationId};
use crate::operation::{Key, KeyRange, Mutation, Operation, Precondition, integer};
use crate::receipt::{MutationResult, Receipt};
use crate::version::StateVersion;

/// What has to be looked up before a batch can be decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Keys whose value or newest change matters.
    pub keys: BTreeSet<Key>,
    /// Ranges, each with the version above which a change matters.
    pub ranges: BTreeMap<KeyRange, StateVersion>,
}

impl Needs {
    /// Whether the batch can be decided without any fact.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
}

/// Collects what deciding `operations` takes.
pub fn needs<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Needs {
    let mut needs = Needs::default();
    for operation in operations {
        for precondition in operation.request.preconditions() {
            match precondition {
                Precondition::KeyExists(key)
                | Precondition::KeyAbsent(key)
                | Precondition::KeyAtVersion(key, _)
                | Precondition::KeyUnchangedSince(key, _)
                | Precondition::ValueEquals(key, _)
                | Precondition::ValueHashEquals(key, _) => {
                    needs.keys.insert(key.clone());
                }
                Precondition::RangeUnchangedSince(range, version) => {
                    let above = needs.ranges.entry(range.clone()).or_insert(*version);
                    *above = (*above).min(*version);
                }
            }
        }
        for mutation in operation.request.mutations() {
            match mutation {
                Mutation::Add(key, _) => {
                    needs.keys.insert(key.clone());
                }
                Mutation::Put(..) | Mutation::Delete(_) | Mutation::DeleteRange(_) => (),
            }
        }
    }
    needs
}

/// What the state says about one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFact {
    /// Its value, if it has one.
    pub value: Option<Bytes>,
    /// The version that last wrote or deleted it, as far as that is on record:
    /// always for a key that has a value.
    pub newest_change: Option<StateVersion>,
}

/// The answers to [`Needs`], all from one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// One for each key asked for.
    pub keys: BTreeMap<Key, KeyFact>,
    /// For each range asked for: the newest change above the version asked
    /// about, and a key that it touched.
    pub ranges: BTreeMap<KeyRange, Option<(Key, StateVersion)>>,
    /// Deletions are on record for versions after this one.
    pub deletions_known_from: StateVersion,
}

/// The head, published or predicted, that a batch is decided against.
pub trait Basis {
    /// The history.
    fn history_id(&self) -> HistoryId;
    /// Its state version.
    fn state_version(&self) -> StateVersion;
    /// First version with complete receipts.
    fn coverage_from(&self) -> StateVersion;
    /// The current epoch, if operations have to carry it.
    fn required_epoch(&self) -> Option<u64>;
    /// The receipt of an operation, whatever its request.
    fn receipt(&self, id: &OperationId) -> Option<&Receipt>;
}

/// One question of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Accept this operation if it may be.
    Submit(Operation),
    /// Say what became of an operation; changes nothing.
    LookUp(LookUp),
}

/// A question about an operation by its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookUp {
    /// The operation.
    pub id: OperationId,
    /// The version that it was issued from, or an older one.
    pub issued_from: StateVersion,
    /// The history that the caller means; `None` is whichever has the name.
    pub history_id: Option<HistoryId>,
}

impl Ask {
    /// The operation that is submitted, if one is.
    pub fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Submit(operation) => Some(operation),
            Self::LookUp(_) => None,
        }
    }
}

/// What is decided about one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It enters with this batch.
    Accepted(Receipt),
    /// It was accepted before: here is the proof.
    Known(Receipt),
    /// The id belongs to an accepted operation with a different request.
    IdReused,
    /// A look-up found no receipt, and there would be one.
    NotAccepted {
        /// Not accepted through this version.
        through: StateVersion,
    },
    /// The receipts that could tell are gone.
    Unknown {
        /// First version that it can have got.
        earliest: StateVersion,
        /// First version with complete receipts.
        coverage_from: StateVersion,
    },
    /// It names a version that the history has not reached.
    IssuedAhead {
        /// The version that the history has reached.
        state_version: StateVersion,
    },
    /// It is meant for another history of this name.
    OtherHistory {
        /// The history that there is.
        found: HistoryId,
    },
    /// It was issued under another epoch.
    Fenced {
        /// The current one.
        writer_epoch: u64,
    },
    /// The state does not allow it.
    Rejected {
        /// The version that it was checked against.
        at: StateVersion,
        /// What stands in the way, at least one.
        conflicts: Vec<Conflict>,
    },
}

/// One thing that stands in the way of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    /// What is wrong.
    pub kind: ConflictKind,
    /// The key, or a key of the range.
    pub key: Bytes,
    /// The version that last wrote or deleted it; 0 where none is on record.
    pub version_seen: StateVersion,
    /// The precondition or mutation, by its index in the request.
    pub place: Place,
}

/// Which part of a request conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A precondition.
    Precondition(u32),
    /// A mutation.
    Mutation(u32),
}

/// Why a part of a request conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// The key has no value and should have.
    KeyMissing,
    /// The key has a value and should not.
    KeyPresent,
    /// The key or range was written or deleted since.
    Changed,
    /// The value is another one.
    ValueDiffers,
    /// Deletions that far back are no longer on record.
    SinceTooOld,
    /// The value to add to is not 8 bytes long.
    NotAnInteger,
    /// The sum does not fit 64 bits.
    Overflow,
}

/// Conflicts named in one rejection at most; the first ones are.
pub const CONFLICTS_MAX: usize = 64;

/// A batch, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// One for each operation, in order.
    pub verdicts: Vec<Verdict>,
    /// What the accepted ones become; `None` when there is none.
    pub change: Option<Change>,
    /// Their receipts.
    pub receipts: BTreeMap<OperationId, Receipt>,
}

/// Decides `asks` in order.
///
/// Pure: the same basis, facts and operations always give the same decision.
/// `decided_at_ms` is written into the change and decides nothing.
///
/// # Panics
///
/// When a fact that [`needs`] asked for is missing: a driver that guesses would
/// be wrong without anybody noticing.
pub fn decide<'a>(
    basis: &dyn Basis,
    facts: &Facts,
    asks: impl IntoIterator<Item = &'a Ask>,
    decided_at_ms: u64,
) -> Decision {
    let mut batch = Batch {
        basis,
        facts,
        next: basis.state_version().next(),
        coverage_from: basis.coverage_from(),
        is_read: !facts.keys.is_empty() || !facts.ranges.is_empty(),
        written: Layer::default(),
        receipts: BTreeMap::new(),
        accepted: Vec::new(),
    };
    let verdicts = asks
        .into_iter()
        .map(|it| match it {
            Ask::Submit(operation) => batch.decide(operation),
            Ask::LookUp(look_up) => batch.look_up(look_up),
        })
        .collect();
    let (operations, receipts) = (batch.accepted, batch.receipts);
    let change = (!operations.is_empty()).then_some(Change { decided_at_ms, operations });
    Decision { verdicts, change, receipts }
}

struct Batch<'a> {
    basis: &'a dyn Basis,
    facts: &'a Facts,
    /// The version that the batch becomes.
    next: StateVersion,
    /// Of the basis, and the same for all of the batch.
    coverage_from: StateVersion,
    /// Whether any operation of it asks about the state: there is a fact for
    /// each that does.
    is_read: bool,
    /// What the operations accepted so far have written, where that is read.
    written: Layer,
    receipts: BTreeMap<OperationId, Receipt>,
    accepted: Vec<AcceptedOperation>,
}

impl Batch<'_> {
    fn decide(&mut self, operation: &Operation) -> Verdict {
        if operation.history_id.is_some_and(|it| it != self.basis.history_id()) {
            return Verdict::OtherHistory { found: self.basis.history_id() };
        }
        if planted!(StateBeforeReceipts)
            && let Some(rejected) = self.conflicts(operation)
        {
            return rejected;
        }
        // Receipts come before everything else. An accepted operation no longer
        // passes its own preconditions, so checking those first would reject a
        // success.
        let receipt = self.receipts.get(&operation.id);
        match receipt.or_else(|| self.basis.receipt(&operation.id)) {
            Some(it) if it.request_hash == operation.request_hash || planted!(HashUncompared) => {
                return Verdict::Known(it.clone());
            }
            Some(_) => return Verdict::IdReused,
            None => (),
        }
        // An issue version ahead of the history proves nothing once the window
        // passes it: the operation could be accepted now, at a version below
        // it, and be looked for above it later. And nothing has changed since a
        // version that is still to come: the caller has seen another history.
        let named = operation.request.newest_version_named();
        if self.basis.state_version() < operation.issue.issued_from().max(named.unwrap_or_default())
            && !planted!(AheadAccepted)
        {
            return Verdict::IssuedAhead { state_version: self.basis.state_version() };
        }
        let earliest = operation.issue.earliest();
        let coverage_from = self.coverage_from;
        if earliest < coverage_from && !planted!(CoverageUnchecked) {
            return Verdict::Unknown { earliest, coverage_from };
        }
        if let Some(writer_epoch) = self.basis.required_epoch()
            && writer_epoch != operation.writer_epoch
            && !planted!(EpochUnchecked)
        {
            return Verdict::Fenced { writer_epoch };
        }
        self.check_and_resolve(operation)
    }

    fn look_up(&self, look_up: &LookUp) -> Verdict {
        if look_up.history_id.is_some_and(|it| it != self.basis.history_id()) {
            return Verdict::OtherHistory { found: self.basis.history_id() };
        }
        let receipt = self.receipts.get(&look_up.id);
        if let Some(it) = receipt.or_else(|| self.basis.receipt(&look_up.id)) {
            return Verdict::Known(it.clone());
        }
        let coverage_from = self.coverage_from;
        let issued_from = look_up.issued_from;
        // Compared with the boundary first: nothing comes after the greatest
        // version, and a caller may name it.
        if issued_from < coverage_from && issued_from.next() < coverage_from {
            return Verdict::Unknown { earliest: issued_from.next(), coverage_from };
        }
        Verdict::NotAccepted { through: self.basis.state_version() }
    }

    fn check_and_resolve(&mut self, operation: &Operation) -> Verdict {
        if let Some(rejected) = self.conflicts(operation) {
            return rejected;
        }
        let (mutations, results) = match self.resolve(operation.request.mutations()) {
            Ok(resolved) => resolved,
            Err(conflict) => {
                return Verdict::Rejected {
                    at: self.version_seen(),
                    conflicts: alloc::vec![conflict],
                };
            }
        };
        if self.is_read {
            for mutation in &mutations {
                self.written.apply(mutation);
            }
        }
        let receipt = Receipt {
            operation_id: operation.id.clone(),
            request_hash: operation.request_hash,
            accepted_at: self.next,
            position: u32::try_from(self.accepted.len()).unwrap_or(u32::MAX),
            results: results.clone(),
        };
        self.receipts.insert(operation.id.clone(), receipt.clone());
        self.accepted.push(AcceptedOperation {
            id: operation.id.clone(),
            request_hash: operation.request_hash,
            results,
            mutations,
        });
        Verdict::Accepted(receipt)
    }

    /// The version that the next operation of the batch is checked against.
    fn version_seen(&self) -> StateVersion {
        if self.accepted.is_empty() { self.basis.state_version() } else { self.next }
    }

    /// The rejection, if a precondition does not hold.
    fn conflicts(&self, operation: &Operation) -> Option<Verdict> {
        let conflicts: Vec<_> = (0..)
            .zip(operation.request.preconditions())
            .filter_map(|(index, it)| self.check(it, Place::Precondition(index)))
            .take(CONFLICTS_MAX)
            .collect();
        let at = self.version_seen();
        (!conflicts.is_empty()).then_some(Verdict::Rejected { at, conflicts })
    }

    /// What the state says about `key` after the batch so far.
    fn fact(&self, key: &Key) -> KeyFact {
        let newest_change = Some(self.next);
        if planted!(NeighboursIgnored) {
            return self.facts.keys.get(key).cloned().unwrap_or_default();
        }
        match self.written.get(key) {
            Written::Value(value) => KeyFact { value: Some(value.clone()), newest_change },
            Written::Deleted => KeyFact { value: None, newest_change },
            Written::Nothing => {
                let Some(fact) = self.facts.keys.get(key) else {
                    panic!("no fact about key {key:?}")
                };
                fact.clone()
            }
        }
    }

    fn check(&self, precondition: &Precondition, place: Place) -> Option<Conflict> {
        let (key, kind, version_seen) = match precondition {
            Precondition::RangeUnchangedSince(range, since) => {
                let (key, kind, seen) = self.check_range(range, *since)?;
                return Some(Conflict { kind, key, version_seen: seen, place });
            }
            Precondition::KeyExists(key) => {
                let fact = self.fact(key);
                if fact.value.is_some() {
                    return None;
                }
                (key, ConflictKind::KeyMissing, fact.newest_change)
            }
            Precondition::KeyAbsent(key) => {
                let fact = self.fact(key);
                fact.value?;
                (key, ConflictKind::KeyPresent, fact.newest_change)
            }
            Precondition::KeyAtVersion(key, version) => match self.fact(key) {
                KeyFact { value: None, newest_change } => {
                    (key, ConflictKind::KeyMissing, newest_change)
                }
                KeyFact { newest_change: Some(seen), .. } if seen == *version => return None,
                KeyFact { newest_change, .. } => (key, ConflictKind::Changed, newest_change),
            },
            Precondition::KeyUnchangedSince(key, since) => match self.fact(key) {
                KeyFact { newest_change: Some(seen), .. } if *since < seen => {
                    (key, ConflictKind::Changed, Some(seen))
                }
                KeyFact { value: None, .. } if *since < self.facts.deletions_known_from => {
                    (key, ConflictKind::SinceTooOld, Some(self.facts.deletions_known_from))
                }
                KeyFact { .. } => return None,
            },
            Precondition::ValueEquals(key, expected) => match self.fact(key) {
                KeyFact { value: Some(value), .. } if value == *expected => return None,
                KeyFact { newest_change, .. } => (key, ConflictKind::ValueDiffers, newest_change),
            },
            Precondition::ValueHashEquals(key, expected) => match self.fact(key) {
                KeyFact { value: Some(value), .. } if ContentHash::of(&value) == *expected => {
                    return None;
                }
                KeyFact { newest_change, .. } => (key, ConflictKind::ValueDiffers, newest_change),
            },
        };
        let version_seen = version_seen.unwrap_or(StateVersion::ZERO);
        Some(Conflict { kind, key: key.as_bytes().clone(), version_seen, place })
    }

    fn check_range(
        &self,
        range: &KeyRange,
        since: StateVersion,
    ) -> Option<(Bytes, ConflictKind, StateVersion)> {
        // Everything in this batch is newer than any version a caller has seen.
        if let Some(key) = self.written.touches(range) {
            return Some((key, ConflictKind::Changed, self.next));
        }
        let Some(newest) = self.facts.ranges.get(range) else {
            panic!("no fact about range {range:?}")
        };
        if let Some((key, seen)) = newest
            && since < *seen
        {
            return Some((key.as_bytes().clone(), ConflictKind::Changed, *seen));
        }
        let known_from = self.facts.deletions_known_from;
        (since < known_from).then(|| (range.start().clone(), ConflictKind::SinceTooOld, known_from))
    }

    fn resolve(
        &self,
        mutations: &[Mutation],
    ) -> Result<(Vec<Resolved>, Vec<MutationResult>), Conflict> {
        // Only an addition looks at what those before it in the operation did.
        let is_read = mutations.iter().any(|it| matches!(it, Mutation::Add(..)));
        let mut layer = Layer::default();
        let mut results = Vec::new();
        let mut resolved = Vec::with_capacity(mutations.len());
        for (index, mutation) in (0..).zip(mutations) {
            let one = match mutation {
                Mutation::Put(key, value) => Resolved::Put(key.clone(), value.clone()),
                Mutation::Delete(key) => Resolved::Delete(key.clone()),
                Mutation::DeleteRange(range) => Resolved::DeleteRange(range.clone()),
                Mutation::Add(key, delta) => {
                    let sum = self.add(&layer, key, *delta, Place::Mutation(index))?;
                    results.push(MutationResult { mutation: index, sum });
                    Resolved::Put(key.clone(), integer::encode(sum))
                }
            };
            if is_read {
                layer.apply(&one);
            }
            resolved.push(one);
        }
        Ok((resolved, results))
    }

    fn add(&self, layer: &Layer, key: &Key, delta: i64, place: Place) -> Result<i64, Conflict> {
        let fact = match layer.get(key) {
            Written::Value(value) => {
                KeyFact { value: Some(value.clone()), newest_change: Some(self.next) }
            }
            Written::Deleted => KeyFact { value: None, newest_change: Some(self.next) },
            Written::Nothing => self.fact(key),
        };
        let sum = match &fact.value {
            None => Ok(delta),
            Some(value) => integer::decode(value)
                .ok_or(ConflictKind::NotAnInteger)
                .and_then(|it| it.checked_add(delta).ok_or(ConflictKind::Overflow)),
        };
        sum.map_err(|kind| Conflict {
            kind,
            key: key.as_bytes().clone(),
            version_seen: fact.newest_change.unwrap_or(StateVersion::ZERO),
            place,
        })
    }
}
