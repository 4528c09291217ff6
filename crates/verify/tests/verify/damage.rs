//! Every object of a history is damaged in turn, in each way, and the check
//! names exactly that one.

use bytes::Bytes;
use futures::StreamExt as _;
use headwater_core::format;
use headwater_core::hash::ChainHash;
use headwater_core::head::{Base, Head, HistoryRef, ObjectRef};
use headwater_core::id::{HistoryId, PinName};
use headwater_core::keys::ObjectKind;
use headwater_core::publish::{Control, NewPin};
use headwater_core::version::StateVersion;
use headwater_state::{BuildOptions, build_snapshot};
use headwater_verify::{Kind, Options, Part, PartState, Role, Severity, Verdict};
use headwater_writer::Question;

use crate::fixture::{World, damage, keeping, name, noise, put, rich};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Deleted,
    Flipped,
    CutShort,
    Emptied,
    Longer,
}

pub(crate) const HARMS: [Harm; 5] =
    [Harm::Deleted, Harm::Flipped, Harm::CutShort, Harm::Emptied, Harm::Longer];

pub(crate) async fn harm(world: &World, key: &str, harm: Harm) {
    let bytes = world.store.get(key).await.unwrap();
    let mut changed = bytes.to_vec();
    match harm {
        Harm::Deleted => return world.store.delete(key).await.unwrap(),
        Harm::Flipped => {
            let at = changed.len() / 2;
            changed[at] ^= 0x10;
        }
        Harm::CutShort => changed.truncate(bytes.len() - 1),
        Harm::Emptied => changed.clear(),
        Harm::Longer => changed.push(0),
    }
    world.overwrite(key, changed.into()).await;
}

