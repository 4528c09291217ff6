//! What a compaction writes, reads and leaves alone.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use headwater_core::change::Resolved;
use headwater_core::head::SnapshotRef;
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_store::{Call, Fault, Gate, Rule};

use crate::bucket::{Bucket, SMALL, delete, delete_range, key, put};
use crate::build::{Sizes, build_sized};
use crate::page::ChunkAt;
use crate::{BuildOptions, BuiltSnapshot, View};

fn text(number: usize) -> String {
    format!("key-{number:06}")
}

fn puts(numbers: impl IntoIterator<Item = usize>, value: &'static str) -> Vec<Resolved> {
    numbers.into_iter().map(|it| put(text(it), value)).collect()
}

/// Entries 0 to `count`, compacted.
async fn filled(count: usize) -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit(puts(0..count, "first")).await;
    bucket.compact().await;
    bucket
}

async fn hashes(view: &View) -> Vec<String> {
    view.base().all_chunks().await.iter().map(|it| it.object.hash.to_hex()).collect()
}

async fn rebuilt(bucket: &Bucket) -> Vec<String> {
    hashes(&bucket.replayed(SMALL).await.view).await
}

async fn build(bucket: &Bucket, view: &View) -> BuiltSnapshot {
    let options = BuildOptions::default();
    build_sized(&bucket.cold_loader(), view, bucket.head.revision, options, SMALL).await.unwrap()
}

#[tokio::test]
async fn adjacent_changes_rewrite_few_chunks_and_read_few() {
    let mut bucket = filled(20_000).await;
    let n_before = bucket.view.base().all_chunks().await.len();
    assert!(1_000 < n_before, "{n_before} chunks");
    bucket.commit(puts(5_000..5_064, "other")).await;
    bucket.faults.clear_log();

    let built = bucket.compact().await;

    // 64 entries of some 30 bytes are about 15 chunks; the cuts are found
    // again within a few more.
    assert!(built.chunks_written <= 25, "{built:?}");
    assert!(n_before - 25 <= built.chunks_reused, "{built:?}");
    let reads = bucket.faults.log().into_iter();
    let n_reads = reads.filter(|(call, key)| *call == Call::Get && key.contains("chunks/")).count();
    assert!(n_reads <= 25, "{n_reads} chunks read");
    assert_eq!(hashes(&bucket.view).await, rebuilt(&bucket).await);
}

#[tokio::test]
async fn chunks_of_the_standard_size_are_reused_too() {
    let mut bucket = Bucket::new().await;
    let value: &'static str = "v".repeat(1_000).leak();
    bucket.commit(puts(0..20_000, value)).await;
    let first = bucket.compact_to(&bucket.view.clone(), Sizes::STANDARD).await;
    assert!((10..40).contains(&first.chunks_written), "{first:?}");

    bucket.commit(puts(10_000..10_064, "other")).await;
    let second = bucket.compact_to(&bucket.view.clone(), Sizes::STANDARD).await;

    assert!(second.chunks_written <= 4, "{second:?}");
    assert!(first.chunks_written - 4 <= second.chunks_reused, "{second:?}");
}

#[tokio::test]
async fn chunks_are_cut_as_if_there_had_been_no_old_ones() {
    let mut bucket = filled(2_000).await;
    let changes = [
        puts([0], "a longer value than before"),
        // After the last chunk, which ended for want of entries.
        puts([2_000], "appended"),
        puts([2_001], "appended"),
        puts([1_999, 2_002, 2_003], "at the end"),
        (100..110).map(|it| delete(text(it))).collect(),
        vec![delete_range(&text(500), &text(700))],
        vec![delete_range("", &text(50)), put("aaa", "before all")],
        vec![delete_range(&text(1_900), "")],
        vec![put(text(699), "back"), put("zzz", "after all")],
        vec![delete("zzz")],
    ];
    for mutations in changes {
        bucket.commit(mutations).await;
        let built = bucket.compact().await;
        assert!(100 < built.chunks_reused, "{built:?}");
        assert_eq!(hashes(&bucket.view).await, rebuilt(&bucket).await);
    }
}

#[tokio::test]
async fn a_hidden_chunk_is_not_read() {
    let mut bucket = filled(2_000).await;
    bucket.commit(vec![delete_range(&text(100), &text(1_900))]).await;
    bucket.faults.clear_log();

    build(&bucket, &bucket.view).await;

    let reads = bucket.faults.log().into_iter().filter(|(call, _)| *call == Call::Get).count();
    assert!(reads <= 12, "{reads} chunks read");
}

#[tokio::test]
async fn deleting_what_is_not_there_writes_no_chunk() {
    let mut bucket = filled(200).await;
    let within = |it: &&ChunkAt| 1 < it.count;
    let first = bucket.view.base().all_chunks().await.iter().find(within).unwrap().first.clone();
    bucket.commit(vec![delete([first.as_ref(), b"x"].concat())]).await;

    let built = build(&bucket, &bucket.view).await;

    assert_eq!(built.chunks_written, 0);
    assert_eq!(built.chunks_reused, bucket.view.base().all_chunks().await.len());
}

