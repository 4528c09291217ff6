//! Creating, listing and deleting histories, by several processes that die.

use std::collections::BTreeSet;

use headwater_core::head::Lifecycle;
use headwater_core::publish::SubmitError;
use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault, Gate, Rule};
use headwater_writer::WriterConfig;

use crate::fixture::{Host, Op, World, look, name, rpc, settle};

const ID: &str = "0123456789abcdef0123456789abcdef";

fn as_id(id: &str) -> v1::CreateHistoryRequest {
    v1::CreateHistoryRequest { history_id: id.into(), ..rpc::create_request("h") }
}

fn impatient() -> WriterConfig {
    WriterConfig { operation_timeout_ms: 5_000, ..WriterConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn a_new_history_is_empty() {
    let (world, host) = World::new().await;

    let history = host.get("h").await.unwrap();

    assert_eq!((history.state_version, history.revision, history.operation_count), (0, 1, 0));
    assert_eq!((history.exclusive, history.writer_epoch), (false, 0));
    assert_eq!(history.receipt_coverage_from, 1);
    assert_eq!(world.head().await.history_id.to_string(), history.history_id);
    assert!(world.state().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn creating_again_with_the_same_id_is_a_retry_and_with_another_a_refusal() {
    let world = World::empty();
    let host = world.host();
    assert!(host.create_as(as_id(ID)).await.unwrap().created);

    let again = host.create_as(as_id(ID)).await.unwrap();
    let other = host.create_as(rpc::create_request("h")).await.unwrap_err();

    assert!(!again.created);
    assert_eq!(again.history.unwrap().history_id, ID);
    assert_eq!(rpc::reason(&other), reason::HISTORY_EXISTS);
    assert_eq!(other.code(), tonic::Code::AlreadyExists);
    let exclusive = v1::CreateHistoryRequest { exclusive: true, ..as_id(ID) };
    let other = host.create_as(exclusive).await.unwrap_err();
    assert_eq!(rpc::fields(&other), ["exclusive"]);
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_succeeds() {
    for fault in [Fault::LoseReply, Fault::LoseCall, Fault::Repeat, Fault::Conflict] {
        let world = World::empty();
        let host = world.host();
        host.faults.on_next(Call::CreateHead, fault);

        // Also where the caller named no id.
        let history = host.create("h").await;

        assert_eq!(world.head().await.history_id.to_string(), history.history_id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_in_doubt_says_so() {
    let world = World::empty();
    let host = world.host_with(impatient());
    host.faults.on_next(Call::CreateHead, Fault::ApplyLate);
    host.faults.add(Rule::new(Fault::LoseCall).on(Call::Put).skip(1));

    let status = host.create_as(as_id(ID)).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT);
    host.faults.apply_late().await;
    host.faults.clear();
    assert_eq!(host.create_as(as_id(ID)).await.unwrap().history.unwrap().history_id, ID);
}

#[tokio::test(start_paused = true)]
async fn a_creation_on_a_store_that_never_answers_ends_by_its_deadline() {
    for (call, expected) in [
        (Call::ReadHead, reason::STORE_UNAVAILABLE),
        (Call::Put, reason::STORE_UNAVAILABLE),
        (Call::CreateHead, reason::PUBLICATION_IN_DOUBT),
    ] {
        let host = World::empty().host_with(impatient());
        host.faults.while_set(call, Fault::Hang);
        let began = tokio::time::Instant::now();

        let status = host.create_as(as_id(ID)).await.unwrap_err();

        assert_eq!(rpc::reason(&status), expected, "{call:?}");
        assert_eq!(began.elapsed().as_secs(), 5, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_eight_that_create_at_once_one_wins() {
    let world = World::empty();
    let hosts: Vec<Host> = (0..8).map(|_| world.host()).collect();
    let gate = Gate::new();
    for host in &hosts {
        host.faults.on_next(Call::CreateHead, Fault::Hold(gate.clone()));
    }
    let all =
        futures::future::join_all(hosts.iter().map(|it| it.create_as(rpc::create_request("h"))));
    let opened = async {
        gate.arrived(8).await;
        gate.open();
    };

    let (results, ()) = tokio::join!(all, opened);

    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 7));
    let history = won[0].as_ref().unwrap().history.clone().unwrap();
    assert_eq!(world.head().await.history_id.to_string(), history.history_id);
    for status in lost {
        assert_eq!(rpc::reason(&status.unwrap_err()), reason::HISTORY_EXISTS);
    }
}

#[tokio::test(start_paused = true)]
async fn names_nest_and_are_listed_in_order_by_pages() {
    let world = World::empty();
    let host = world.host();
    let names = ["a", "a/b", "a/b/c", "a-1", "ab", "b/c", "b/c/d", "z"];
    for name in names {
        host.create(name).await;
        let put = vec![rpc::put("k", name)];
        host.submit_rpc(rpc::submit_request(name, "o", put)).await.unwrap();
    }
    let gone = host.create("a/gone").await.history_id;
    host.delete("a/gone", &gone).await.unwrap();
    let list = |prefix: &str, size, token: &str| {
        host.list(v1::ListHistoriesRequest {
            name_prefix: prefix.into(),
            page_size: size,
            page_token: token.into(),
        })
    };

    let mut expected: Vec<&str> = names.into();
    expected.sort_unstable();
    assert_eq!(list("", 0, "").await.unwrap().names, expected);
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let page = list("", 3, &token).await.unwrap();
        assert!(page.names.len() <= 3);
        paged.extend(page.names);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(paged, expected);
    assert_eq!(list("a/", 0, "").await.unwrap().names, ["a/b", "a/b/c"]);
    assert_eq!(list("a", 0, "").await.unwrap().names, ["a", "a-1", "a/b", "a/b/c", "ab"]);
    assert_eq!(list("b/c", 0, "").await.unwrap().names, ["b/c", "b/c/d"]);
    assert!(list("none", 0, "").await.unwrap().names.is_empty());
    for token in ["z", "a//"] {
        let status = list("a", 0, token).await.unwrap_err();
        assert_eq!(rpc::fields(&status), ["page_token"]);
    }
    for name in names {
        assert_eq!(look::state(&world.store, &crate::fixture::name(name)).await["k"].0, name);
    }
    for prefix in ["../", "/", "a//", "a b", "changes/"] {
        assert_eq!(rpc::fields(&list(prefix, 0, "").await.unwrap_err()), ["name_prefix"]);
    }
    assert_eq!(rpc::fields(&list("", 1_001, "").await.unwrap_err()), ["page_size"]);
}

#[tokio::test(start_paused = true)]
async fn deleting_takes_the_right_confirmation() {
    let (world, host) = World::new().await;
    host.accept(Op::new("o").large()).await;

    let wrong = host.delete("h", ID).await.unwrap_err();
    let none = host.delete("h", "").await.unwrap_err();
    let missing = host.delete("g", ID).await.unwrap_err();

    assert_eq!(rpc::fields(&wrong), ["confirm_history_id"]);
    assert_eq!(rpc::fields(&none), ["confirm_history_id"]);
    assert_eq!(rpc::reason(&missing), reason::HISTORY_MISSING);
    assert_eq!(world.state().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_takes_everything_and_ends_every_writer() {
    let (world, host) = World::new().await;
    host.create("h/nested").await;
    let other = world.host();
    other.accept(Op::new("o").large().service_kept()).await;
    host.accept(Op::new("p").put("k", "v")).await;
    let id = world.head().await.history_id.to_string();
    let nested = look::keys(&*world.store, "h/nested/").await;

    assert_eq!(host.delete("h", &id).await.unwrap(), 3);

    // It has a head at hand, and another one has come since: what it sent may
    // have been in that.
    assert_eq!(other.fail(Op::new("q").put("k", "v")).await, SubmitError::InDoubt);
    for host in [&host, &other] {
        assert_eq!(host.fail(Op::new("q").put("k", "v")).await, SubmitError::HistoryMissing);
        assert_eq!(rpc::reason(&host.get("h").await.unwrap_err()), reason::HISTORY_MISSING);
        let again = host.delete("h", &id).await.unwrap_err();
        assert_eq!(rpc::reason(&again), reason::HISTORY_MISSING);
    }
    let left: BTreeSet<_> = look::keys(&*world.store, "h/").await.into_iter().collect();
    let expected: BTreeSet<_> = nested.into_iter().chain(["h/head.json".to_owned()]).collect();
    assert_eq!(left, expected, "a history nested in its name is another one");
}

#[tokio::test(start_paused = true)]
async fn a_history_created_after_a_deletion_has_nothing_of_the_old_one() {
    let (world, host) = World::new().await;
    let stale = world.host();
    for host in [&host, &stale] {
        host.accept(Op::new("same").add("n", 1).service_kept()).await;
    }
    host.accept(Op::new("large").large()).await;
    let old = world.head().await;
    host.delete("h", &old.history_id.to_string()).await.unwrap();

    let new = host.create("h").await;

    assert_ne!(new.history_id, old.history_id.to_string());
    assert!(old.revision.get() < new.revision);
    assert_eq!((new.state_version, new.operation_count), (0, 0));
    assert!(world.state().await.is_empty());
    // The writer that slept through it all notices. Its next operation is for
    // the new history, under an id that the old one knew.
    let old = Op::new("o").add("n", 1).meant_for(old.history_id);
    assert_eq!(stale.fail(old.clone()).await, SubmitError::InDoubt);
    assert!(matches!(stale.fail(old).await, SubmitError::OtherHistory { .. }));
    let receipt = stale.accept(Op::new("same").add("n", 1).service_kept()).await;
    assert_eq!((receipt.accepted_at.get(), crate::fixture::sums(&receipt)), (1, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_killed_after_any_call_is_completed_by_the_next() {
    for n in 0.. {
        let (world, host) = World::new().await;
        host.accept(Op::new("a").large().service_kept()).await;
        host.accept(Op::new("b").large().service_kept()).await;
        let id = world.head().await.history_id.to_string();
        let dying = world.host_with(impatient());
        dying.faults.after(n, Fault::LoseCall);
        let killed = dying.delete("h", &id).await;
        let is_done = killed.is_ok();
        drop(dying);

        // Until it is completed, the name is neither served nor given away.
        let state = world.head().await.lifecycle;
        if state == Lifecycle::Retiring {
            assert_eq!(host.fail(Op::new("c").add("n", 1)).await, SubmitError::HistoryMissing);
            let status = host.create_as(rpc::create_request("h")).await.unwrap_err();
            assert_eq!(rpc::reason(&status), reason::HISTORY_EXISTS);
        }
        match host.delete("h", &id).await {
            Ok(_) => assert_ne!(state, Lifecycle::Cleared, "after {n} calls"),
            Err(status) => {
                assert_eq!(rpc::reason(&status), reason::HISTORY_MISSING);
                assert_eq!(state, Lifecycle::Cleared, "after {n} calls");
            }
        }
        assert_eq!(look::keys(&*world.store, "h/").await, ["h/head.json"], "after {n} calls");
        assert!(host.create("h").await.revision > 3);
        if is_done {
            assert!(10 < n);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_on_a_store_that_loses_answers_succeeds() {
    let (world, host) = World::new().await;
    host.accept(Op::new("a").large().service_kept()).await;
    let id = world.head().await.history_id.to_string();
    host.faults.on_every(Call::ReplaceHead, 1, Fault::LoseReply);

    host.delete("h", &id).await.unwrap();

    assert_eq!(world.head().await.lifecycle, Lifecycle::Cleared);
    assert_eq!(look::keys(&*world.store, "h/").await, ["h/head.json"]);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_that_deletes_cannot_hurt_the_history_that_came_after() {
    // It stalls before each kind of call in turn.
    for call in [Call::List, Call::ReadHead, Call::Delete, Call::ReplaceHead] {
        for skip in 0..3 {
            let (world, host) = World::new().await;
            host.accept(Op::new("a").large().service_kept()).await;
            host.accept(Op::new("b").large()).await;
            let id = world.head().await.history_id.to_string();
            let zombie = world.host();
            let gate = Gate::new();
            zombie.faults.add(Rule::new(Fault::Hold(gate.clone())).on(call).skip(skip).times(1));
            let writer = zombie.writer.clone();
            let (zombie, task_id) = (std::sync::Arc::new(zombie), id.clone());
            let stalled = tokio::spawn({
                let zombie = std::sync::Arc::clone(&zombie);
                async move { zombie.delete("h", &task_id).await }
            });
            settle().await;
            if stalled.is_finished() {
                continue;
            }

            let _completed = host.delete("h", &id).await;
            let new = host.create("h").await.history_id;
            // One that never saw the old history.
            let host = world.host();
            host.accept(Op::new("a").large().service_kept()).await;
            host.accept(Op::new("c").put("k", "v")).await;
            let before = look::keys(&*world.store, "h/").await;
            gate.open();
            let _answer = stalled.await.unwrap();

            assert_eq!(look::keys(&*world.store, "h/").await, before, "{call:?} {skip}");
            assert_eq!(world.head().await.history_id.to_string(), new);
            assert_eq!(world.state().await.len(), 2);
            host.accept(Op::new("d").if_present("k").put("k", "w")).await;
            drop(writer);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_retry_of_a_creation_does_not_bring_a_deleted_history_back() {
    let world = World::empty();
    let host = world.host();
    host.create_as(as_id(ID)).await.unwrap();
    host.delete("h", ID).await.unwrap();

    let status = host.create_as(as_id(ID)).await.unwrap_err();

    // Ids are never used twice: what was known about the old history would be
    // taken for the new one's.
    assert_eq!(rpc::reason(&status), reason::FIELD_INVALID);
    assert_eq!(look::head(&*world.store, &name("h")).await.lifecycle, Lifecycle::Cleared);
}

#[tokio::test(start_paused = true)]
async fn a_missing_history_is_said_to_be_missing() {
    let host = World::empty().host();

    assert_eq!(host.fail(Op::new("o").add("n", 1)).await, SubmitError::HistoryMissing);
    assert_eq!(rpc::reason(&host.get("h").await.unwrap_err()), reason::HISTORY_MISSING);
    assert_eq!(
        rpc::reason(&host.raise_epoch("h", None).await.unwrap_err()),
        reason::HISTORY_MISSING
    );
    // Once it is there it is found, without a restart.
    host.create("h").await;
    host.accept(Op::new("o").add("n", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_may_not_delete_does_not_say_that_nothing_happened() {
    let (_world, host) = World::new().await;
    let id = host.get("h").await.unwrap().history_id;
    host.accept(Op::new("one").put("k", "1")).await;
    host.faults.while_set(Call::Delete, Fault::Denied);

    let status = host.delete("h", &id).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT, "{status:?}");
    assert_eq!(rpc::metadata(&status, reason::DETERMINACY), reason::MAYBE_APPLIED);
    // It is gone for everybody, and the same call completes it.
    assert_eq!(rpc::reason(&host.get("h").await.unwrap_err()), reason::HISTORY_MISSING);
    host.faults.clear();
    host.delete("h", &id).await.unwrap();
    host.create("h").await;
}

#[tokio::test(start_paused = true)]
async fn a_page_of_names_costs_what_it_shows() {
    let (_world, host) = World::new().await;
    for n in 0..120 {
        host.create(&format!("many/{n:03}/deep")).await;
    }
    let page = async |token: &str| {
        host.faults.clear_log();
        let request = v1::ListHistoriesRequest {
            name_prefix: String::new(),
            page_size: 5,
            page_token: token.into(),
        };
        let page = host.list(request).await.unwrap();
        let calls = host.faults.log().len();
        assert!(calls < 60, "{calls} calls for {:?}", page.names);
        page
    };

    let first = page("").await;
    let late = page("many/110/deep").await;

    assert_eq!(
        first.names,
        ["h", "many/000/deep", "many/001/deep", "many/002/deep", "many/003/deep"]
    );
    assert_eq!(late.names.first().unwrap(), "many/111/deep");
    assert_eq!(late.next_page_token, "many/115/deep");
}
