//! The least of a history that the client can be tried on: versions, puts and
//! deletions, `unchanged since`, receipts.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::mutation::Kind as MutationKind;
use headwater_proto::v1::precondition::Kind as PreconditionKind;
use headwater_proto::v1::submit_response::Outcome;

pub(crate) const HISTORY: &str = "datasets/events";
pub(crate) const HISTORY_ID: &str = "00112233445566778899aabbccddeeff";

pub(crate) struct Model {
    pub(crate) history_id: String,
    /// One state a version; a value and the version that wrote it.
    pub(crate) states: Vec<BTreeMap<Bytes, (Bytes, u64)>>,
    /// When a key was last deleted.
    deleted: BTreeMap<Bytes, u64>,
    receipts: BTreeMap<String, v1::Accepted>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            history_id: HISTORY_ID.to_owned(),
            states: vec![BTreeMap::new()],
            deleted: BTreeMap::new(),
            receipts: BTreeMap::new(),
        }
    }
}

impl Model {
    pub(crate) fn version(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub(crate) fn state(&self, version: u64) -> &BTreeMap<Bytes, (Bytes, u64)> {
        &self.states[usize::try_from(version).unwrap()]
    }

    pub(crate) fn value(&self, key: &str) -> Option<Bytes> {
        self.states.last().unwrap().get(key.as_bytes()).map(|it| it.0.clone())
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        let put = v1::Put { key: key.to_owned().into(), value: value.to_owned().into() };
        self.apply(&[v1::Mutation { kind: Some(MutationKind::Put(put)) }]);
    }

    pub(crate) fn receipt(&self, operation_id: &str) -> Option<v1::Accepted> {
        self.receipts.get(operation_id).cloned()
    }

    pub(crate) fn submit(&mut self, request: &v1::SubmitRequest) -> v1::SubmitResponse {
        if let Some(receipt) = self.receipts.get(&request.operation_id) {
            let accepted = v1::Accepted { from_receipt: true, ..receipt.clone() };
            return self.answer(Outcome::Accepted(accepted));
        }
        let failed = |(i, it): (usize, &v1::Precondition)| Some(i).filter(|_| !self.holds(it));
        let conflicts: Vec<_> =
            request.preconditions.iter().enumerate().filter_map(failed).collect();
        if !conflicts.is_empty() {
            let conflict = |i: usize| v1::Conflict {
                kind: v1::conflict::Kind::Changed.into(),
                precondition: Some(u32::try_from(i).unwrap()),
                version_seen: self.version(),
                ..Default::default()
            };
            let conflicts = conflicts.into_iter().map(conflict).collect();
            let rejected = v1::Rejected { at_version: self.version(), conflicts };
            return self.answer(Outcome::Rejected(rejected));
        }
        self.apply(&request.mutations);
        let accepted = v1::Accepted { state_version: self.version(), ..Default::default() };
        self.receipts.insert(request.operation_id.clone(), accepted.clone());
        self.answer(Outcome::Accepted(accepted))
    }

    pub(crate) fn answer(&self, outcome: Outcome) -> v1::SubmitResponse {
        v1::SubmitResponse { history_id: self.history_id.clone(), outcome: Some(outcome) }
    }

    fn apply(&mut self, mutations: &[v1::Mutation]) {
        let version = self.states.len() as u64;
        let mut state = self.states.last().unwrap().clone();
        for mutation in mutations {
            match mutation.kind.clone().unwrap() {
                MutationKind::Put(put) => {
                    state.insert(put.key, (put.value, version));
                }
                MutationKind::Delete(key) => {
                    state.remove(&key);
                    self.deleted.insert(key, version);
                }
                MutationKind::DeleteRange(_) | MutationKind::Add(_) => panic!("no script uses it"),
            }
        }
        self.states.push(state);
    }

    fn holds(&self, precondition: &v1::Precondition) -> bool {
        let state = self.states.last().unwrap();
        let changed = |key: &Bytes| {
            let written = state.get(key).map_or(0, |it| it.1);
            written.max(self.deleted.get(key).copied().unwrap_or(0))
        };
        match precondition.kind.as_ref().unwrap() {
            PreconditionKind::KeyUnchangedSince(it) => changed(&it.key) <= it.version,
            PreconditionKind::RangeUnchangedSince(it) => {
                let range = it.range.as_ref().unwrap();
                let is_in = |key: &&Bytes| in_range(key, range);
                let keys = state.keys().chain(self.deleted.keys());
                keys.filter(is_in).all(|key| changed(key) <= it.version)
            }
            PreconditionKind::KeyAbsent(key) => !state.contains_key(key),
            PreconditionKind::KeyExists(key) => state.contains_key(key),
            PreconditionKind::KeyAtVersion(_) | PreconditionKind::ValueEquals(_) => {
                panic!("no script uses it")
            }
        }
    }
}

pub(crate) fn in_range(key: &Bytes, range: &v1::KeyRange) -> bool {
    range.start <= key && (range.end.is_empty() || range.end > key)
}
