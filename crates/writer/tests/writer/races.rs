//! Several writers on one history (CASES stale-start, stale-rejection,
//! predicted-rejection, retry-storm).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use headwater_core::decide::{Conflict, ConflictKind, Place};
use headwater_core::publish::Answer;
use headwater_core::version::StateVersion;
use headwater_store::{Call, Fault, Gate, Latency, LocalDir, Outcome};
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use crate::fixture::{Host, NAME, Op, World, accepted, look, name, op, settle, sums};

async fn submit_all(host: &Host, label: &str, count: usize) -> Vec<i64> {
    let ops = (0..count).map(|n| {
        let op = Op::new(format!("{label}-{n}")).add("n", 1).put(&format!("{label}/{n}"), "x");
        host.accept(op)
    });
    // A few at a time, so that both writers publish again and again.
    let receipts = futures::stream::iter(ops).buffer_unordered(8).collect::<Vec<_>>().await;
    receipts.iter().flat_map(sums).collect()
}

async fn race(world: &World, one: &Host, two: &Host) {
    let (mut told, other) = tokio::join!(submit_all(one, "one", 500), submit_all(two, "two", 500));
    told.extend(other);

    // Every sum was told once: a total order without a gap.
    told.sort_unstable();
    assert!(told.into_iter().eq(1..=1_000));
    let head = world.head().await;
    assert_eq!(head.operation_count, 1_000);
    let tail = look::tail(&world.store, &name("h")).await;
    let versions = tail.iter().map(|it| it.version.get());
    assert!(versions.eq(1..=head.state_version.get()));
    let applied = look::applied(&tail);
    assert_eq!(applied.len(), 1_000);
    assert!(applied.values().all(|it| *it == 1));
    let state = world.state().await;
    assert_eq!(look::number(&state, "n"), 1_000);
    assert_eq!(state.len(), 1_001);
}

#[tokio::test(start_paused = true)]
async fn two_writers_race_and_every_operation_is_applied_once() {
    let (world, _) = World::new().await;
    let way = |store| -> Arc<dyn headwater_store::Store> {
        Arc::new(Latency::new(store, Duration::from_millis(10), Duration::from_millis(20)))
    };
    let one = world.host_behind(WriterConfig::default(), way);
    let two = world.host_behind(WriterConfig::default(), way);

    race(&world, &one, &two).await;
}

#[tokio::test]
async fn two_writers_race_in_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let open = || LocalDir::open(folder.path()).unwrap();
    let world = World::over(Arc::new(open()));
    let (one, two) = (world.host(), World::over(Arc::new(open())).host());
    one.create("h").await;

    race(&world, &one, &two).await;
}

#[tokio::test(start_paused = true)]
async fn two_writers_race_over_a_store_that_loses_answers() {
    let (world, _) = World::new().await;
    let (one, two) = (world.host(), world.host());
    one.faults.on_every(Call::ReplaceHead, 7, Fault::LoseReply);
    two.faults.on_every(Call::ReplaceHead, 5, Fault::LoseCall);
    two.faults.on_every(Call::ReadHead, 11, Fault::LoseReply);

    race(&world, &one, &two).await;
}

#[tokio::test(start_paused = true)]
async fn many_writers_on_one_head_all_finish() {
    let (world, _) = World::new().await;
    let hosts: Vec<_> = (0..32)
        .map(|_| {
            world.host_behind(WriterConfig::default(), |store| {
                let write = Duration::from_millis(20);
                Arc::new(Latency::new(store, Duration::from_millis(10), write))
            })
        })
        .collect();

    let all: FuturesUnordered<_> = hosts
        .iter()
        .enumerate()
        .map(|(n, host)| async move {
            for m in 0..5 {
                host.accept(Op::new(format!("{n}-{m}")).add("n", 1)).await;
            }
        })
        .collect();
    all.collect::<Vec<()>>().await;

    assert_eq!(look::number(&world.state().await, "n"), 160);
    let attempts: u64 = hosts.iter().map(|it| it.faults.calls(Call::ReplaceHead)).sum();
    let commits = world.head().await.state_version.get();
    assert!(attempts < 4 * commits, "{attempts} attempts for {commits} commits");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_lost_a_race_is_rebased_without_its_caller_knowing() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").put("mine", "0")).await;
    // The head moved on, and this writer does not know yet.
    other.accept(Op::new("theirs").add("n", 5).put("their", "1")).await;

    let op = Op::new("mine").if_absent("third").if_present("mine").add("n", 1);
    let receipt = host.accept(op).await;

    assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (3, vec![6]));
    assert_eq!(world.head().await.operation_count, 3);
}

