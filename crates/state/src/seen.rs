//! How far each history was followed, also after it was dropped.
//!
//! Whoever holds a history refuses a head that went back because it holds the
//! newer one. So that the older one is not taken for news once the history was
//! closed, the last position outlives it, for as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_core::follow::Position;
use headwater_core::id::HistoryName;

/// Names that are remembered; past it the one used least recently is forgotten.
/// Each takes about 300 bytes with a name of 40: 20 MB in all.
const NAMES_MAX: usize = 65_536;

/// The last position of each history, by name. Clones share it.
#[derive(Clone, Debug)]
pub struct Seen(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    by_name: BTreeMap<HistoryName, Last>,
    /// Names by their last use, the oldest first.
    by_use: BTreeMap<u64, HistoryName>,
    n_uses: u64,
    names_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    position: Position,
    used: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self::new(NAMES_MAX)
    }
}

impl Seen {
    fn new(names_max: usize) -> Self {
        let (by_name, by_use) = (BTreeMap::new(), BTreeMap::new());
        Self(Arc::new(Mutex::new(Inner { by_name, by_use, n_uses: 0, names_max })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the history with this name was followed.
    pub fn position(&self, name: &HistoryName) -> Option<Position> {
        let mut inner = self.lock();
        let position = inner.by_name.get(name)?.position;
        inner.put(name, position);
        Some(position)
    }

    /// A head was followed. An earlier one of the same history changes nothing:
    /// a follower that was dropped may be behind the one that took its place.
    /// Another history takes the name over, and what was known is forgotten.
    pub fn note(&self, name: &HistoryName, position: Position) {
        let mut inner = self.lock();
        let known = inner.by_name.get(name).map(|it| it.position);
        let known = known.filter(|it| it.history_id == position.history_id);
        let newest = known.filter(|it| position.revision <= it.revision).unwrap_or(position);
        inner.put(name, newest);
    }
}

impl Inner {
    fn put(&mut self, name: &HistoryName, position: Position) {
        self.n_uses += 1;
        let last = Last { position, used: self.n_uses };
        let before = self.by_name.insert(name.clone(), last);
        if let Some(before) = before {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(self.n_uses, name.clone());
        while self.names_max < self.by_name.len() {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.by_name.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_core::hash::ChainHash;
    use headwater_core::id::HistoryId;
    use headwater_core::version::{Revision, StateVersion};

    use super::*;

    fn name(text: &str) -> HistoryName {
        HistoryName::parse(text).unwrap()
    }

    fn position(id: u8, revision: u64) -> Position {
        Position {
            history_id: HistoryId::from_bytes([id; 16]),
            revision: Revision::new(revision),
            version: StateVersion::new(revision),
            chain_hash: ChainHash::from_bytes([id; 32]),
        }
    }

    #[test]
    fn a_history_never_goes_back_and_another_one_takes_over() {
        let seen = Seen::new(9);
        assert_eq!(seen.position(&name("h")), None);
        for (noted, expected) in [
            (position(1, 5), position(1, 5)),
            (position(1, 4), position(1, 5)),
            (position(1, 6), position(1, 6)),
            (position(2, 3), position(2, 3)),
        ] {
            seen.note(&name("h"), noted);
            assert_eq!(seen.position(&name("h")), Some(expected));
        }
    }

    #[test]
    fn past_the_limit_the_name_used_least_recently_is_forgotten() {
        let seen = Seen::new(3);
        for text in ["a", "b", "c"] {
            seen.note(&name(text), position(1, 1));
        }
        seen.position(&name("a"));
        seen.note(&name("b"), position(1, 1));
        seen.note(&name("d"), position(1, 1));

        let known = ["a", "b", "c", "d"].map(|it| seen.position(&name(it)).is_some());

        assert_eq!(known, [true, true, false, true]);
        let inner = seen.lock();
        assert_eq!((inner.by_name.len(), inner.by_use.len()), (3, 3));
    }
}
