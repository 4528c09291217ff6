//! A transaction's own writes, as its own reads see them.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::mutation::Kind;

use crate::range::KeyRange;
use crate::read::Entry;

/// Mutations in order.
#[derive(Debug, Default)]
pub(super) struct Overlay(Vec<Kind>);

/// What own writes say about one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overlaid {
    /// They decide its value, whatever is stored.
    Known(Option<Bytes>),
    /// They add to what is stored. Wider than a stored integer: what is stored
    /// may bring the sum back into range.
    Added(i128),
    /// Nothing.
    Untouched,
}

impl Overlaid {
    /// What a read gives, where `stored` is stored.
    pub(super) fn over(self, stored: Option<Bytes>) -> Option<Bytes> {
        match self {
            Self::Known(value) => value,
            // Where the sum has no value, the writer refuses the operation and
            // says why; the read shows what is stored.
            Self::Added(delta) => added(stored.as_deref(), delta).or(stored),
            Self::Untouched => stored,
        }
    }

    fn then(self, mutation: &Kind, key: &[u8]) -> Self {
        match mutation {
            Kind::Put(put) if put.key == key => Self::Known(Some(put.value.clone())),
            Kind::Delete(deleted) if deleted == key => Self::Known(None),
            Kind::DeleteRange(range) if range_of(range).contains(key) => Self::Known(None),
            Kind::Add(add) if add.key == key => match self {
                Self::Known(value) => {
                    Self::Known(added(value.as_deref(), add.delta.into()).or(value))
                }
                Self::Added(before) => Self::Added(before + i128::from(add.delta)),
                Self::Untouched => Self::Added(add.delta.into()),
            },
            Kind::Put(_) | Kind::Delete(_) | Kind::DeleteRange(_) | Kind::Add(_) => self,
        }
    }
}

impl Overlay {
    pub(super) fn push(&mut self, mutation: Kind) {
        self.0.push(mutation);
    }

    pub(super) fn into_mutations(self) -> Vec<Kind> {
        self.0
    }

    pub(super) fn get(&self, key: &[u8]) -> Overlaid {
        self.0.iter().fold(Overlaid::Untouched, |seen, it| seen.then(it, key))
    }

    /// The entries of `range`, of which `stored` are all that are stored, with
    /// own writes applied.
    pub(super) fn merge(&self, stored: &[Entry], range: &KeyRange, reverse: bool) -> Vec<Entry> {
        let mut merged: BTreeMap<Bytes, Entry> = BTreeMap::new();
        for entry in stored.iter().filter(|it| range.contains(&it.key)) {
            merged.insert(entry.key.clone(), entry.clone());
        }
        let written = self.0.iter().filter_map(written_key);
        for key in written.filter(|it| range.contains(it)) {
            let entry = Entry { key: key.clone(), value: Bytes::new(), version: 0 };
            merged.entry(key.clone()).or_insert(entry);
        }
        let is_stored: BTreeMap<&[u8], &Bytes> =
            stored.iter().map(|it| (it.key.as_ref(), &it.value)).collect();
        let visible = merged.into_values().filter_map(|mut entry| {
            let own = self.get(&entry.key);
            if own != Overlaid::Untouched {
                entry.version = 0;
            }
            entry.value = own.over(is_stored.get(entry.key.as_ref()).map(|&it| it.clone()))?;
            Some(entry)
        });
        if reverse { visible.rev().collect() } else { visible.collect() }
    }
}

/// The key that a mutation may give a value.
fn written_key(mutation: &Kind) -> Option<&Bytes> {
    match mutation {
        Kind::Put(put) => Some(&put.key),
        Kind::Add(add) => Some(&add.key),
        Kind::Delete(_) | Kind::DeleteRange(_) => None,
    }
}

fn range_of(wire: &v1::KeyRange) -> KeyRange {
    KeyRange { start: wire.start.clone(), end: wire.end.clone() }
}

/// The stored form of a sum; none where there is none.
fn added(stored: Option<&[u8]>, delta: i128) -> Option<Bytes> {
    let before = match stored {
        Some(bytes) => i64::from_be_bytes(bytes.try_into().ok()?),
        None => 0,
    };
    let sum = i64::try_from(i128::from(before) + delta).ok()?;
    Some(Bytes::copy_from_slice(&sum.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static str, value: &'static str) -> Entry {
        Entry { key: key.into(), value: value.into(), version: 3 }
    }

    fn overlay(mutations: impl IntoIterator<Item = Kind>) -> Overlay {
        Overlay(mutations.into_iter().collect())
    }

    fn put(key: &'static str, value: &'static str) -> Kind {
        Kind::Put(v1::Put { key: key.into(), value: value.into() })
    }

    fn add(key: &'static str, delta: i64) -> Kind {
        Kind::Add(v1::Add { key: key.into(), delta })
    }

    fn delete_range(start: &'static str, end: &'static str) -> Kind {
        Kind::DeleteRange(v1::KeyRange { start: start.into(), end: end.into() })
    }

    #[test]
    fn later_writes_hide_earlier_ones() {
        let overlay = overlay([put("a", "1"), delete_range("a", "b"), put("a", "2")]);

        assert_eq!(overlay.get(b"a"), Overlaid::Known(Some("2".into())));
        assert_eq!(overlay.get(b"aa"), Overlaid::Known(None));
        assert_eq!(overlay.get(b"b"), Overlaid::Untouched);
    }

    #[test]
    fn additions_need_what_is_stored() {
        let overlay = overlay([add("n", 2), add("n", 3)]);
        let stored = Bytes::copy_from_slice(&7_i64.to_be_bytes());

        let sum = overlay.get(b"n").over(Some(stored));
        assert_eq!(sum.unwrap().as_ref(), 12_i64.to_be_bytes());
        let sum = overlay.get(b"n").over(None);
        assert_eq!(sum.unwrap().as_ref(), 5_i64.to_be_bytes());
        assert_eq!(overlay.get(b"n").over(Some("text".into())).unwrap(), "text");
    }

    #[test]
    fn a_merge_shows_own_writes_in_order_and_hides_own_deletions() {
        let overlay = overlay([put("b", "own"), Kind::Delete("c".into()), put("z", "outside")]);
        let stored = [entry("a", "1"), entry("c", "2"), entry("d", "3")];
        let range = KeyRange::new("a", "e");

        let keys = |reverse| -> Vec<Bytes> {
            overlay.merge(&stored, &range, reverse).into_iter().map(|it| it.key).collect()
        };

        assert_eq!(keys(false), ["a", "b", "d"]);
        assert_eq!(keys(true), ["d", "b", "a"]);
    }
}
