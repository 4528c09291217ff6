//! Folds and snapshots: beside the commits, and without loss of evidence.

use std::time::Duration;

use headwater_core::publish::{Answer, SubmitError};
use headwater_store::{Call, Fault, Rule};
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use crate::fixture::{Host, Op, World, look, settle};

/// As a caller does that has seen version `seen`.
async fn commits(host: &Host, label: &str, seen: u64, count: u64) {
    let mut version = seen;
    for n in 0..count {
        let op = Op::new(format!("{label}-{n}")).add("n", 1).put(&format!("{label}/{n}"), "x");
        version = host.accept(op.issued_from(version)).await.accepted_at.get();
        // What runs beside the commits gets its turn.
        settle().await;
    }
}

/// Every operation is known by its receipt, to `host`.
async fn expect_receipts(host: &Host, label: &str, numbers: impl Iterator<Item = u64>) {
    for n in numbers {
        let op = Op::new(format!("{label}-{n}")).add("n", 1).put(&format!("{label}/{n}"), "x");
        match host.submit(op).await {
            Answer::Accepted { receipt, is_from_receipt: true } => {
                assert_eq!(receipt.accepted_at.get(), n + 1);
                assert_eq!(receipt.results[0].sum, i64::try_from(n + 1).unwrap());
            }
            other => panic!("{label}-{n}: {other:?}"),
        }
    }
}

