//! Exclusive histories: the writer epoch fences a former owner.

use headwater_core::publish::SubmitError;
use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault};
use headwater_writer::WriterConfig;

use crate::fixture::{Host, Op, World, look, rpc};

async fn exclusive() -> (World, Host) {
    let world = World::empty();
    let host =
        world.host_with(WriterConfig { operation_timeout_ms: 5_000, ..WriterConfig::default() });
    let request = v1::CreateHistoryRequest { exclusive: true, ..rpc::create_request("h") };
    host.create_as(request).await.unwrap();
    (world, host)
}

#[tokio::test(start_paused = true)]
async fn a_former_owner_is_fenced() {
    let (world, old) = exclusive().await;
    let new = world.host();
    old.accept(Op::new("first").add("n", 1)).await;

    assert_eq!(new.raise_epoch("h", Some(0)).await.unwrap(), 1);

    // It does not know yet; the head tells it.
    assert_eq!(old.fail(Op::new("o").add("n", 1)).await, SubmitError::Fenced { writer_epoch: 1 });
    new.accept(Op::new("second").add("n", 1).epoch(1)).await;
    let status =
        old.submit_rpc(rpc::submit_request("h", "p", vec![rpc::put("k", "v")])).await.unwrap_err();
    assert_eq!(rpc::reason(&status), reason::FENCED);
    assert_eq!(rpc::metadata(&status, reason::WRITER_EPOCH), "1");
    assert_eq!(look::number(&world.state().await, "n"), 2);
    // What was accepted under the old epoch stays accepted.
    assert_eq!(old.accept(Op::new("first").add("n", 1)).await.accepted_at.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_the_cached_head_does_not_know_is_looked_up_and_not_refused() {
    let (world, stale) = exclusive().await;
    stale.accept(Op::new("first").add("n", 1)).await;
    world.host().raise_epoch("h", None).await.unwrap();

    stale.accept(Op::new("second").add("n", 1).epoch(1)).await;

    let error = stale.fail(Op::new("third").add("n", 1).epoch(2)).await;
    assert_eq!(error, SubmitError::Fenced { writer_epoch: 1 });
}

#[tokio::test(start_paused = true)]
async fn an_epoch_is_raised_only_from_the_one_expected() {
    let (world, host) = exclusive().await;
    assert_eq!(host.raise_epoch("h", None).await.unwrap(), 1);

    let status = host.raise_epoch("h", Some(0)).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::FENCED);
    assert_eq!(rpc::metadata(&status, reason::WRITER_EPOCH), "1");
    assert_eq!(world.head().await.writer_epoch, 1);
    assert_eq!(host.raise_epoch("h", Some(1)).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_that_take_over_at_once_get_different_epochs() {
    let (world, one) = exclusive().await;
    let two = world.host();
    one.accept(Op::new("warm").add("n", 1)).await;

    let (a, b) = tokio::join!(one.raise_epoch("h", Some(0)), two.raise_epoch("h", Some(0)));

    assert_eq!(u32::from(a.is_ok()) + u32::from(b.is_ok()), 1, "{a:?} {b:?}");
    assert_eq!(world.head().await.writer_epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn a_raise_whose_answer_was_lost_is_told() {
    let (world, host) = exclusive().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);

    assert_eq!(host.raise_epoch("h", Some(0)).await.unwrap(), 1);

    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    host.faults.while_set(Call::ReadHead, Fault::LoseCall);
    let status = host.raise_epoch("h", Some(1)).await.unwrap_err();
    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT);
    host.faults.clear();
    assert_eq!(world.head().await.writer_epoch, 2);
    host.accept(Op::new("next").add("n", 1).epoch(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_not_exclusive_has_no_epoch() {
    let (world, host) = World::new().await;

    let status = host.raise_epoch("h", None).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::FIELD_INVALID);
    // And takes operations of any.
    host.accept(Op::new("o").add("n", 1).epoch(7)).await;
    assert_eq!(world.head().await.writer_epoch, 0);
}

#[tokio::test(start_paused = true)]
async fn a_raise_waits_for_the_operations_before_it() {
    let (world, host) = exclusive().await;
    host.accept(Op::new("warm").add("n", 1)).await;

    let before: Vec<_> =
        (0..10).map(|n| host.begin(Op::new(format!("o{n}")).add("n", 1))).collect();
    crate::fixture::settle().await;
    assert_eq!(host.raise_epoch("h", None).await.unwrap(), 1);
    for call in before {
        crate::fixture::accepted(call.await.unwrap());
    }

    assert_eq!(look::number(&world.state().await, "n"), 11);
}
