//! Objects that were truncated, altered, removed or swapped behind the
//! writer's back: it names the key, and writes nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_core::publish::SubmitError;
use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault, Store};
use headwater_writer::WriterConfig;

use crate::fixture::{Host, Op, World, look, name, rpc, staging};

/// What becomes of an object's bytes; `None` takes it away.
type Damage = fn(&Bytes) -> Option<Bytes>;

#[expect(clippy::unnecessary_wraps, reason = "it is one of several kinds of damage")]
fn truncated(bytes: &Bytes) -> Option<Bytes> {
    Some(bytes.slice(..bytes.len() / 2))
}

#[expect(clippy::unnecessary_wraps, reason = "it is one of several kinds of damage")]
fn altered(bytes: &Bytes) -> Option<Bytes> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    Some(bytes.into())
}

fn removed(_: &Bytes) -> Option<Bytes> {
    None
}

const DAMAGES: [(&str, Damage); 3] =
    [("truncated", truncated), ("altered", altered), ("removed", removed)];

/// Puts other bytes in an object's place.
async fn damage(store: &dyn Store, key: &str, how: Damage) {
    let bytes = store.get(key).await.unwrap();
    store.delete(key).await.unwrap();
    if let Some(bytes) = how(&bytes) {
        store.put(key, bytes).await.unwrap();
    }
}

async fn everything(store: &dyn Store) -> BTreeMap<String, Bytes> {
    let mut objects = BTreeMap::new();
    for key in look::keys(store, "").await {
        let bytes = store.get(&key).await.unwrap();
        objects.insert(key, bytes);
    }
    objects
}

/// Snapshots and segments come early; receipts go late. Nothing older is kept
/// that could make up for what is damaged.
fn busy() -> WriterConfig {
    WriterConfig {
        retain_versions: 0,
        retain_age_ms: 0,
        fold_changes: 3,
        compact_tail_versions: 8,
        compact_keep_versions: 0,
        ..WriterConfig::default()
    }
}

async fn key_below(store: &dyn Store, folder: &str) -> String {
    let keys = look::keys(store, &format!("h/{folder}/")).await;
    keys.last().unwrap_or_else(|| panic!("nothing in {folder}")).clone()
}

/// A history with `count` changes, one of them large.
async fn world_with(config: WriterConfig, count: u64) -> World {
    let (world, host) = World::with(config).await;
    for n in 0..count {
        let op = Op::new(format!("o{n}")).put(&format!("key-{n:02}"), "value");
        let op = if n + 1 == count { op.large() } else { op };
        host.accept(op).await;
    }
    world
}

/// Submits to a writer that opens the history anew, and expects `key` to be
/// refused.
async fn expect_refusal(world: &World, host: &Host, request: v1::SubmitRequest, key: &str) {
    let before = everything(&*world.store).await;

    let status = host.submit_rpc(request).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::STORED_DATA_BAD, "{status:?}");
    assert_eq!(rpc::metadata(&status, reason::OBJECT_KEY), key);
    assert_eq!(status.code(), tonic::Code::DataLoss);
    assert!(everything(&*world.store).await == before, "nothing is written: {key}");
}

/// Of a writer that has a head at hand: it sends, hears of a mismatch, and finds
/// no head that would tell what became of what it sent. Whoever asks again is
/// told why.
async fn expect_doubt(host: &Host) {
    let status = host.submit_rpc(plain("sent")).await.unwrap_err();
    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT, "{status:?}");
}

fn plain(id: &str) -> v1::SubmitRequest {
    rpc::submit_request("h", id, vec![rpc::put("k", "v")])
}

