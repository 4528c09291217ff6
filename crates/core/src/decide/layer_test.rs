//! A layer against the plainest model: what it says of every key there is.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::clone_on_ref_ptr,
    clippy::needless_for_each,
    clippy::type_complexity,
    reason = "a test names what it expects, and fails on the rest"
)]

use std::collections::BTreeMap;
use std::vec::Vec;

use bytes::Bytes;
use proptest::prelude::*;

use super::layer::{Layer, Written};
use crate::change::Resolved;
use crate::operation::{Key, KeyRange};

/// Keys of one and two letters: every bound has keys on both sides and at it.
fn universe() -> Vec<Key> {
    let letters = || b'a'..=b'd';
    let one = letters().map(|a| std::vec![a]);
    let two = letters().flat_map(|a| letters().map(move |b| std::vec![a, b]));
    one.chain(two).map(|it| Key::new(it).unwrap()).collect()
}

fn key() -> impl Strategy<Value = Key> {
    proptest::sample::select(universe())
}

fn range() -> impl Strategy<Value = KeyRange> {
    let start = prop_oneof![Just(Bytes::new()), key().prop_map(Key::into_bytes)];
    let end = proptest::option::of(key().prop_map(Key::into_bytes));
    (start, end).prop_filter_map("inverted", |(start, end)| KeyRange::new(start, end).ok())
}

fn mutation() -> impl Strategy<Value = Resolved> {
    prop_oneof![
        (key(), any::<[u8; 1]>()).prop_map(|(key, it)| Resolved::Put(key, it.to_vec().into())),
        key().prop_map(Resolved::Delete),
        range().prop_map(Resolved::DeleteRange),
    ]
}

/// What became of each key of the universe; absent where nothing did.
type Model = BTreeMap<Key, Option<Bytes>>;

fn apply(model: &mut Model, mutation: &Resolved) {
    match mutation {
        Resolved::Put(key, value) => {
            model.insert(key.clone(), Some(value.clone()));
        }
        Resolved::Delete(key) => {
            model.insert(key.clone(), None);
        }
        Resolved::DeleteRange(range) => {
            let within = universe().into_iter().filter(|it| range.contains(it.as_bytes()));
            model.extend(within.map(|it| (it, None)));
        }
    }
}

fn check(layer: &Layer, model: &Model) {
    for key in universe() {
        let expected = model.get(&key);
        match layer.get(&key) {
            Written::Nothing => assert_eq!(expected, None, "{key:?}"),
            Written::Deleted => assert_eq!(expected, Some(&None), "{key:?}"),
            Written::Value(value) => assert_eq!(expected, Some(&Some(value.clone())), "{key:?}"),
        }
    }
}

proptest! {
    #[test]
    fn a_layer_says_what_a_map_says(mutations in prop::collection::vec(mutation(), 0..12)) {
        let (mut layer, mut model) = (Layer::default(), Model::default());
        for mutation in &mutations {
            layer.apply(mutation);
            apply(&mut model, mutation);
        }
        check(&layer, &model);
    }

    #[test]
    fn a_range_is_touched_if_any_write_or_deletion_reaches_into_it(
        mutations in prop::collection::vec(mutation(), 0..6),
        range in range(),
    ) {
        let mut layer = Layer::default();
        mutations.iter().for_each(|it| layer.apply(it));
        let overlaps = |other: &KeyRange| {
            other.end().is_none_or(|end| range.start() < end)
                && range.end().is_none_or(|end| other.start() < end)
        };
        let is_touched = mutations.iter().any(|it| match it {
            Resolved::Put(key, _) | Resolved::Delete(key) => range.contains(key.as_bytes()),
            Resolved::DeleteRange(deleted) => overlaps(deleted),
        });
        let touched = layer.touches(&range);
        prop_assert_eq!(touched.is_some(), is_touched);
        if let Some(key) = touched {
            prop_assert!(range.contains(&key), "the key that is named lies in the range");
        }
    }
}
