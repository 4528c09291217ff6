//! A view against a plain ordered map, over random changes, folds, compactions
//! and restarts.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_core::change::Resolved;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use proptest::prelude::*;

use crate::bucket::{Bucket, PAGED, Place, key};
use crate::{Entry, Page, Scan, View};

/// What is to be true of a view, in the simplest words.
#[derive(Clone, Default)]
struct Model {
    entries: BTreeMap<Key, (Bytes, StateVersion)>,
    /// Every deletion, with the range that it names.
    deletions: Vec<(KeyRange, StateVersion)>,
    version: StateVersion,
}

impl Model {
    fn apply(&mut self, mutations: &[Resolved]) {
        self.version = self.version.next();
        for mutation in mutations {
            match mutation {
                Resolved::Put(key, value) => {
                    self.entries.insert(key.clone(), (value.clone(), self.version));
                }
                Resolved::Delete(key) => {
                    self.entries.remove(key);
                    self.deletions.push((only(key), self.version));
                }
                Resolved::DeleteRange(range) => {
                    self.entries.retain(|key, _| !range.contains(key.as_ref()));
                    self.deletions.push((range.clone(), self.version));
                }
            }
        }
    }

    fn newest(&self, range: &KeyRange, known_from: StateVersion) -> Option<StateVersion> {
        let written = self.entries.iter().filter(|(key, _)| range.contains(key.as_ref()));
        let deleted = self
            .deletions
            .iter()
            .filter(|(deleted, version)| known_from < *version && overlap(range, deleted));
        written.map(|(_, (_, it))| *it).chain(deleted.map(|(_, it)| *it)).max()
    }
}

/// The range of one key.
fn only(key: &Key) -> KeyRange {
    let end = [key.as_ref(), b"\0"].concat();
    KeyRange::new(key.as_bytes().clone(), Some(end.into())).unwrap()
}

/// Whether some key is in both.
fn overlap(a: &KeyRange, b: &KeyRange) -> bool {
    let first = a.start().max(b.start()).max(&Bytes::from_static(b"\0")).clone();
    a.contains(&first) && b.contains(&first)
}

#[derive(Clone, Debug)]
enum Event {
    Commit(Place, Vec<Resolved>),
    Fold,
    Compact,
    /// With an index in pages.
    CompactPaged,
    /// A snapshot of the state that the next few commits leave behind.
    Remember,
    CompactRemembered,
    Restart,
}

fn keys() -> impl Strategy<Value = Key> {
    proptest::collection::vec(prop::sample::select(b"\0abcd".to_vec()), 1..4).prop_map(key)
}

fn bounds() -> impl Strategy<Value = KeyRange> {
    let bound = || proptest::collection::vec(prop::sample::select(b"\0abcd".to_vec()), 0..3);
    (bound(), prop::option::weighted(0.8, bound())).prop_filter_map("inverted", |(start, end)| {
        KeyRange::new(start.into(), end.map(Bytes::from)).ok()
    })
}

fn mutation() -> impl Strategy<Value = Resolved> {
    let value = proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from);
    prop_oneof![
        16 => (keys(), value).prop_map(|(key, value)| Resolved::Put(key, value)),
        2 => keys().prop_map(Resolved::Delete),
        1 => bounds().prop_map(Resolved::DeleteRange),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let place = prop_oneof![Just(Place::Inline), Just(Place::Staged)];
    let mutations = proptest::collection::vec(mutation(), 1..8);
    prop_oneof![
        12 => (place, mutations).prop_map(|(place, it)| Event::Commit(place, it)),
        1 => Just(Event::Fold),
        1 => Just(Event::Compact),
        2 => Just(Event::CompactPaged),
        1 => Just(Event::Remember),
        1 => Just(Event::CompactRemembered),
        1 => Just(Event::Restart),
    ]
}

/// What is asked of every view.
#[derive(Clone, Debug)]
struct Questions {
    keys: Vec<Key>,
    ranges: Vec<KeyRange>,
    entries_max: usize,
    bytes_max: usize,
}

fn questions() -> impl Strategy<Value = Questions> {
    (
        proptest::collection::vec(keys(), 10),
        proptest::collection::vec(bounds(), 5),
        1_usize..8,
        prop_oneof![Just(usize::MAX), 1_usize..200],
    )
        .prop_map(|(keys, ranges, entries_max, bytes_max)| Questions {
            keys,
            ranges,
            entries_max,
            bytes_max,
        })
}

