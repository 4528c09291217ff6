//! Following a head: what has to be fetched, and whether it fits.
//!
//! ```text
//! (position, head) -> Plan -> fetch -> Chain::extend for each entry -> Chain::finish
//! ```
//!
//! Both the writer's and the replica's driver follow with this; fetching and
//! applying is theirs.

#[cfg(test)]
mod follow_test;

use alloc::vec::Vec;

use bytes::Bytes;

use crate::hash::{ChainHash, ContentHash};
use crate::head::{ChangeBody, ChangeRef, Head, ObjectRef, RunRef};
use crate::id::HistoryId;
use crate::version::{Revision, StateVersion};

/// How far a process has followed a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The history.
    pub history_id: HistoryId,
    /// Revision of the head that was followed last.
    pub revision: Revision,
    /// Its state version.
    pub version: StateVersion,
    /// Its chain.
    pub chain_hash: ChainHash,
}

impl Position {
    /// Where `head` is.
    pub fn of(head: &Head) -> Self {
        Self {
            history_id: head.history_id,
            revision: head.revision,
            version: head.state_version,
            chain_hash: head.chain_hash,
        }
    }
}

/// One thing to fetch, in order of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to fetch: the entry is in the head.
    Inline {
        /// The version it leads to.
        version: StateVersion,
        /// Its hash, already verified by [`Head::check`].
        hash: ContentHash,
        /// Its bytes.
        bytes: Bytes,
    },
    /// One change entry.
    Change {
        /// The version it leads to.
        version: StateVersion,
        /// The object.
        object: ObjectRef,
    },
    /// A segment, of which entries before `from` are known already.
    Segment {
        /// The first version wanted.
        from: StateVersion,
        /// The object, and what it holds.
        run: RunRef,
    },
}

/// What has to be done to be where a head is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Apply these to what is at hand; none when only maintenance happened.
    Extend(Vec<Step>),
    /// The tail no longer reaches back: open from the snapshot.
    Reopen,
}

/// Why a head is not followed. Serving it would mix two histories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The name belongs to another history now.
    #[error("the history was replaced by another one, {found}")]
    Replaced {
        /// Its id.
        found: HistoryId,
    },
    /// The head is older than one that was seen before, or another one of the
    /// same revision: the store went back, or was restored outside the
    /// protocol.
    #[error(
        "the head went back or aside: {found} at {found_version} after {seen} at {seen_version}"
    )]
    WentBack {
        /// Revision seen before.
        seen: Revision,
        /// Its state version.
        seen_version: StateVersion,
        /// Revision found now.
        found: Revision,
        /// Its state version.
        found_version: StateVersion,
    },
    /// The changes do not lead from what is at hand to the head's chain hash.
    #[error("the head's chain does not extend what is at hand: expected {expected}, got {actual}")]
    ChainBroken {
        /// `chainHash` of the head.
        expected: ChainHash,
        /// What the changes lead to.
        actual: ChainHash,
    },
}

/// Plans the way from `position` to `head`.
///
/// # Errors
///
/// [`FollowError`]; on any of them the head must not be used.
pub fn plan(position: &Position, head: &Head) -> Result<Plan, FollowError> {
    if position.history_id != head.history_id {
        return Err(FollowError::Replaced { found: head.history_id });
    }
    let is_same = position.revision == head.revision
        && position.version == head.state_version
        && position.chain_hash == head.chain_hash;
    let is_later = position.revision < head.revision && position.version <= head.state_version
        || planted!(OlderHeadTaken);
    if !is_same && !is_later {
        return Err(FollowError::WentBack {
            seen: position.revision,
            seen_version: position.version,
            found: head.revision,
            found_version: head.state_version,
        });
    }
    if position.version < head.snapshot.version {
        return Ok(Plan::Reopen);
    }
    Ok(Plan::Extend(steps_after(position.version, head)))
}

/// The part of the head's tail after `version`, which is at or above the
/// snapshot's.
pub fn steps_after(version: StateVersion, head: &Head) -> Vec<Step> {
    let segments = head
        .segments
        .iter()
        .filter(|it| version < it.to)
        .map(|run| Step::Segment { from: run.from.max(version.next()), run: run.clone() });
    let changes = head.changes.iter().filter(|it| version < it.version).map(change_step);
    segments.chain(changes).collect()
}

fn change_step(change: &ChangeRef) -> Step {
    let version = change.version;
    match &change.body {
        ChangeBody::Inline(bytes) => {
            Step::Inline { version, hash: change.hash, bytes: bytes.clone() }
        }
        ChangeBody::Staged(object) => Step::Change { version, object: object.clone() },
    }
}

/// Recomputes the chain while changes are applied.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    version: StateVersion,
    hash: ChainHash,
}

impl Chain {
    /// Begins at a version whose chain hash is known.
    pub fn at(version: StateVersion, hash: ChainHash) -> Self {
        Self { version, hash }
    }

    /// Takes in the next change; returns its version.
    pub fn extend(&mut self, change: ContentHash) -> StateVersion {
        self.version = self.version.next();
        self.hash = self.hash.extend(self.version, change);
        self.version
    }

    /// The version so far.
    pub fn version(&self) -> StateVersion {
        self.version
    }

    /// The chain hash so far.
    pub fn hash(&self) -> ChainHash {
        self.hash
    }

    /// Checks that everything taken in leads to where `head` is.
    ///
    /// # Errors
    ///
    /// [`FollowError::ChainBroken`].
    pub fn finish(self, head: &Head) -> Result<(), FollowError> {
        if self.version == head.state_version && self.hash == head.chain_hash {
            return Ok(());
        }
        Err(FollowError::ChainBroken { expected: head.chain_hash, actual: self.hash })
    }
}