async fn head_bytes(world: &World) -> usize {
    world.store.get("h/head.json").await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn the_head_stays_below_its_soft_limit_however_many_commits_there_are() {
    let config = WriterConfig::default();
    let soft_bytes = config.head_soft_bytes;
    let (world, host) = World::with(config).await;
    let mut most = 0;
    for part in 0..200 {
        commits(&host, &format!("p{part}"), 10 * part, 10).await;
        most = most.max(head_bytes(&world).await);
    }

    assert!(most <= soft_bytes, "{most}");
    let head = world.head().await;
    assert_eq!((head.state_version.get(), head.operation_count), (2_000, 2_000));
    assert!(!head.segments.is_empty());
    assert_eq!(head.snapshot.version.get(), 0, "folding is enough so far");
    assert_eq!(look::number(&world.state().await, "n"), 2_000);
}

/// A store whose heads are replaced at once, and whose segments take `delay`.
async fn quick_heads_and_slow_folds(delay: Duration, count: u64) -> (Vec<usize>, Duration, World) {
    let (world, host) = World::new().await;
    host.faults.add(Rule::new(Fault::Delay(delay)).on(Call::Put).key_has("/segments/"));
    let (mut sizes, began) = (Vec::new(), Instant::now());
    for n in 0..count {
        host.accept(Op::new(format!("o-{n}")).add("n", 1).issued_from(n)).await;
        sizes.push(head_bytes(&world).await);
    }
    let took = began.elapsed();
    assert_eq!(look::number(&world.state().await, "n"), i64::try_from(count).unwrap());
    (sizes, took, world)
}

#[tokio::test(start_paused = true)]
async fn commits_that_outrun_the_folds_wait_for_them_and_the_head_stays_below_its_soft_limit() {
    let soft_bytes = WriterConfig::default().head_soft_bytes;
    let (sizes, took, world) = quick_heads_and_slow_folds(Duration::from_millis(400), 1_500).await;

    let most = sizes.iter().max().unwrap();
    assert!(*most <= soft_bytes, "{most}");
    assert!(soft_bytes - 6_144 < *most, "no earlier than need be: {most}");
    let folds = world.head().await.segments.len() as u64;
    assert!(took <= Duration::from_millis(400 * (folds + 1)), "{took:?} for {folds} folds");
}

#[tokio::test(start_paused = true)]
async fn a_fold_that_does_not_end_is_waited_for_once_and_the_head_grows_past_its_soft_limit() {
    let soft_bytes = WriterConfig::default().head_soft_bytes;
    let (sizes, took, _world) = quick_heads_and_slow_folds(Duration::from_secs(3_600), 600).await;

    assert!(soft_bytes < *sizes.last().unwrap());
    assert!((1..=2).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn receipts_are_found_after_a_fold_and_a_restart() {
    let config = WriterConfig { fold_changes: 8, ..WriterConfig::default() };
    let (world, host) = World::with(config).await;
    commits(&host, "o", 0, 50).await;

    assert!(1 < world.head().await.segments.len());
    expect_receipts(&host, "o", 0..50).await;
    expect_receipts(&world.host(), "o", 0..50).await;
    assert_eq!(look::number(&world.state().await, "n"), 50);
}

/// Compacts every few versions, and at once.
fn compacting() -> WriterConfig {
    WriterConfig {
        fold_changes: 8,
        compact_tail_versions: 20,
        compact_keep_versions: 0,
        ..WriterConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_takes_the_place_of_the_tail_and_keeps_the_evidence() {
    let (world, host) = World::with(compacting()).await;
    commits(&host, "o", 0, 100).await;

    let head = world.head().await;
    assert!(60 < head.snapshot.version.get(), "{}", head.snapshot.version);
    assert_eq!((head.state_version.get(), head.operation_count), (100, 100));
    assert_eq!(head.receipt_coverage_from.get(), 1, "only the window moves coverage");
    let state = world.state().await;
    assert_eq!((state.len(), look::number(&state, "n")), (101, 100));
    expect_receipts(&host, "o", 0..100).await;
    // Another writer opens from the snapshot, and knows as much.
    let other = world.host();
    expect_receipts(&other, "o", 0..100).await;
    assert!(other.faults.calls(Call::Get) < 20, "{}", other.faults.calls(Call::Get));
    assert_eq!(
        other.accept(Op::new("next").if_present("o/0").add("n", 1)).await.results[0].sum,
        101
    );
    // And the first one follows across it.
    assert_eq!(
        host.accept(Op::new("more").if_present("o/0").add("n", 1)).await.results[0].sum,
        102
    );
}

#[tokio::test(start_paused = true)]
async fn coverage_moves_by_the_window_and_by_nothing_else() {
    let config = WriterConfig { receipt_versions_max: 30, ..compacting() };
    let (world, host) = World::with(config.clone()).await;
    for n in 0..100 {
        commits(&host, &format!("p{n}"), n, 1).await;
        let head = world.head().await;
        assert_eq!(head.receipt_coverage_from.get(), (n + 2).saturating_sub(30).max(1));
    }

    for host in [&host, &world.host_with(config)] {
        let known = Op::new("p70-0").add("n", 1).put("p70-0/0", "x");
        assert_eq!(host.fail(known).await, SubmitError::IdReused);
        let gone = host.submit(Op::new("p69-0").add("n", 1).put("p69/0", "x")).await;
        assert!(matches!(gone, Answer::Unknown { .. }), "{gone:?}");
    }
    assert_eq!(look::number(&world.state().await, "n"), 100);
}

#[tokio::test(start_paused = true)]
async fn a_window_in_bytes_moves_coverage_too() {
    let config = WriterConfig { receipt_bytes_max: 1_000, ..compacting() };
    let (world, host) = World::with(config.clone()).await;
    commits(&host, "o", 0, 60).await;

    let coverage_from = world.head().await.receipt_coverage_from.get();
    assert!(40 < coverage_from && coverage_from < 60, "{coverage_from}");
    expect_receipts(&host, "o", coverage_from - 1..60).await;
    expect_receipts(&world.host_with(config), "o", coverage_from - 1..60).await;
}

#[tokio::test(start_paused = true)]
async fn evidence_does_not_make_the_head_grow_with_every_snapshot() {
    let (world, host) = World::with(compacting()).await;
    let mut most = 0;
    for part in 0..100 {
        commits(&host, &format!("p{part}"), 20 * part, 20).await;
        most = most.max(world.head().await.receipt_pages.len());
    }

    assert!(most < 5, "{most} pages for 2,000 receipts");
    assert_eq!(world.head().await.receipt_coverage_from.get(), 1);
    for host in [&host, &world.host()] {
        let again = host.submit(Op::new("p0-0").add("n", 1).put("p0/0", "x")).await;
        assert!(matches!(again, Answer::Accepted { is_from_receipt: true, .. }), "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn writers_that_compact_at_once_waste_work_and_lose_nothing() {
    let world = World::empty();
    let hosts: Vec<Host> = (0..3).map(|_| world.host_with(compacting())).collect();
    hosts[0].create("h").await;
    for round in 0..40 {
        let all = hosts.iter().enumerate().map(|(n, host)| async move {
            for m in 0..3 {
                host.accept(Op::new(format!("{round}-{n}-{m}")).add("n", 1)).await;
                settle().await;
            }
        });
        futures::future::join_all(all).await;
    }

    let head = world.head().await;
    assert_eq!(head.operation_count, 360);
    assert!(0 < head.snapshot.version.get());
    assert_eq!(look::number(&world.state().await, "n"), 360);
    for host in hosts.iter().chain([&world.host()]) {
        for id in ["0-0-0", "20-1-1", "39-2-2"] {
            let again = host.submit(Op::new(id).add("n", 1)).await;
            assert!(matches!(again, Answer::Accepted { is_from_receipt: true, .. }), "{again:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writers_that_fold_across_each_others_snapshots_still_get_one_through() {
    let config =
        WriterConfig { compact_tail_versions: 60, compact_keep_versions: 30, ..compacting() };
    let world = World::empty();
    let hosts: Vec<Host> = (0..2).map(|_| world.host_with(config.clone())).collect();
    hosts[0].create("h").await;
    let mut most = 0;
    for round in 0..500 {
        for (n, host) in hosts.iter().enumerate() {
            host.accept(Op::new(format!("{round}-{n}")).add("n", 1)).await;
            settle().await;
        }
        let head = world.head().await;
        most = most.max(head.state_version.since(head.snapshot.version));
    }

    // The pause after one that did not fit lasts for 250 commits.
    assert!(most < 800, "a tail of {most} versions");
    assert_eq!(look::number(&world.state().await, "n"), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_published_by_itself_when_nothing_else_happens() {
    let config = WriterConfig { compact_tail_versions: 20, ..WriterConfig::default() };
    let (world, host) = World::with(config).await;
    commits(&host, "o", 0, 25).await;
    assert_eq!(world.head().await.snapshot.version.get(), 0, "held back for `unchanged since`");

    tokio::time::sleep(Duration::from_secs(120)).await;

    let head = world.head().await;
    assert!(20 <= head.snapshot.version.get());
    assert_eq!(head.state_version.get(), 25);
    // Once: the idle history is left alone.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(world.head().await.revision, head.revision);
}

#[tokio::test(start_paused = true)]
async fn maintenance_that_fails_stops_no_commit_and_is_made_up_for() {
    let (world, host) = World::with(compacting()).await;
    for part in ["/segments/", "/snapshots/", "/chunks/", "/receipts/"] {
        host.faults.add(Rule::new(Fault::LoseCall).on(Call::Put).key_has(part));
    }
    commits(&host, "o", 0, 60).await;
    assert_eq!(world.head().await.snapshot.version.get(), 0);
    host.faults.clear();

    tokio::time::sleep(Duration::from_secs(6)).await;
    commits(&host, "p", 60, 10).await;
    settle().await;

    assert!(50 < world.head().await.snapshot.version.get());
    assert_eq!(look::number(&world.state().await, "n"), 70);
}

#[tokio::test(start_paused = true)]
async fn a_head_at_its_hard_limit_refuses_operations_until_there_is_room() {
    let config = WriterConfig {
        head_soft_bytes: 4 << 10,
        head_hard_bytes: 8 << 10,
        ..WriterConfig::default()
    };
    let (world, host) = World::with(config).await;
    host.faults.add(Rule::new(Fault::LoseCall).on(Call::Put).key_has("/segments/"));
    host.faults.add(Rule::new(Fault::LoseCall).on(Call::Put).key_has("/snapshots/"));
    let mut n = 0;
    let error = loop {
        assert!(n < 500, "the head has no limit");
        match host.submit(Op::new(format!("o{n}")).add("n", 1)).await {
            Answer::Accepted { .. } => n += 1,
            other => break crate::fixture::failed(other),
        }
    };

    assert_eq!(error, SubmitError::HeadTooLarge);
    assert!(head_bytes(&world).await <= 8 << 10);
    host.faults.clear();
    // Nobody asks, and room is made.
    tokio::time::sleep(Duration::from_secs(30)).await;
    host.accept(Op::new(format!("o{n}")).add("n", 1)).await;
    assert_eq!(look::number(&world.state().await, "n"), n + 1);
}

#[tokio::test(start_paused = true)]
async fn a_writer_follows_across_a_snapshot_that_another_made_while_it_slept() {
    let (world, sleeper) = World::new().await;
    sleeper.accept(Op::new("early").put("early", "x")).await;
    let other = world.host_with(compacting());
    commits(&other, "o", 0, 100).await;
    assert!(1 < world.head().await.snapshot.version.get());

    let receipt = sleeper.accept(Op::new("late").if_present("early").add("n", 1)).await;

    assert_eq!(receipt.results[0].sum, 101);
    let again = sleeper.submit(Op::new("early").put("early", "x")).await;
    assert!(matches!(again, Answer::Accepted { is_from_receipt: true, .. }));
}
