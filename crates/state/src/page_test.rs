//! An index in pages: where they are cut, what is read and written, and what a
//! damaged one costs.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use headwater_core::change::Resolved;
use headwater_core::format;
use headwater_core::format::snapshot::{PageRef, Parts, SnapshotIndex};
use headwater_core::head::SnapshotRef;
use headwater_core::keys::ObjectKey;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Bucket, PAGED, delete, delete_range, key, put, range};
use crate::{Defect, Loader, Scan, StateError, View};

fn text(number: usize) -> String {
    format!("key-{number:06}")
}

fn puts(numbers: impl IntoIterator<Item = usize>, value: &'static str) -> Vec<Resolved> {
    numbers.into_iter().map(|it| put(text(it), value)).collect()
}

/// Entries 0 to `count`, in some five to a chunk and five chunks to a page.
async fn filled(count: usize) -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit(puts(0..count, "first")).await;
    bucket.compact_paged().await;
    bucket.faults.clear_log();
    bucket
}

async fn index(bucket: &Bucket, snapshot: &SnapshotRef) -> SnapshotIndex {
    let bytes = bucket.faults.behind().get(&bucket.full_key(&snapshot.object)).await.unwrap();
    format::snapshot::decode(bytes).unwrap()
}

async fn pages(bucket: &Bucket) -> Vec<PageRef> {
    match index(bucket, &bucket.head.snapshot).await.parts {
        Parts::Pages(pages) => pages,
        Parts::Chunks(_) => Vec::new(),
    }
}

/// First and last key of each page, and the hashes of all chunks.
async fn layout(bucket: &Bucket) -> (Vec<(Key, Key)>, Vec<String>) {
    let bounds = pages(bucket).await.into_iter().map(|it| (it.first, it.last)).collect();
    let chunks = bucket.view.base().all_chunks().await;
    (bounds, chunks.iter().map(|it| it.object.hash.to_hex()).collect())
}

async fn reached(bucket: &Bucket, snapshot: &SnapshotRef) -> BTreeSet<ObjectKey> {
    let loader = bucket.cold_loader();
    loader.reached(snapshot).map_ok(|it| it.object.key).try_collect().await.unwrap()
}

/// Keys below `chunks/` of the calls since the log began: pages and chunks.
fn parts(bucket: &Bucket, call: Call) -> Vec<String> {
    let log = bucket.faults.log().into_iter();
    log.filter(|(it, key)| *it == call && key.contains("chunks/")).map(|(_, key)| key).collect()
}

fn everything() -> Scan {
    Scan {
        range: range("", ""),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    }
}

#[tokio::test]
async fn adjacent_changes_rewrite_few_pages_and_read_few() {
    let mut bucket = filled(5_000).await;
    let before = pages(&bucket).await;
    assert!(100 < before.len(), "{} pages", before.len());
    bucket.commit(puts(2_500..2_510, "other")).await;
    bucket.faults.clear_log();

    bucket.compact_paged().await;

    let after = pages(&bucket).await;
    let n_new = after.iter().filter(|it| !before.contains(it)).count();
    assert!((1..=5).contains(&n_new), "{n_new} pages written");
    // Pages and chunks together: ten entries are in some five chunks.
    let (read, written) = (parts(&bucket, Call::Get).len(), parts(&bucket, Call::Put).len());
    assert!(read <= 20 && written <= 20, "{read} read, {written} written");
    assert_eq!(layout(&bucket).await, layout(&bucket.replayed(PAGED).await).await);
}

#[tokio::test]
async fn pages_are_cut_as_if_there_had_been_no_old_ones() {
    let mut bucket = filled(1_000).await;
    let changes = [
        puts([0], "a longer value than before"),
        // After the last page, which ended for want of chunks.
        puts([1_000], "appended"),
        puts(1_001..1_020, "appended"),
        puts((0..1_000).step_by(50), "spread"),
        (100..110).map(|it| delete(text(it))).collect(),
        vec![delete_range(&text(300), &text(600))],
        vec![delete_range("", &text(50)), put("aaa", "before all")],
        vec![delete_range(&text(900), "")],
        vec![put("zzz", "after all")],
        // Few enough for an index of one level, and back.
        vec![delete_range(&text(10), &text(880))],
        puts(0..500, "again"),
        vec![delete_range("", "")],
        puts(0..300, "at last"),
    ];
    let mut n_levels = BTreeSet::new();
    for (mutations, number) in changes.into_iter().zip(0..) {
        bucket.commit(mutations).await;
        let before = bucket.head.snapshot.clone();
        bucket.faults.clear_log();

        let built = bucket.compact_paged().await;

        let written = parts(&bucket, Call::Put).len();
        let fresh = bucket.replayed(PAGED).await;
        assert_eq!(layout(&bucket).await, layout(&fresh).await, "{number}");
        n_levels.insert(pages(&bucket).await.is_empty());
        let (old, new) = (reached(&bucket, &before).await, reached(&bucket, &built.snapshot).await);
        assert_eq!(built.replaced, old.difference(&new).cloned().collect::<Vec<_>>(), "{number}");
        assert_eq!(new.difference(&old).count(), written, "{number}");
        assert!(built.owners.is_empty());
    }
    assert_eq!(n_levels.len(), 2, "some with pages and some without");
}