#[tokio::test(start_paused = true)]
async fn damage_to_what_a_head_names_is_refused_by_name() {
    for (what, how) in DAMAGES {
        for (folder, config, count) in [
            ("changes", staging(), 2),
            ("segments", WriterConfig { compact_tail_versions: 100, ..busy() }, 8),
            ("snapshots", busy(), 12),
            ("receipts", busy(), 12),
        ] {
            let world = world_with(config, count).await;
            let head = world.head().await;
            let named: Vec<String> = head.references().map(|it| format!("h/{}", it.key)).collect();
            let key = named.into_iter().rfind(|it| it.contains(folder));
            let key = key.unwrap_or_else(|| panic!("the head names nothing in {folder}"));
            damage(&*world.store, &key, how).await;

            println!("{what} {key}");
            expect_refusal(&world, &world.host(), plain("new"), &key).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_chunk_is_refused_when_a_precondition_needs_it() {
    for (what, how) in DAMAGES {
        let world = world_with(busy(), 12).await;
        let key = key_below(&*world.store, "chunks").await;
        damage(&*world.store, &key, how).await;
        let host = world.host();
        let exists = v1::precondition::Kind::KeyExists("key-00".into());
        let request = v1::SubmitRequest {
            preconditions: vec![v1::Precondition { kind: Some(exists) }],
            ..plain("new")
        };

        println!("{what} {key}");
        expect_refusal(&world, &host, request, &key).await;
        // Who needs nothing of it goes on.
        host.submit_rpc(plain("other")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_refused() {
    for (what, how) in [("truncated", truncated as Damage), ("altered", altered)] {
        let config = WriterConfig { receipt_versions_max: 1, ..WriterConfig::default() };
        let (world, host) = World::with(config.clone()).await;
        host.accept(Op::new("kept").put("k", "v").service_kept()).await;
        host.accept(Op::new("past").put("k", "w").issued_from(1)).await;
        let key = key_below(&*world.store, "requests").await;
        damage(&*world.store, &key, how).await;
        let host = world.host_with(config);
        let request = v1::SubmitRequest { issued_from_version: None, ..plain("kept") };

        println!("{what} {key}");
        expect_refusal(&world, &host, request, &key).await;
        // So is a question about the operation.
        let question = v1::GetOperationRequest {
            history: "h".into(),
            operation_id: "kept".into(),
            issue: Some(v1::get_operation_request::Issue::ServiceKept(true)),
            ..v1::GetOperationRequest::default()
        };
        let status = host.look_up(question).await.unwrap_err();
        assert_eq!(rpc::metadata(&status, reason::OBJECT_KEY), key);
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_does_not_fail_its_neighbours() {
    let config = WriterConfig { receipt_versions_max: 1, ..WriterConfig::default() };
    let (world, host) = World::with(config.clone()).await;
    host.accept(Op::new("kept").put("k", "v").service_kept()).await;
    host.accept(Op::new("past").put("k", "w").issued_from(1)).await;
    damage(&*world.store, &key_below(&*world.store, "requests").await, truncated).await;
    // A process that has not seen the record.
    let host = world.host_with(config);
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let first = host.begin(Op::new("first").put("k", "x").issued_from(2));
    gate.arrived(1).await;

    let before = host.begin(Op::new("before").put("a", "x").issued_from(2));
    let kept = host.begin(Op::new("kept").put("k", "v").service_kept());
    let after = host.begin(Op::new("after").put("b", "x").service_kept());
    gate.open();

    for call in [first, before, after] {
        crate::fixture::accepted(call.await.unwrap());
    }
    let error = crate::fixture::failed(kept.await.unwrap());
    assert!(matches!(error, SubmitError::StoredDataBad { .. }), "{error}");
}

/// Replaces the first `from` in the head.
fn replaced(bytes: &Bytes, from: &str, to: &str) -> Bytes {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{text}");
    text.replacen(from, to, 1).into()
}

#[tokio::test(start_paused = true)]
async fn a_damaged_head_is_refused() {
    let damages: [(&str, Damage); 6] = [
        ("truncated", truncated),
        ("empty", |_| Some(Bytes::new())),
        ("version", |it| Some(replaced(it, "\"stateVersion\":2", "\"stateVersion\":3"))),
        ("history", |it| Some(replaced(it, "\"history\":\"h\"", "\"history\":\"i\""))),
        ("chain", |it| Some(replaced(it, "\"chainHash\":\"blake3:", "\"chainHash\":\"blake3:0"))),
        ("coverage", |it| {
            Some(replaced(it, "\"receiptCoverageFrom\":1", "\"receiptCoverageFrom\":9"))
        }),
    ];
    for (what, how) in damages {
        let world = world_with(WriterConfig::default(), 2).await;
        damage(&*world.store, "h/head.json", how).await;

        println!("{what}");
        expect_refusal(&world, &world.host(), plain("new"), "h/head.json").await;
        let status = world.host().get("h").await.unwrap_err();
        assert_eq!(rpc::reason(&status), reason::STORED_DATA_BAD);
    }
}

#[tokio::test(start_paused = true)]
async fn no_altered_bit_of_a_head_goes_unnoticed() {
    let world = world_with(staging(), 2).await;
    let whole = world.store.get("h/head.json").await.unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at % 7);
        world.store.delete("h/head.json").await.unwrap();
        world.store.put("h/head.json", bytes.clone().into()).await.unwrap();

        let again = rpc::submit_request("h", "o0", vec![rpc::put("key-00", "value")]);
        let answer = world.host().submit_rpc(again).await;

        let altered = String::from_utf8_lossy(&bytes[at.saturating_sub(20)..=at]).into_owned();
        let Err(status) = answer else { panic!("{altered}: {answer:?}") };
        let reason = rpc::reason(&status);
        let refusals = [reason::STORED_DATA_BAD, reason::FORMAT_TOO_NEW];
        assert!(refusals.contains(&&*reason), "{altered}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_writer_refuses_damage_that_another_one_ran_into_and_goes_on_once_it_is_mended() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").put("k", "0")).await;
    let other = world.host_with(staging());
    other.accept(Op::new("theirs").large()).await;
    let key = key_below(&*world.store, "changes").await;
    let whole = world.store.get(&key).await.unwrap();
    damage(&*world.store, &key, altered).await;

    expect_doubt(&host).await;
    expect_refusal(&world, &host, plain("new"), &key).await;

    world.store.delete(&key).await.unwrap();
    world.store.put(&key, whole).await.unwrap();
    host.submit_rpc(plain("new")).await.unwrap();
    assert_eq!(world.head().await.operation_count, 3);
}

async fn move_head_away(world: &World) -> Bytes {
    let bytes = world.store.get("h/head.json").await.unwrap();
    world.store.delete("h/head.json").await.unwrap();
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_head_that_was_deleted_is_a_missing_history() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").put("k", "0")).await;
    move_head_away(&world).await;

    expect_doubt(&host).await;
    assert_eq!(host.fail(Op::new("o").put("k", "1")).await, SubmitError::HistoryMissing);
    assert!(!look::keys(&*world.store, "h/").await.contains(&"h/head.json".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_was_deleted_after_an_unanswered_publication_leaves_doubt() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").put("k", "0")).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReadHead, Fault::Hold(gate.clone()));

    let call = host.begin(Op::new("o").put("k", "1"));
    gate.arrived(1).await;
    move_head_away(&world).await;
    gate.open();

    let error = crate::fixture::failed(call.await.unwrap());
    assert_eq!(error, SubmitError::InDoubt);
}

#[tokio::test(start_paused = true)]
async fn a_history_recreated_under_a_running_writer_is_noticed_and_never_merged() {
    let (world, host) = World::new().await;
    for n in 0..5 {
        host.accept(Op::new(format!("old-{n}")).add("n", 1)).await;
    }
    let old = world.head().await.history_id;
    move_head_away(&world).await;
    let other = world.host();
    let new = other.create("h").await.history_id;
    other.accept(Op::new("new").add("n", 100)).await;

    // It was meant for the history that is gone, as far as this writer knew.
    expect_doubt(&host).await;
    let error = host.fail(Op::new("p").add("n", 1).meant_for(old)).await;
    assert!(matches!(error, SubmitError::OtherHistory { found } if found.to_string() == new));
    // An id of the old history means nothing in the new one.
    let told = host.told(Op::new("old-0").add("n", 1).operation()).await;

    assert_eq!(told.history_id.unwrap().to_string(), new);
    let receipt = crate::fixture::accepted(told.answer);
    assert_eq!((receipt.accepted_at.get(), crate::fixture::sums(&receipt)), (2, vec![101]));
    assert_eq!(world.head().await.operation_count, 2);
    assert_eq!(look::number(&world.state().await, "n"), 101);
}

#[tokio::test(start_paused = true)]
async fn the_head_of_another_history_is_refused() {
    let (world, host) = World::new().await;
    host.create("g").await;
    host.accept(Op::new("warm").put("k", "0")).await;
    let stranger = world.store.get("g/head.json").await.unwrap();
    move_head_away(&world).await;
    world.store.put("h/head.json", stranger).await.unwrap();

    expect_doubt(&host).await;
    expect_refusal(&world, &host, plain("o"), "h/head.json").await;
    expect_refusal(&world, &world.host(), plain("o"), "h/head.json").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_back_is_refused_by_who_saw_the_newer_one() {
    let (world, host) = World::new().await;
    host.accept(Op::new("one").put("k", "1")).await;
    let old = world.store.get("h/head.json").await.unwrap();
    host.accept(Op::new("two").put("k", "2")).await;
    move_head_away(&world).await;
    world.store.put("h/head.json", old).await.unwrap();

    expect_doubt(&host).await;
    expect_refusal(&world, &host, plain("three"), "h/head.json").await;
    // And again: it does not forget what it acknowledged.
    expect_refusal(&world, &host, plain("three"), "h/head.json").await;
    let head = look::head(&*world.store, &name("h")).await;
    assert_eq!(head.state_version.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_back_is_refused_though_the_history_was_closed_meanwhile() {
    let (world, host) = World::new().await;
    host.accept(Op::new("one").put("k", "1")).await;
    let old = world.store.get("h/head.json").await.unwrap();
    host.accept(Op::new("two").put("k", "2")).await;
    // Longer than a history stays open without questions.
    tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    move_head_away(&world).await;
    world.store.put("h/head.json", old).await.unwrap();

    for _ in 0..3 {
        expect_refusal(&world, &host, plain("three"), "h/head.json").await;
        // A driver without a head ends sooner still.
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    }
    let head = look::head(&*world.store, &name("h")).await;
    assert_eq!(head.state_version.get(), 1, "nothing was published on the older head");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_another_way_is_refused_though_the_history_was_closed_meanwhile() {
    let (world, host) = World::new().await;
    host.accept(Op::new("one").put("k", "1")).await;
    let old = world.store.get("h/head.json").await.unwrap();
    host.accept(Op::new("two").put("k", "2")).await;
    tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    move_head_away(&world).await;
    world.store.put("h/head.json", old).await.unwrap();
    // Later than anything that was seen, by somebody who had not seen it.
    let stranger = world.host();
    for n in 0..3 {
        stranger.accept(Op::new(format!("aside{n}")).put("k", "3")).await;
    }

    expect_refusal(&world, &host, plain("three"), "h/head.json").await;
}