#[tokio::test(start_paused = true)]
async fn a_staged_change_that_still_holds_is_not_uploaded_again_after_a_lost_race() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").put("mine", "0")).await;
    other.accept(Op::new("theirs").put("their", "1")).await;

    let receipt = host.accept(Op::new("mine").large()).await;

    assert_eq!(receipt.accepted_at.get(), 3);
    assert_eq!(look::keys(&*world.store, "h/changes/").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_not_told_from_a_stale_head() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").put("a", "0")).await;
    // Acknowledged by one writer; the other's head is older.
    other.accept(Op::new("theirs").put("b", "1")).await;

    let receipt = host.accept(Op::new("follows").if_present("b").put("c", "2")).await;

    assert_eq!(receipt.accepted_at.get(), 3);
    assert_eq!(world.state().await["c"].1, 3);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_names_what_stands_in_the_way_and_the_version_seen() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("first").put("a", "0")).await;
    host.accept(Op::new("second").put("b", "0")).await;

    let answer = host.submit(Op::new("third").if_present("x").if_absent("a").put("c", "0")).await;

    let at = StateVersion::new(2);
    let conflict = |kind, key: &'static str, seen, place| Conflict {
        kind,
        key: key.into(),
        version_seen: StateVersion::new(seen),
        place: Place::Precondition(place),
    };
    let conflicts = vec![
        conflict(ConflictKind::KeyMissing, "x", 0, 0),
        conflict(ConflictKind::KeyPresent, "a", 1, 1),
    ];
    assert_eq!(answer, Answer::Rejected { at, conflicts });
}

#[tokio::test(start_paused = true)]
async fn nobody_is_rejected_because_of_what_was_not_published() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").put("w", "0")).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));

    // `a` is decided and on its way; `b` stands against it.
    let a = host.begin(Op::new("a").if_absent("k").put("k", "a").large());
    gate.arrived(1).await;
    let b = host.begin(Op::new("b").if_absent("k").put("k", "b").large());
    settle().await;
    assert!(!b.is_finished(), "a rejection that rests on a prediction is not told");
    // `a` loses: somebody else wrote `k` and took it away again.
    other.accept(Op::new("put").put("k", "theirs")).await;
    other.accept(Op::new("delete").delete("k")).await;
    gate.open();

    let (a, b) = (accepted(a.await.unwrap()), b.await.unwrap());
    let Answer::Rejected { at, conflicts } = b else { panic!("{b:?}") };
    assert_eq!(conflicts[0].key, "k");
    assert_eq!(conflicts[0].version_seen, a.accepted_at);
    assert!(a.accepted_at <= at, "the rejection was true of a published state");
    assert_eq!(world.state().await["k"].0, "a");
}

