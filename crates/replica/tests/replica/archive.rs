//! Versions before the snapshot: read, listed and watched out of the archive.

use headwater_replica::{
    ChangeRange, Consistency, ReadFailure, ReplicaConfig, SnapshotMode, WatchEvent, WatchOptions,
};
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Rig, deadline, quiet, version};
use crate::watch::{after, begin, lines, news, read_failure, refused, versions};

fn exact(number: u64) -> Consistency {
    Consistency::Exact(version(number))
}

/// 40 versions, four compactions, and three versions in the tail. Each puts its
/// number under a key of its own and under `k`.
async fn aged(config: ReplicaConfig, retained: u64) -> Rig {
    let mut rig = Rig::new(config).await;
    rig.writer.retain(retained).await;
    for number in 1..=43 {
        let text = number.to_string();
        rig.writer
            .change(vec![
                crate::bucket::put("k", &text),
                crate::bucket::put(&format!("k{number:02}"), &text),
            ])
            .await;
        if number % 10 == 0 {
            rig.writer.compact().await;
            rig.writer.sweep_released().await;
        }
    }
    rig
}

fn shown(number: u64) -> (Option<String>, u64) {
    ((0 < number).then(|| number.to_string()), number)
}

#[tokio::test]
async fn every_retained_version_is_read_from_the_nearest_snapshot_and_the_changes_after_it() {
    // Nothing is kept in memory: each version is made again.
    let config = ReplicaConfig { recent_versions_max: 1, scans_max: 1, ..quiet() };
    let rig = aged(config, 1_000).await;

    for number in (0..=43).rev() {
        assert_eq!(rig.read("k", exact(number)).await.unwrap(), shown(number));
        let later = rig.read(&format!("k{:02}", number + 1), exact(number)).await.unwrap();
        assert_eq!(later.0, None, "nothing of a later version");
    }
}

#[tokio::test]
async fn below_what_is_retained_a_version_is_retired_and_the_answer_says_the_oldest() {
    let rig = aged(quiet(), 20).await;
    let oldest = rig.writer.head.retained_from().get();
    assert!((1..=23).contains(&oldest), "{oldest}");

    for number in oldest..=43 {
        assert_eq!(rig.read("k", exact(number)).await.unwrap(), shown(number));
    }
    let answer = rig.read("k", exact(oldest - 1)).await;
    let Err(ReadFailure::VersionRetired { wanted, oldest: said, newest }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((wanted.get(), said.get(), newest.get()), (oldest - 1, oldest, 43));
}

#[tokio::test]
async fn a_pinned_version_is_read_and_not_the_ones_around_it() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.retain(5).await;
    for number in 1..=40_u64 {
        rig.writer.put("k", &number.to_string()).await;
        if number == 14 {
            rig.writer.pin("release", version(14)).await;
        }
        if number % 10 == 0 {
            rig.writer.compact().await;
            rig.writer.sweep_released().await;
        }
    }

    assert_eq!(rig.read("k", exact(14)).await.unwrap(), shown(14));
    let answer = rig.read("k", exact(15)).await;
    assert!(matches!(answer, Err(ReadFailure::VersionRetired { .. })), "{answer:?}");
    // Nothing leads on from there.
    let failure = read_failure(refused(&rig, after(14)).await);
    let ReadFailure::VersionRetired { oldest, .. } = failure else { panic!("{failure:?}") };
    assert_eq!(oldest, rig.writer.head.retained_from());
    let mut watch = begin(&rig, after(oldest.get())).await;
    assert_eq!(versions(&mut watch, 1).await, [oldest.get() + 1]);
}

