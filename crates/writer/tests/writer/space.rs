//! Giving space back: what is deleted, what never is, and what stays readable.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_core::decide::Ask;
use headwater_core::head::Retention;
use headwater_core::id::PinName;
use headwater_core::keys::ObjectKind;
use headwater_core::operation::{Key, Precondition};
use headwater_core::publish::{Answer, Control, NewPin, SubmitError};
use headwater_core::version::{Revision, StateVersion};
use headwater_store::{Call, Fault, Gate, Rule};
use headwater_writer::{Question, SweepOptions, SweepReport, Told, WriterConfig};

use crate::fixture::{Host, NAME, Op, World, in_time, look, name, settle};

/// Compacts every few versions, and at once; keeps nothing; sweeps when told.
fn quick() -> WriterConfig {
    WriterConfig {
        fold_changes: 8,
        compact_tail_versions: 20,
        compact_keep_versions: 0,
        retain_versions: 0,
        retain_age_ms: 0,
        sweep_every_ms: 0,
        ..WriterConfig::default()
    }
}

/// Commits that leave changes, segments, chunks and pages behind.
async fn commits(host: &Host, label: &str, count: u64) {
    for n in 0..count {
        let value = format!("{label} {n} {}", "x".repeat(usize::try_from(n % 7).unwrap() * 900));
        let op = Op::new(format!("{label}-{n}")).add("n", 1);
        let op = op.put(&format!("{label}/{n}"), &value).put("last", &value);
        let version = look_version(host).await;
        host.accept(op.issued_from(version)).await;
        settle().await;
    }
}

async fn look_version(host: &Host) -> u64 {
    let head = look::head(&*host.faults.behind(), &name(NAME)).await;
    head.state_version.get()
}

fn options(below: u64) -> SweepOptions {
    SweepOptions {
        is_dry_run: false,
        is_full: false,
        deletes_max: u64::MAX,
        below: Some(Revision::new(below)),
    }
}

/// Sweeps everything that may be.
async fn sweep(host: &Host) -> SweepReport {
    in_time(host.writer.sweep(&name(NAME), options(u64::MAX), |_| ())).await.unwrap()
}

/// Nothing is left that no head can name, and everything else is there.
async fn expect_swept(world: &World) {
    let (reached, found) = look::reached_and_found(&world.store, &name(NAME)).await;
    let missing: Vec<_> = reached.difference(&found).collect();
    assert!(missing.is_empty(), "deleted and needed: {missing:?}");
    let head = world.head().await;
    let stray = found.difference(&reached).filter(|it| it.staged() < head.sweep_from);
    // The sweep's own end may have put another archive in place of one.
    let (archives, stray): (Vec<_>, Vec<_>) =
        stray.partition(|it| it.kind() == ObjectKind::Archive);
    assert!(stray.is_empty() && archives.len() <= 1, "never deleted: {stray:?} {archives:?}");
}

async fn expect_intact(world: &World) {
    let (reached, found) = look::reached_and_found(&world.store, &name(NAME)).await;
    let missing: Vec<_> = reached.difference(&found).collect();
    assert!(missing.is_empty(), "deleted and needed: {missing:?}");
}

async fn control(host: &Host, control: Control) -> Answer {
    let history = name(NAME);
    let asked = host.writer.ask(&history, Question::Control(control));
    let Told { answer, .. } = in_time(asked).await.unwrap();
    answer
}

fn new_pin(label: &str, version: Option<u64>) -> NewPin {
    let version = version.map(StateVersion::new);
    NewPin { name: PinName::parse(label).unwrap(), version, expires_at_ms: None, child: None }
}

#[tokio::test(start_paused = true)]
async fn what_no_head_can_name_is_deleted_and_nothing_else() {
    let (world, host) = World::with(quick()).await;
    commits(&host, "a", 150).await;
    let before = look::reached_and_found(&world.store, &name(NAME)).await;
    assert!(before.0.len() + 20 < before.1.len(), "there is something to sweep");

    let report = sweep(&host).await;
    assert!(20 < report.deleted && 0 < report.deleted_bytes && report.is_complete);
    expect_swept(&world).await;
    let head = world.head().await;
    assert_eq!(head.swept_to, head.sweep_from);
    assert_eq!(look::number(&world.state().await, "n"), 150);

    // The next one finds nothing but what the sweep itself let go.
    let report = sweep(&host).await;
    assert!(report.deleted <= 2, "{report:?}");
    expect_swept(&world).await;
    // Receipts are still answered from.
    commits(&host, "b", 1).await;
    let again = host.submit(first()).await;
    assert!(matches!(again, Answer::Accepted { is_from_receipt: true, .. }), "{again:?}");
}

