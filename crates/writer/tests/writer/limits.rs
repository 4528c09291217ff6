//! Requests over a limit: refused before anything is read, every field named.

use std::time::Duration;

use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault, Gate};
use headwater_writer::{PUSHED_HEAD_BYTES_MAX, WriterConfig};
use tonic_types::StatusExt as _;

use crate::fixture::{Host, Op, World, accepted, rpc, settle};
use v1::mutation::Kind as M;
use v1::precondition::Kind as P;

fn mutation(kind: M) -> v1::Mutation {
    v1::Mutation { kind: Some(kind) }
}

fn put(key: Vec<u8>, value: Vec<u8>) -> v1::Mutation {
    mutation(M::Put(v1::Put { key: key.into(), value: value.into() }))
}

fn checked(kind: P) -> v1::SubmitRequest {
    let preconditions = vec![v1::Precondition { kind: Some(kind) }];
    v1::SubmitRequest { preconditions, ..valid() }
}

fn valid() -> v1::SubmitRequest {
    rpc::submit_request("h", "o", vec![rpc::put("k", "v")])
}

fn with(mutation: v1::Mutation) -> v1::SubmitRequest {
    v1::SubmitRequest { mutations: vec![mutation], ..valid() }
}

async fn refused(host: &Host, request: v1::SubmitRequest) -> Vec<String> {
    let status = host.submit_rpc(request).await.unwrap_err();
    assert_eq!(rpc::reason(&status), reason::FIELD_INVALID, "{status:?}");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(rpc::metadata(&status, reason::DETERMINACY), reason::NOT_APPLIED);
    rpc::fields(&status)
}

