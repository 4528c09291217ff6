//! Optimistic transactions: read at one version, decide in code, submit with
//! what was read as preconditions, again on conflict.
//!
//! # Invariants
//!
//! - All reads of one attempt are of one version: the first read fixes it, later
//!   ones ask for exactly it.
//! - Every key and range that was read from a replica is a precondition of the
//!   operation, so an accepted transaction is serializable with everything else
//!   in the history.
//! - Each attempt is a new operation with a new id, made only when the one
//!   before was rejected for good. A transport retry keeps the id.

mod overlay;
mod run;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use headwater_proto::limits::PRECONDITIONS_MAX;
use headwater_proto::v1;
use headwater_proto::v1::mutation::Kind as MutationKind;

use self::overlay::{Overlaid, Overlay};
use crate::operation::Operation;
use crate::range::{KeyRange, successor};
use crate::read::{Consistency, Entry, ReadError};
use crate::scan::ScanOptions;
use crate::session::Session;

pub use self::run::{Committed, TxnError, TxnOptions};

/// One attempt of a transaction: reads of one version, and writes that are
/// submitted together once the closure returns.
#[derive(Debug)]
pub struct Txn {
    session: Session,
    /// How fresh the first read must be.
    consistency: Consistency,
    /// Fixed by the first read.
    version: Option<u64>,
    /// Who has that version at hand.
    from: Option<SocketAddr>,
    keys_read: BTreeSet<Bytes>,
    ranges_read: BTreeSet<KeyRange>,
    overlay: Overlay,
    /// The version went away under the attempt, which can only begin again.
    is_stale: bool,
}

impl Txn {
    fn new(session: Session, consistency: Consistency) -> Self {
        Self {
            session,
            consistency,
            version: None,
            from: None,
            keys_read: BTreeSet::new(),
            ranges_read: BTreeSet::new(),
            overlay: Overlay::default(),
            is_stale: false,
        }
    }

    /// The version that this attempt reads; none before the first read.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// Reads one key, own writes included.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; an absent key is not one.
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ReadError> {
        let key = key.into();
        let written = self.overlay.get(&key);
        if let Overlaid::Known(value) = written {
            return Ok(value);
        }
        self.make_room()?;
        let read = self.session.get_from(key.clone(), self.consistency(), self.from).await;
        let (read, from) = self.noticing_staleness(read)?;
        self.fix(read.stamp.state_version, from);
        self.keys_read.insert(key);
        Ok(written.over(read.value.map(|it| it.value)))
    }

    /// Reads the first `limit` entries of a range, own writes included.
    ///
    /// What the transaction depends on is the part of the range that was read:
    /// all of it where fewer than `limit` are returned.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn scan(&mut self, range: KeyRange, limit: usize) -> Result<Vec<Entry>, ReadError> {
        self.scan_in(range, limit, false).await
    }

    /// Reads the last `limit` entries of a range, last first. See [`Txn::scan`].
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn scan_reverse(
        &mut self,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        self.scan_in(range, limit, true).await
    }

    /// Sets a key's value when the transaction is accepted.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        let put = v1::Put { key: key.into(), value: value.into() };
        self.overlay.push(MutationKind::Put(put));
    }

    /// Removes a key when the transaction is accepted.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.overlay.push(MutationKind::Delete(key.into()));
    }

    /// Removes every key of a range when the transaction is accepted.
    pub fn delete_range(&mut self, range: KeyRange) {
        self.overlay.push(MutationKind::DeleteRange(range.into()));
    }

    /// Adds to a 64-bit integer when the transaction is accepted, without
    /// reading it: two transactions that add to one key do not conflict.
    pub fn add(&mut self, key: impl Into<Bytes>, delta: i64) {
        self.overlay.push(MutationKind::Add(v1::Add { key: key.into(), delta }));
    }

    async fn scan_in(
        &mut self,
        range: KeyRange,
        limit: usize,
        reverse: bool,
    ) -> Result<Vec<Entry>, ReadError> {
        self.make_room()?;
        let page_size = u32::try_from(limit.clamp(1, 10_000)).unwrap_or(u32::MAX);
        let consistency = self.consistency();
        let options =
            ScanOptions { range: range.clone(), consistency, reverse, keys_only: false, page_size };
        let mut scan = self.session.scan(options).preferring(self.from);
        let mut entries = Vec::new();
        let mut is_whole = false;
        // Own deletions hide entries, so one page may not be enough.
        let merged = loop {
            let page = scan.next_page().await;
            match self.noticing_staleness(page)? {
                Some(page) => entries.extend(page.value),
                None => is_whole = true,
            }
            let seen = match entries.last() {
                Some(last) if !is_whole => up_to(&range, &last.key, reverse),
                _ if is_whole => range.clone(),
                _ => continue,
            };
            let merged = self.overlay.merge(&entries, &seen, reverse);
            if is_whole || merged.len() >= limit {
                break merged;
            }
        };
        if let (Some(version), Some(from)) = (scan.version(), scan.from()) {
            self.fix(version, from);
        }
        let seen = match merged.get(limit.saturating_sub(1)) {
            Some(last) => up_to(&range, &last.key, reverse),
            None => range,
        };
        self.ranges_read.insert(seen);
        Ok(merged.into_iter().take(limit).collect())
    }

    /// How the next read is asked for.
    fn consistency(&self) -> Consistency {
        self.version.map_or(self.consistency, Consistency::Exact)
    }

    fn fix(&mut self, version: u64, from: SocketAddr) {
        self.version = Some(version);
        self.from = Some(from);
    }

    fn noticing_staleness<T>(&mut self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        let is_gone =
            matches!(read, Err(ReadError::VersionRetired(_) | ReadError::VersionAhead(_)));
        // Before the version is fixed there is nothing that another attempt
        // would do better.
        self.is_stale |= is_gone && self.version.is_some();
        read
    }

    fn make_room(&self) -> Result<(), ReadError> {
        if self.keys_read.len() + self.ranges_read.len() < PRECONDITIONS_MAX {
            Ok(())
        } else {
            Err(ReadError::ReadSetFull { max: PRECONDITIONS_MAX })
        }
    }

    /// The operation that this attempt amounts to; none where it wrote nothing.
    fn into_operation(self) -> Option<Operation> {
        let mutations = self.overlay.into_mutations();
        if mutations.is_empty() {
            return None;
        }
        let mut operation = self.session.client.operation();
        if let Some(version) = self.version {
            for key in self.keys_read {
                operation = operation.require_unchanged(key, version);
            }
            for range in self.ranges_read {
                operation = operation.require_range_unchanged(range, version);
            }
        }
        Some(mutations.into_iter().fold(operation, Operation::then))
    }
}

/// The part of `range` that a scan has seen when `last` is the last key it gave.
fn up_to(range: &KeyRange, last: &[u8], reverse: bool) -> KeyRange {
    if reverse {
        KeyRange { start: Bytes::copy_from_slice(last), end: range.end.clone() }
    } else {
        KeyRange { start: range.start.clone(), end: successor(last) }
    }
}
