//! From one state to another: what is found, and what is read for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_core::operation::{Key, KeyRange, Mutation};
use headwater_store::{Call, Entropy};

use crate::bucket::{Bucket, PAGED, SMALL, delete, delete_range, put};
use crate::build::Sizes;
use crate::{ChunkCache, Difference, LoadOptions, Loader, Scan, View};

type State = BTreeMap<Key, Bytes>;

async fn state(view: &View) -> State {
    let scan = Scan {
        range: KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let page = view.scan(&scan).await.unwrap();
    page.entries.into_iter().map(|it| (it.key, it.value)).collect()
}

async fn difference(now: &View, then: &View) -> Vec<Mutation> {
    match now.difference(then, usize::MAX, usize::MAX).await.unwrap() {
        Difference::Mutations(mutations) => mutations,
        Difference::TooLarge => panic!("there is no limit"),
    }
}

/// What it has to be, from both states whole.
fn expected(now: &State, then: &State) -> Vec<Mutation> {
    let keys: std::collections::BTreeSet<&Key> = now.keys().chain(then.keys()).collect();
    let of = |key: &&Key| match (now.get(*key), then.get(*key)) {
        (Some(_), None) => Some(Mutation::Delete((*key).clone())),
        (before, Some(after)) if before != Some(after) => {
            Some(Mutation::Put((*key).clone(), after.clone()))
        }
        _ => None,
    };
    keys.iter().filter_map(of).collect()
}

fn text(number: u64) -> String {
    format!("key-{number:04}")
}

/// One random change.
async fn change(bucket: &mut Bucket, random: &Entropy, round: u64) {
    let at = random.below(400);
    let mutation = match random.below(6) {
        0 => delete(text(at)),
        1 => delete_range(&text(at), &text(at + random.below(30) + 1)),
        _ => put(text(at), format!("value {round}")),
    };
    bucket.commit(vec![mutation]).await;
}

#[tokio::test]
async fn it_is_what_turns_one_state_into_the_other_whatever_lies_in_tails_and_chunks() {
    for (seed, sizes) in [(1, SMALL), (2, PAGED)] {
        let random = Entropy::from_seed(seed);
        let mut bucket = Bucket::new().await;
        bucket.commit((0..400).map(|it| put(text(it), "first")).collect()).await;
        let mut views = vec![bucket.view.clone()];
        for round in 0..45 {
            change(&mut bucket, &random, round).await;
            if random.below(5) == 0 {
                bucket.compact_to(&bucket.view.clone(), sizes).await;
            }
            if random.below(6) == 0 {
                views.push(bucket.view.clone());
            }
        }
        for now in &views {
            for then in &views {
                let (before, after) = (state(now).await, state(then).await);
                let found = difference(now, then).await;
                assert_eq!(found, expected(&before, &after), "{now:?} {then:?}");
            }
        }
    }
}

/// A state of a few hundred chunks, and one in which few entries are others.
async fn nearly_equal(sizes: Sizes) -> (Bucket, View, View) {
    let mut bucket = Bucket::new().await;
    bucket.commit((0..2_000).map(|it| put(text(it), "first")).collect()).await;
    bucket.compact_to(&bucket.view.clone(), sizes).await;
    let then = bucket.head.clone();
    bucket.commit(vec![put(text(700), "other"), delete(text(1_500))]).await;
    bucket.compact_to(&bucket.view.clone(), sizes).await;
    bucket.commit(vec![put(text(1_900), "in the tail")]).await;
    // A loader that has nothing at hand.
    let (store, history) = (bucket.faults.store(), bucket.head.history.clone());
    let loader = Loader::new(store, history, ChunkCache::new(64 << 20), LoadOptions::default());
    let (now, then) = (loader.open(&bucket.head).await, loader.open(&then).await);
    let (now, then) = (now.unwrap().view, then.unwrap().view);
    bucket.faults.clear_log();
    (bucket, now, then)
}

#[tokio::test]
async fn what_both_snapshots_name_is_not_read() {
    for (sizes, reads_max) in [(SMALL, 10), (PAGED, 30)] {
        let (bucket, now, then) = nearly_equal(sizes).await;
        let n_chunks = now.base().all_chunks().await.len();
        assert!(250 < n_chunks, "{n_chunks}");
        bucket.faults.clear_log();

        let found = difference(&now, &then).await;

        assert_eq!(found.len(), 3);
        let log = bucket.faults.log();
        let is_read = |folder: &str| {
            log.iter().filter(|(call, key)| *call == Call::Get && key.contains(folder)).count()
        };
        assert!(is_read("chunks/") <= reads_max, "{}", is_read("chunks/"));
    }
}

#[tokio::test]
async fn more_than_is_allowed_is_said_to_be() {
    let (_, now, then) = nearly_equal(SMALL).await;
    let found = now.difference(&then, 2, usize::MAX).await.unwrap();
    assert_eq!(found, Difference::TooLarge);
    let found = now.difference(&then, usize::MAX, 20).await.unwrap();
    assert_eq!(found, Difference::TooLarge);
    let found = now.difference(&now, 0, 0).await.unwrap();
    assert_eq!(found, Difference::Mutations(Vec::new()));
}