#[tokio::test(start_paused = true)]
async fn a_field_over_its_limit_is_named() {
    let (_world, host) = World::new().await;
    let before = host.readings();
    let range = |start: &'static str, end: &'static str| v1::KeyRange {
        start: start.into(),
        end: end.into(),
    };
    let since = |range| P::RangeUnchangedSince(v1::RangeUnchangedSince { range, version: 0 });
    let equals = |expected| P::ValueEquals(v1::ValueEquals { key: "k".into(), expected });
    let cases = [
        (with(put(b"k".to_vec(), vec![0; (1 << 20) + 1])), "mutations[0].put.value"),
        (with(put(Vec::new(), b"v".to_vec())), "mutations[0].put.key"),
        (with(put(vec![b'k'; 1_025], b"v".to_vec())), "mutations[0].put.key"),
        (with(mutation(M::Delete(vec![b'k'; 1_025].into()))), "mutations[0].delete"),
        (with(mutation(M::DeleteRange(range("b", "a")))), "mutations[0].delete_range"),
        (with(mutation(M::DeleteRange(range("b", "b")))), "mutations[0].delete_range"),
        (with(v1::Mutation { kind: None }), "mutations[0]"),
        (v1::SubmitRequest { mutations: Vec::new(), ..valid() }, "mutations"),
        (v1::SubmitRequest { mutations: vec![rpc::put("k", "v"); 1_025], ..valid() }, "mutations"),
        (
            v1::SubmitRequest {
                mutations: (0..5).map(|n| put(vec![n + 1], vec![0; 1 << 20])).collect(),
                ..valid()
            },
            "mutations",
        ),
        (
            v1::SubmitRequest {
                preconditions: vec![
                    v1::Precondition { kind: Some(P::KeyExists("k".into())) };
                    1_025
                ],
                ..valid()
            },
            "preconditions",
        ),
        (checked(P::KeyExists("".into())), "preconditions[0].key_exists"),
        (checked(since(None)), "preconditions[0].range_unchanged_since.range"),
        (checked(since(Some(range("b", "a")))), "preconditions[0].range_unchanged_since.range"),
        (checked(equals(None)), "preconditions[0].value_equals"),
        (
            checked(equals(Some(v1::value_equals::Expected::Value(vec![0; (1 << 20) + 1].into())))),
            "preconditions[0].value_equals.value",
        ),
        (
            checked(equals(Some(v1::value_equals::Expected::ValueHash(vec![0; 31].into())))),
            "preconditions[0].value_equals.value_hash",
        ),
        (v1::SubmitRequest { operation_id: String::new(), ..valid() }, "operation_id"),
        (v1::SubmitRequest { operation_id: "a b".into(), ..valid() }, "operation_id"),
        (v1::SubmitRequest { operation_id: "x".repeat(65), ..valid() }, "operation_id"),
        (v1::SubmitRequest { history_id: "no".into(), ..valid() }, "history_id"),
    ];
    for (request, field) in cases {
        assert_eq!(refused(&host, request).await, [field]);
    }
    for name in ["", "/", "a/", "/a", "a//b", ".", "a/../b", "a b", "ä", "a/head.json", "changes"]
    {
        let request = v1::SubmitRequest { history: name.into(), ..valid() };
        assert_eq!(refused(&host, request).await, ["history"], "{name:?}");
        let status = host.create_as(rpc::create_request(name)).await.unwrap_err();
        assert_eq!(rpc::fields(&status), ["name"], "{name:?}");
        let status = host.get(name).await.unwrap_err();
        assert_eq!(rpc::fields(&status), ["name"], "{name:?}");
    }
    // Nothing was asked of the store for any of them.
    assert_eq!(host.readings().since(&before).total(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_exactly_at_its_limit_is_accepted() {
    let (world, host) = World::new().await;
    let mut mutations = vec![put(vec![b'k'; 1_024], vec![7; 1 << 20])];
    mutations.extend((0..1_023).map(|n| rpc::put(&format!("k{n}"), "v")));
    let operation_id = "x".repeat(64);
    let request = v1::SubmitRequest { mutations, operation_id, ..valid() };

    host.submit_rpc(request).await.unwrap();

    assert_eq!(world.state().await.len(), 1_024);
}

#[tokio::test(start_paused = true)]
async fn every_violation_is_named_at_once() {
    let (_world, host) = World::new().await;
    let request = v1::SubmitRequest {
        history: "a//b".into(),
        operation_id: String::new(),
        history_id: "x".into(),
        preconditions: vec![v1::Precondition { kind: None }],
        mutations: vec![
            put(Vec::new(), Vec::new()),
            rpc::put("fine", "v"),
            mutation(M::Add(v1::Add { key: vec![0; 2_000].into(), delta: 1 })),
        ],
        ..valid()
    };

    let fields = refused(&host, request).await;

    let expected = [
        "history",
        "operation_id",
        "history_id",
        "preconditions[0]",
        "mutations[0].put.key",
        "mutations[2].add.key",
    ];
    assert_eq!(fields, expected);
}

fn delay(status: &tonic::Status) -> Duration {
    status.get_details_retry_info().unwrap().retry_delay.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let config = WriterConfig { queue_operations_max: 3, ..WriterConfig::default() };
    let (_world, host) = World::with(config).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let waiting: Vec<_> =
        (0..3).map(|n| host.begin(Op::new(format!("o{n}")).add("n", 1))).collect();
    gate.arrived(1).await;
    settle().await;

    let status = host.submit_rpc(valid()).await.unwrap_err();

    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(rpc::reason(&status), reason::QUEUE_FULL);
    assert_eq!(rpc::metadata(&status, reason::DETERMINACY), reason::NOT_APPLIED);
    assert!(Duration::ZERO < delay(&status));
    gate.open();
    for call in waiting {
        accepted(call.await.unwrap());
    }
    host.submit_rpc(valid()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_bytes_and_lets_a_larger_operation_in_alone() {
    let config = WriterConfig { queue_bytes_max: 100_000, ..WriterConfig::default() };
    let (_world, host) = World::with(config).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let large = |id: &str, size| rpc::submit_request("h", id, vec![rpc::put("k", vec![0; size])]);
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let first = host.begin(Op::new("first").put_bytes("k", vec![0; 60_000]));
    gate.arrived(1).await;

    let status = host.submit_rpc(large("second", 60_000)).await.unwrap_err();
    gate.open();
    accepted(first.await.unwrap());

    assert_eq!(rpc::reason(&status), reason::QUEUE_FULL);
    host.submit_rpc(large("second", 60_000)).await.unwrap();
    host.submit_rpc(large("whole", 1_000_000)).await.unwrap();
}

/// Notices wait for their receivers, so what one holds has a limit.
#[tokio::test(start_paused = true)]
async fn of_a_large_head_it_is_told_only_that_it_is_there() {
    let config = WriterConfig {
        head_soft_bytes: 512 << 10,
        head_hard_bytes: 2 << 20,
        inline_bytes_max: 64 << 10,
        ..WriterConfig::default()
    };
    let (world, host) = World::with(config).await;
    let mut notices = host.writer.notices();
    let (mut n_small, mut n_large) = (0, 0);
    for n in 0..10 {
        host.accept(Op::new(format!("o{n}")).put_bytes(&format!("k{n}"), vec![7; 48 << 10])).await;
        settle().await;
        let head = world.head().await;
        let size_bytes = headwater_core::format::head::encode(&head).len();
        let mut newest = None;
        while let Ok(notice) = notices.try_recv() {
            newest = Some(notice);
        }
        let newest = newest.unwrap();
        assert_eq!(newest.revision, head.revision, "it is told of");
        let told = newest.published.map(|it| it.bytes.len());
        let is_small = size_bytes <= PUSHED_HEAD_BYTES_MAX;
        assert_eq!(told, is_small.then_some(size_bytes));
        *if is_small { &mut n_small } else { &mut n_large } += 1;
    }
    assert!(0 < n_small && 0 < n_large, "{n_small} and {n_large}");
}
