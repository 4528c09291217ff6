//! Versions that are gone, and the state in their place.

use headwater_replica::{KeyFilter, ReadFailure, SnapshotMode, Watch, WatchEvent, WatchOptions};

use super::{after, begin, end, news, range, read_failure, refused, shown, versions};
use crate::bucket::{Rig, put, quiet, version};

/// The state that is told next: its version, and its entries.
async fn state(watch: &mut Watch, resume_after: u64) -> (u64, Vec<String>) {
    let told = news(watch).await.unwrap();
    let WatchEvent::SnapshotBegin(mut of) = told.event else { panic!("{told:?}") };
    let mut entries = Vec::new();
    loop {
        let told = news(watch).await.unwrap();
        match told.event {
            WatchEvent::SnapshotEntries(page) => {
                assert_eq!(told.resume_after, version(resume_after));
                entries.extend(page.iter().map(shown));
            }
            WatchEvent::SnapshotBegin(newer) => {
                assert!(of < newer);
                of = newer;
                entries.clear();
            }
            WatchEvent::SnapshotEnd(it) => {
                assert_eq!((it, told.resume_after), (of, of));
                return (of.get(), entries);
            }
            WatchEvent::Change(_) | WatchEvent::Progress { .. } => panic!("{told:?}"),
        }
    }
}

async fn retired_to_6() -> Rig {
    let mut rig = Rig::new(quiet()).await;
    for number in 1..=6 {
        rig.writer.put(&format!("k{}", number % 3), &number.to_string()).await;
    }
    rig.writer.compact_and_sweep().await;
    rig.writer.put("k1", "7").await;
    rig
}

