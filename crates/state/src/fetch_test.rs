//! What is fetched, how often, and when.

use std::sync::Arc;

use headwater_core::follow::Position;
use headwater_core::id::OperationId;
use headwater_core::version::StateVersion;
use headwater_store::{Call, Fault, Gate, Rule};

use crate::bucket::{Bucket, Place, delete, delete_range, key, put, range};
use crate::{ChunkCache, LoadOptions, Loader, Scan, View};

/// 100 entries in many small chunks, compacted, and a log that starts now.
async fn filled() -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit((0..100).map(|it| put(text(it), "a value of some length")).collect()).await;
    bucket.compact().await;
    assert!(10 < bucket.view.base().all_chunks().await.len());
    bucket.faults.clear_log();
    bucket
}

fn text(number: usize) -> String {
    format!("key-{number:03}")
}

fn fetched(bucket: &Bucket, part: &str) -> usize {
    let log = bucket.faults.log();
    log.iter().filter(|(call, key)| *call == Call::Get && key.contains(part)).count()
}

fn scan(from: usize, entries_max: usize) -> Scan {
    let range = range(&text(from), "");
    Scan { range, after: None, reverse: false, keys_only: false, entries_max, bytes_max: 1 << 20 }
}

fn is_send<T: Send>(it: T) -> T {
    it
}

#[tokio::test]
async fn opening_reads_the_snapshot_and_the_tail_only() {
    let mut bucket = filled().await;
    bucket.commit(vec![put("x", "1")]).await;
    bucket.fold().await;
    bucket.commit_at(Place::Staged, vec![put("y", "1")]).await;
    bucket.commit(vec![put("z", "1")]).await;
    bucket.faults.clear_log();

    bucket.cold_view().await;

    let mut folders: Vec<String> = bucket.faults.log().into_iter().map(|(_, key)| key).collect();
    folders.sort();
    let folders: Vec<&str> = folders.iter().map(|it| it.split('/').nth(2).unwrap()).collect();
    assert_eq!(folders, ["changes", "segments", "snapshots"]);
}

#[tokio::test]
async fn every_version_of_a_head_is_opened_from_the_part_of_the_tail_that_leads_to_it() {
    let mut bucket = filled().await;
    let mut views = vec![bucket.view.clone()];
    for number in 0..6 {
        // Versions 2 and 3 in a segment, 4 and 5 in objects, 6 and 7 in the head.
        let place = if number < 4 { Place::Staged } else { Place::Inline };
        bucket.commit_at(place, vec![put("k", number.to_string())]).await;
        views.push(bucket.view.clone());
        if number == 1 {
            bucket.fold().await;
        }
    }
    assert_eq!(bucket.view.chain_hash_at(StateVersion::ZERO), None, "before the snapshot");
    for (expected, fetches) in views.iter().zip([(0, 0), (1, 0), (1, 0), (1, 1), (1, 2), (1, 2)]) {
        bucket.faults.clear_log();
        let version = expected.version();
        let view = bucket.cold_loader().open_at(&bucket.head, version).await.unwrap();

        assert_eq!((view.version(), view.chain_hash()), (version, expected.chain_hash()));
        assert_eq!(bucket.view.chain_hash_at(version), Some(view.chain_hash()));
        assert_eq!(view.chain_hash_at(version.next()), None);
        assert_eq!(fetched(&bucket, "snapshots/"), 1, "{version}");
        assert_eq!((fetched(&bucket, "segments/"), fetched(&bucket, "changes/")), fetches);
        let found = view.get(&key("k")).await.unwrap();
        assert_eq!(found, expected.get(&key("k")).await.unwrap(), "{version}");
    }
}

#[tokio::test]
#[should_panic(expected = "not a version of this head")]
async fn a_version_before_the_snapshot_is_not_opened() {
    let bucket = filled().await;
    drop(bucket.cold_loader().open_at(&bucket.head, StateVersion::ZERO).await);
}

#[tokio::test]
async fn many_readers_of_a_chunk_fetch_it_once() {
    let bucket = filled().await;
    let gate = Gate::new();
    bucket.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Get).key_has("chunks/"));
    let view = bucket.cold_view().await;

    let readers: Vec<_> = (0..32)
        .map(|_| {
            let view = view.clone();
            tokio::spawn(async move { view.get(&key(text(50))).await })
        })
        .collect();
    tokio::task::yield_now().await;
    gate.open();
    for reader in readers {
        assert!(reader.await.unwrap().unwrap().is_some());
    }

    assert_eq!(fetched(&bucket, "chunks/"), 1);
}

