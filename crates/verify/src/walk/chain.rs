//! The chain, from every point where it is known to the next.
//!
//! It is known at each snapshot and at the head. Between them every change
//! extends it. Where a run is missing, it goes on from the next known point.

use std::collections::BTreeMap;

use headwater_core::hash::{ChainHash, ContentHash};
use headwater_core::head::Head;
use headwater_core::version::StateVersion;

#[derive(Debug)]
pub(super) struct ChainWalk {
    /// What a snapshot or the head says, and its key.
    points: BTreeMap<StateVersion, (ChainHash, String)>,
    at: Option<(StateVersion, ChainHash)>,
    links: u64,
}

/// The changes lead somewhere else than a known point says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// Who says so.
    pub(super) key: String,
    pub(super) at: StateVersion,
    pub(super) expected: ChainHash,
    pub(super) found: ChainHash,
}

impl ChainWalk {
    pub(super) fn new(head: &Head) -> Self {
        let says = (head.chain_hash, head.history.head_key());
        let points = BTreeMap::from([(head.state_version, says)]);
        Self { points, at: None, links: 0 }
    }

    /// A snapshot says what the chain is. Where another one, or the head, says
    /// something else of the same version, that is broken.
    pub(super) fn point(
        &mut self,
        version: StateVersion,
        hash: ChainHash,
        key: &str,
    ) -> Result<(), Broken> {
        match self.points.get(&version) {
            Some((expected, _)) if *expected != hash => {
                let (expected, key) = (*expected, key.to_owned());
                Err(Broken { key, at: version, expected, found: hash })
            }
            Some(_) => Ok(()),
            None => {
                self.points.insert(version, (hash, key.to_owned()));
                Ok(())
            }
        }
    }

    /// Takes in the change that leads to `version`.
    pub(super) fn step(
        &mut self,
        version: StateVersion,
        change: ContentHash,
    ) -> Result<(), Broken> {
        let before = StateVersion::new(version.get().saturating_sub(1));
        let known = self.at.filter(|it| it.0 == before).map(|it| it.1);
        let Some(from) = known.or_else(|| Some(self.points.get(&before)?.0)) else {
            self.at = None;
            return Ok(());
        };
        let found = from.extend(version, change);
        self.links += 1;
        match self.points.get(&version) {
            Some((expected, key)) if *expected != found => {
                self.at = Some((version, *expected));
                Err(Broken { key: key.clone(), at: version, expected: *expected, found })
            }
            Some(_) | None => {
                self.at = Some((version, found));
                Ok(())
            }
        }
    }

    /// How many changes were verified to follow the one before.
    pub(super) fn links(&self) -> u64 {
        self.links
    }
}

#[cfg(test)]
mod tests {
    use headwater_core::head::{ObjectRef, Publisher};
    use headwater_core::id::{HistoryId, HistoryName, Nonce};
    use headwater_core::keys::ObjectKind;
    use headwater_core::version::Revision;

    use super::*;

    fn version(number: u64) -> StateVersion {
        StateVersion::new(number)
    }

    fn change(number: u64) -> ContentHash {
        ContentHash::of(&number.to_be_bytes())
    }

    fn chain_at(number: u64) -> ChainHash {
        let first = ChainHash::first(HistoryId::from_bytes([1; 16]));
        (1..=number).fold(first, |it, number| it.extend(version(number), change(number)))
    }

    fn walk_to(number: u64) -> ChainWalk {
        let id = HistoryId::from_bytes([1; 16]);
        let snapshot = ObjectRef::to_content(ObjectKind::Snapshot, Revision::new(0), b"");
        let publisher =
            Publisher { id: "p".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
        let name = HistoryName::parse("h").unwrap();
        let first = Head::first(name, id, Revision::FIRST, false, publisher, snapshot);
        ChainWalk::new(&Head {
            state_version: version(number),
            chain_hash: chain_at(number),
            ..first
        })
    }

    #[test]
    fn every_change_between_two_known_points_is_verified() {
        let mut walk = walk_to(5);
        walk.point(version(0), chain_at(0), "first").unwrap();
        walk.point(version(3), chain_at(3), "third").unwrap();
        for number in 1..=5 {
            walk.step(version(number), change(number)).unwrap();
        }
        assert_eq!(walk.links(), 5);
    }

    #[test]
    fn a_wrong_change_is_noticed_at_the_next_point_and_once() {
        let mut walk = walk_to(5);
        walk.point(version(0), chain_at(0), "first").unwrap();
        walk.point(version(3), chain_at(3), "third").unwrap();
        walk.step(version(1), change(9)).unwrap();
        walk.step(version(2), change(2)).unwrap();
        let broken = walk.step(version(3), change(3)).unwrap_err();
        assert_eq!((broken.at, &*broken.key), (version(3), "third"));
        walk.step(version(4), change(4)).unwrap();
        walk.step(version(5), change(5)).unwrap();
    }

    #[test]
    fn after_a_gap_it_goes_on_from_the_next_point() {
        let mut walk = walk_to(5);
        walk.point(version(4), chain_at(4), "fourth").unwrap();
        walk.step(version(2), change(2)).unwrap();
        assert_eq!(walk.links(), 0);
        assert!(walk.step(version(5), change(6)).is_err());
        let other = walk.point(version(4), chain_at(3), "other").unwrap_err();
        assert_eq!(other.key, "other");
    }
}