#[tokio::test]
async fn a_page_that_got_too_short_is_cut_further_on() {
    let mut bucket = filled(600).await;
    for number in (0..600).step_by(23) {
        bucket.commit(vec![delete_range(&text(number), &text(number + 17))]).await;
        bucket.compact_paged().await;
        let fresh = bucket.replayed(PAGED).await;
        assert_eq!(layout(&bucket).await, layout(&fresh).await, "{number}");
    }
}

#[tokio::test]
async fn opening_reads_the_top_of_the_index_and_no_page() {
    let mut bucket = filled(2_000).await;
    bucket.commit(puts([7], "other")).await;
    bucket.faults.clear_log();

    let view = bucket.cold_view().await;
    assert_eq!(parts(&bucket, Call::Get).len(), 0);
    assert_eq!(view.get_now(&key(text(7))).unwrap().unwrap().value, "other");
    assert_eq!(view.get_now(&key(text(1_000))), None);

    assert!(view.get(&key(text(1_000))).await.unwrap().is_some());
    assert_eq!(parts(&bucket, Call::Get).len(), 2, "a page and a chunk");
    assert!(view.get_now(&key(text(1_000))).unwrap().is_some());
    assert_eq!(view.get(&key("a")).await.unwrap(), None, "no page covers it");
    assert_eq!(parts(&bucket, Call::Get).len(), 2);
}

#[tokio::test]
async fn many_keys_fetch_each_page_and_chunk_once() {
    let bucket = filled(500).await;
    let view = bucket.cold_view().await;
    let n_chunks = bucket.view.base().all_chunks().await.len();
    bucket.faults.clear_log();
    let keys: Vec<_> = (0..500).rev().chain(0..500).map(|it| key(text(it))).collect();

    let found = view.get_many(&keys).await.unwrap();

    assert!(found.iter().all(Option::is_some));
    let fetched = parts(&bucket, Call::Get);
    assert_eq!(fetched.len(), n_chunks + pages(&bucket).await.len());
    assert_eq!(fetched.iter().collect::<BTreeSet<_>>().len(), fetched.len(), "each once");
}

#[tokio::test]
async fn a_short_page_of_a_scan_reads_one_page_of_the_index_and_hidden_ones_are_passed_over() {
    let mut bucket = filled(2_000).await;
    bucket.commit(vec![delete_range(&text(100), &text(1_900))]).await;
    for reverse in [false, true] {
        let view = bucket.cold_view().await;
        bucket.faults.clear_log();
        let first = view.scan(&Scan { entries_max: 3, reverse, ..everything() }).await.unwrap();
        assert_eq!(first.entries.len(), 3);
        assert!(parts(&bucket, Call::Get).len() <= 4, "{:?}", parts(&bucket, Call::Get));

        bucket.faults.clear_log();
        let all = bucket.cold_view().await.scan(&everything()).await.unwrap().entries;
        assert_eq!(all.len(), 200);
        // 200 entries are in some 50 chunks and 12 pages; all would be 500.
        let n_read = parts(&bucket, Call::Get).len();
        assert!(n_read < 100, "{n_read} read");
    }
}

#[tokio::test]
async fn the_newest_change_of_a_range_reads_three_pages_and_three_chunks_at_most() {
    let mut bucket = filled(2_000).await;
    bucket.commit(puts([777], "newer")).await;
    bucket.compact_paged().await;
    let view = bucket.cold_view().await;
    bucket.faults.clear_log();

    let newest = view.newest_change(&range(&text(7), &text(1_993)), StateVersion::ZERO).await;

    assert_eq!(newest.unwrap(), Some((key(text(777)), StateVersion::new(2))));
    let n_read = parts(&bucket, Call::Get).len();
    assert!(n_read <= 6, "{n_read} read");
    bucket.faults.clear_log();
    let old = range(&text(1_000), &text(1_900));
    assert_eq!(view.newest_change(&old, StateVersion::new(1)).await.unwrap(), None);
    assert_eq!(parts(&bucket, Call::Get).len(), 0, "every page is too old");
}

