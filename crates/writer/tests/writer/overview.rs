//! What the writer shows to those who look: without asking a driver or a store.

use headwater_core::decide::Ask;
use headwater_core::publish::SubmitError;
use headwater_daemon::overview::{IncidentKind, Window, WriterSource as _};
use headwater_store::{Call, Fault};
use headwater_writer::{Question, WriterConfig};

use crate::fixture::{Op, World, name, settle};

#[tokio::test(start_paused = true)]
async fn a_history_is_shown_as_its_head_is_in_the_bucket() {
    let (world, host) = World::new().await;
    for n in 0..3 {
        host.accept(Op::new(format!("op-{n}")).add("n", 1)).await;
    }
    host.accept(Op::new("op-2").add("n", 1)).await;

    let calls = host.readings().total();
    let shown = host.writer.overview(&Window::default());
    assert_eq!(host.readings().total(), calls, "the store is not asked");

    let stored = world.head().await;
    assert_eq!((shown.histories_open, shown.histories.len()), (1, 1));
    let history = &shown.histories[0];
    let head = history.head.as_ref().unwrap();
    assert_eq!(history.name, "h");
    assert_eq!(head.history_id, stored.history_id.to_string());
    assert_eq!((head.revision, head.state_version), (stored.revision.get(), 3));
    assert_eq!((head.tail_versions, head.tail_changes, head.tail_changes_inline), (3, 3, 3));
    assert_eq!(head.receipt_coverage_from, stored.receipt_coverage_from.get());
    assert_eq!(head.publisher, shown.publisher_id);
    let encoded = headwater_core::format::head::encode(&stored).len();
    assert_eq!(head.size_bytes, encoded as u64);
    assert_eq!((history.receipts, history.queue_operations), (3, 0));
    assert_eq!((shown.commits, shown.operations_accepted, shown.operations_repeated), (3, 3, 1));

    let totals = host.writer.totals();
    assert_eq!((totals.commits, totals.operations, totals.latencies.total()), (3, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_doubts_are_shown_by_their_operation_ids() {
    let (_, host) = World::new().await;
    host.accept(Op::new("first").put("secret-key", "secret-value")).await;
    host.submit(Op::new("too-late").put("secret-key", "secret-value").if_absent("secret-key"))
        .await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    host.faults.while_set(Call::ReadHead, Fault::LoseCall);
    let error = host.fail(Op::new("doubtful").put("secret-key", "secret-value")).await;
    assert_eq!(error, SubmitError::InDoubt);

    let shown = host.writer.overview(&Window::default());
    let [conflict] = &shown.conflicts[..] else { panic!("{:?}", shown.conflicts) };
    assert_eq!((&*conflict.operation_id, conflict.kind), ("too-late", IncidentKind::Rejected));
    let [doubt] = &shown.doubts[..] else { panic!("{:?}", shown.doubts) };
    assert_eq!((&*doubt.operation_id, doubt.kind), ("doubtful", IncidentKind::InDoubt));
    assert_eq!((shown.operations_rejected, shown.operations_in_doubt), (1, 1));
    assert!(!format!("{shown:?}").contains("secret"), "no key and no value: {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_shown_while_it_waits() {
    let (_, host) = World::new().await;
    host.accept(Op::new("first").add("n", 1)).await;
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let call = host.begin(Op::new("waits").add("n", 1));
    gate.arrived(1).await;

    assert_eq!(host.writer.overview(&Window::default()).histories[0].queue_operations, 1);

    gate.open();
    call.await.unwrap();
    assert_eq!(host.writer.overview(&Window::default()).histories[0].queue_operations, 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_open_histories_are_shown_a_page_at_a_time() {
    let config = WriterConfig { histories_max: 10_000, ..WriterConfig::default() };
    let host = World::empty().host_with(config);
    host.faults.set_outage(true);
    for n in 0..10_000 {
        let (writer, name) = (host.writer.clone(), name(&format!("many/{n:05}")));
        let question = Question::Ask(Ask::Submit(Op::new("op").add("n", 1).operation()));
        tokio::spawn(async move { writer.ask(&name, question).await });
    }
    settle().await;

    let window = Window { prefix: "many/".into(), after: "many/00041".into(), limit: 3 };
    let shown = host.writer.overview(&window);

    assert_eq!((shown.histories_open, shown.histories_max), (10_000, 10_000));
    let names: Vec<_> = shown.histories.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["many/00042", "many/00043", "many/00044"]);
    assert!(shown.histories.iter().all(|it| it.head.is_none() && it.queue_operations == 1));
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_gone_is_shown_without_a_head() {
    let (_, host) = World::new().await;
    host.accept(Op::new("first").add("n", 1)).await;
    let id = host.get("h").await.unwrap().history_id;
    host.delete("h", &id).await.unwrap();
    settle().await;
    host.fail(Op::new("late").add("n", 1)).await;

    let shown = host.writer.overview(&Window::default());
    let lifecycles: Vec<_> = shown
        .histories
        .iter()
        .map(|it| it.head.as_ref().map(|head| head.lifecycle.clone()))
        .collect();
    assert!(!lifecycles.contains(&Some("live".to_owned())), "{lifecycles:?}");
}
