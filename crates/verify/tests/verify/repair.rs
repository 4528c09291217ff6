//! Repairs: what was damaged is served again, and checked to be sound.

use std::sync::Arc;

use futures::StreamExt as _;
use headwater_core::head::HistoryRef;
use headwater_core::id::{HistoryId, HistoryName, PinName};
use headwater_core::publish::{Control, NewPin};
use headwater_core::version::StateVersion;
use headwater_store::{Call, Entropy, Fault, Faults, Rule, Store};
use headwater_verify::{Plan, PlanError, RepairError, Verdict, repair};
use headwater_writer::{Question, WriterConfig};

use crate::fixture::{World, busy, damage, noise, put, rich};

/// Keys of the newest snapshot and of the older ones, index first.
async fn snapshots(world: &World) -> Vec<Vec<String>> {
    let (head, loader) = (world.head().await, world.loader());
    let archive = loader.archive(&head).await.unwrap();
    let older = archive.snapshots.iter().rev().map(|it| it.snapshot.clone());
    let mut all = Vec::new();
    for snapshot in std::iter::once(head.snapshot.clone()).chain(older) {
        let mut keys = vec![world.history.object_key(&snapshot.object.key)];
        let mut parts = loader.reached(&snapshot);
        while let Some(part) = parts.next().await {
            keys.push(world.history.object_key(&part.unwrap().object.key));
        }
        all.push(keys);
    }
    all
}

