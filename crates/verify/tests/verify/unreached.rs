//! What nothing leads to, and what becomes of it.

use headwater_core::hash::ContentHash;
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::version::Revision;
use headwater_verify::{Kind, Options, Part, Severity, Verdict};
use headwater_writer::WriterConfig;

use crate::fixture::{World, busy, noise, put, rich};

fn of(report: &headwater_verify::Report, kind: Kind) -> Vec<String> {
    report.findings.iter().filter(|it| it.kind == kind).map(|it| it.key.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_unreached_object_is_told_to_be_garbage_young_released_or_foreign() {
    let world = rich().await;
    let head = world.head().await;
    let at = |revision: u64, text: &str| {
        let hash = ContentHash::of(text.as_bytes());
        let key = ObjectKey::content(ObjectKind::Chunk, Revision::new(revision), hash);
        world.history.object_key(&key)
    };
    let boundary = head.revision.get() - 2;
    world.publish(|it| assert!(it.raise_sweep(Revision::new(boundary)))).await;
    let (old, young) = (at(boundary - 1, "old"), at(boundary, "young"));
    for key in [&old, &young] {
        world.store.put(key, "x".into()).await.unwrap();
    }
    let strangers =
        ["h/README", "h/chunks/odd", "h/other/file", "h/requests/odd", "h/segments/a/b"];
    for key in strangers {
        world.store.put(key, "x".into()).await.unwrap();
    }
    // Not ours to judge: a history whose name goes on from this one's.
    world.store.put("h/below/head.json", "x".into()).await.unwrap();
    world.store.put("h/below/chunks/x", "x".into()).await.unwrap();

    let report = world.verify().await;

    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    assert!(of(&report, Kind::Garbage).contains(&old));
    assert!(!of(&report, Kind::Garbage).contains(&young));
    assert!(of(&report, Kind::Young).contains(&young));
    let mut foreign = of(&report, Kind::Foreign);
    foreign.sort_unstable();
    assert_eq!(foreign, strangers);
    assert_eq!(report.unreached.foreign.objects, strangers.len() as u64);
    assert_eq!(report.unreached.garbage.objects, of(&report, Kind::Garbage).len() as u64);
    assert_eq!(report.unreached.young.objects, of(&report, Kind::Young).len() as u64);
}

#[tokio::test(start_paused = true)]
async fn what_retention_let_go_is_released_and_not_garbage() {
    let config = WriterConfig { retain_versions: 10, ..busy() };
    let mut world = World::new(config).await;
    for n in 0..60 {
        world.submit(vec![put(&format!("k/{}", n % 5), noise(n, 900))]).await;
    }
    world.settle().await;
    let (head, loader) = (world.head().await, world.loader());
    world.publish(|it| assert!(it.raise_sweep(head.revision))).await;
    let archive = loader.archive(&world.head().await).await.unwrap();
    assert!(!archive.released.is_empty());

    let report = world.verify().await;

    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    let mut expected: Vec<String> =
        archive.released.iter().map(|it| world.history.object_key(it)).collect();
    let mut released = of(&report, Kind::Released);
    released.sort_unstable();
    expected.sort_unstable();
    assert_eq!(released, expected);
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_snapshot_that_cannot_be_read_are_not_called_garbage() {
    let world = rich().await;
    let head = world.head().await;
    let before = world.verify().await;
    world.publish(|it| assert!(it.raise_sweep(head.revision))).await;
    world.store.delete(&world.history.object_key(&head.snapshot.object.key)).await.unwrap();

    let report = world.verify().await;

    let garbage = of(&report, Kind::Garbage);
    assert!(garbage.iter().all(|it| !it.contains("/chunks/") && !it.contains("/snapshots/")));
    assert!(0 < report.unreached.unjudged.objects);
    assert!(report.parts[&Part::Unreached].reason().is_some());
    // Other folders are judged all the same.
    assert!(garbage.len() as u64 <= before.unreached.young.objects + 1);
    assert!(garbage.iter().any(|it| it.contains("/changes/")), "{garbage:?}");
}

#[tokio::test(start_paused = true)]
async fn request_records_are_counted_and_read_on_request() {
    let mut world = World::new(busy()).await;
    for n in 0..5 {
        world.submit_kept(vec![put("k", noise(n, 40))], true).await;
    }
    let records: Vec<String> =
        world.keys().await.into_iter().filter(|it| it.contains("/requests/")).collect();
    let report = world.verify().await;
    assert_eq!((report.requests.objects, report.verdict()), (5, Verdict::Clean));

    let bytes = world.store.get(&records[0]).await.unwrap();
    world.overwrite(&records[1], bytes).await;
    assert_eq!(world.verify().await.verdict(), Verdict::Clean, "they are only counted");
    let options = Options { reads_requests: true, ..Options::default() };
    let report = world.verify_with(options).await.unwrap();
    assert_eq!(report.count(Severity::Damage), 1);
    assert_eq!(of(&report, Kind::Damaged), [records[1].clone()]);
}
