//! What is made of older versions: restores and forks, over the service.

use std::time::Duration;

use headwater_core::id::HistoryId;
use headwater_proto::v1::retention_service_client::RetentionServiceClient;
use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault, Rule};
use headwater_writer::{SweepOptions, WriterConfig};
use tonic::{Code, Status};

use crate::fixture::{Host, NAME, Op, World, in_time, look, name, rpc, settle};

fn quick() -> WriterConfig {
    WriterConfig {
        fold_changes: 8,
        compact_tail_versions: 20,
        compact_keep_versions: 0,
        retain_versions: 1_000,
        sweep_every_ms: 0,
        ..WriterConfig::default()
    }
}

async fn commits(host: &Host, history: &str, label: &str, count: u64) {
    for n in 0..count {
        let head = look::head(&*host.faults.behind(), &name(history)).await;
        let version = head.state_version.get();
        let op = Op::new(format!("{label}-{n}")).add("n", 1);
        let op = op.put(&format!("{label}/{n}"), "x").put("last", &format!("{label} {n}"));
        let question = headwater_writer::Question::Ask(headwater_core::decide::Ask::Submit(
            op.issued_from(version).operation(),
        ));
        let told = in_time(host.writer.ask(&name(history), question)).await.unwrap();
        crate::fixture::accepted(told.answer);
        settle().await;
    }
}

async fn sweep(host: &Host, history: &str) {
    let options = SweepOptions {
        is_dry_run: false,
        is_full: false,
        deletes_max: u64::MAX,
        below: Some(headwater_core::version::Revision::new(u64::MAX)),
    };
    in_time(host.writer.sweep(&name(history), options, |_| ())).await.unwrap();
}

async fn restore(
    host: &Host,
    version: u64,
    id: &str,
    issued_from_version: u64,
) -> Result<v1::RestoreVersionResponse, Status> {
    let request = v1::RestoreVersionRequest {
        name: NAME.into(),
        version,
        operation_id: id.into(),
        issued_from_version,
        writer_epoch: 0,
    };
    let mut client = RetentionServiceClient::new(host.writer.retention_service());
    client.restore_version(request).await.map(tonic::Response::into_inner)
}

async fn fork(
    host: &Host,
    version: Option<u64>,
    child: &str,
    id: u8,
) -> Result<v1::ForkHistoryResponse, Status> {
    let request = v1::ForkHistoryRequest {
        source: NAME.into(),
        version,
        name: child.into(),
        history_id: HistoryId::from_bytes([id; 16]).to_string(),
    };
    let mut client = RetentionServiceClient::new(host.writer.retention_service());
    client.fork_history(request).await.map(tonic::Response::into_inner)
}

async fn delete(host: &Host, history: &str) -> Result<u64, Status> {
    let id = host.get(history).await.unwrap().history_id;
    host.delete(history, &id).await
}

/// Values without the versions that wrote them.
fn values(state: &look::State) -> Vec<(&String, &bytes::Bytes)> {
    state.iter().map(|(key, (value, _))| (key, value)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restored_version_is_a_new_one_with_the_old_state() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 30).await;
    let old = world.state().await;
    commits(&host, NAME, "b", 50).await;

    let restored = restore(&host, 30, "r-1", 80).await.unwrap();
    assert_eq!((restored.state_version, restored.from_receipt), (81, false));
    // 50 keys go, and two get their old values.
    assert_eq!(restored.keys_changed, 52);
    let state = world.state().await;
    assert_eq!(values(&state), values(&old));
    // What was between is still there.
    assert_eq!(look::number_at(&world.store, &name(NAME), 75, "n").await, Some(75));

    // A retry finds it, through a process that knows nothing of it.
    commits(&host, NAME, "c", 3).await;
    let again = restore(&world.host_with(quick()), 30, "r-1", 80).await.unwrap();
    assert_eq!((again.state_version, again.from_receipt), (81, true));
    let reused = restore(&host, 31, "r-1", 80).await.unwrap_err();
    assert_eq!(reused.code(), Code::InvalidArgument);
    // Nothing differs: nothing is written.
    let newest = world.head().await.state_version.get();
    let none = restore(&host, newest, "r-2", newest).await.unwrap();
    assert_eq!((none.state_version, none.keys_changed), (newest, 0));
    assert_eq!(world.head().await.state_version.get(), newest);
}

