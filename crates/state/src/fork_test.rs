//! Forks: a snapshot that names chunks and pages of other histories.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use headwater_core::archive::Keep;
use headwater_core::head::{Base, Head, HistoryRef, Publisher};
use headwater_core::id::{HistoryId, HistoryName, Nonce, PinName};
use headwater_core::version::Revision;
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Bucket, ID, PAGED, SMALL, key, put};
use crate::build::{Sizes, build_fork_sized};
use crate::{
    BuildError, BuildOptions, BuiltSnapshot, ChunkCache, LoadOptions, Loader, Scan, StateError,
    View,
};

const CHILD_ID: HistoryId = HistoryId::from_bytes([8; 16]);

fn text(number: usize) -> String {
    format!("key-{number:06}")
}

/// A history of 300 entries, compacted, with three more changes in its tail.
async fn parent(sizes: Sizes) -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit((0..300).map(|it| put(text(it), "first")).collect()).await;
    bucket.compact_to(&bucket.view.clone(), sizes).await;
    bucket
}

fn child_name() -> HistoryName {
    HistoryName::parse("a/child").unwrap()
}

fn loader(of: &Bucket, name: HistoryName, cache: &ChunkCache) -> Loader {
    Loader::new(of.faults.store(), name, cache.clone(), LoadOptions::default())
}

/// Forks `view` and makes a history of it, as if a head had been published.
async fn fork(of: &Bucket, from: &Loader, view: &View, sizes: Sizes) -> (Bucket, BuiltSnapshot) {
    let child = (&child_name(), CHILD_ID);
    let staged = Revision::new(0);
    let options = BuildOptions::default();
    let built = build_fork_sized(from, view, child, staged, options, sizes).await.unwrap();
    let publisher =
        Publisher { id: "test".into(), nonce: Nonce::from_bytes([0; 16]), address: None };
    let object = built.snapshot.object.clone();
    let mut head =
        Head::first(child_name(), CHILD_ID, Revision::FIRST, false, publisher, object.clone());
    head.state_version = view.version();
    head.operation_count = view.version().get();
    head.snapshot = built.snapshot.clone();
    head.chain_hash = view.chain_hash();
    head.receipt_coverage_from = view.version().next();
    let child = Bucket::of_head(of.faults.clone(), head).await;
    (child, built)
}

