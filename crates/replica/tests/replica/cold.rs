//! Replicas that know nothing, or only what was true long ago.

use std::collections::BTreeMap;

use headwater_core::operation::KeyRange;
use headwater_replica::{Consistency, ReadFailure, Replica, ReplicaConfig, start};
use headwater_state::Scan;
use headwater_store::{Call, Entropy};

use crate::bucket::{Rig, deadline, name, put, quiet, version};

/// Commits, a hundred to a head, folded, compacted and swept as they come.
async fn ten_thousand_commits(rig: &mut Rig) {
    for round in 1..=100 {
        rig.writer.put_versions(100, 20).await;
        rig.writer.fold_and_sweep().await;
        if round % 10 == 0 {
            rig.writer.compact_and_sweep().await;
            rig.writer.sweep_released().await;
        }
    }
    rig.writer.put("last", "words").await;
}

/// Every entry that a replica has.
async fn everything(replica: &Replica) -> BTreeMap<String, (String, u64)> {
    let scan = Scan {
        range: KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: 10_000,
        bytes_max: 1 << 20,
    };
    let reader = replica.reader(name("h"));
    let (page, _) = reader.scan(&scan, Consistency::Strong, deadline()).await.unwrap();
    assert!(page.next.is_none());
    let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
    let entries = page.entries.iter();
    entries.map(|it| (text(it.key.as_ref()), (text(&it.value), it.version.get()))).collect()
}

/// What the ten thousand commits after `before` leave, by what they are.
fn expected(before: u64) -> BTreeMap<String, (String, u64)> {
    let mut entries = BTreeMap::new();
    entries.insert("early".to_owned(), ("bird".to_owned(), 1));
    for number in before + 1..=before + 10_000 {
        entries.insert(format!("k{:02}", number % 100), (format!("{number:020}"), number));
    }
    entries.insert("last".to_owned(), ("words".to_owned(), before + 10_001));
    entries
}

/// The case of this name: one that slept with a view, and one that was stopped
/// with objects of that time on its disk.
#[tokio::test]
async fn replica_past_retention() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = || ReplicaConfig { cache_dir: Some(dir.path().to_owned()), ..quiet() };
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put("early", "bird").await;
    rig.writer.compact_and_sweep().await;
    rig.writer.put_versions(9, 20).await;
    let before = 10;
    let stopped = start(rig.faults.store(), on_disk(), Entropy::from_seed(5)).unwrap();
    for replica in [&rig.replica, &stopped] {
        assert_eq!(everything(replica).await.len(), 10);
    }
    stopped.shutdown().await;
    let gone = rig.writer.chunk_keys().await;

    ten_thousand_commits(&mut rig).await;
    assert_eq!(rig.writer.version().get(), 10_011);
    for key in &gone {
        assert!(rig.faults.behind().get(key).await.is_err(), "{key} is swept");
    }
    let oldest = rig.writer.head.retained_from();
    assert!(before < oldest.get(), "{oldest}");

    let again = start(rig.faults.store(), on_disk(), Entropy::from_seed(6)).unwrap();
    for replica in [&rig.replica, &again] {
        assert_eq!(everything(replica).await, expected(before));
        let reader = replica.reader(name("h"));
        let exact = Consistency::Exact(version(before + 1));
        let failure = reader.pin(exact, deadline()).await.unwrap_err();
        let ReadFailure::VersionRetired { oldest: said, .. } = failure else {
            panic!("{failure:?}")
        };
        assert_eq!(said, oldest);
    }
    // And they follow on.
    rig.writer.put("early", "worm").await;
    for replica in [&rig.replica, &again] {
        assert_eq!(everything(replica).await["early"], ("worm".to_owned(), 10_012));
    }
    again.shutdown().await;
}

/// A history of every kind of object, most of which nobody needs who opens it:
/// an archive with its runs and snapshots, receipt pages, chunks.
async fn with_everything() -> Rig {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.retain(100_000).await;
    // Several chunks, of which one has the key that is read.
    let large = "v".repeat(300 << 10);
    for number in 0..20 {
        rig.writer.put_staged(&format!("large/{number:02}"), &large).await;
    }
    for round in 0..3 {
        rig.writer.compact().await;
        rig.writer.put_versions(50, 20).await;
        rig.writer.put("round", &round.to_string()).await;
    }
    rig.writer.compact().await;
    for round in 0..2 {
        rig.writer.put_versions(30, 20).await;
        rig.writer.fold().await;
        rig.writer.put("folded", &round.to_string()).await;
    }
    rig.writer.put_staged("staged", "one").await;
    rig.writer.put_staged("staged", "two").await;
    rig.writer.change(vec![put("inline", "x")]).await;
    rig
}

/// The case of this name: the requests of a replica that opens a history, by
/// what they are for.
#[tokio::test]
async fn snapshot_ignored() {
    let rig = with_everything().await;
    let head = &rig.writer.head;
    let (n_chunks, history) = (rig.writer.chunk_keys().await.len(), head.history.clone());
    assert!(3 < n_chunks, "{n_chunks} chunks");
    let archive = rig.writer.loader().archive(head).await.unwrap();
    assert!(!archive.runs.is_empty() && !archive.snapshots.is_empty());
    assert!(!head.receipt_pages.is_empty() && 1 < head.segments.len());
    let staged = head.changes.iter().filter_map(|it| match &it.body {
        headwater_core::head::ChangeBody::Staged(object) => Some(object),
        headwater_core::head::ChangeBody::Inline(_) => None,
    });
    let tail = head.segments.iter().map(|it| &it.object).chain(staged);
    let mut expected: Vec<_> = tail.map(|it| (Call::Get, history.object_key(&it.key))).collect();
    assert_eq!(expected.len(), head.segments.len() + 2);
    expected.push((Call::Get, history.object_key(&head.snapshot.object.key)));
    expected.push((Call::ReadHead, history.head_key()));
    let replica = start(rig.faults.store(), quiet(), Entropy::from_seed(9)).unwrap();
    let reader = replica.reader(history);
    rig.faults.clear_log();

    let pinned = reader.pin(Consistency::Strong, deadline()).await.unwrap();

    assert_eq!(pinned.version(), head.state_version);
    let mut asked = rig.faults.log();
    asked.sort();
    expected.sort();
    assert_eq!(asked, expected, "head, snapshot index and tail, each once, and nothing else");

    // Then what is read: one chunk, and nothing for what the tail has.
    rig.faults.clear_log();
    for text in ["staged", "inline", "folded", "large/19"] {
        let key = crate::bucket::key(text);
        let (entry, _) = reader.get(&key, Consistency::Any, deadline()).await.unwrap();
        assert!(entry.is_some(), "{text}");
    }
    let asked = rig.faults.log();
    assert!(asked.len() <= 1 && asked.iter().all(|(_, key)| key.contains("/chunks/")), "{asked:?}");
    let key = crate::bucket::key("large/03");
    reader.get(&key, Consistency::Any, deadline()).await.unwrap();
    let asked = rig.faults.log();
    assert!(asked.len() <= 2 && asked.iter().all(|(_, key)| key.contains("/chunks/")), "{asked:?}");
    replica.shutdown().await;
}
