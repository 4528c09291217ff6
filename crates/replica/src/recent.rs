//! Views of recent versions, for exact reads.

use std::collections::VecDeque;

use headwater_core::version::StateVersion;
use headwater_state::View;
use headwater_store::planted;

/// Consecutive versions, the newest last, up to a number and a size. Never
/// empty once something was added.
///
/// Views share what they have in common, so a version costs about what its
/// change holds.
#[derive(Debug)]
pub(crate) struct Recent {
    kept: VecDeque<Kept>,
    size_bytes: u64,
    versions_max: usize,
    bytes_max: u64,
}

#[derive(Debug)]
struct Kept {
    view: View,
    /// Size of the change that led to it.
    size_bytes: u64,
}

impl Recent {
    pub(crate) fn new(versions_max: usize, bytes_max: u64) -> Self {
        let versions_max = versions_max.max(1);
        Self { kept: VecDeque::new(), size_bytes: 0, versions_max, bytes_max }
    }

    /// Most versions that are kept.
    pub(crate) fn versions_max(&self) -> usize {
        self.versions_max
    }

    /// Adds a view, the result of a change of so many bytes. The version that
    /// is there already gets the new view; after a gap, what was there goes.
    pub(crate) fn push(&mut self, view: View, size_bytes: u64) {
        let newest = self.kept.back().map(|it| it.view.version());
        if newest == Some(view.version())
            && let Some(last) = self.kept.back_mut()
        {
            last.view = view;
            return;
        }
        if newest.is_some_and(|it| it.next() != view.version()) {
            self.kept.clear();
            self.size_bytes = 0;
        }
        self.size_bytes += size_bytes;
        self.kept.push_back(Kept { view, size_bytes });
        while 1 < self.kept.len()
            && (self.versions_max < self.kept.len() || self.bytes_max < self.size_bytes)
        {
            let gone = self.kept.pop_front();
            self.size_bytes -= gone.map_or(0, |it| it.size_bytes);
        }
    }

    /// Puts a view of a version that is kept in the place of the one that is
    /// there, whose objects are gone.
    pub(crate) fn replace(&mut self, view: &View) {
        if let Some(kept) = self.kept.iter_mut().find(|it| it.view.version() == view.version()) {
            kept.view = view.clone();
        }
    }

    /// The view of a version, if it is kept.
    pub(crate) fn find(&self, version: StateVersion) -> Option<View> {
        let oldest = self.oldest()?;
        if version < oldest {
            return None;
        }
        let at = usize::try_from(version.since(oldest)).ok()?;
        let at = if planted!(NeighbourServed) { at.saturating_sub(1) } else { at };
        self.kept.get(at).map(|it| it.view.clone())
    }

    /// The oldest version that is kept.
    pub(crate) fn oldest(&self) -> Option<StateVersion> {
        self.kept.front().map(|it| it.view.version())
    }
}