#[tokio::test(start_paused = true)]
async fn one_rejected_for_a_prediction_that_lost_is_decided_again() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").put("w", "0")).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));

    let a = host.begin(Op::new("a").if_absent("lock").put("k", "a"));
    gate.arrived(1).await;
    let b = host.begin(Op::new("b").if_absent("k").put("m", "b").large());
    settle().await;
    assert!(!b.is_finished(), "a rejection that rests on a prediction is not told");
    other.accept(Op::new("lock").put("lock", "theirs")).await;
    gate.open();

    assert!(matches!(a.await.unwrap(), Answer::Rejected { .. }));
    accepted(b.await.unwrap());
    assert_eq!(world.state().await["m"].0, "b");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_does_not_fail_its_neighbours() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").put("taken", "0")).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let first = host.begin(Op::new("first").put("w", "1"));
    gate.arrived(1).await;

    // These share a batch.
    let good: Vec<_> =
        (0..10).map(|n| host.begin(Op::new(format!("good-{n}")).add("n", 1))).collect();
    let bad: Vec<_> = (0..10)
        .map(|n| host.begin(Op::new(format!("bad-{n}")).if_absent("taken").add("n", 100)))
        .collect();
    let text = host.begin(Op::new("text").add("taken", 1));
    gate.open();

    accepted(first.await.unwrap());
    for call in good {
        assert_eq!(accepted(call.await.unwrap()).accepted_at.get(), 3);
    }
    for call in bad {
        assert!(matches!(call.await.unwrap(), Answer::Rejected { .. }));
    }
    let Answer::Rejected { conflicts, .. } = text.await.unwrap() else { panic!() };
    assert_eq!(conflicts[0].kind, ConflictKind::NotAnInteger);
    assert_eq!(look::number(&world.state().await, "n"), 10);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_at_a_version_holds_as_long_as_nobody_wrote_it() {
    use headwater_core::operation::{KeyRange, Precondition};
    let (_world, host) = World::new().await;
    host.accept(Op::new("first").put("a/1", "0")).await;
    host.accept(Op::new("second").put("b", "0")).await;
    let range = KeyRange::new("a/".into(), Some("a0".into())).unwrap();
    let seen = StateVersion::new(2);
    let read = |id: &str| {
        Op::new(id)
            .when(Precondition::RangeUnchangedSince(range.clone(), seen))
            .when(Precondition::KeyAtVersion(op::key("b"), seen))
            .when(Precondition::KeyUnchangedSince(op::key("c"), seen))
    };

    let fits = host.submit(read("fits").put("d", "1")).await;
    host.accept(Op::new("phantom").put("a/2", "1")).await;
    let misses = host.submit(read("misses").put("d", "2")).await;

    accepted(fits);
    let Answer::Rejected { conflicts, .. } = misses else { panic!("{misses:?}") };
    assert_eq!(conflicts.len(), 1);
    assert_eq!((&*conflicts[0].key, conflicts[0].version_seen.get()), (&b"a/2"[..], 4));
}

/// What each of eight writers got done in a while of virtual time, with eight
/// callers each that ask again as soon as they are answered, 20 ms from the
/// store; and how many replacements were sent for one that was carried out.
async fn shares() -> (Vec<u64>, f64) {
    let world = World::seeded(8);
    world.host().create(NAME).await;
    let way = |store| -> Arc<dyn headwater_store::Store> {
        Arc::new(Latency::new(store, Duration::from_millis(10), Duration::from_millis(20)))
    };
    let hosts: Vec<_> = (0..8).map(|_| world.host_behind(WriterConfig::default(), way)).collect();
    // Who wins is drawn: in ten seconds a share may be a third of the mean.
    let end = Instant::now() + Duration::from_secs(60);
    let callers = hosts.iter().enumerate().flat_map(|(at, host)| {
        (0..8).map(move |caller| async move {
            let mut done = 0;
            while Instant::now() < end {
                let op = Op::new(format!("{at}-{caller}-{done}"));
                host.accept(op.put(&format!("{at}/{caller}"), &"x".repeat(1_024))).await;
                done += 1;
            }
            (at, done)
        })
    });
    let mut shares = vec![0; 8];
    for (at, done) in futures::future::join_all(callers).await {
        shares[at] += done;
    }
    let sent: u64 = hosts.iter().map(|it| it.readings().calls(Call::ReplaceHead)).sum();
    let applied: u64 =
        hosts.iter().map(|it| it.readings().count(Call::ReplaceHead, Outcome::Done)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let attempts = sent as f64 / applied as f64;
    (shares, attempts)
}

#[tokio::test(start_paused = true)]
async fn writers_that_contend_get_a_share_each() {
    let (shares, attempts) = shares().await;
    let total: u64 = shares.iter().sum();
    let mean = total / 8;
    assert!(shares.iter().all(|it| mean / 2 <= *it), "{shares:?}");
    assert!(attempts < 4.0, "{attempts} attempts for each replacement");
}