fn first() -> Op {
    Op::new("a-0").add("n", 1).put("a/0", "a 0 ").put("last", "a 0 ")
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_names_what_would_go_and_deletes_nothing() {
    // A head in between would name what is uploaded beside the one before it.
    let (world, host) = World::with(WriterConfig { beside_bytes_max: 0, ..quick() }).await;
    commits(&host, "a", 60).await;
    settle().await;
    let (_, before) = look::reached_and_found(&world.store, &name(NAME)).await;
    let head = world.head().await;

    let mut doomed = BTreeSet::new();
    let dry = SweepOptions { is_dry_run: true, ..options(u64::MAX) };
    let history = name(NAME);
    let report = host.writer.sweep(&history, dry, |it| {
        if it.judgement.is_deletable() {
            doomed.insert(it.key.clone());
        }
    });
    let report = in_time(report).await.unwrap();
    assert_eq!(look::reached_and_found(&world.store, &name(NAME)).await.1, before);
    assert_eq!(world.head().await, head);
    assert!(0 < report.deleted);

    sweep(&host).await;
    let (_, after) = look::reached_and_found(&world.store, &name(NAME)).await;
    let gone: BTreeSet<_> = before.difference(&after).cloned().collect();
    assert_eq!(gone, doomed);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_with_a_ceiling_goes_on_with_the_next_one() {
    let (world, host) = World::with(quick()).await;
    commits(&host, "a", 100).await;
    let mut rounds = 0;
    loop {
        let few = SweepOptions { deletes_max: 7, ..options(u64::MAX) };
        let report = in_time(host.writer.sweep(&name(NAME), few, |_| ())).await.unwrap();
        assert!(report.deleted <= 7);
        rounds += 1;
        if report.is_complete {
            break;
        }
    }
    assert!(3 < rounds);
    expect_swept(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_sweep_killed_after_each_delete_in_turn_is_completed_by_the_next() {
    let (world, host) = World::with(quick()).await;
    let mut killed = 0;
    for n in 1.. {
        commits(&host, &format!("p{n}"), 25).await;
        let broken = host.faults.add(Rule::new(Fault::LoseReply).on(Call::Delete).skip(n));
        let outcome = in_time(host.writer.sweep(&name(NAME), options(u64::MAX), |_| ())).await;
        host.faults.remove(broken);
        expect_intact(&world).await;
        if outcome.is_ok() {
            break;
        }
        killed += 1;
        // By another process, which knows nothing of the first.
        sweep(&world.host_with(quick())).await;
        expect_swept(&world).await;
    }
    assert!(5 < killed);
    expect_swept(&world).await;
}

#[tokio::test(start_paused = true)]
async fn commits_and_compaction_between_the_steps_of_a_sweep_lose_nothing() {
    let (world, host) = World::with(quick()).await;
    for round in 0..12 {
        commits(&host, &format!("a{round}"), 30).await;
        // Held at its n-th listing or deletion, while the history goes on.
        let gate = Gate::new();
        let sweeper = world.host_with(quick());
        let call = if round % 2 == 0 { Call::List } else { Call::Delete };
        sweeper.faults.add(Rule::new(Fault::Hold(gate.clone())).on(call).skip(round / 2).times(1));
        let task = {
            let writer = sweeper.writer.clone();
            tokio::spawn(async move { writer.sweep(&name(NAME), options(u64::MAX), |_| ()).await })
        };
        tokio::time::timeout(Duration::from_secs(60), gate.arrived(1)).await.ok();
        commits(&host, &format!("b{round}"), 45).await;
        gate.open();
        in_time(task).await.unwrap().unwrap();
        expect_intact(&world).await;
    }
    sweep(&host).await;
    expect_swept(&world).await;
    assert_eq!(look::number(&world.state().await, "n"), 12 * 75);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_held_back_under_sweeps_is_uploaded_again_or_published_intact() {
    let (inline_bytes_max, beside_bytes_max) = (0, 0);
    let operation_timeout_ms = 7_200_000;
    let config =
        WriterConfig { inline_bytes_max, beside_bytes_max, operation_timeout_ms, ..quick() };
    let (world, host) = World::with(config.clone()).await;
    let slow = world.host_with(config);
    commits(&host, "a", 5).await;
    let gate = Gate::new();
    let held = Rule::new(Fault::HoldReply(gate.clone())).on(Call::Put).key_has("changes/");
    slow.faults.add(held.times(1));
    let late = {
        let (writer, op) = (slow.writer.clone(), Op::new("late").add("n", 1).put("late", "here"));
        let question = Question::Ask(Ask::Submit(op.issued_from(5).operation()));
        tokio::spawn(async move { writer.ask(&name(NAME), question).await.unwrap().answer })
    };
    gate.arrived(1).await;
    for round in 0..6 {
        commits(&host, &format!("b{round}"), 30).await;
        sweep(&host).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    gate.open();
    let answer = late.await.unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    expect_intact(&world).await;
    assert_eq!(look::number(&world.state().await, "n"), 5 + 180 + 1);
    let log = slow.faults.log();
    let puts = log.iter().filter(|(call, key)| *call == Call::Put && key.contains("changes/"));
    let names: BTreeSet<_> = puts.map(|(_, key)| key).collect();
    assert_eq!(names.len(), 2, "it was uploaded again under a new name: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_state_was_swept_opens_the_history_again() {
    let (world, host) = World::with(quick()).await;
    commits(&host, "a", 60).await;
    let zombie = world.host_with(WriterConfig { chunk_cache_bytes: 0, ..quick() });
    zombie.accept(Op::new("z-0").put("z", "0").issued_from(60)).await;
    for round in 0..4 {
        commits(&host, &format!("b{round}"), 60).await;
        sweep(&host).await;
    }
    // It decides against a head that is long gone, whose chunks are too.
    let at = Key::new(&b"a/3"[..]).unwrap();
    let op = Op::new("z-1").when(Precondition::KeyExists(at)).put("z", "1").issued_from(60);
    zombie.accept(op).await;
    expect_intact(&world).await;

    // What is gone under the current head is damage, and said so by name.
    let head = world.head().await;
    let (reached, _) = look::reached_and_found(&world.store, &name(NAME)).await;
    for chunk in reached.iter().filter(|it| it.as_str().starts_with("chunks/")) {
        world.store.delete(&head.history.object_key(chunk)).await.unwrap();
    }
    let fresh = world.host_with(WriterConfig { chunk_cache_bytes: 0, ..quick() });
    let at = Key::new(&b"a/3"[..]).unwrap();
    let op = Op::new("z-2").when(Precondition::KeyExists(at)).put("z", "2").issued_from(60);
    match fresh.fail(op).await {
        SubmitError::StoredDataBad { key, .. } => assert!(key.contains("chunks/"), "{key}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_version_that_retention_keeps_can_be_read() {
    let config = WriterConfig { retain_versions: 100, ..quick() };
    let (world, host) = World::with(config).await;
    for round in 0..10 {
        commits(&host, &format!("a{round}"), 40).await;
        sweep(&host).await;
        expect_swept(&world).await;
        let head = world.head().await;
        let newest = head.state_version.get();
        assert!(head.retained_from().get() <= newest.saturating_sub(100));
        for version in [head.retained_from().get(), newest.saturating_sub(77), newest - 3] {
            let value = look::number_at(&world.store, &name(NAME), version, "n").await;
            assert_eq!(value, Some(i64::try_from(version).unwrap()).filter(|it| 0 < *it));
        }
    }
    // And it does let go: a snapshot's way and what is kept, no more.
    assert!(200 < world.head().await.retained_from().get());
}

#[tokio::test(start_paused = true)]
async fn a_pinned_version_stays_through_compaction_and_sweep_until_it_is_unpinned() {
    let (world, host) = World::with(quick()).await;
    commits(&host, "a", 33).await;
    let pinned = control(&host, Control::Pin(new_pin("audit", None))).await;
    assert!(matches!(&pinned, Answer::Pinned(pin) if pin.version.get() == 33), "{pinned:?}");
    for round in 0..5 {
        commits(&host, &format!("b{round}"), 50).await;
        sweep(&host).await;
        expect_swept(&world).await;
        assert_eq!(look::number_at(&world.store, &name(NAME), 33, "n").await, Some(33));
    }
    assert!(33 < world.head().await.retained_from().get());
    let gone = control(&host, Control::Pin(new_pin("late", Some(34)))).await;
    assert!(
        matches!(gone, Answer::Failed(SubmitError::VersionRetired { .. })),
        "what is gone cannot be pinned: {gone:?}"
    );
    assert_eq!(
        control(&host, Control::Unpin { name: PinName::parse("audit").unwrap(), child: None })
            .await,
        Answer::Unpinned
    );
    commits(&host, "c", 50).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    commits(&host, "d", 30).await;
    sweep(&host).await;
    let swept = sweep(&host).await;
    assert!(swept.is_complete);
    expect_swept(&world).await;
    assert!(!look::is_kept(&world.store, &name(NAME), 33).await);
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_an_hour_off_let_nothing_go_too_early() {
    let config = WriterConfig { retain_age_ms: 3_600_000, history_idle_ms: 86_400_000, ..quick() };
    let world = World::empty();
    let (fast, slow) = (world.host_with(config.clone()), world.host_with(config));
    fast.create(NAME).await;
    fast.clock.set_skew_ms(3_600_000);
    slow.clock.set_skew_ms(-3_600_000);
    let mut times = Vec::new();
    for round in 0..36 {
        let host = if round % 2 == 0 { &fast } else { &slow };
        commits(host, &format!("a{round}"), 25).await;
        times.push((tokio::time::Instant::now(), look_version(host).await));
        sweep(&fast).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        for (at, version) in &times {
            if at.elapsed() < Duration::from_secs(3_600) {
                let value = look::number_at(&world.store, &name(NAME), *version, "n").await;
                assert_eq!(value, Some(i64::try_from(*version).unwrap()), "{version}");
            }
        }
    }
    expect_intact(&world).await;
    // They do let go in the end.
    assert!(0 < world.head().await.retained_from().get());
}

#[tokio::test(start_paused = true)]
async fn retention_is_the_histories_and_can_be_changed() {
    let (world, host) = World::with(quick()).await;
    assert_eq!(world.head().await.retention, Retention::default());
    let retention = Retention { versions: 500, age_ms: 0 };
    let set = control(&host, Control::SetRetention(retention)).await;
    assert_eq!(set, Answer::RetentionSet(retention));
    // A process with other settings keeps what the history says.
    let other = world.host_with(quick());
    commits(&other, "a", 90).await;
    sweep(&other).await;
    assert_eq!(world.head().await.retained_from().get(), 0);
    assert_eq!(look::number_at(&world.store, &name(NAME), 7, "n").await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn an_operation_a_second_for_eighteen_hours_leaves_a_bounded_number_of_objects() {
    // The defaults, which keep an hour.
    let (world, host) = World::new().await;
    let mut most = 0;
    for n in 0..64_800_u64 {
        let op = Op::new(format!("o-{n}")).add("n", 1).put(&format!("k/{}", n % 100), "value");
        host.accept(op.issued_from(n)).await;
        tokio::time::sleep(Duration::from_millis(980)).await;
        if n % 1_800 == 0 {
            most = most.max(look::keys(&*world.store, "h/").await.len());
        }
    }
    assert!(most < 120, "{most} objects");
    let head = world.head().await;
    assert!(0 < head.swept_to.get() && 0 < head.retained_from().get());
    assert_eq!(look::number(&world.state().await, "n"), 64_800);
    expect_intact(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_nothing_happens_to_is_not_swept_again_and_again() {
    let config = WriterConfig { history_idle_ms: 86_400_000, ..WriterConfig::default() };
    let (world, host) = World::with(config).await;
    commits(&host, "a", 40).await;
    tokio::time::sleep(Duration::from_secs(3 * 3_600)).await;
    let (before, head) = (host.readings(), world.head().await);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(world.head().await, head);
    assert_eq!(host.readings(), before, "it costs nothing");
}
