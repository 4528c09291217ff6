//! An index that is in pages, as those of large states are.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use headwater_core::format;
use headwater_core::format::snapshot::{PageRef, Parts};
use headwater_core::keys::ObjectKind;
use headwater_verify::{Role, Verdict};

use crate::damage::{HARMS, Harm, harm, put_content};
use crate::fixture::{World, damage, rich};
use crate::repair::mend;

/// The rich history, its newest index with a page for each chunk. Returns the
/// keys of the pages too.
async fn paged() -> (World, Vec<String>) {
    let world = rich().await;
    world.writer.shutdown().await;
    let mut head = world.head().await;
    let bytes = world.store.get(&world.history.object_key(&head.snapshot.object.key)).await;
    let mut index = format::snapshot::decode(bytes.unwrap()).unwrap();
    let Parts::Chunks(chunks) = index.parts else { panic!("a small state has no pages") };
    let (mut pages, mut keys) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let bytes = format::snapshot_page::encode(std::slice::from_ref(&chunk));
        let object = put_content(&world, ObjectKind::Chunk, &head, bytes).await;
        keys.push(world.history.object_key(&object.key));
        pages.push(PageRef {
            object,
            owner: None,
            first: chunk.first,
            last: chunk.last,
            chunks: 1,
            newest: chunk.newest,
            names: BTreeSet::new(),
        });
    }
    assert!(1 < keys.len(), "{keys:?}");
    index.parts = Parts::Pages(pages);
    let bytes = format::snapshot::encode(&index);
    head.snapshot.object = put_content(&world, ObjectKind::Snapshot, &head, bytes).await;
    world.put_head(&head).await;
    (world, keys)
}

#[tokio::test(start_paused = true)]
async fn each_page_and_each_chunk_below_it_is_named_when_it_is_damaged() {
    let (world, pages) = paged().await;
    let report = world.verify().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    let head = world.head().await;
    let mut keys = Vec::new();
    let mut parts = world.loader().reached(&head.snapshot);
    while let Some(part) = parts.next().await {
        keys.push(world.history.object_key(&part.unwrap().object.key));
    }
    assert_eq!(keys.len(), 2 * pages.len());
    for key in &keys {
        let bytes = world.store.get(key).await.unwrap();
        for harm_kind in HARMS {
            harm(&world, key, harm_kind).await;
            let report = world.verify().await;
            let found = damage(&report);
            let [found] = &*found else { panic!("{key} {harm_kind:?}: {found:#?}") };
            assert_eq!((&found.key, found.role), (key, Role::Snapshot), "{harm_kind:?}");
            world.overwrite(key, bytes.clone()).await;
        }
    }
    // What is below a page that cannot be read is not called garbage.
    harm(&world, &pages[0], Harm::Deleted).await;
    // Only the newest snapshot has it.
    let last = keys.last().unwrap();
    harm(&world, last, Harm::Deleted).await;
    let report = world.verify().await;
    let mut found: Vec<_> = damage(&report).iter().map(|it| it.key.clone()).collect();
    found.sort_unstable();
    let mut expected = vec![pages[0].clone(), last.clone()];
    expected.sort_unstable();
    assert_eq!(found, expected, "pages after a damaged one are looked at too");
    assert_eq!(report.unreached.garbage.objects, 0);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_page_is_mended() {
    let (world, pages) = paged().await;
    let newest = world.head().await.state_version.get();
    let before = world.state_at(newest).await;
    harm(&world, pages.last().unwrap(), Harm::Flipped).await;

    mend(&world).await;

    assert!(world.state_at(newest).await == before);
}
