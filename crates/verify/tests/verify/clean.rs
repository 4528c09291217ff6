//! Sound histories are called sound, whatever their shape.

use headwater_core::operation::{KeyRange, Mutation};
use headwater_verify::{Options, Part, PartState, Reason, Severity, Verdict, VerifyError};
use headwater_writer::WriterConfig;

use crate::fixture::{World, busy, keeping, key, noise, put, rich};

#[tokio::test(start_paused = true)]
async fn a_history_with_everything_is_clean_and_all_of_it_is_looked_at() {
    let world = rich().await;
    let (head, report) = (world.head().await, world.verify().await);

    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    assert_eq!(report.count(Severity::Damage), 0);
    assert!(report.parts.values().all(|it| *it == PartState::Done), "{:?}", report.parts);
    // The shape that the other tests rest on.
    let archive = world.loader().archive(&head).await.unwrap();
    assert!(1 < archive.snapshots.len() && !archive.runs.is_empty(), "{archive:?}");
    assert!(!head.segments.is_empty() && 1 < head.changes.len(), "{head:?}");
    assert!(!head.receipt_pages.is_empty() && head.pins.len() == 2);
    // Every change after the oldest snapshot has its place in the chain, and
    // every receipt of a page its change.
    let oldest = archive.snapshots[0].snapshot.version;
    assert_eq!(report.chained, head.state_version.since(oldest));
    assert_eq!(report.receipts_compared, head.snapshot.version.get());
    // All that is stored is either sound and in use, or nothing leads to it.
    let unreached = report.unreached;
    let rest = unreached.garbage.objects + unreached.young.objects + unreached.released.objects;
    assert_eq!(report.sound.objects + rest, world.keys().await.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_new_history_is_clean() {
    let report = World::new(busy()).await.verify().await;

    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    assert_eq!(report.parts[&Part::Rebuild], PartState::LeftOut(Reason::NothingOlder));
}

#[tokio::test(start_paused = true)]
async fn histories_of_many_shapes_are_clean_all_along() {
    let shapes = [
        ("nothing kept", busy()),
        ("all kept", keeping()),
        ("few kept", WriterConfig { retain_versions: 20, ..busy() }),
        ("a short window", WriterConfig { receipt_versions_max: 9, ..keeping() }),
        ("no maintenance", WriterConfig::default()),
        ("no inline", WriterConfig { inline_bytes_max: 0, ..keeping() }),
    ];
    for (seed, (shape, config)) in shapes.into_iter().enumerate() {
        let mut world = World::new(config).await;
        let mut dice = seed as u64 + 1;
        for n in 0..90_u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let at = format!("k/{:02}", (dice >> 33) % 40);
            let mutations = match (dice >> 40) % 8 {
                0 => vec![Mutation::Delete(key(&at))],
                1 => vec![Mutation::DeleteRange(
                    KeyRange::new(at.into(), Some("k/3".into())).unwrap_or_else(|_| {
                        KeyRange::new("k/0".into(), Some("k/1".into())).unwrap()
                    }),
                )],
                2 => vec![Mutation::Add(key("sum"), 1), put(&at, "together")],
                3 => vec![put(&at, noise(dice, 150 << 10))],
                _ => vec![put(&at, noise(dice, 300))],
            };
            world.submit_kept(mutations, n % 10 == 0).await;
            if n % 30 == 17 {
                world.pin(&format!("pin-{n}")).await;
            }
            if n % 13 == 5 {
                let report = world.verify().await;
                assert_eq!(report.verdict(), Verdict::Clean, "{shape} {n}: {report:#?}");
            }
        }
        world.settle().await;
        let options = Options { reads_requests: true, ..Options::default() };
        let report = world.verify_with(options).await.unwrap();
        assert_eq!(report.verdict(), Verdict::Clean, "{shape}: {report:#?}");
        assert_eq!(report.requests.objects, 9);
        assert_eq!(report.parts[&Part::Requests], PartState::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_not_there_or_deleted_is_no_damage() {
    let world = World::new(busy()).await;
    let retiring = world.publish(|it| {
        it.retire();
    });
    assert!(retiring.await.is_retired());
    let error = world.verify_with(Options::default()).await.unwrap_err();
    assert!(matches!(error, VerifyError::Retired { .. }), "{error}");

    world.store.delete("h/head.json").await.unwrap();
    let error = world.verify_with(Options::default()).await.unwrap_err();
    assert!(matches!(error, VerifyError::Missing { .. }), "{error}");
}
