//! Change entries of the tail and of the archive.

use headwater_core::head::{ChangeBody, Head, RunRef};
use headwater_core::version::StateVersion;
use headwater_state::{LoadedChange, Loader, StateError};

use crate::local::Pinned;

/// Changes that the head names one by one and that are read together for those
/// who are behind: as many, or so many bytes.
const CHANGES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u64 = 1 << 20;

/// Which change entries are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRange {
    /// The first version; 0 is the oldest at hand.
    pub from: StateVersion,
    /// Most entries.
    pub versions_max: u64,
    /// Most bytes of them as stored. The first is returned whatever it takes.
    pub bytes_max: usize,
}

/// Changes that are read together, whoever asks for one of them: so that all
/// who are behind by about as much share what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// A segment of the tail, or a part of the changes that the head names one
    /// by one: first and last version.
    Tail(StateVersion, StateVersion),
    /// A run of the archive.
    Archived(RunRef),
}

impl ChangeRange {
    /// The entries; `None` where they are no longer at hand.
    pub(crate) async fn read(
        self,
        loader: &Loader,
        pinned: &Pinned,
    ) -> Result<Option<Vec<LoadedChange>>, StateError> {
        let head = pinned.head();
        let from = if self.from == StateVersion::ZERO { oldest(head) } else { self.from };
        if pinned.version() < from {
            return Ok(Some(Vec::new()));
        }
        let last = from.get().saturating_add(self.versions_max.max(1) - 1);
        let last = StateVersion::new(last).min(pinned.version());
        let mut changes = if from < head.tail_from() {
            let Some(run) = archived(loader, head, from).await? else { return Ok(None) };
            loader.read_run(&run, from).await?
        } else {
            // Only the part of the tail that is wanted, so that not more is
            // fetched.
            let mut part = (**head).clone();
            part.segments.retain(|it| it.from <= last);
            part.changes.retain(|it| it.version <= last);
            loader.read_changes(&part, from, self.bytes_max).await?
        };
        let mut size_bytes = 0;
        let n_wanted = changes.iter().take_while(|it| {
            let is_first = size_bytes == 0;
            size_bytes += it.bytes.len();
            it.version <= last && (is_first || size_bytes <= self.bytes_max)
        });
        let n_wanted = n_wanted.count();
        changes.truncate(n_wanted);
        Ok(Some(changes))
    }
}

/// The first version whose change is at hand.
pub(crate) fn oldest(head: &Head) -> StateVersion {
    head.retained_from().next()
}

impl Together {
    /// What is read together with the change that leads to `version`. `None`
    /// where that is gone.
    pub(crate) async fn with(
        loader: &Loader,
        head: &Head,
        version: StateVersion,
    ) -> Result<Option<Self>, StateError> {
        if version < head.tail_from() {
            let run = archived(loader, head, version).await?;
            return Ok(run.map(Self::Archived));
        }
        Ok(in_tail(head, version).map(|(from, to)| Self::Tail(from, to)))
    }

    /// Reads them.
    pub(crate) async fn read(
        &self,
        loader: &Loader,
        head: &Head,
    ) -> Result<Vec<LoadedChange>, StateError> {
        match self {
            Self::Tail(from, to) => {
                let mut part = head.clone();
                part.segments.retain(|it| *from <= it.from && it.to <= *to);
                part.changes.retain(|it| *from <= it.version && it.version <= *to);
                loader.read_changes(&part, *from, usize::MAX).await
            }
            Self::Archived(run) => loader.read_run(run, run.from).await,
        }
    }
}

/// The run of the archive that holds the change which leads to `version`, where
/// everything from there on is kept.
async fn archived(
    loader: &Loader,
    head: &Head,
    version: StateVersion,
) -> Result<Option<RunRef>, StateError> {
    let before = StateVersion::new(version.get().saturating_sub(1));
    // Below that only what pins need is there, and nothing leads on from it.
    if before < head.retained_from() {
        return Ok(None);
    }
    let runs = loader.archive(head).await?.runs_after(before, head);
    Ok(runs.and_then(|it| it.into_iter().next()))
}

fn in_tail(head: &Head, version: StateVersion) -> Option<(StateVersion, StateVersion)> {
    if let Some(run) = head.segments.iter().find(|it| it.from <= version && version <= it.to) {
        return Some((run.from, run.to));
    }
    let mut rest = head.changes.as_slice();
    while let Some(first) = rest.first() {
        let (mut count, mut size_bytes) = (0, 0);
        for change in rest.iter().take(CHANGES_AT_ONCE) {
            size_bytes += match &change.body {
                ChangeBody::Inline(bytes) => bytes.len() as u64,
                ChangeBody::Staged(object) => object.size_bytes,
            };
            if BYTES_AT_ONCE < size_bytes && 0 < count {
                break;
            }
            count += 1;
        }
        let (part, after) = rest.split_at(count);
        let last = part.last().map_or(first.version, |it| it.version);
        if first.version <= version && version <= last {
            return Some((first.version, last));
        }
        rest = after;
    }
    None
}
