//! A disk that does what disks do: fill up, lose files, be deleted, be shared.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use headwater_core::hash::ContentHash;
use tempfile::TempDir;

use super::{DiskCache, DiskCacheInUse};

fn object(number: u8) -> (ContentHash, Bytes) {
    let bytes = Bytes::from(vec![number; 100]);
    (ContentHash::of(&bytes), bytes)
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(dir: &Path, bytes_max: u64) -> DiskCache {
    DiskCache::open(dir, bytes_max).unwrap()
}

async fn put(disk: &DiskCache, number: u8) {
    let (hash, bytes) = object(number);
    disk.put(hash, &bytes);
    disk.settle().await;
}

async fn get(disk: &DiskCache, number: u8) -> Option<Bytes> {
    disk.get(object(number).0, 100).await
}

/// Which of the objects 0 to 9 are there, without using them.
fn there(disk: &DiskCache) -> Vec<u8> {
    (0..10).filter(|it| disk.has(&object(*it).0)).collect()
}

fn path(dir: &Path, number: u8) -> PathBuf {
    let name = object(number).0.to_hex();
    dir.join(&name[..2]).join(&name)
}

fn files(dir: &Path) -> usize {
    let folders = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let is_ours = |it: &PathBuf| it.file_name().unwrap().len() == 2;
    folders.filter(is_ours).map(|it| fs::read_dir(it).unwrap().count()).sum()
}

#[tokio::test]
async fn what_was_put_is_read_back() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);
    assert_eq!(get(&disk, 1).await, None);

    put(&disk, 1).await;

    assert_eq!(get(&disk, 1).await, Some(object(1).1));
    let readings = disk.readings();
    assert_eq!((readings.hits, readings.misses, readings.written), (1, 1, 1));
    assert_eq!((readings.objects, readings.size_bytes), (1, 100));
    assert!(!readings.is_off);
}

#[tokio::test]
async fn past_the_limit_the_object_used_least_recently_is_deleted() {
    let dir = dir();
    let disk = open(dir.path(), 399);
    for number in [1, 2, 3] {
        put(&disk, number).await;
    }
    get(&disk, 1).await.unwrap();

    put(&disk, 4).await;
    put(&disk, 5).await;

    assert_eq!(there(&disk), [1, 4, 5]);
    assert_eq!(files(dir.path()), 3);
    let readings = disk.readings();
    assert_eq!((readings.evicted, readings.size_bytes), (2, 300));
}

#[tokio::test]
async fn an_object_larger_than_the_cache_is_left_out() {
    let dir = dir();
    let disk = open(dir.path(), 99);
    put(&disk, 1).await;
    assert_eq!((there(&disk), files(dir.path())), (vec![], 0));
}

#[tokio::test]
async fn it_is_kept_over_a_restart_with_the_order_of_use() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);
    for number in [1, 2, 3, 4] {
        put(&disk, number).await;
    }
    get(&disk, 1).await.unwrap();
    drop(disk);

    // A smaller limit from now on.
    let disk = open(dir.path(), 200);
    disk.settle().await;

    assert_eq!(there(&disk), [1, 4]);
    assert_eq!(files(dir.path()), 2);
    assert_eq!(get(&disk, 1).await, Some(object(1).1));
}

#[tokio::test]
async fn without_the_order_of_use_everything_is_found_all_the_same() {
    for order in [None, Some(&b"no hashes in here"[..])] {
        let dir = dir();
        let disk = open(dir.path(), 1_000);
        for number in [1, 2, 3] {
            put(&disk, number).await;
        }
        drop(disk);
        match order {
            None => fs::remove_file(dir.path().join("recency")).unwrap(),
            Some(bytes) => fs::write(dir.path().join("recency"), bytes).unwrap(),
        }

        let disk = open(dir.path(), 1_000);
        assert_eq!(there(&disk), [1, 2, 3]);
        assert_eq!(get(&disk, 2).await, Some(object(2).1));
    }
}

type Damage = fn(Vec<u8>) -> Vec<u8>;