#[tokio::test]
async fn changes_are_listed_through_the_archive_and_the_tail() {
    let rig = aged(quiet(), 1_000).await;
    let reader = rig.reader();
    let mut seen = Vec::new();
    let mut from = 0;
    while seen.last() != Some(&43) {
        let range = ChangeRange { from: version(from), versions_max: 7, bytes_max: 1 << 20 };
        let (changes, _) = reader.changes(range, Consistency::Strong, deadline()).await.unwrap();
        let numbers: Vec<u64> = changes.unwrap().iter().map(|it| it.version.get()).collect();
        assert!((1..=7).contains(&numbers.len()), "{numbers:?}");
        seen.extend(numbers);
        from = seen.last().unwrap() + 1;
    }
    assert_eq!(seen, (1..=43).collect::<Vec<_>>());

    let range = ChangeRange { from: version(3), versions_max: 100, bytes_max: 1 };
    let (changes, _) = reader.changes(range, Consistency::Strong, deadline()).await.unwrap();
    assert_eq!(changes.unwrap().len(), 1, "one is returned whatever it takes");
    let rig = aged(quiet(), 20).await;
    let range = ChangeRange { from: version(1), versions_max: 100, bytes_max: 1 };
    let (changes, _) = rig.reader().changes(range, Consistency::Strong, deadline()).await.unwrap();
    assert!(changes.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_through_the_archive_into_the_tail_and_on() {
    let mut rig = aged(quiet(), 1_000).await;
    let options = WatchOptions { previous_values: true, ..after(0) };
    let mut watch = begin(&rig, options).await;

    for number in 1..=43 {
        let previous = match number - 1 {
            0 => String::new(),
            before => format!("k={before}@{before}"),
        };
        let expected =
            [format!("put k={number} [{previous}]"), format!("put k{number:02}={number} []")];
        assert_eq!(lines(&mut watch).await, expected);
    }
    rig.writer.put("k", "44").await;
    rig.tell();
    assert_eq!(lines(&mut watch).await, ["put k=44 [k=43@43]"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_below_what_is_retained_is_refused_or_given_the_state() {
    let rig = aged(quiet(), 20).await;
    let oldest = rig.writer.head.retained_from();

    let failure = read_failure(refused(&rig, after(oldest.get() - 1)).await);
    let ReadFailure::VersionRetired { oldest: said, .. } = failure else { panic!("{failure:?}") };
    assert_eq!(said, oldest);

    let options = WatchOptions { snapshot: SnapshotMode::IfRetired, ..after(oldest.get() - 1) };
    let mut watch = begin(&rig, options).await;
    let told = news(&mut watch).await.unwrap();
    assert!(matches!(told.event, WatchEvent::SnapshotBegin(it) if it == version(43)), "{told:?}");
    let mut watch = begin(&rig, after(oldest.get())).await;
    let count = usize::try_from(43 - oldest.get()).unwrap();
    assert_eq!(versions(&mut watch, count).await.last(), Some(&43));
}

/// A watch that sleeps while compaction moves what it needs into the archive.
#[tokio::test(start_paused = true)]
async fn a_slow_watch_finds_in_the_archive_what_has_left_the_tail() {
    let config = ReplicaConfig { watch_live_bytes: 200, watch_older_bytes: 200, ..quiet() };
    let mut rig = Rig::new(config).await;
    rig.writer.retain(1_000).await;
    let mut watch = begin(&rig, after(0)).await;
    for number in 1..=50_u64 {
        rig.writer.put("k", &number.to_string()).await;
        if number % 7 == 0 {
            rig.writer.compact().await;
            rig.writer.sweep_released().await;
        }
        rig.tell();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }

    assert_eq!(versions(&mut watch, 50).await, (1..=50).collect::<Vec<_>>());
}

#[tokio::test]
async fn objects_of_the_archive_that_are_missing_are_named() {
    let rig = aged(quiet(), 1_000).await;
    let archive = rig.writer.loader().archive(&rig.writer.head).await.unwrap();
    let history = &rig.writer.head.history;
    let run = history.object_key(&archive.runs[0].run.object.key);
    let itself = history.object_key(&rig.writer.head.archive.as_ref().unwrap().object.key);
    for missing in [itself, run] {
        let rule = Rule::new(Fault::Missing).on(Call::Get).key_has(missing.clone());
        let rule = rig.faults.add(rule);

        let answer = rig.read("k", exact(3)).await;

        assert!(
            matches!(&answer, Err(ReadFailure::StoredDataBad { key, .. }) if *key == missing),
            "{answer:?}"
        );
        rig.faults.remove(rule);
    }
    assert_eq!(rig.read("k", exact(3)).await.unwrap(), shown(3));
}