async fn check(view: &View, model: &Model, questions: &Questions) {
    assert_eq!(view.version(), model.version);
    assert_eq!(view.overlay_bytes() == 0, *view.overlay() == crate::overlay::Overlay::default());
    let expected = |key: &Key| {
        let found = model.entries.get(key);
        found.map(|(value, version)| Entry {
            key: key.clone(),
            value: value.clone(),
            version: *version,
        })
    };
    let all: Vec<_> = questions.keys.iter().map(expected).collect();
    assert_eq!(view.get_many(&questions.keys).await.unwrap(), all);
    for key in &questions.keys {
        assert_eq!(view.get(key).await.unwrap(), expected(key));
        assert_eq!(view.get_now(key), Some(expected(key)), "the chunk has just been read");

        let fact = view.key_fact(key).await.unwrap();
        assert_eq!(fact.value, expected(key).map(|it| it.value));
        assert_eq!(fact.newest_change, model.newest(&only(key), view.deletions_known_from()));
    }
    for range in &questions.ranges {
        check_scans(view, model, questions, range).await;
        check_newest(view, model, range).await;
    }
}

async fn check_scans(view: &View, model: &Model, questions: &Questions, range: &KeyRange) {
    let inside = model.entries.iter().filter(|(key, _)| range.contains(key.as_ref()));
    let mut expected: Vec<Entry> = inside
        .map(|(key, (value, version))| Entry {
            key: key.clone(),
            value: value.clone(),
            version: *version,
        })
        .collect();
    for reverse in [false, true] {
        let mut scan = Scan {
            range: range.clone(),
            after: None,
            reverse,
            keys_only: false,
            entries_max: questions.entries_max,
            bytes_max: questions.bytes_max,
        };
        let mut found = Vec::new();
        loop {
            let Page { entries, next } = view.scan(&scan).await.unwrap();
            let size_bytes: usize =
                entries.iter().map(|it| it.key.as_bytes().len() + it.value.len()).sum();
            assert!(entries.len() <= questions.entries_max);
            assert!(entries.len() <= 1 || size_bytes <= questions.bytes_max);
            assert!(next.is_none() || next.as_ref() == entries.last().map(|it| &it.key));
            found.extend(entries);
            scan.after = next;
            if scan.after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "reverse: {reverse}");
        expected.reverse();
    }
}

async fn check_newest(view: &View, model: &Model, range: &KeyRange) {
    let expected = model.newest(range, view.deletions_known_from());
    for above in (0..=model.version.get()).map(StateVersion::new) {
        let found = view.newest_change(range, above).await.unwrap();
        let found_version = found.as_ref().map(|(_, version)| *version);
        assert_eq!(found_version, expected.filter(|it| above < *it), "{range:?} above {above}");
        if let Some((key, version)) = found {
            assert!(range.contains(key.as_ref()));
            assert_eq!(view.key_fact(&key).await.unwrap().newest_change, Some(version));
        }
    }
}

async fn run(events: Vec<Event>, questions: Questions) {
    let mut bucket = Bucket::new().await;
    let mut model = Model::default();
    let mut remembered = (bucket.view.clone(), model.clone());
    for event in events {
        match event {
            Event::Commit(place, mutations) => {
                model.apply(&mutations);
                bucket.commit_at(place, mutations).await;
            }
            Event::Fold => bucket.fold().await,
            Event::Compact => drop(bucket.compact().await),
            Event::CompactPaged => drop(bucket.compact_paged().await),
            Event::Remember => remembered = (bucket.view.clone(), model.clone()),
            Event::CompactRemembered => {
                drop(bucket.compact_to(&remembered.0.clone(), PAGED).await);
            }
            Event::Restart => bucket.view = bucket.cold_view().await,
        }
        // However it came about.
        let again = bucket.cold_view().await;
        assert_eq!(bucket.view.overlay_bytes(), again.overlay_bytes());
        check(&bucket.view, &model, &questions).await;
    }
    // Whoever followed and whoever starts now see the same; a view that was
    // kept has not moved.
    check(&bucket.cold_view().await, &model, &questions).await;
    check(&remembered.0, &remembered.1, &questions).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_view_is_the_map_that_its_changes_make(
        events in proptest::collection::vec(event(), 1..40),
        questions in questions(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(events, questions));
    }
}
