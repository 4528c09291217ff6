//! A loader with a disk: what a second start fetches, and filling in the
//! background.

use std::fs;
use std::path::Path;
use std::time::Duration;

use headwater_store::{Call, Fault, Rule};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::bucket::{Bucket, PAGED, Place, key, put};
use crate::{
    BuildOptions, ChunkCache, DiskCache, HydrationRate, LoadOptions, Loader, Scan, StateError, View,
};

fn text(number: usize) -> String {
    format!("key-{number:04}")
}

/// 300 entries in pages and chunks, and a segment in the tail.
async fn filled() -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit((0..300).map(|it| put(text(it), "a value")).collect()).await;
    bucket.compact_to(&bucket.view.clone(), PAGED).await;
    for number in 0..3 {
        bucket.commit_at(Place::Staged, vec![put(text(number), "newer")]).await;
    }
    bucket.fold().await;
    bucket.faults.clear_log();
    bucket
}

/// As a process that starts now: nothing in memory, and this disk.
fn start(bucket: &Bucket, disk: &DiskCache) -> Loader {
    let (store, history) = (bucket.faults.store(), bucket.head.history.clone());
    let cache = ChunkCache::new(64 << 20);
    Loader::new(store, history, cache, LoadOptions::default()).with_disk(disk.clone())
}

fn disk(dir: &TempDir, bytes_max: u64) -> DiskCache {
    DiskCache::open(dir.path(), bytes_max).unwrap()
}

async fn read_all(loader: &Loader, bucket: &Bucket) -> Result<usize, StateError> {
    Ok(scan(&loader.open(&bucket.head).await?.view).await)
}

async fn scan(view: &View) -> usize {
    let everything = Scan {
        range: headwater_core::operation::KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: true,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    view.scan(&everything).await.unwrap().entries.len()
}

fn gets(bucket: &Bucket) -> usize {
    bucket.faults.log().iter().filter(|(call, _)| *call == Call::Get).count()
}

fn each_file(dir: &Path, mut act: impl FnMut(&Path)) {
    for folder in fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()) {
        if folder.is_dir() && folder.file_name().unwrap().len() == 2 {
            for file in fs::read_dir(folder).unwrap() {
                act(&file.unwrap().path());
            }
        }
    }
}

#[tokio::test]
async fn a_second_start_reads_from_the_disk_and_not_from_the_bucket() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let first = disk(&dir, 10 << 20);
    let loader = start(&bucket, &first);
    let view = loader.open(&bucket.head).await.unwrap().view;
    for number in 0..300 {
        view.get(&key(text(number))).await.unwrap();
        first.settle().await;
    }
    // The chunk whose keys the tail knows.
    scan(&view).await;
    first.settle().await;
    drop((loader, view, first));
    bucket.faults.clear_log();

    let second = disk(&dir, 10 << 20);
    assert_eq!(read_all(&start(&bucket, &second), &bucket).await.unwrap(), 300);

    assert_eq!(gets(&bucket), 0, "{:?}", bucket.faults.log());
    assert_eq!((second.readings().hits, second.readings().misses), (second.readings().objects, 0));
}

#[tokio::test]
async fn a_damaged_disk_is_fetched_again_and_serves_nothing_wrong() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(&dir, 10 << 20);
    let view = start(&bucket, &disk).open(&bucket.head).await.unwrap().view;
    start(&bucket, &disk).hydrate(&view, &HydrationRate::new(u64::MAX)).await.unwrap();
    let mut n_damaged = 0;
    each_file(dir.path(), |file| {
        let mut bytes = fs::read(file).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(file, bytes).unwrap();
        n_damaged += 1;
    });
    assert!(30 < n_damaged);

    assert_eq!(read_all(&start(&bucket, &disk), &bucket).await.unwrap(), 300);

    assert_eq!(disk.readings().damaged, n_damaged);
}

#[tokio::test]
async fn a_compaction_does_not_push_out_what_requests_use() {
    let mut bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(&dir, 10 << 20);
    bucket.commit((0..300).map(|it| put(text(it), "all new")).collect()).await;
    let loader = start(&bucket, &disk);
    let view = loader.open(&bucket.head).await.unwrap().view;
    disk.settle().await;
    let before = disk.readings().written;

    let staged = bucket.head.revision;
    crate::build_snapshot(&loader, &view, staged, BuildOptions::default()).await.unwrap();
    disk.settle().await;

    assert_eq!(disk.readings().written, before);
}