#[tokio::test(start_paused = true)]
async fn a_restore_begins_again_when_something_is_accepted_meanwhile() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 10).await;
    let old = world.state().await;
    commits(&host, NAME, "b", 10).await;
    let other = world.host_with(quick());
    let restoring = async { restore(&host, 10, "r", 20).await.unwrap() };
    let (restored, ()) = tokio::join!(restoring, commits(&other, NAME, "c", 3));
    // Whatever came after it, it was the old state when it was accepted.
    let at = restored.state_version;
    for (key, _) in old.iter().filter(|(key, _)| key.starts_with("a/")) {
        assert!(world.state().await.contains_key(key));
    }
    assert_eq!(look::number_at(&world.store, &name(NAME), at, "n").await, Some(10));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_restored_is_refused() {
    let (_world, host) =
        World::with(WriterConfig { retain_versions: 0, retain_age_ms: 0, ..quick() }).await;
    commits(&host, NAME, "a", 60).await;
    assert_eq!(restore(&host, 61, "r", 60).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(restore(&host, 3, "r", 60).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(restore(&host, 3, "a b", 60).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_fork_begins_with_an_older_state_and_copies_nothing() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 45).await;
    assert!(in_time(host.writer.compact(&name(NAME))).await.unwrap());
    assert_eq!(world.head().await.snapshot.version.get(), 45);
    let old = world.state().await;
    commits(&host, NAME, "b", 5).await;

    let forked = fork(&host, Some(45), "child", 9).await.unwrap();
    assert!(forked.created);
    let history = forked.history.unwrap();
    assert_eq!((history.state_version, history.revision), (45, 1));
    assert_eq!(history.forked_from, NAME);
    assert!(look::keys(&*world.store, "child/chunks/").await.is_empty(), "nothing is copied");
    assert_eq!(look::state(&world.store, &name("child")).await, old, "versions are taken over");
    let again = fork(&world.host_with(quick()), Some(45), "child", 9).await.unwrap();
    assert!(!again.created);

    // They go their own ways.
    commits(&host, "child", "c", 5).await;
    commits(&host, NAME, "d", 5).await;
    let child = look::state(&world.store, &name("child")).await;
    assert_eq!(look::number(&child, "n"), 50);
    assert!(!child.contains_key("b/1") && child.contains_key("c/1"));
    assert!(!world.state().await.contains_key("c/1"));

    // The source keeps what it needs, and cannot be deleted.
    commits(&host, NAME, "e", 60).await;
    sweep(&host, NAME).await;
    assert_eq!(look::number(&look::state(&world.store, &name("child")).await, "n"), 50);
    let refused = delete(&host, NAME).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("child"));
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_has_compacted_everything_lets_go_of_its_source() {
    let config = WriterConfig { retain_versions: 0, retain_age_ms: 0, ..quick() };
    let (world, host) = World::with(config).await;
    commits(&host, NAME, "a", 45).await;
    fork(&host, None, "child", 9).await.unwrap();
    // Every key is written again, so that no old chunk is left.
    for round in 0..3 {
        commits(&host, "child", &format!("a{round}"), 30).await;
        sweep(&host, "child").await;
    }
    let head = look::head(&*world.store, &name("child")).await;
    assert_eq!(head.base, None);
    assert_eq!(world.head().await.pins.len(), 1);
    sweep(&host, NAME).await;
    assert_eq!(world.head().await.pins, []);
    delete(&host, NAME).await.unwrap();
    let child = look::state(&world.store, &name("child")).await;
    assert_eq!(look::number(&child, "n"), 45 + 90);
}

/// With older snapshots of its own in the archive all the time: each says for
/// itself whether it needs the source.
#[tokio::test(start_paused = true)]
async fn a_fork_that_keeps_older_versions_lets_go_of_its_source_once_those_are_its_own() {
    let config = WriterConfig { retain_versions: 60, retain_age_ms: 0, ..quick() };
    let (world, host) = World::with(config).await;
    commits(&host, NAME, "a", 45).await;
    fork(&host, None, "child", 9).await.unwrap();
    for round in 0..8 {
        commits(&host, "child", &format!("a{round}"), 45).await;
        sweep(&host, "child").await;
    }
    let head = look::head(&*world.store, &name("child")).await;
    assert!(head.archive.is_some(), "older versions are kept");
    assert_eq!(head.base, None);
    sweep(&host, NAME).await;
    assert_eq!(world.head().await.pins, []);
    delete(&host, NAME).await.unwrap();
    let newest = head.state_version.get();
    for version in [head.retained_from().get(), newest - 30, newest] {
        let number = look::number_at(&world.store, &name("child"), version, "n").await;
        assert_eq!(number, Some(i64::try_from(version).unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_a_fork_frees_its_source() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 30).await;
    assert!(in_time(host.writer.compact(&name(NAME))).await.unwrap());
    fork(&host, Some(30), "child", 9).await.unwrap();
    assert!(delete(&host, NAME).await.is_err());
    delete(&host, "child").await.unwrap();
    delete(&host, NAME).await.unwrap();
    let left = look::keys(&*world.store, "").await;
    assert_eq!(left, ["child/head.json", "h/head.json"], "cleared heads");
}

#[tokio::test(start_paused = true)]
async fn a_fork_cut_off_at_any_call_is_completed_by_the_same_call() {
    for n in 0.. {
        let (world, host) = World::with(quick()).await;
        commits(&host, NAME, "a", 50).await;
        let broken = world.host_with(WriterConfig { operation_timeout_ms: 2_000, ..quick() });
        broken.faults.add(Rule::new(Fault::LoseReply).on(Call::Put).skip(n));
        broken.faults.add(Rule::new(Fault::LoseReply).on(Call::ReplaceHead).skip(n));
        broken.faults.add(Rule::new(Fault::LoseReply).on(Call::CreateHead).skip(n));
        let cut = fork(&broken, Some(33), "child", 9).await;
        let forked = fork(&host, Some(33), "child", 9).await.unwrap();
        assert_eq!(forked.history.unwrap().state_version, 33);
        let child = look::state(&world.store, &name("child")).await;
        assert_eq!(look::number(&child, "n"), 33);
        assert_eq!(world.head().await.pins.len(), 1, "one pin, however often it was tried");
        if cut.is_ok() && 3 < n {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_cannot_be_created_leaves_no_pin() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 10).await;
    host.create("taken").await;
    let refused = fork(&host, None, "taken", 9).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(world.head().await.pins, []);
    assert_eq!(fork(&host, Some(11), "new", 9).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(fork(&host, None, NAME, 9).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(world.head().await.pins, []);
}

/// Whatever fails once the head was sent says nothing about that head.
#[tokio::test(start_paused = true)]
async fn a_fork_that_cannot_look_for_the_head_that_it_sent_is_in_doubt() {
    let (world, host) = World::with(quick()).await;
    commits(&host, NAME, "a", 10).await;
    for (id, fault) in [(8, Fault::LoseReply), (9, Fault::LoseCall), (10, Fault::Mismatch)] {
        let child = format!("child-{id}");
        let broken = world.host_with(quick());
        broken.faults.on_next(Call::CreateHead, fault);
        let forking = fork(&broken, None, &child, id);
        let denying = async {
            let is_sent = || broken.faults.log().iter().any(|(it, _)| *it == Call::CreateHead);
            while !is_sent() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            broken.faults.while_set(Call::ReadHead, Fault::Denied);
        };

        let (refused, ()) = tokio::join!(forking, denying);

        assert_eq!(rpc::reason(&refused.unwrap_err()), reason::PUBLICATION_IN_DOUBT);
        broken.faults.clear();
        let again = fork(&broken, None, &child, id).await.unwrap();
        assert_eq!(again.history.unwrap().state_version, 10);
    }
    // Where nothing was sent, it is known that nothing was.
    let broken = world.host_with(quick());
    broken.faults.while_set(Call::ReadHead, Fault::Denied);
    let refused = fork(&broken, None, "child-11", 11).await.unwrap_err();
    assert_eq!(rpc::reason(&refused), reason::PERMISSION_DENIED);
}
