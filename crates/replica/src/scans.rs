//! Views that scans under way go on with, each until a while after its last
//! page.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_core::version::StateVersion;
use headwater_state::View;
use tokio::time::Instant;

/// Views of one history by version, up to a number.
#[derive(Debug)]
pub(crate) struct Scans {
    kept: BTreeMap<StateVersion, Kept>,
    versions_max: usize,
    keep: Duration,
}

#[derive(Debug)]
struct Kept {
    view: View,
    until: Instant,
}

impl Scans {
    pub(crate) fn new(versions_max: usize, keep: Duration) -> Self {
        Self { kept: BTreeMap::new(), versions_max: versions_max.max(1), keep }
    }

    /// Keeps a view, from now on. Past the limit the one that would go first
    /// goes at once.
    pub(crate) fn keep(&mut self, view: View) {
        let now = Instant::now();
        self.forget_expired(now);
        self.kept.insert(view.version(), Kept { view, until: now + self.keep });
        while self.versions_max < self.kept.len() {
            let first =
                self.kept.iter().min_by_key(|(_, it)| it.until).map(|(version, _)| *version);
            let Some(first) = first else { return };
            self.kept.remove(&first);
        }
    }

    /// The view of a version, if it is kept.
    pub(crate) fn find(&self, version: StateVersion) -> Option<View> {
        let kept = self.kept.get(&version)?;
        (Instant::now() < kept.until).then(|| kept.view.clone())
    }

    /// Whether a view is still kept.
    pub(crate) fn is_any(&self, now: Instant) -> bool {
        self.kept.values().any(|it| now < it.until)
    }

    pub(crate) fn forget_expired(&mut self, now: Instant) {
        self.kept.retain(|_, it| now < it.until);
    }
}