#[tokio::test(start_paused = true)]
async fn hydration_fills_the_disk_at_its_rate() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(&dir, 10 << 20);
    let loader = start(&bucket, &disk);
    let view = loader.open(&bucket.head).await.unwrap().view;
    let began = Instant::now();

    let hydrated = loader.hydrate(&view, &HydrationRate::new(100)).await.unwrap();

    assert!(hydrated.is_whole);
    // The last one is not waited for.
    let seconds = began.elapsed().as_secs();
    let expected = hydrated.size_bytes / 100;
    assert!((expected - 5..=expected).contains(&seconds), "{seconds} of {expected}");
    bucket.faults.clear_log();
    let again = start(&bucket, &disk);
    assert_eq!(scan(&again.open(&bucket.head).await.unwrap().view).await, 300);
    assert_eq!(gets(&bucket), 0, "{:?}", bucket.faults.log());

    // What is there is not fetched again, and takes no time.
    let began = Instant::now();
    let more = loader.hydrate(&view, &HydrationRate::new(100)).await.unwrap();
    assert_eq!((more.objects, more.is_whole, began.elapsed()), (0, true, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn histories_that_share_a_rate_take_turns() {
    let bucket = filled().await;
    let rate = HydrationRate::new(100);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let began = Instant::now();
    let hydrate = async |dir| {
        let loader = start(&bucket, &disk(dir, 10 << 20));
        let view = loader.open(&bucket.head).await.unwrap().view;
        loader.hydrate(&view, &rate).await.unwrap().size_bytes
    };

    let (a, b) = tokio::join!(hydrate(&dirs[0]), hydrate(&dirs[1]));

    let (seconds, expected) = (began.elapsed().as_secs(), (a + b) / 100);
    assert!((expected - 5..=expected).contains(&seconds), "{seconds} of {expected}");
}

#[tokio::test]
async fn hydration_stops_at_the_limit_and_pushes_nothing_out() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(&dir, 12_000);
    let loader = start(&bucket, &disk);
    let view = loader.open(&bucket.head).await.unwrap().view;

    let hydrated = loader.hydrate(&view, &HydrationRate::new(u64::MAX)).await.unwrap();

    disk.settle().await;
    let readings = disk.readings();
    assert!(!hydrated.is_whole && 0 < hydrated.objects, "{hydrated:?}");
    assert_eq!(readings.evicted, 0);
    assert!((11_000..=12_000).contains(&readings.size_bytes), "{readings:?}");
}

#[tokio::test(start_paused = true)]
async fn hydration_waits_while_the_store_is_away_and_ends_with_whoever_asked() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(&dir, 10 << 20);
    let loader = start(&bucket, &disk);
    let view = loader.open(&bucket.head).await.unwrap().view;
    let rule = bucket.faults.add(Rule::new(Fault::LoseCall).on(Call::Get).key_has("chunks/"));
    let rate = HydrationRate::new(u64::MAX);

    let waited = timeout(Duration::from_secs(3_600), loader.hydrate(&view, &rate)).await;
    assert!(waited.is_err(), "it does not give up");
    let n_calls = gets(&bucket);
    assert!((300..=400).contains(&n_calls), "{n_calls} calls in an hour");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(gets(&bucket), n_calls, "dropped is cancelled");

    assert!(bucket.faults.remove(rule));
    assert!(loader.hydrate(&view, &rate).await.unwrap().is_whole);
}

#[tokio::test]
async fn a_missing_object_ends_hydration_by_name() {
    let bucket = filled().await;
    let dir = tempfile::tempdir().unwrap();
    let loader = start(&bucket, &disk(&dir, 10 << 20));
    let view = loader.open(&bucket.head).await.unwrap().view;
    bucket.faults.add(Rule::new(Fault::Missing).on(Call::Get).key_has("chunks/"));

    let error = loader.hydrate(&view, &HydrationRate::new(u64::MAX)).await.unwrap_err();

    assert!(matches!(error, StateError::Missing { key } if key.contains("chunks/")));
    assert!(view.get(&key(text(100))).await.is_err());
}