#[tokio::test]
async fn a_reader_that_goes_away_does_not_take_the_fetch_with_it() {
    let bucket = filled().await;
    let gate = Gate::new();
    bucket.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Get).key_has("chunks/"));
    let view = bucket.cold_view().await;
    let get = |view: View| tokio::spawn(async move { view.get(&key(text(50))).await });

    let (first, second) = (get(view.clone()), get(view));
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gate.open();

    assert!(second.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn histories_and_views_share_a_cache() {
    let bucket = filled().await;
    let cache = ChunkCache::new(1 << 20);
    for _ in 0..2 {
        let (store, name) = (bucket.faults.store(), bucket.head.history.clone());
        let loader = Loader::new(store, name, cache.clone(), LoadOptions::default());
        let view = loader.open(&bucket.head).await.unwrap().view;
        view.get(&key(text(50))).await.unwrap();
    }

    assert_eq!(fetched(&bucket, "chunks/"), 1);
}

#[tokio::test]
async fn a_cache_without_room_still_answers() {
    let bucket = filled().await;
    let (store, name) = (bucket.faults.store(), bucket.head.history.clone());
    let loader = Loader::new(store, name, ChunkCache::new(0), LoadOptions { fetches_max: 0 });
    let view = loader.open(&bucket.head).await.unwrap().view;
    let keys: Vec<_> = (0..100).map(|it| key(text(it))).collect();

    assert!(view.get_many(&keys).await.unwrap().iter().all(Option::is_some));
    assert_eq!(view.scan(&scan(0, 1_000)).await.unwrap().entries.len(), 100);
}

#[tokio::test]
async fn what_the_tail_knows_needs_no_chunk() {
    let mut bucket = filled().await;
    let tail = vec![put(text(10), "new"), delete(text(20)), delete_range(&text(30), &text(40))];
    bucket.commit(tail).await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();

    for number in [10, 20, 35] {
        assert!(view.get_now(&key(text(number))).is_some());
        view.key_fact(&key(text(number))).await.unwrap();
    }
    assert_eq!(view.get_now(&key("a")), Some(None), "no chunk covers it");
    assert_eq!(view.get_now(&key(text(50))), None);
    let above = StateVersion::new(1);
    assert_eq!(view.newest_change(&range(&text(50), ""), above).await.unwrap(), None);
    let newest = view.newest_change(&range("", ""), StateVersion::ZERO).await.unwrap();
    assert_eq!(newest.unwrap().1, StateVersion::new(2));

    assert_eq!(fetched(&bucket, ""), 0);
}

#[tokio::test]
async fn the_newest_change_of_a_range_reads_three_chunks_at_most() {
    let bucket = filled().await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();

    let inside = range(&text(7), &text(93));
    let newest = view.newest_change(&inside, StateVersion::ZERO).await.unwrap();

    assert_eq!(newest.unwrap().1, StateVersion::new(1));
    assert!(fetched(&bucket, "chunks/") <= 3);
}

#[tokio::test]
async fn chunks_that_are_too_old_to_matter_are_not_read() {
    let mut bucket = filled().await;
    bucket.commit(vec![put(text(99), "new")]).await;
    bucket.compact().await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();

    let old = range(&text(7), &text(50));
    assert_eq!(view.newest_change(&old, StateVersion::new(1)).await.unwrap(), None);
    assert_eq!(fetched(&bucket, ""), 0);

    let newest = view.newest_change(&range("", ""), StateVersion::new(1)).await.unwrap();
    assert_eq!(newest, Some((key(text(99)), StateVersion::new(2))));
    assert_eq!(fetched(&bucket, "chunks/"), 1);
}

#[tokio::test]
async fn a_short_page_reads_what_it_needs() {
    let mut bucket = filled().await;
    bucket.commit(vec![put("a", "1"), put("b", "1"), delete_range(&text(0), &text(90))]).await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();

    let all = Scan { range: range("", ""), ..scan(0, 2) };
    let page = view.scan(&all).await.unwrap();
    assert_eq!((page.entries.len(), fetched(&bucket, "chunks/")), (2, 0));

    // Hidden chunks are passed over; one is partly hidden.
    let page = view.scan(&Scan { after: page.next, ..all }).await.unwrap();
    assert_eq!(page.entries[0].key, key(text(90)));
    assert!(fetched(&bucket, "chunks/") <= 2);
}

#[tokio::test]
async fn many_keys_of_a_chunk_are_one_fetch() {
    let bucket = filled().await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();
    let keys: Vec<_> = (0..100).chain(0..100).map(|it| key(text(it))).collect();

    let found = view.get_many(&keys).await.unwrap();

    assert!(found.iter().all(Option::is_some));
    assert_eq!(fetched(&bucket, "chunks/"), view.base().all_chunks().await.len());
}

#[tokio::test]
async fn a_follower_fetches_what_is_new() {
    let mut bucket = filled().await;
    let (view, position) = (bucket.view.clone(), Position::of(&bucket.head));
    bucket.commit_at(Place::Staged, vec![put("x", "1")]).await;
    bucket.commit_at(Place::Staged, vec![put("y", "1")]).await;
    bucket.faults.clear_log();

    let advanced = bucket.loader.advance(&view, &position, &bucket.head).await.unwrap();

    assert!(!advanced.reopened);
    assert_eq!(advanced.changes, bucket.tail);
    assert_eq!(advanced.view.version(), bucket.head.state_version);
    assert_eq!(fetched(&bucket, "changes/"), 2);
    assert_eq!(fetched(&bucket, ""), 2);
}

#[tokio::test]
async fn a_follower_behind_the_snapshot_starts_again() {
    let mut bucket = filled().await;
    let (view, position) = (bucket.view.clone(), Position::of(&bucket.head));
    bucket.commit(vec![delete_range("", "")]).await;
    bucket.compact().await;
    bucket.commit(vec![put("y", "1")]).await;

    let advanced = bucket.loader.advance(&view, &position, &bucket.head).await.unwrap();

    assert!(advanced.reopened);
    assert_eq!(advanced.changes, bucket.tail);
    assert_eq!(advanced.view.get(&key(text(1))).await.unwrap(), None);
    assert_eq!(view.get(&key(text(1))).await.unwrap().unwrap().version, StateVersion::new(1));
}

#[tokio::test]
async fn a_follower_moves_to_a_newer_snapshot() {
    let mut bucket = filled().await;
    bucket.commit(vec![put("x", "1")]).await;
    let at_snapshot = bucket.view.clone();
    bucket.commit(vec![put("y", "1")]).await;
    assert_eq!(bucket.view.overlay_len(), 2);

    bucket.compact_to(&at_snapshot, crate::bucket::SMALL).await;

    assert_eq!(bucket.view.snapshot(), &bucket.head.snapshot);
    assert_eq!(bucket.view.overlay_len(), 1);
    assert_eq!(bucket.view.deletions_known_from(), at_snapshot.version());
}

#[tokio::test]
async fn a_view_takes_over_the_snapshot_of_another_one() {
    let mut bucket = filled().await;
    let before = bucket.view.clone();
    bucket.commit(vec![delete(text(1))]).await;
    let at_snapshot = bucket.view.clone();
    let next = Arc::clone(&bucket.tail[0].change);
    let ahead = at_snapshot.apply(&next, bucket.tail[0].hash);
    bucket.compact().await;

    let moved = ahead.rebase_onto(&bucket.view).unwrap();
    assert_eq!((moved.snapshot(), moved.version()), (bucket.view.snapshot(), ahead.version()));
    assert_eq!((moved.overlay_len(), moved.chain_hash()), (1, ahead.chain_hash()));
    assert!(at_snapshot.rebase_onto(&bucket.view).is_some());
    assert!(before.rebase_onto(&bucket.view).is_none(), "it has not got that far");
}

#[tokio::test]
async fn the_tail_is_read_in_pieces() {
    let mut bucket = filled().await;
    for number in 0..6 {
        bucket.commit_at(Place::Staged, vec![put(text(number), "1")]).await;
        if number == 3 {
            bucket.fold().await;
        }
    }
    let size_bytes = bucket.tail[0].bytes.len();
    let read = |from, bytes_max| {
        bucket.loader.read_changes(&bucket.head, StateVersion::new(from), bytes_max)
    };

    assert_eq!(read(0, usize::MAX).await.unwrap(), bucket.tail);
    assert_eq!(read(4, usize::MAX).await.unwrap(), bucket.tail[2..]);
    assert_eq!(read(4, size_bytes * 3).await.unwrap(), bucket.tail[2..5]);
    assert_eq!(read(4, 0).await.unwrap(), bucket.tail[2..3]);
    assert_eq!(read(99, usize::MAX).await.unwrap(), []);
}

#[tokio::test]
async fn receipts_come_from_pages_and_tail_and_not_from_below_coverage() {
    let mut bucket = Bucket::new().await;
    for number in 0..5 {
        bucket.commit(vec![put(text(number), "1")]).await;
    }
    bucket.compact().await;
    for number in 5..8 {
        bucket.commit(vec![put(text(number), "1")]).await;
    }
    bucket.head.receipt_coverage_from = StateVersion::new(3);
    bucket.head.check().unwrap();

    let receipts = bucket.loader.receipts(&bucket.head, &bucket.tail).await.unwrap();

    let find = |number| receipts.find(&OperationId::parse(&format!("op-{number}")).unwrap());
    assert_eq!((receipts.len(), receipts.coverage_from()), (6, StateVersion::new(3)));
    assert_eq!(find(2), None);
    assert_eq!(find(3).unwrap().accepted_at, StateVersion::new(3));
    assert_eq!(find(8).unwrap().accepted_at, StateVersion::new(8));
}

#[tokio::test]
async fn receipt_pages_are_bounded_and_hold_whole_versions() {
    let mut bucket = Bucket::new().await;
    bucket.commit(vec![put("a", "1")]).await;
    let one = bucket.tail.remove(0);
    let operation = one.change.operations[0].clone();
    let many =
        headwater_core::change::Change { decided_at_ms: 0, operations: vec![operation; 8_000] };
    let change = |version, it: &headwater_core::change::Change| crate::LoadedChange {
        version: StateVersion::new(version),
        change: Arc::new(it.clone()),
        ..one.clone()
    };
    // 8,000 receipts of 50 bytes each are 400 kB, 30,000 are 1.5 MB.
    let huge = headwater_core::change::Change {
        decided_at_ms: 0,
        operations: vec![many.operations[0].clone(); 30_000],
    };
    let run: Vec<_> = [&many, &many, &many, &huge, &many]
        .into_iter()
        .zip(1..)
        .map(|(it, v)| change(v, it))
        .collect();

    let pages = crate::write_receipt_pages(
        &bucket.loader,
        bucket.head.revision,
        &crate::bucket::receipts_of(&run),
    )
    .await;

    let pages: Vec<_> = pages.unwrap().iter().map(|it| (it.from.get(), it.to.get())).collect();
    assert_eq!(pages, [(1, 2), (3, 3), (4, 4), (5, 5)]);
}

#[tokio::test]
async fn warming_stops_at_its_limit() {
    let bucket = filled().await;
    let view = bucket.cold_view().await;
    let chunks = view.base().all_chunks().await;
    let three: u32 = chunks[..3].iter().map(|it| it.block_len).sum();

    assert_eq!(view.warm(u64::from(three)).await.unwrap(), 3);
    assert_eq!(fetched(&bucket, "chunks/"), 3);
    assert_eq!(view.warm(u64::MAX).await.unwrap(), chunks.len());
    assert!(view.get_now(&key(text(99))).is_some());
}

#[tokio::test]
async fn every_call_can_be_spawned() {
    let bucket = filled().await;
    let (view, head, loader) = (&bucket.view, &bucket.head, &bucket.loader);
    let position = Position::of(head);
    let everything = range("", "");
    drop(is_send(view.get(&key("a"))));
    drop(is_send(view.get_many(&[key("a")])));
    drop(is_send(view.facts(&headwater_core::decide::Needs::default())));
    drop(is_send(view.newest_change(&everything, StateVersion::ZERO)));
    drop(is_send(view.scan(&scan(0, 1))));
    drop(is_send(view.warm(0)));
    drop(is_send(loader.open(head)));
    drop(is_send(loader.open_at(head, head.state_version)));
    drop(is_send(loader.advance(view, &position, head)));
    drop(is_send(loader.receipts(head, &[])));
    drop(is_send(loader.read_changes(head, StateVersion::ZERO, 0)));
    drop(is_send(crate::build_snapshot(
        loader,
        view,
        head.revision,
        crate::BuildOptions::default(),
    )));
    drop(is_send(crate::write_segment(loader, head.revision, &[])));
    drop(is_send(crate::write_receipt_pages(loader, head.revision, &[])));
}