#[tokio::test(start_paused = true)]
async fn versions_that_are_gone_are_refused_with_the_oldest_to_watch_from() {
    let mut rig = retired_to_6().await;

    let failure = read_failure(refused(&rig, after(5)).await);

    let ReadFailure::VersionRetired { wanted, oldest, newest } = failure else {
        panic!("{failure:?}")
    };
    assert_eq!((wanted, oldest, newest), (version(5), version(6), version(7)));
    let mut watch = begin(&rig, after(oldest.get())).await;
    assert_eq!(versions(&mut watch, 1).await, [7]);
    rig.writer.put("k", "8").await;
    rig.tell();
    assert_eq!(versions(&mut watch, 1).await, [8]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_next_version_is_let_go_of_ends_with_the_oldest() {
    let mut rig = Rig::open(quiet()).await;
    let mut watch = begin(&rig, after(0)).await;
    rig.writer.put_versions(3, 1).await;
    rig.writer.compact_and_sweep().await;
    rig.tell();

    let (failure, resume_after) = end(&mut watch).await;

    let failure = read_failure(failure);
    assert!(
        matches!(failure, ReadFailure::VersionRetired { oldest, .. } if oldest == version(3)),
        "{failure:?}"
    );
    assert_eq!(resume_after, 0);
}

#[tokio::test(start_paused = true)]
async fn the_state_takes_the_place_of_versions_that_are_gone_and_the_watch_goes_on() {
    let mut rig = retired_to_6().await;
    let options = WatchOptions { snapshot: SnapshotMode::IfRetired, ..after(2) };
    let mut watch = begin(&rig, options).await;

    let expected = (7, ["k0=6@6", "k1=7@7", "k2=5@5"].map(str::to_owned).to_vec());
    assert_eq!(state(&mut watch, 2).await, expected);
    rig.writer.put("k", "8").await;
    rig.tell();
    assert_eq!(versions(&mut watch, 1).await, [8]);

    // And again, later.
    rig.writer.put_versions(2, 1).await;
    rig.writer.compact_and_sweep().await;
    rig.tell();
    assert_eq!(state(&mut watch, 8).await.0, 10);
    rig.writer.put("k", "11").await;
    rig.tell();
    assert_eq!(versions(&mut watch, 1).await, [11]);
}

#[tokio::test(start_paused = true)]
async fn versions_that_are_there_are_told_and_no_state() {
    let rig = retired_to_6().await;
    let options = WatchOptions { snapshot: SnapshotMode::IfRetired, ..after(6) };

    assert_eq!(versions(&mut begin(&rig, options).await, 1).await, [7]);
}

#[tokio::test(start_paused = true)]
async fn the_state_comes_first_where_it_is_wanted_as_the_filter_has_it() {
    let mut rig = retired_to_6().await;
    let filter = KeyFilter::of(vec![range("k2", ""), range("k0", "k1")]).unwrap();
    let options = WatchOptions { snapshot: SnapshotMode::First, filter, ..after(None) };
    let mut watch = begin(&rig, options).await;

    let expected = (7, ["k0=6@6", "k2=5@5"].map(str::to_owned).to_vec());
    assert_eq!(state(&mut watch, 0).await, expected);
    rig.writer.put("k1", "8").await;
    rig.writer.put("k2", "9").await;
    rig.tell();
    assert_eq!(versions(&mut watch, 1).await, [9]);
}

#[tokio::test(start_paused = true)]
async fn a_large_state_comes_in_pages_and_of_one_version_while_commits_go_on() {
    let mut rig = Rig::new(quiet()).await;
    let large = "v".repeat(100 << 10);
    for number in 0..20 {
        rig.writer.put_staged(&format!("k{number:02}"), &large).await;
    }
    let options = WatchOptions { snapshot: SnapshotMode::First, ..after(None) };
    let mut watch = begin(&rig, options).await;
    let WatchEvent::SnapshotBegin(of) = news(&mut watch).await.unwrap().event else { panic!() };
    let mut keys = Vec::new();
    loop {
        match news(&mut watch).await.unwrap().event {
            WatchEvent::SnapshotEntries(page) => {
                assert!(page.len() <= 2, "{}", page.len());
                keys.extend(page.into_iter().map(|it| (it.key.to_string(), it.version)));
            }
            WatchEvent::SnapshotEnd(it) => break assert_eq!(it, of),
            WatchEvent::SnapshotBegin(_) | WatchEvent::Change(_) | WatchEvent::Progress { .. } => {
                panic!()
            }
        }
        rig.writer.change(vec![put("k19", "later"), put("k20", "later")]).await;
        rig.tell();
        tokio::task::yield_now().await;
    }

    let expected = (0..20).map(|it| (format!("k{it:02}"), version(it + 1)));
    assert_eq!(keys, expected.collect::<Vec<_>>());
    assert_eq!(versions(&mut watch, 3).await, [21, 22, 23]);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_let_go_of_while_it_is_sent_begins_again() {
    let mut rig = Rig::new(quiet()).await;
    let large = "v".repeat(300 << 10);
    for number in 0..20 {
        rig.writer.put_staged(&format!("k{number:02}"), &large).await;
    }
    rig.writer.compact().await;
    let options = WatchOptions { snapshot: SnapshotMode::First, ..after(None) };
    let mut watch = begin(&rig, options).await;
    // The caller is slow: some pages wait, and their chunks go.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    rig.writer.put_staged("k19", "newer").await;
    let chunks = rig.writer.chunk_keys().await;
    rig.writer.compact_and_sweep().await;
    rig.tell();
    drop(chunks);

    let (of, entries) = state(&mut watch, 0).await;

    assert_eq!((of, entries.len()), (21, 20));
    assert_eq!(entries[19], "k19=newer@21");
}

/// A position is a version and nothing else, so the state is not gone on with in
/// the middle: who is cut off while it is sent gets it again, from its beginning
/// and of one version, from whichever replica.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_cut_off_is_sent_again_from_its_beginning() {
    let mut rig = Rig::new(quiet()).await;
    let large = "v".repeat(100 << 10);
    for number in 0..20 {
        rig.writer.put_staged(&format!("k{number:02}"), &large).await;
    }
    rig.writer.compact_and_sweep().await;
    let options = |from| WatchOptions { snapshot: SnapshotMode::IfRetired, ..after(from) };
    let mut watch = begin(&rig, options(3)).await;
    let begun = news(&mut watch).await.unwrap();
    assert!(matches!(begun.event, WatchEvent::SnapshotBegin(it) if it == version(20)));
    let mut resume_after = begun.resume_after;
    for _ in 0..4 {
        let told = news(&mut watch).await.unwrap();
        assert!(matches!(told.event, WatchEvent::SnapshotEntries(_)), "{told:?}");
        resume_after = told.resume_after;
    }
    drop(watch);
    assert_eq!(resume_after, version(3), "nothing of it counts before its end");
    rig.writer.put_staged("k07", "newer").await;
    rig.writer.compact_and_sweep().await;

    let entropy = headwater_store::Entropy::from_seed(8);
    let other = headwater_replica::start(rig.faults.store(), quiet(), entropy).unwrap();
    let reader = other.reader(rig.writer.head.history.clone());
    let mut again = reader.watch(options(3), crate::bucket::deadline()).await.unwrap();
    let (of, entries) = state(&mut again, 3).await;

    assert_eq!((of, entries.len()), (21, 20));
    assert_eq!(entries[7], "k07=newer@21");
}