#[tokio::test]
async fn two_builders_make_the_same_pages() {
    let mut bucket = filled(800).await;
    bucket.commit(puts((0..800).step_by(70), "other")).await;
    let build = async |view: &View| {
        let (loader, staged) = (bucket.cold_loader(), bucket.head.revision);
        let options = crate::BuildOptions::default();
        crate::build::build_sized(&loader, view, staged, options, PAGED).await.unwrap()
    };

    let first = build(&bucket.view).await;
    let n_objects = bucket.faults.behind().list("", None, 10_000).await.unwrap().len();
    let second = build(&bucket.cold_view().await).await;

    assert_eq!(first, second);
    assert_eq!(bucket.faults.behind().list("", None, 10_000).await.unwrap().len(), n_objects);
}

async fn read_all(loader: &Loader, bucket: &Bucket) -> Result<usize, StateError> {
    let view = loader.open(&bucket.head).await?.view;
    Ok(view.scan(&everything()).await?.entries.len())
}

#[tokio::test]
async fn a_damaged_or_missing_page_is_named_by_every_reader() {
    let mut bucket = filled(500).await;
    bucket.commit(puts([250], "other")).await;
    let page = pages(&bucket).await.into_iter().find(|it| key(text(250)) <= it.last).unwrap();
    let page_key = bucket.full_key(&page.object);
    let end = [page.first.as_ref(), b"\0"].concat();
    let only_first = KeyRange::new(page.first.as_bytes().clone(), Some(end.into())).unwrap();
    for fault in [Fault::Corrupt, Fault::Truncated, Fault::Missing] {
        bucket.faults.add(Rule::new(fault.clone()).on(Call::Get).key_has(&page_key));
        let view = bucket.cold_view().await;
        let reached = bucket.cold_loader().reached(&bucket.head.snapshot);
        let errors = [
            read_all(&bucket.cold_loader(), &bucket).await.unwrap_err(),
            view.get(&page.first).await.unwrap_err(),
            view.newest_change(&only_first, StateVersion::ZERO).await.unwrap_err(),
            reached.try_collect::<Vec<_>>().await.unwrap_err(),
        ];
        for error in errors {
            match error {
                StateError::Bad { key, what } => {
                    assert_eq!(key, page_key);
                    assert!(matches!(what, Defect::Hash | Defect::Length { .. }), "{what}");
                }
                StateError::Missing { key } => assert_eq!(key, page_key),
                other @ (StateError::Store(_)
                | StateError::TooNew { .. }
                | StateError::Follow(_)) => {
                    panic!("{fault:?}: {other:?}")
                }
            }
        }
        let options = crate::BuildOptions::default();
        let staged = bucket.head.revision;
        let built = crate::build_snapshot(&bucket.cold_loader(), &view, staged, options).await;
        assert!(built.unwrap_err().to_string().contains(&page_key));
        bucket.faults.clear();
    }
}

type Break = fn(&mut PageRef);

#[tokio::test]
async fn a_page_that_differs_from_what_the_index_says_is_refused() {
    let mut bucket = filled(500).await;
    let whole = index(&bucket, &bucket.head.snapshot).await;
    let breaks: [(&str, Break); 5] = [
        ("count of chunks", |it| it.chunks += 1),
        ("first and last key", |it| it.first = key([it.first.as_ref(), b"!"].concat())),
        ("first and last key", |it| it.last = key([it.last.as_ref(), b"!"].concat())),
        ("newest version", |it| it.newest = StateVersion::ZERO),
        ("owners", |it| {
            it.names.insert(std::sync::Arc::new(
                headwater_core::id::HistoryName::parse("another").unwrap(),
            ));
        }),
    ];
    for (expected, change) in breaks {
        let mut index = whole.clone();
        let Parts::Pages(pages) = &mut index.parts else { panic!("it is in pages") };
        change(&mut pages[1]);
        let bytes = format::snapshot::encode(&index);
        let object = &mut bucket.head.snapshot.object;
        *object = headwater_core::head::ObjectRef::to_content(
            object.key.kind(),
            object.key.staged(),
            &bytes,
        );
        let object_key = bucket.full_key(&bucket.head.snapshot.object);
        bucket.faults.behind().put(&object_key, bytes.into()).await.unwrap();

        let error = read_all(&bucket.cold_loader(), &bucket).await.unwrap_err();
        let StateError::Bad { what: Defect::Contradicts { fact }, key } = error else {
            panic!("{expected}: {error:?}")
        };
        assert_eq!(fact, expected);
        assert!(key.contains("chunks/"), "{key}");
    }
}