async fn entries(view: &View) -> Vec<(String, String, u64)> {
    let everything = Scan {
        range: headwater_core::operation::KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
    let page = view.scan(&everything).await.unwrap();
    let entries = page.entries.iter();
    entries.map(|it| (text(it.key.as_ref()), text(&it.value), it.version.get())).collect()
}

/// Owners and keys of everything below a snapshot.
async fn reached(bucket: &Bucket) -> BTreeSet<String> {
    let own = bucket.head.history.clone();
    let reached = bucket.cold_loader().reached(&bucket.head.snapshot);
    let full =
        |it: crate::ReachedObject| it.owner.unwrap_or(own.clone()).object_key(&it.object.key);
    reached.map_ok(full).try_collect().await.unwrap()
}

#[tokio::test]
async fn a_fork_of_a_snapshot_writes_an_index_and_copies_nothing() {
    for sizes in [SMALL, PAGED] {
        let bucket = parent(sizes).await;
        bucket.faults.clear_log();

        let (child, built) = fork(&bucket, &bucket.cold_loader(), &bucket.view, sizes).await;

        let written = bucket.faults.log().into_iter().filter(|(call, _)| *call == Call::Put);
        assert_eq!(written.count(), 1, "the index");
        assert_eq!((built.chunks_written, &built.replaced), (0, &Vec::new()));
        assert_eq!(built.owners, std::slice::from_ref(&bucket.head.history));
        assert_eq!(entries(&child.cold_view().await).await, entries(&bucket.view).await);
        assert_eq!(reached(&child).await, reached(&bucket).await);
        assert_eq!(child.view.history_id(), CHILD_ID);
        assert_eq!(child.view.chain_hash(), bucket.view.chain_hash());
    }
}

#[tokio::test]
async fn what_the_tail_wrote_is_written_below_the_child() {
    for sizes in [SMALL, PAGED] {
        let mut bucket = parent(sizes).await;
        bucket.commit(vec![put(text(7), "newer"), put("zzz", "last")]).await;

        let (child, built) = fork(&bucket, &bucket.cold_loader(), &bucket.view, sizes).await;

        assert!((1..8).contains(&built.chunks_written), "{built:?}");
        assert_eq!(entries(&child.cold_view().await).await, entries(&bucket.view).await);
        let own = reached(&child).await.into_iter().filter(|it| it.starts_with("a/child/"));
        assert!(built.chunks_written <= own.count());
        assert!(built.replaced.is_empty());
    }
}

#[tokio::test]
async fn parent_and_child_go_their_own_ways_with_one_cache() {
    for sizes in [SMALL, PAGED] {
        let mut bucket = parent(sizes).await;
        let cache = ChunkCache::new(64 << 20);
        let of_parent = loader(&bucket, bucket.head.history.clone(), &cache);
        let parent_view = of_parent.open(&bucket.head).await.unwrap().view;
        let before = entries(&parent_view).await;
        let (mut child, _) = fork(&bucket, &of_parent, &parent_view, sizes).await;
        child.loader = loader(&bucket, child_name(), &cache);
        child.view = child.loader.open(&child.head).await.unwrap().view;
        assert_eq!(entries(&child.view).await, before);

        child.commit(vec![put(text(100), "the child's")]).await;
        let old = reached(&child).await;
        let built = child.compact_to(&child.view.clone(), sizes).await;
        bucket.commit(vec![put(text(100), "the parent's")]).await;
        bucket.compact_to(&bucket.view.clone(), sizes).await;

        let of_child = entries(&child.cold_view().await).await;
        let of_parent = entries(&bucket.cold_view().await).await;
        assert_eq!(of_child[100].1, "the child's");
        assert_eq!(of_parent[100].1, "the parent's");
        assert_eq!(of_child.len(), 300);
        // The child lets go of nothing that is another's.
        assert_eq!(built.owners, std::slice::from_ref(&bucket.head.history));
        let gone: Vec<String> = built.replaced.iter().map(|it| format!("a/child/{it}")).collect();
        let new = reached(&child).await;
        let own_gone = old.difference(&new).filter(|it| it.starts_with("a/child/"));
        assert_eq!(gone, own_gone.cloned().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_child_that_has_rewritten_everything_needs_its_parent_no_more() {
    for sizes in [SMALL, PAGED] {
        let bucket = parent(sizes).await;
        let (mut child, _) = fork(&bucket, &bucket.cold_loader(), &bucket.view, sizes).await;
        for numbers in [0..150, 150..300] {
            child.commit(numbers.map(|it| put(text(it), "the child's")).collect()).await;
            let built = child.compact_to(&child.view.clone(), sizes).await;
            let needs = reached(&child).await.iter().any(|it| it.starts_with("a/history/"));
            assert_eq!(!built.owners.is_empty(), needs);
        }
        assert!(reached(&child).await.iter().all(|it| it.starts_with("a/child/")));
        assert!(entries(&child.cold_view().await).await.iter().all(|it| it.1 == "the child's"));
    }
}

/// A snapshot that is archived says for itself whether it needs the source: one
/// that has nothing of it keeps no pin there, however old the fork is.
#[tokio::test]
async fn an_archived_snapshot_needs_the_parent_only_for_what_it_names_itself() {
    let bucket = parent(SMALL).await;
    let (mut child, _) = fork(&bucket, &bucket.cold_loader(), &bucket.view, SMALL).await;
    let pin = PinName::parse("fork").unwrap();
    let source = HistoryRef { history: bucket.head.history.clone(), history_id: ID };
    child.head.base = Some(Base { source, pin });
    child.keeps_versions(1_000);
    let mut told = Vec::new();
    for numbers in [0..150, 150..300, 7..8] {
        child.commit(numbers.map(|it| put(text(it), "the child's")).collect()).await;
        let (view, staged) = (child.view.clone(), child.head.revision);
        let options = BuildOptions::default();
        let built = crate::build::build_sized(&child.loader, &view, staged, options, SMALL);
        let built = built.await.unwrap();
        let keep = Keep { now_ms: 0, clock_error_ms: 0 };
        let update = child.loader.archive_tail(&child.head, &built, &keep).await.unwrap();
        told.push((built.based_on_others, !built.owners.is_empty(), update.needs_base));
        let base = child.head.base.take();
        child.compact_to(&view, SMALL).await;
        child.head.base = base;
    }

    assert_eq!(told, [(true, true, true), (true, false, true), (false, false, false)]);
}

#[tokio::test]
async fn a_fork_of_a_fork_names_both() {
    for sizes in [SMALL, PAGED] {
        let bucket = parent(sizes).await;
        let (mut child, _) = fork(&bucket, &bucket.cold_loader(), &bucket.view, sizes).await;
        child.commit(vec![put(text(100), "the child's")]).await;
        child.compact_to(&child.view.clone(), sizes).await;
        let name = HistoryName::parse("grandchild").unwrap();
        let (options, staged) = (BuildOptions::default(), Revision::new(0));
        let target = (&name, HistoryId::from_bytes([9; 16]));
        let from = child.cold_loader();
        let built = build_fork_sized(&from, &child.view, target, staged, options, sizes);
        let built = built.await.unwrap();

        assert_eq!(built.owners, [child_name(), bucket.head.history.clone()]);
        let cache = ChunkCache::new(64 << 20);
        let of_grandchild = loader(&bucket, name, &cache);
        let objects: Vec<_> = of_grandchild.reached(&built.snapshot).try_collect().await.unwrap();
        assert!(objects.iter().all(|it| it.owner.is_some()));
        for it in objects {
            let key = it.owner.unwrap().object_key(&it.object.key);
            let bytes = bucket.faults.behind().get(&key).await.unwrap();
            assert!(it.object.is_to(&bytes), "{key}");
        }
    }
}

#[tokio::test]
async fn a_part_of_the_parent_that_is_gone_is_named_below_the_parent() {
    for sizes in [SMALL, PAGED] {
        let bucket = parent(sizes).await;
        let (child, _) = fork(&bucket, &bucket.cold_loader(), &bucket.view, sizes).await;
        bucket.faults.add(Rule::new(Fault::Missing).on(Call::Get).key_has("chunks/"));

        let error = child.cold_view().await.get(&key(text(5))).await.unwrap_err();

        let StateError::Missing { key } = error else { panic!("{error:?}") };
        assert!(key.starts_with("a/history/chunks/"), "{key}");
    }
}

#[tokio::test]
async fn more_owners_than_an_index_can_name_are_refused() {
    let mut bucket = parent(SMALL).await;
    let mut from = bucket.cold_loader();
    let mut view = bucket.view.clone();
    for number in 0..300 {
        // Each fork rewrites one chunk, so that every one of them stays named.
        bucket.commit(vec![put(text(number), number.to_string())]).await;
        let name = HistoryName::parse(&format!("fork-{number}")).unwrap();
        let change = &bucket.tail.last().unwrap().clone();
        view = view.apply(&change.change, change.hash);
        let (options, staged) = (BuildOptions::default(), Revision::new(0));
        let target = (&name, HistoryId::from_bytes([9; 16]));
        let one_each =
            Sizes { chunk: crate::build::ChunkBytes { min: 1, target: 2, max: 3 }, ..SMALL };
        let built = build_fork_sized(&from, &view, target, staged, options, one_each).await;
        match built {
            Ok(built) => {
                assert!(number < 255);
                from = loader(&bucket, name.clone(), &ChunkCache::new(64 << 20));
                view = from.open_snapshot(&built.snapshot, target.1).await.unwrap();
            }
            Err(BuildError::TooManyOwners { limit }) => {
                assert_eq!((number, limit), (255, 255));
                return;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("nothing was refused");
}
