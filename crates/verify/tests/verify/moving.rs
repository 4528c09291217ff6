//! A history that is written to, compacted and swept while it is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::format;
use headwater_core::head::Head;
use headwater_core::id::Tag;
use headwater_store::{Folder, HeadRead, HeadWrite, Latency, Listed, PutError, ReadError, Store};
use headwater_verify::{Options, Progress, Reason, Severity, Verdict, Verifier};
use headwater_writer::WriterConfig;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::fixture::{World, busy, damage, noise, put};

#[tokio::test(start_paused = true)]
async fn a_check_beside_a_writer_that_compacts_finds_nothing_wrong() {
    let config = WriterConfig { retain_versions: 15, ..busy() };
    let mut world = World::new(config).await;
    for n in 0..40 {
        world.submit(vec![put(&format!("k/{}", n % 9), noise(n, 900))]).await;
    }
    let way = Latency::new(Arc::clone(&world.store), Duration::from_millis(40), Duration::ZERO);
    let way: Arc<dyn Store> = Arc::new(way);
    let options = Options { fetches_max: 1, ..Options::default() };
    for round in 0..5 {
        let verifier =
            Verifier::new(Arc::clone(&way), options, Progress::default(), CancellationToken::new());
        let history = world.history.clone();
        let checking = tokio::spawn(async move { verifier.verify(&history).await });
        for n in 0..60 {
            world.submit(vec![put(&format!("k/{}", n % 9), noise(round * 100 + n, 900))]).await;
        }
        let report = checking.await.unwrap().unwrap();
        assert_eq!(report.verdict(), Verdict::Clean, "{report:#?}");
    }
}

/// Deletes an object once the check has begun, and moves the head on first.
#[derive(Debug)]
struct Overtaking {
    store: Arc<dyn Store>,
    /// What is put in place of the head, and what goes, when an object is read.
    then: Mutex<Option<Then>>,
    /// Two heads by turns: the first for a walk, the second when it has ended.
    flaps: Option<[Bytes; 2]>,
    reads: AtomicUsize,
}

#[derive(Debug)]
struct Then {
    head: Option<Bytes>,
    gone: Vec<String>,
}

impl Overtaking {
    async fn happen(&self) {
        let Some(then) = self.then.lock().await.take() else { return };
        if let Some(bytes) = then.head {
            let HeadRead::Found { tag, .. } =
                self.store.read_head("h/head.json", None).await.unwrap()
            else {
                panic!("no head");
            };
            let write = self.store.replace_head("h/head.json", &tag, bytes).await;
            assert!(matches!(write, HeadWrite::Replaced { .. }));
        }
        for key in then.gone {
            self.store.delete(&key).await.unwrap();
        }
    }
}

#[async_trait]
impl Store for Overtaking {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        if let Some(heads) = &self.flaps {
            let at = known.map_or_else(|| self.reads.fetch_add(1, Ordering::Relaxed) % 2, |_| 1);
            let (bytes, tag) = (heads[at].clone(), Tag::new(format!("{at}")));
            return Ok(HeadRead::Found { bytes, tag });
        }
        self.store.read_head(key, known).await
    }
    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.store.create_head(key, bytes).await
    }
    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.store.replace_head(key, if_match, bytes).await
    }
    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.store.put(key, bytes).await
    }
    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.happen().await;
        self.store.get(key).await
    }
    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.happen().await;
        self.store.get_sized(key, size_bytes).await
    }
    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.store.list(prefix, start_after, limit).await
    }
    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.store.list_folder(prefix).await
    }
    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.store.delete(key).await
    }
}

/// The head of a small history, and one that a compaction made of it.
async fn two_heads() -> (World, Bytes, Bytes, Vec<String>) {
    let mut world = World::new(busy()).await;
    for n in 0..10 {
        world.submit(vec![put(&format!("k/{n}"), noise(n, 900))]).await;
    }
    let before = world.store.get("h/head.json").await.unwrap();
    let old = world.head().await;
    for n in 0..30 {
        world.submit(vec![put(&format!("k/{n}"), noise(n, 900))]).await;
    }
    world.settle().await;
    let (after, new) = (world.store.get("h/head.json").await.unwrap(), world.head().await);
    assert!(old.snapshot.version < new.snapshot.version);
    let kept: Vec<_> = new.references().map(|it| it.key.clone()).collect();
    let gone = old.references().filter(|it| !kept.contains(&it.key));
    let gone: Vec<String> = gone.map(|it| world.history.object_key(&it.key)).collect();
    assert!(1 < gone.len(), "{gone:?}");
    (world, before, after, gone)
}

async fn check_over(world: &World, then: Then) -> headwater_verify::Report {
    let (store, then) = (Arc::clone(&world.store), Mutex::new(Some(then)));
    let store = Overtaking { store, then, flaps: None, reads: AtomicUsize::new(0) };
    let verifier = Verifier::new(
        Arc::new(store),
        Options::default(),
        Progress::default(),
        CancellationToken::new(),
    );
    verifier.verify(&world.history).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_newer_head_let_go_and_a_sweep_deleted_is_no_damage() {
    let (world, before, after, gone) = two_heads().await;
    world.overwrite("h/head.json", before).await;

    let report = check_over(&world, Then { head: Some(after), gone }).await;

    assert_eq!(report.count(Severity::Damage), 0, "{:#?}", report.findings);
    assert_eq!((report.verdict(), report.restarts), (Verdict::Clean, 1));
    // The report is of the newer head.
    assert_eq!(report.head.unwrap().1, world.head().await.revision);
}

#[tokio::test(start_paused = true)]
async fn what_every_newer_head_still_leads_to_is_damage_if_it_is_missing() {
    let (world, before, after, _) = two_heads().await;
    // Both heads lead to it: the tail of the newer one is moved on from.
    let newest = world.history.object_key(&world.head().await.snapshot.object.key);
    let report = check_over(&world, Then { head: Some(before), gone: vec![newest.clone()] }).await;
    assert_eq!(report.count(Severity::Damage), 0, "the older head does not lead to it");

    world.overwrite("h/head.json", after).await;
    let report = check_over(&world, Then { head: None, gone: Vec::new() }).await;
    assert_eq!(damage(&report)[0].key, newest);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_moves_again_and_again_hides_no_damage() {
    let (world, _, after, _) = two_heads().await;
    let head = format::head::decode(&after).unwrap();
    // The second has let go of its receipts, and leads to the rest as well.
    let second = Head {
        revision: head.revision.next(),
        receipt_coverage_from: head.tail_from(),
        receipt_pages: Vec::new(),
        ..head.clone()
    };
    second.check().unwrap();
    let key = world.history.object_key(&head.snapshot.object.key);
    let page = world.history.object_key(&head.receipt_pages[0].object.key);
    for it in [&key, &page] {
        world.store.delete(it).await.unwrap();
    }
    let heads = [after, format::head::encode(&second).into()];
    let store = Overtaking {
        store: Arc::clone(&world.store),
        then: Mutex::new(None),
        flaps: Some(heads),
        reads: AtomicUsize::new(0),
    };
    let verifier = Verifier::new(
        Arc::new(store),
        Options::default(),
        Progress::default(),
        CancellationToken::new(),
    );

    let report = verifier.verify(&world.history).await.unwrap();

    let found: Vec<_> = damage(&report).iter().map(|it| it.key.clone()).collect();
    assert_eq!(found, [key], "{report:#?}");
    assert_eq!(report.restarts, 3);
    assert!(report.parts.values().any(|it| it.reason() == Some(&Reason::Overtaken)));
}
