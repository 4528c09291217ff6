//! Operations, written down shortly.

use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use bytes::Bytes;

use crate::decide::{Ask, LookUp};
use crate::id::{HistoryId, OperationId};
use crate::operation::{Issue, Key, KeyRange, Mutation, Operation, Precondition, Request};
use crate::version::StateVersion;

pub(super) fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec()).unwrap()
}

pub(super) fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start.as_bytes().to_vec().into(), Some(end.as_bytes().to_vec().into())).unwrap()
}

pub(super) fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

/// An operation in the making. Client-kept from version 0 unless it says more.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) id: String,
    pub(super) preconditions: Vec<Precondition>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) issue: Issue,
    pub(super) writer_epoch: u64,
    pub(super) history_id: Option<HistoryId>,
    pub(super) ends_version: bool,
}

impl Op {
    pub(super) fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            preconditions: Vec::new(),
            mutations: Vec::new(),
            issue: Issue::ClientKept(StateVersion::ZERO),
            writer_epoch: 0,
            history_id: None,
            ends_version: false,
        }
    }

    pub(super) fn put(mut self, at: &str, value: &str) -> Self {
        self.mutations.push(Mutation::Put(key(at), Bytes::copy_from_slice(value.as_bytes())));
        self
    }

    pub(super) fn add(mut self, at: &str, delta: i64) -> Self {
        self.mutations.push(Mutation::Add(key(at), delta));
        self
    }

    /// Makes the operation too large to travel in a head.
    pub(super) fn large(self) -> Self {
        let value = "x".repeat(1000);
        self.put("large", &value)
    }

    pub(super) fn when(mut self, precondition: Precondition) -> Self {
        self.preconditions.push(precondition);
        self
    }

    pub(super) fn if_absent(self, at: &str) -> Self {
        self.when(Precondition::KeyAbsent(key(at)))
    }

    pub(super) fn if_present(self, at: &str) -> Self {
        self.when(Precondition::KeyExists(key(at)))
    }

    pub(super) fn issued_from(mut self, number: u64) -> Self {
        self.issue = Issue::ClientKept(version(number));
        self
    }

    pub(super) fn service_kept(mut self) -> Self {
        self.issue = Issue::ServiceKept { issued_from: StateVersion::ZERO, is_durable: false };
        self
    }

    pub(super) fn epoch(mut self, writer_epoch: u64) -> Self {
        self.writer_epoch = writer_epoch;
        self
    }

    pub(super) fn of(mut self, history_id: HistoryId) -> Self {
        self.history_id = Some(history_id);
        self
    }

    pub(super) fn ending_version(mut self) -> Self {
        self.ends_version = true;
        self
    }

    pub(super) fn id(&self) -> OperationId {
        OperationId::parse(&self.id).unwrap()
    }

    pub(super) fn operation(&self) -> Operation {
        let request = Request::new(self.preconditions.clone(), self.mutations.clone()).unwrap();
        Operation {
            id: self.id(),
            request_hash: request.hash(),
            request: Arc::new(request),
            issue: self.issue,
            writer_epoch: self.writer_epoch,
            history_id: self.history_id,
            ends_version: self.ends_version,
        }
    }

    pub(super) fn ask(&self) -> Ask {
        Ask::Submit(self.operation())
    }
}

/// Adds `delta` to the key `n`.
pub(super) fn add(id: impl Into<String>, delta: i64) -> Op {
    Op::new(id).add("n", delta)
}

/// A question about `id`, issued from version `issued_from`.
pub(super) fn look_up(id: &str, issued_from: u64) -> Ask {
    Ask::LookUp(LookUp {
        id: OperationId::parse(id).unwrap(),
        issued_from: version(issued_from),
        history_id: None,
    })
}