#[tokio::test(start_paused = true)]
async fn each_object_in_use_is_named_when_it_is_damaged_and_nothing_else_is() {
    let world = rich().await;
    let clean = world.verify().await;
    let unused: Vec<String> = clean.findings.iter().map(|it| it.key.clone()).collect();
    let mut kinds = std::collections::BTreeSet::new();
    let mut n_harmed = 0;
    for key in world.keys().await {
        let bytes = world.store.get(&key).await.unwrap();
        for harm_kind in HARMS {
            harm(&world, &key, harm_kind).await;
            let report = world.verify().await;
            let found = damage(&report);
            if unused.contains(&key) {
                assert!(found.is_empty(), "{key} {harm_kind:?}: {found:#?}");
            } else {
                let [found] = &*found else { panic!("{key} {harm_kind:?}: {found:#?}") };
                let expected =
                    if harm_kind == Harm::Deleted { Kind::Missing } else { Kind::Damaged };
                assert_eq!((&found.key, found.kind), (&key, expected), "{found:?}");
                assert_eq!(report.verdict(), Verdict::Damaged);
                assert!(!found.means().is_empty() && !found.advice().is_empty());
                assert_eq!(report.count(Severity::Unchecked), 0);
                kinds.insert((key.split('/').nth(1).unwrap().to_owned(), found.role));
                n_harmed += 1;
            }
            world.overwrite(&key, bytes.clone()).await;
        }
    }
    assert_eq!(world.verify().await.verdict(), Verdict::Clean);
    assert_eq!(n_harmed, HARMS.len() as u64 * clean.sound.objects);
    let expected = [
        ("archive", Role::Archive),
        ("changes", Role::Tail),
        ("chunks", Role::Snapshot),
        ("chunks", Role::OlderSnapshot),
        ("receipts", Role::Receipts),
        ("segments", Role::Tail),
        ("segments", Role::Run),
        ("snapshots", Role::Snapshot),
        ("snapshots", Role::OlderSnapshot),
    ];
    for (folder, role) in expected {
        assert!(kinds.contains(&(folder.to_owned(), role)), "{folder} {role:?}: {kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pin_that_needs_a_damaged_object_is_named_with_it() {
    let world = rich().await;
    let (head, loader) = (world.head().await, world.loader());
    let archive = loader.archive(&head).await.unwrap();
    let way = archive.way_to(head.pins[1].version).unwrap();
    let index = world.history.object_key(&way.snapshot.object.key);
    harm(&world, &index, Harm::Deleted).await;

    let report = world.verify().await;

    let found = damage(&report);
    assert_eq!(found[0].pins, [head.pins[1].name.clone()]);
    assert!(found[0].snapshots.contains(&way.snapshot.version));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_head_is_named_and_nothing_is_judged_from_it() {
    let world = rich().await;
    let bytes = world.store.get("h/head.json").await.unwrap();
    for at in [1, bytes.len() / 3, bytes.len() / 2, bytes.len() - 3] {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        world.overwrite("h/head.json", changed.into()).await;
        let report = world.verify().await;
        let found = damage(&report);
        assert_eq!((found.len(), &*found[0].key), (1, "h/head.json"));
        assert!(report.parts.values().all(|it| matches!(it, PartState::LeftOut(_))));
        assert_eq!(report.unreached.garbage.objects, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn several_damaged_objects_are_all_named() {
    let world = rich().await;
    let clean = world.verify().await;
    let unused: Vec<String> = clean.findings.iter().map(|it| it.key.clone()).collect();
    let mut expected: Vec<String> = world.keys().await;
    expected.retain(|it| {
        let is_leaf = ["/chunks/", "/changes/", "/segments/", "/receipts/"];
        is_leaf.iter().any(|part| it.contains(part)) && !unused.contains(it)
    });
    for key in &expected {
        harm(&world, key, Harm::Flipped).await;
    }

    let report = world.verify().await;

    let mut found: Vec<String> = damage(&report).iter().map(|it| it.key.clone()).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    // Past the limit they are counted.
    let options = Options { findings_max: 3, ..Options::default() };
    let report = world.verify_with(options).await.unwrap();
    assert_eq!(report.count(Severity::Damage), expected.len() as u64);
    assert_eq!(damage(&report).len(), 3);
}

/// What no hash tells: objects that are whole, and written wrong.
async fn wrong(world: &World, head: Head) -> Vec<(Kind, String)> {
    world.put_head(&head).await;
    let report = world.verify().await;
    damage(&report).iter().map(|it| (it.kind, it.key.clone())).collect()
}

pub(crate) async fn put_content(
    world: &World,
    kind: ObjectKind,
    head: &Head,
    bytes: Vec<u8>,
) -> ObjectRef {
    let object = ObjectRef::to_content(kind, head.revision, &bytes);
    let key = world.history.object_key(&object.key);
    world.store.put(&key, Bytes::from(bytes)).await.unwrap();
    object
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_does_not_lead_to_the_head_is_found() {
    let world = rich().await;
    let head = world.head().await;
    let found =
        wrong(&world, Head { chain_hash: ChainHash::from_bytes([1; 32]), ..head.clone() }).await;
    assert_eq!(found, [(Kind::ChainBroken, "h/head.json".to_owned())]);

    // A snapshot that says it is on another chain: neither the changes before
    // it nor those after it fit.
    let index = world.store.get(&world.history.object_key(&head.snapshot.object.key)).await;
    let mut index = format::snapshot::decode(index.unwrap()).unwrap();
    index.chain_hash = ChainHash::from_bytes([2; 32]);
    let bytes = format::snapshot::encode(&index);
    let object = put_content(&world, ObjectKind::Snapshot, &head, bytes).await;
    let mut other = head.clone();
    other.snapshot.object = object.clone();
    let found = wrong(&world, other).await;
    let key = world.history.object_key(&object.key);
    assert!(found.contains(&(Kind::ChainBroken, "h/head.json".into())), "{found:?}");
    assert!(found.contains(&(Kind::ChainBroken, key)), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn receipts_that_differ_from_their_changes_are_found() {
    let world = rich().await;
    let head = world.head().await;
    let page = head.receipt_pages[0].clone();
    let bytes = world.store.get(&world.history.object_key(&page.object.key)).await.unwrap();
    let receipts = format::receipts::decode(bytes).unwrap();

    let mut altered = receipts.clone();
    altered[2].request_hash = headwater_core::hash::RequestHash::from_bytes([9; 32]);
    let mut short = receipts.clone();
    short.remove(3);
    let mut twice = receipts.clone();
    twice[4].operation_id = twice[1].operation_id.clone();
    let cases = [
        (altered, vec![Kind::ReceiptsWrong]),
        (short, vec![Kind::Damaged]),
        (twice, vec![Kind::OperationRepeated, Kind::ReceiptsWrong]),
    ];
    for (receipts, expected) in cases {
        let bytes = format::receipts::encode(&receipts);
        let object = put_content(&world, ObjectKind::Receipts, &head, bytes).await;
        let mut other = head.clone();
        other.receipt_pages[0].object = object.clone();
        let found = wrong(&world, other).await;
        let key = world.history.object_key(&object.key);
        let expected: Vec<_> = expected.into_iter().map(|it| (it, key.clone())).collect();
        assert_eq!(found, expected);
    }
    let found = wrong(&world, Head { operation_count: head.operation_count + 1, ..head }).await;
    assert_eq!(found, [(Kind::OperationCount, "h/head.json".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_other_entries_than_the_changes_lead_to_is_found() {
    let world = rich().await;
    let head = world.head().await;
    let archive = world.loader().archive(&head).await.unwrap();
    let index = async |object: &ObjectRef| {
        let bytes = world.store.get(&world.history.object_key(&object.key)).await.unwrap();
        format::snapshot::decode(bytes).unwrap()
    };
    let newest = index(&head.snapshot.object).await;
    // A builder that forgot what the last changes wrote.
    let mut forgetful = index(&archive.snapshots.last().unwrap().snapshot.object).await;
    (forgetful.version, forgetful.chain_hash) = (newest.version, newest.chain_hash);
    let bytes = format::snapshot::encode(&forgetful);
    let object = put_content(&world, ObjectKind::Snapshot, &head, bytes).await;
    let mut other = head.clone();
    other.snapshot.object = object.clone();

    let found = wrong(&world, other.clone()).await;
    assert_eq!(found[0], (Kind::ContentDiffers, world.history.object_key(&object.key)));
    // It also came back to what the one before was said to be the last to have.
    assert!(found[1..].iter().all(|it| it.0 == Kind::MarkedForDeletion), "{found:?}");
    let report = world.verify_with(Options { rebuilds: false, ..Options::default() }).await;
    let report = report.unwrap();
    assert!(damage(&report).iter().all(|it| it.kind == Kind::MarkedForDeletion));
    assert!(matches!(report.parts[&Part::Rebuild], PartState::LeftOut(_)));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_the_same_keys_and_older_values_is_found() {
    let mut world = World::new(keeping()).await;
    for n in 0..40 {
        world.submit(vec![put(&format!("k/{}", n % 4), noise(n, 900))]).await;
    }
    world.settle().await;
    let (head, loader) = (world.head().await, world.loader());
    let at = StateVersion::new(head.snapshot.version.get() - 1);
    let archive = loader.archive(&head).await.unwrap();
    let view = loader.open_archived(&head, &archive, at).await.unwrap().unwrap();
    let stale = build_snapshot(&loader, &view, head.revision, BuildOptions::default()).await;
    let index = async |object: &ObjectRef| {
        let bytes = world.store.get(&world.history.object_key(&object.key)).await.unwrap();
        format::snapshot::decode(bytes).unwrap()
    };
    let newest = index(&head.snapshot.object).await;
    let mut forgetful = index(&stale.unwrap().snapshot.object).await;
    (forgetful.version, forgetful.chain_hash) = (newest.version, newest.chain_hash);
    let bytes = format::snapshot::encode(&forgetful);
    let object = put_content(&world, ObjectKind::Snapshot, &head, bytes).await;
    let mut other = head.clone();
    other.snapshot.object = object.clone();

    let found = wrong(&world, other).await;

    assert_eq!(found, [(Kind::ContentDiffers, world.history.object_key(&object.key))]);
}

#[tokio::test(start_paused = true)]
async fn a_fork_whose_source_does_not_keep_what_it_needs_is_found() {
    let world = rich().await;
    let (head, id) = (world.head().await, HistoryId::from_bytes([8; 16]));
    world.writer.create(&name("source"), id, false).await.unwrap();
    let source = HistoryRef { history: name("source"), history_id: id };
    let pin = PinName::parse("fork").unwrap();
    let forked = Head { base: Some(Base { source, pin: pin.clone() }), ..head.clone() };
    let found = wrong(&world, forked).await;
    assert_eq!(found, [(Kind::SourceLetGo, "source/head.json".to_owned())]);

    let child = HistoryRef { history: world.history.clone(), history_id: head.history_id };
    let pin = NewPin { name: pin, version: None, expires_at_ms: None, child: Some(child) };
    let question = Question::Control(Control::Pin(pin));
    world.writer.ask(&name("source"), question).await.unwrap();
    let report = world.verify().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_would_let_go_of_what_is_in_use_is_found() {
    let world = rich().await;
    let (head, loader) = (world.head().await, world.loader());
    let archive = loader.archive(&head).await.unwrap();
    let mut parts = loader.reached(&head.snapshot);
    let chunk = parts.next().await.unwrap().unwrap().object;
    let run = archive.runs[0].run.object.clone();
    for victim in [&chunk, &run] {
        let mut other = (*archive).clone();
        other.released.push(victim.key.clone());
        let bytes = format::archive::encode(&other);
        let object = put_content(&world, ObjectKind::Archive, &head, bytes).await;
        let mut changed = head.clone();
        changed.archive.as_mut().unwrap().object = object;
        let found = wrong(&world, changed).await;
        let expected = (Kind::MarkedForDeletion, world.history.object_key(&victim.key));
        assert!(!found.is_empty() && found.iter().all(|it| *it == expected), "{found:?}");
    }
    let mut other = (*archive).clone();
    other.runs.clear();
    let bytes = format::archive::encode(&other);
    let object = put_content(&world, ObjectKind::Archive, &head, bytes).await;
    let mut changed = head.clone();
    let named = changed.archive.as_mut().unwrap();
    (named.object, named.retained_from) = (object.clone(), StateVersion::new(0));
    let found = wrong(&world, changed).await;
    let expected = (Kind::VersionLost, world.history.object_key(&object.key));
    // What is retained, and each of the two pins.
    assert_eq!(found.iter().filter(|it| **it == expected).count(), 3, "{found:?}");
}