pub(crate) async fn mend(world: &World) -> usize {
    for round in 0..3 {
        let report = world.verify().await;
        if report.verdict() == Verdict::Clean {
            return round;
        }
        let plan = Plan::of(&report).unwrap();
        assert!(!plan.describe().is_empty());
        repair(Arc::clone(&world.store), &plan, &Entropy::from_seed(round as u64)).await.unwrap();
    }
    let report = world.verify().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{report:#?}");
    3
}

/// Puts the bucket back as it was.
async fn restore(world: &World, all: &[(String, bytes::Bytes)]) {
    for key in world.keys().await {
        world.store.delete(&key).await.unwrap();
    }
    for (key, bytes) in all {
        world.overwrite(key, bytes.clone()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_part_of_each_snapshot_is_mended_and_every_version_is_as_it_was() {
    let world = rich().await;
    world.writer.shutdown().await;
    let head = world.head().await;
    let promised = [head.state_version, head.snapshot.version, head.retained_from()];
    let pinned = head.pins.iter().map(|it| it.version);
    let mut before = Vec::new();
    for version in promised.into_iter().chain(pinned).map(StateVersion::get) {
        before.push((version, world.state_at(version).await));
    }
    let mut all = Vec::new();
    for key in world.keys().await.into_iter().chain(["h/head.json".to_owned()]) {
        all.push((key.clone(), world.store.get(&key).await.unwrap()));
    }
    let snapshots = snapshots(&world).await;
    let oldest = snapshots.last().unwrap().clone();
    let mut keys: Vec<String> = snapshots.into_iter().flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    // Nothing leads on to what is only in the oldest.
    keys.retain(|it| !oldest.contains(it));
    assert!(4 < keys.len(), "{keys:?}");
    for key in keys {
        world.store.delete(&key).await.unwrap();
        let rounds = mend(&world).await;
        assert!(0 < rounds, "{key}");
        for (version, state) in &before {
            assert!(world.state_at(*version).await == *state, "{key}: version {version}");
        }
        let mended = world.head().await;
        assert_eq!(mended.check(), Ok(()));
        assert_eq!(mended.state_version, head.state_version);
        assert_eq!(mended.receipt_pages, head.receipt_pages);
        // What was damaged is released by name, and nothing in use is.
        let archive = world.loader().archive(&mended).await.unwrap();
        let index = world.history.object_key(&head.snapshot.object.key);
        if mended.snapshot != head.snapshot {
            let released: Vec<String> =
                archive.released.iter().map(|it| world.history.object_key(it)).collect();
            assert!(released.contains(&index), "{key}: {released:?}");
        }
        restore(&world, &all).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mended_history_goes_on_and_is_compacted_again() {
    let mut world = rich().await;
    let newest = snapshots(&world).await.remove(0);
    world.store.delete(&newest[1]).await.unwrap();
    mend(&world).await;

    for n in 0..60 {
        world.submit(vec![put(&format!("more/{}", n % 5), noise(n, 900))]).await;
    }
    world.settle().await;

    let report = world.verify().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{report:#?}");
    assert!(world.state_at(world.head().await.state_version.get()).await.len() > 20);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_mended_is_said() {
    // Nothing older is kept.
    let mut world = World::new(busy()).await;
    for n in 0..30 {
        world.submit(vec![put(&format!("k/{n}"), noise(n, 900))]).await;
    }
    world.settle().await;
    let index = world.history.object_key(&world.head().await.snapshot.object.key);
    world.store.delete(&index).await.unwrap();
    let error = Plan::of(&world.verify().await).unwrap_err();
    assert!(matches!(error, PlanError::NothingOlder { .. }), "{error}");

    // The changes since are damaged as well.
    let world = rich().await;
    let (head, loader) = (world.head().await, world.loader());
    let archive = loader.archive(&head).await.unwrap();
    let last = &archive.runs.last().unwrap().run.object.key;
    let index = world.history.object_key(&head.snapshot.object.key);
    world.store.delete(&index).await.unwrap();
    world.store.delete(&world.history.object_key(last)).await.unwrap();
    let error = Plan::of(&world.verify().await).unwrap_err();
    assert!(matches!(error, PlanError::NothingOlder { .. }), "{error}");

    // Another object is.
    let world = rich().await;
    assert_eq!(Plan::of(&world.verify().await).unwrap_err(), PlanError::NoSnapshot);
    let head = world.head().await;
    let page = world.history.object_key(&head.receipt_pages[0].object.key);
    world.store.delete(&page).await.unwrap();
    assert_eq!(Plan::of(&world.verify().await).unwrap_err(), PlanError::NoSnapshot);
    let archive = world.history.object_key(&head.archive.unwrap().object.key);
    world.store.delete(&archive).await.unwrap();
    world.store.delete(&world.history.object_key(&head.snapshot.object.key)).await.unwrap();
    assert_eq!(Plan::of(&world.verify().await).unwrap_err(), PlanError::NoBasis);
}

#[tokio::test(start_paused = true)]
async fn a_history_with_forks_is_not_mended_and_it_is_said_what_to_do() {
    let world = rich().await;
    let child = HistoryRef {
        history: HistoryName::parse("child").unwrap(),
        history_id: HistoryId::from_bytes([9; 16]),
    };
    let name = PinName::parse("fork").unwrap();
    let pin = NewPin { name, version: None, expires_at_ms: None, child: Some(child) };
    let question = Question::Control(Control::Pin(pin));
    world.writer.ask(&world.history, question).await.unwrap();
    assert_eq!(Plan::of(&world.verify().await).unwrap_err(), PlanError::NoSnapshot);
    let newest = snapshots(&world).await.remove(0);
    world.store.delete(&newest[1]).await.unwrap();

    let error = Plan::of(&world.verify().await).unwrap_err();

    assert_eq!(error, PlanError::Forked { children: vec!["child".to_owned()] });
    assert!(error.to_string().contains("delete the fork"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_takes_a_place_only_if_the_tail_leads_from_it_to_the_head() {
    let world = rich().await;
    world.writer.shutdown().await;
    let newest = snapshots(&world).await.remove(0);
    world.store.delete(&newest[0]).await.unwrap();
    let plan = Plan::of(&world.verify().await).unwrap();
    let before = world.head().await;
    let mut other = before.clone();
    other.chain_hash = headwater_core::hash::ChainHash::from_bytes([1; 32]);
    world.put_head(&other).await;

    let error = repair(Arc::clone(&world.store), &plan, &Entropy::from_seed(1)).await.unwrap_err();

    assert!(matches!(error, RepairError::Chain(_)), "{error}");
    assert_eq!(world.head().await, other);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_moved_past_the_plan_is_left_alone() {
    let mut world = World::new(WriterConfig { retain_versions: 1_000, ..busy() }).await;
    for n in 0..40 {
        world.submit(vec![put(&format!("k/{n}"), noise(n, 900))]).await;
    }
    world.settle().await;
    let index = world.history.object_key(&world.head().await.snapshot.object.key);
    let bytes = world.store.get(&index).await.unwrap();
    world.store.delete(&index).await.unwrap();
    let plan = Plan::of(&world.verify().await).unwrap();
    world.store.put(&index, bytes).await.unwrap();
    for n in 0..40 {
        world.submit(vec![put(&format!("k/{n}"), noise(n, 900))]).await;
    }
    world.settle().await;
    let before = world.head().await;

    let error = repair(Arc::clone(&world.store), &plan, &Entropy::from_seed(1)).await.unwrap_err();

    assert!(matches!(error, RepairError::Moved), "{error}");
    assert_eq!(world.head().await, before);
}

#[tokio::test(start_paused = true)]
async fn commits_and_lost_answers_do_not_stop_a_repair() {
    let world = rich().await;
    world.writer.shutdown().await;
    let newest = snapshots(&world).await.remove(0);
    world.store.delete(&newest[1]).await.unwrap();
    let plan = Plan::of(&world.verify().await).unwrap();
    assert_eq!(damage(&world.verify().await).len(), 1);
    let faults = Faults::new(Arc::clone(&world.store));
    faults.add(Rule::new(Fault::LoseReply).on(Call::ReplaceHead).times(1));
    let store: Arc<dyn Store> = faults.store();

    let done = repair(store, &plan, &Entropy::from_seed(1)).await.unwrap();

    let head = world.head().await;
    assert_eq!((Some(head.snapshot.clone()), head.revision), (done.snapshot, done.revision));
    assert_eq!(world.verify().await.verdict(), Verdict::Clean);
}
