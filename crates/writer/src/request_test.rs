//! Hostile requests: what a stranger sends is refused with the field named, or
//! is an operation within the limits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::{mutation, precondition};
use proptest::prelude::*;
use prost::Message as _;

use super::submission;

/// Bytes as they come from the wire.
fn check(bytes: &[u8]) {
    let Ok(request) = v1::SubmitRequest::decode(bytes) else { return };
    match submission(request, None) {
        Ok(submission) => {
            let operation = &submission.operation;
            assert_eq!(operation.request.hash(), operation.request_hash);
            assert!(!operation.request.mutations().is_empty());
        }
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(!status.message().is_empty());
        }
    }
}

fn valid() -> v1::SubmitRequest {
    let put = v1::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
    let exists = precondition::Kind::KeyExists(Bytes::from_static(b"k"));
    v1::SubmitRequest {
        history: "a/b".into(),
        operation_id: "op".into(),
        issued_from_version: Some(3),
        preconditions: vec![v1::Precondition { kind: Some(exists) }],
        mutations: vec![v1::Mutation { kind: Some(mutation::Kind::Put(put)) }],
        ..v1::SubmitRequest::default()
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        check(&bytes);
    }

    #[test]
    fn a_valid_request_with_bytes_changed(
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let mut bytes = valid().encode_to_vec();
        for (at, byte, is_inserted) in edits {
            let at = at % bytes.len();
            if is_inserted {
                bytes.insert(at, byte);
            } else {
                bytes[at] = byte;
            }
            check(&bytes);
        }
    }

    #[test]
    fn any_names_and_keys(
        history in ".{0,300}",
        operation_id in ".{0,80}",
        history_id in ".{0,40}",
        key in prop::collection::vec(any::<u8>(), 0..1100),
    ) {
        let put = v1::Put { key: key.into(), value: Bytes::new() };
        let mutations = vec![v1::Mutation { kind: Some(mutation::Kind::Put(put)) }];
        let request = v1::SubmitRequest { history, operation_id, history_id, mutations, ..valid() };
        check(&request.encode_to_vec());
    }
}

#[test]
fn the_valid_one_is_taken() {
    assert!(submission(valid(), None).is_ok());
}