#[tokio::test]
async fn a_damaged_file_is_never_used_and_is_deleted() {
    let damages: [(&str, Damage); 5] = [
        ("flipped", |mut it| {
            it[50] ^= 1;
            it
        }),
        ("cut", |mut it| {
            it.truncate(99);
            it
        }),
        ("longer", |mut it| {
            it.push(1);
            it
        }),
        ("empty", |_| Vec::new()),
        ("another", |_| object(7).1.to_vec()),
    ];
    for (how, damage) in damages {
        let dir = dir();
        let disk = open(dir.path(), 1_000);
        put(&disk, 1).await;
        let file = path(dir.path(), 1);
        fs::write(&file, damage(fs::read(&file).unwrap())).unwrap();

        assert_eq!(get(&disk, 1).await, None, "{how}");
        disk.settle().await;

        assert!(!file.exists(), "{how}");
        assert_eq!((disk.readings().damaged, disk.readings().size_bytes), (1, 0), "{how}");
        put(&disk, 1).await;
        assert_eq!(get(&disk, 1).await, Some(object(1).1), "{how}");
    }
}

#[tokio::test]
async fn it_may_be_deleted_at_any_time() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);
    put(&disk, 1).await;
    put(&disk, 2).await;
    fs::remove_file(path(dir.path(), 1)).unwrap();
    assert_eq!(get(&disk, 1).await, None);
    fs::remove_dir_all(dir.path()).unwrap();
    assert_eq!(get(&disk, 2).await, None);
    assert_eq!((disk.readings().damaged, disk.readings().read_failures), (0, 0));

    put(&disk, 3).await;

    assert_eq!(get(&disk, 3).await, Some(object(3).1));
    assert_eq!(disk.readings().size_bytes, 100);
}

#[tokio::test]
async fn a_directory_serves_one_cache_at_a_time() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);

    let refused = DiskCache::open(dir.path(), 1_000).unwrap_err();

    assert_eq!(refused, DiskCacheInUse { dir: dir.path().into() });
    let clone = disk.clone();
    drop(disk);
    assert!(DiskCache::open(dir.path(), 1_000).is_err(), "a clone still has it");
    drop(clone);
    open(dir.path(), 1_000);
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_costs_the_caching() {
    let dir = dir();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let disk = open(&file.join("cache"), 1_000);

    put(&disk, 1).await;

    assert_eq!(get(&disk, 1).await, None);
    assert!(disk.readings().is_off);
    assert!(!disk.has_room_for(1));
}

#[tokio::test]
async fn a_disk_that_takes_no_more_costs_the_caching_until_it_does_again() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);
    put(&disk, 1).await;
    // Where files are written there is a file: every write fails.
    fs::remove_dir_all(dir.path().join("tmp")).unwrap();
    fs::write(dir.path().join("tmp"), "").unwrap();

    put(&disk, 2).await;
    put(&disk, 3).await;

    assert_eq!((disk.readings().write_failures, there(&disk)), (2, vec![1]));
    assert_eq!(get(&disk, 1).await, Some(object(1).1));
    fs::remove_file(dir.path().join("tmp")).unwrap();
    put(&disk, 2).await;
    assert_eq!(get(&disk, 2).await, Some(object(2).1));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_counted_and_fetched_elsewhere() {
    let dir = dir();
    let disk = open(dir.path(), 1_000);
    put(&disk, 1).await;
    let file = path(dir.path(), 1);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();

    assert_eq!(get(&disk, 1).await, None);

    let readings = disk.readings();
    assert_eq!(readings.read_failures + readings.damaged, 1);
}

#[tokio::test]
async fn what_is_no_object_is_left_alone_and_unfinished_writes_are_not() {
    let dir = dir();
    drop(open(dir.path(), 1_000));
    fs::create_dir_all(dir.path().join("tmp")).unwrap();
    fs::write(dir.path().join("tmp/7"), "half a file").unwrap();
    fs::create_dir_all(dir.path().join("ab")).unwrap();
    for name in ["notes.txt", "ab/notes.txt"] {
        fs::write(dir.path().join(name), "mine").unwrap();
    }

    let disk = open(dir.path(), 1_000);

    assert_eq!(disk.readings().objects, 0);
    assert!(!dir.path().join("tmp/7").exists());
    assert!(dir.path().join("notes.txt").exists() && dir.path().join("ab/notes.txt").exists());
}