#[tokio::test]
async fn two_builders_make_the_same_objects() {
    let mut bucket = filled(500).await;
    bucket.commit(puts((0..500).step_by(7), "other")).await;

    // One of them followed, the other one starts cold; and the first wrote
    // before the second did.
    let first = build(&bucket, &bucket.view).await;
    let n_objects = bucket.faults.behind().list("", None, 10_000).await.unwrap().len();
    let second = build(&bucket, &bucket.cold_view().await).await;

    assert_eq!(first, second);
    assert_eq!(bucket.faults.behind().list("", None, 10_000).await.unwrap().len(), n_objects);
}

#[tokio::test]
async fn new_objects_are_staged_where_they_are_told_to_be() {
    let mut bucket = filled(200).await;
    bucket.commit(puts([50], "other")).await;
    let old = hashes(&bucket.view).await;
    let staged = bucket.head.revision;

    let built = bucket.compact().await;

    assert_eq!(built.snapshot.object.key.staged(), staged);
    let is_new = |it: &&ChunkAt| !old.contains(&it.object.hash.to_hex());
    let all = bucket.view.base().all_chunks().await;
    let new: Vec<_> = all.iter().filter(is_new).collect();
    assert_eq!(new.len(), built.chunks_written);
    assert!(new.iter().all(|it| it.object.key.staged() == staged));
    assert!(new.iter().all(|it| it.object.key.kind() == ObjectKind::Chunk));
}

/// What a snapshot leads to.
async fn reached(bucket: &Bucket, snapshot: &SnapshotRef) -> BTreeSet<ObjectKey> {
    let loader = bucket.cold_loader();
    loader.reached(snapshot).map_ok(|it| it.object.key).try_collect().await.unwrap()
}

#[tokio::test]
async fn what_a_snapshot_replaces_is_what_the_old_one_reaches_and_it_does_not() {
    let mut bucket = filled(1_000).await;
    let within = |it: &&ChunkAt| 1 < it.count;
    let first = bucket.view.base().all_chunks().await.iter().find(within).unwrap().first.clone();
    let changes = [
        puts(500..510, "other"),
        puts((0..1_000).step_by(90), "spread"),
        vec![put("zzz", "after all")],
        // Its chunk is read, and comes out the same.
        vec![delete([first.as_ref(), b"x"].concat())],
        vec![delete_range(&text(100), &text(800))],
        vec![delete_range("", "")],
        puts(0..50, "back"),
    ];
    for mutations in changes {
        bucket.commit(mutations).await;
        let before = bucket.head.snapshot.clone();

        let built = bucket.compact().await;

        let (old, new) = (reached(&bucket, &before).await, reached(&bucket, &built.snapshot).await);
        let expected: Vec<_> = old.difference(&new).cloned().collect();
        assert_eq!(built.replaced, expected);
        assert_eq!(new.difference(&old).count(), built.chunks_written);
    }
}

#[tokio::test]
async fn nothing_is_built_when_an_upload_fails() {
    let mut bucket = Bucket::new().await;
    bucket.commit(puts(0..50, "first")).await;
    // Each call in turn, the last chunk's and the index's included.
    for skip in 0.. {
        let rule = Rule::new(Fault::LoseCall).on(Call::Put).skip(skip).times(1);
        let rule = bucket.faults.add(rule);
        let (loader, revision) = (bucket.cold_loader(), bucket.head.revision);
        let options = BuildOptions::default();
        let built = build_sized(&loader, &bucket.view, revision, options, SMALL).await;
        let Ok(built) = built else { continue };

        assert!(bucket.faults.remove(rule), "a call failed and the build did not");
        assert_eq!(skip, built.chunks_written as u64 + 1);
        assert!(5 < skip);
        break;
    }
    bucket.compact().await;
    assert!(bucket.cold_view().await.get(&key(text(49))).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn uploads_and_reads_ahead_are_bounded() {
    let mut bucket = filled(500).await;
    bucket.commit(puts((0..500).step_by(2), "other")).await;
    let view = bucket.cold_view().await;
    let options = BuildOptions { reads_max: 3, uploads_max: 2 };
    for (call, max) in [(Call::Get, 3), (Call::Put, 2)] {
        bucket.faults.clear_log();
        let gate = Gate::new();
        let rule = bucket.faults.add(Rule::new(Fault::Hold(gate.clone())).on(call));
        let (loader, revision) = (bucket.cold_loader(), bucket.head.revision);
        let build = build_sized(&loader, &view, revision, options, SMALL);
        // Virtual time passes only once nothing else can happen.
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), build).await;

        assert!(waited.is_err());
        let n_calls = bucket.faults.log().iter().filter(|(it, _)| *it == call).count();
        assert_eq!(n_calls, max, "{call:?}");
        assert!(bucket.faults.remove(rule));
    }
}
