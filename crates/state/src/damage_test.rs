//! Every object that a head leads to, damaged in every way: an error that names
//! it, and never an answer.

use headwater_core::follow::{FollowError, Position};
use headwater_core::hash::ChainHash;
use headwater_core::head::{ChangeBody, Head, ObjectRef};
use headwater_core::id::HistoryId;
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Bucket, Place, key, put};
use crate::{BuildError, BuildOptions, Defect, Loader, Scan, StateError, build_snapshot};

/// A history whose head names an object of every kind.
async fn one_of_each() -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.commit(vec![put("a", "1"), put("b", "2")]).await;
    bucket.compact().await;
    bucket.commit(vec![put("c", "3")]).await;
    bucket.fold().await;
    bucket.commit_at(Place::Staged, vec![put("d", "4")]).await;
    bucket
}

/// Reads all that there is to read.
async fn read_everything(loader: &Loader, head: &Head) -> Result<(), StateError> {
    let opened = loader.open(head).await?;
    loader.receipts(head, &opened.changes).await?;
    let everything = Scan {
        range: KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: true,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    opened.view.scan(&everything).await?;
    opened.view.get(&key("a")).await?;
    Ok(())
}

async fn objects(bucket: &Bucket) -> Vec<(&'static str, String)> {
    let head = &bucket.head;
    let chunks = bucket.view.base().all_chunks().await;
    assert_eq!((chunks.len(), head.receipt_pages.len(), head.segments.len()), (1, 1, 1));
    let ChangeBody::Staged(change) = &head.changes[0].body else { panic!("it is staged") };
    let named: [(&str, &ObjectRef); 5] = [
        ("snapshot", &head.snapshot.object),
        ("chunk", &chunks[0].object),
        ("receipts", &head.receipt_pages[0].object),
        ("segment", &head.segments[0].object),
        ("change", change),
    ];
    named.map(|(kind, object)| (kind, bucket.full_key(object))).into()
}

#[tokio::test]
async fn a_damaged_object_is_an_error_that_names_it() {
    let bucket = one_of_each().await;
    read_everything(&bucket.cold_loader(), &bucket.head).await.unwrap();
    for (kind, object_key) in objects(&bucket).await {
        for fault in [Fault::Corrupt, Fault::Truncated] {
            bucket.faults.add(Rule::new(fault.clone()).on(Call::Get).key_has(&object_key));
            let error = read_everything(&bucket.cold_loader(), &bucket.head).await.unwrap_err();
            bucket.faults.clear();

            let StateError::Bad { key, what } = error else { panic!("{kind}: {error:?}") };
            assert_eq!(key, object_key, "{kind}, {fault:?}");
            let is_length = matches!(what, Defect::Length { .. });
            assert_eq!(is_length, matches!(fault, Fault::Truncated), "{kind}: {what}");
        }
    }
}

#[tokio::test]
async fn a_missing_object_is_an_error_that_names_it() {
    let bucket = one_of_each().await;
    for (kind, object_key) in objects(&bucket).await {
        bucket.faults.add(Rule::new(Fault::Missing).on(Call::Get).key_has(&object_key));
        let error = read_everything(&bucket.cold_loader(), &bucket.head).await.unwrap_err();
        bucket.faults.clear();

        let StateError::Missing { key } = error else { panic!("{kind}: {error:?}") };
        assert_eq!(key, object_key, "{kind}");
    }
}

#[tokio::test]
async fn an_unavailable_store_says_nothing_about_the_data() {
    let bucket = one_of_each().await;
    for (kind, object_key) in objects(&bucket).await {
        bucket.faults.add(Rule::new(Fault::LoseCall).on(Call::Get).key_has(&object_key).times(1));
        let loader = bucket.cold_loader();
        let error = read_everything(&loader, &bucket.head).await.unwrap_err();

        assert!(matches!(error, StateError::Store(_)), "{kind}: {error:?}");
        // And it is not remembered.
        read_everything(&loader, &bucket.head).await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_is_not_built_from_a_damaged_chunk() {
    let mut bucket = one_of_each().await;
    bucket.commit(vec![put("aa", "5")]).await;
    let (_, object_key) = objects(&bucket).await.remove(1);
    bucket.faults.add(Rule::new(Fault::Corrupt).on(Call::Get).key_has(&object_key));

    let loader = bucket.cold_loader();
    let view = bucket.cold_view().await;
    let options = BuildOptions::default();
    let error = build_snapshot(&loader, &view, bucket.head.revision, options).await.unwrap_err();

    assert!(matches!(error, BuildError::State(StateError::Bad { key, .. }) if key == object_key));
}

#[tokio::test]
async fn an_object_of_a_newer_format_asks_for_an_upgrade() {
    let mut bucket = one_of_each().await;
    let bytes = bytes::Bytes::from_static(b"HWi\x02whatever");
    let snapshot = &mut bucket.head.snapshot.object;
    *snapshot = ObjectRef::to_content(snapshot.key.kind(), snapshot.key.staged(), &bytes);
    let object_key = bucket.full_key(&bucket.head.snapshot.object);
    bucket.faults.behind().put(&object_key, bytes).await.unwrap();

    let error = bucket.cold_loader().open(&bucket.head).await.unwrap_err();

    assert!(matches!(error, StateError::TooNew { key, found: 2 } if key == object_key));
}

#[tokio::test]
async fn the_snapshot_of_another_version_or_history_is_refused() {
    let bucket = one_of_each().await;

    let mut head = bucket.head.clone();
    head.history_id = HistoryId::from_bytes([8; 16]);
    let loader = bucket.cold_loader();
    let opened = loader.open(&head).await.map(|it| it.view);
    for answer in [opened, loader.open_at(&head, head.snapshot.version).await] {
        let error = answer.unwrap_err();
        assert!(matches!(error, StateError::Bad { what: Defect::Contradicts { fact }, .. }
            if fact == "history id"));
    }

    let mut head = bucket.head.clone();
    head.snapshot.version = StateVersion::ZERO;
    let error = bucket.cold_loader().open(&head).await.unwrap_err();
    assert!(matches!(error, StateError::Bad { what: Defect::Contradicts { fact }, .. }
        if fact == "version"));
}

#[tokio::test]
async fn a_receipt_page_without_one_of_its_versions_is_refused() {
    let mut bucket = Bucket::new().await;
    for text in ["a", "b", "c"] {
        bucket.commit(vec![put(text, "1")]).await;
    }
    // The page of versions 1 to 2, passed off as one of versions 1 to 3.
    let covered = crate::bucket::receipts_of(&bucket.tail[..2]);
    let short = crate::write_receipt_pages(&bucket.loader, bucket.head.revision, &covered);
    let short = short.await.unwrap().remove(0);
    bucket.compact().await;
    bucket.head.receipt_pages[0].object = short.object.clone();

    let error = bucket.loader.receipts(&bucket.head, &[]).await.unwrap_err();

    assert!(matches!(error, StateError::Bad { key, .. } if key == bucket.full_key(&short.object)));
}

#[tokio::test]
async fn a_head_that_is_off_the_chain_is_not_served() {
    let bucket = one_of_each().await;
    let mut head = bucket.head.clone();
    head.chain_hash = ChainHash::from_bytes([9; 32]);

    let error = bucket.cold_loader().open(&head).await.unwrap_err();
    assert!(matches!(error, StateError::Follow(FollowError::ChainBroken { .. })));
    let error = bucket.cold_loader().open_at(&head, head.state_version).await.unwrap_err();
    assert!(matches!(error, StateError::Follow(FollowError::ChainBroken { .. })));

    head.revision = head.revision.next();
    let position = Position::of(&bucket.head);
    let error = bucket.loader.advance(&bucket.view, &position, &head).await.unwrap_err();
    assert!(matches!(error, StateError::Follow(FollowError::ChainBroken { .. })));
}

#[tokio::test]
async fn a_newer_snapshot_that_is_off_the_chain_does_not_take_over() {
    let mut bucket = one_of_each().await;
    let (view, position) = (bucket.view.clone(), Position::of(&bucket.head));
    // Another history of this id and these versions, with other changes.
    let mut other = Bucket::new().await;
    for text in ["x", "y", "z"] {
        other.commit(vec![put(text, "1")]).await;
    }
    other.compact().await;
    bucket.compact().await;
    let snapshot = &other.head.snapshot;
    let bytes = other.faults.behind().get(&other.full_key(&snapshot.object)).await.unwrap();
    let object_key = bucket.full_key(&snapshot.object);
    bucket.faults.behind().put(&object_key, bytes).await.unwrap();
    bucket.head.snapshot = snapshot.clone();

    let error = bucket.loader.advance(&view, &position, &bucket.head).await.unwrap_err();

    assert!(matches!(error, StateError::Bad { key, .. } if key == object_key));
}
