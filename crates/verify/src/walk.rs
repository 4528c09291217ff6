//! The walk from one head over everything that it leads to.
//!
//! ```text
//! read the head ─▶ walk ─▶ anything missing? ─▶ read the head again
//!        ▲                                        │ it no longer leads there
//!        └────────────────────────────────────────┘ again, a few times
//! ```

mod archive;
mod chain;
mod content;
mod found;
mod moved;
mod pins;
mod receipts;
mod requests;
mod snapshot;
mod tail;
mod unreached;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_core::archive::Archive;
use headwater_core::format;
use headwater_core::format::head::HeadDecodeError;
use headwater_core::head::{Head, Lifecycle};
use headwater_core::id::{HistoryName, Tag};
use headwater_core::keys::ObjectKey;
use headwater_core::version::StateVersion;
use headwater_state::{ChunkCache, LoadOptions, Loader};
use headwater_store::{HeadRead, ReadError, SealError, Store};

use self::chain::ChainWalk;
use self::found::Found;
use self::moved::Settled;
use self::receipts::Covered;
use crate::finding::{Finding, Kind, Role};
use crate::metered::Metered;
use crate::options::Options;
use crate::repair::{Basis, Soundness};
use crate::report::{Part, PartState, Reason, Report, Tally, Unreached};
use crate::{Verifier, VerifyError};

/// How often a check begins again because the head moved.
const ATTEMPTS_MAX: u32 = 4;
/// Chunks kept decoded by each of the two sides of a comparison.
const CACHE_BYTES: u64 = 32 << 20;
/// Runs of changes, of up to 8 MiB each, that are read ahead.
const RUNS_AHEAD: usize = 4;

struct Walk<'a> {
    store: Arc<Metered>,
    options: Options,
    loader: Loader,
    head: Arc<Head>,
    tag: Tag,
    /// Empty until it is read.
    archive: Arc<Archive>,
    /// Objects that are as they should be, by the hash of their key; kept over
    /// attempts.
    sound: &'a mut Sound,
    found: Found,
    chain: ChainWalk,
    covered: Covered,
    parts: BTreeMap<Part, PartState>,
    part: Part,
    /// Every snapshot that was looked at.
    snapshots: BTreeMap<StateVersion, Soundness>,
    /// An index or a page of one that could not be read: nobody knows what it
    /// leads to.
    unread: Option<String>,
    /// What the newest snapshot leads to below this history's prefix.
    newest_reached: Vec<ObjectKey>,
    /// First versions of archived runs that are as they should be.
    sound_runs: BTreeSet<StateVersion>,
    unreached: Unreached,
    requests: Tally,
    restarts: u32,
}

/// Objects in use that were seen to be as they should be.
#[derive(Debug, Default)]
struct Sound {
    keys: std::collections::HashSet<u128>,
    tally: Tally,
}

/// What a key is remembered by: 128 bits of a hash do not meet by chance.
fn mark(key: &str) -> u128 {
    let hash = blake3::hash(key.as_bytes());
    hash.as_bytes().first_chunk().map_or(0, |it| u128::from_le_bytes(*it))
}

impl Sound {
    fn add(&mut self, key: &str, size_bytes: u64) {
        if self.keys.insert(mark(key)) {
            self.tally.add(size_bytes);
        }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.contains(&mark(key))
    }
}

/// What a read of the head gave.
enum Observed {
    Head(Arc<Head>, Tag),
    /// It is there, and of no use: what is wrong with it.
    Unusable(Kind, String),
    Missing,
}

impl Verifier {
    /// Checks one history, within what is left of the budget.
    ///
    /// Cancel safe: nothing is written.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] where nothing could be checked. Whatever is found is in
    /// the report.
    pub async fn verify(&self, history: &HistoryName) -> Result<Report, VerifyError> {
        let mut sound = Sound::default();
        let mut restarts = 0;
        loop {
            self.store.progress().set_doing(history.to_string());
            if let Some(ended) = self.store.ended() {
                return Err(VerifyError::Ended(ended));
            }
            let (head, tag) = match read_head(&self.store, history).await? {
                Observed::Head(head, tag) => (head, tag),
                Observed::Missing => return Err(VerifyError::Missing { history: history.clone() }),
                Observed::Unusable(kind, what) => {
                    return Ok(report_on_head(history, kind, what, self.options.findings_max));
                }
            };
            if head.lifecycle != Lifecycle::Live {
                let lifecycle = head.lifecycle;
                return Err(VerifyError::Retired { history: history.clone(), lifecycle });
            }
            let mut walk = Walk::new(self, head, tag, &mut sound, restarts);
            Box::pin(walk.run()).await;
            let is_last = ATTEMPTS_MAX <= restarts + 1;
            match Box::pin(walk.settle(is_last)).await {
                Settled::Report(report) => return Ok(*report),
                Settled::Again => restarts += 1,
            }
        }
    }
}

async fn read_head(store: &Metered, history: &HistoryName) -> Result<Observed, ReadError> {
    let (bytes, tag) = match store.read_head(&history.head_key(), None).await {
        Ok(HeadRead::Found { bytes, tag }) => (bytes, tag),
        Ok(HeadRead::Missing | HeadRead::Unchanged) => return Ok(Observed::Missing),
        Err(ReadError::Sealed { cause, .. }) => {
            let kind = match cause {
                SealError::NotSealed | SealError::Refused { .. } | SealError::Malformed => {
                    Kind::Damaged
                }
                SealError::NoKeys { .. }
                | SealError::KeyMissing { .. }
                | SealError::OtherKey { .. }
                | SealError::TooNew { .. } => Kind::NotChecked,
            };
            return Ok(Observed::Unusable(kind, cause.to_string()));
        }
        Err(error) => return Err(error),
    };
    Ok(match format::head::decode(&bytes) {
        Ok(head) if head.history == *history => Observed::Head(Arc::new(head), tag),
        Ok(head) => {
            let what = format!("it is the head of {}, copied here", head.history);
            Observed::Unusable(Kind::Damaged, what)
        }
        Err(error @ HeadDecodeError::TooNew { .. }) => {
            Observed::Unusable(Kind::NotChecked, error.to_string())
        }
        Err(error) => Observed::Unusable(Kind::Damaged, error.to_string()),
    })
}

/// Without a head there is nothing to walk from, and nothing may be judged.
fn report_on_head(history: &HistoryName, kind: Kind, what: String, max: usize) -> Report {
    let key = history.head_key();
    let mut found = Found::new(max);
    found.add(Finding::new(kind, Role::Head, key.clone(), what));
    let left_out = |part| (part, PartState::LeftOut(Reason::Trouble { key: key.clone() }));
    let (findings, counts) = found.into_parts();
    Report {
        history: history.clone(),
        head: None,
        findings,
        counts,
        sound: Tally::default(),
        chained: 0,
        receipts_compared: 0,
        unreached: Unreached::default(),
        requests: Tally::default(),
        parts: Part::ALL.into_iter().map(left_out).collect(),
        restarts: 0,
        basis: None,
    }
}

impl<'a> Walk<'a> {
    fn new(
        verifier: &Verifier,
        head: Arc<Head>,
        tag: Tag,
        sound: &'a mut Sound,
        restarts: u32,
    ) -> Self {
        let store = Arc::clone(&verifier.store);
        let loader = loader(&store, &head.history, verifier.options);
        let not_begun = |part| (part, PartState::LeftOut(Reason::NotAsked));
        Self {
            store,
            options: verifier.options,
            loader,
            archive: Arc::new(Archive::empty(head.history_id)),
            chain: ChainWalk::new(&head),
            covered: Covered::new(&head),
            head,
            tag,
            sound,
            found: Found::new(verifier.options.findings_max),
            parts: Part::ALL.into_iter().map(not_begun).collect(),
            part: Part::Head,
            snapshots: BTreeMap::new(),
            unread: None,
            newest_reached: Vec::new(),
            sound_runs: BTreeSet::new(),
            unreached: Unreached::default(),
            requests: Tally::default(),
            restarts,
        }
    }

    /// What matters most comes first: a budget may end it anywhere.
    async fn run(&mut self) {
        self.begin(Part::Head);
        self.check_base().await;
        self.begin(Part::Tail);
        let newest = Box::pin(self.open_newest()).await;
        Box::pin(self.walk_tail()).await;
        self.begin(Part::Archive);
        let has_archive = Box::pin(self.read_archive()).await;
        self.begin(Part::Snapshot);
        if let Some(newest) = newest {
            Box::pin(self.read_newest(&newest, has_archive)).await;
        } else {
            let reason = self.trouble_of_newest();
            self.leave_out(Part::Snapshot, reason.clone());
            self.leave_out(Part::Rebuild, reason);
        }
        self.begin(Part::Receipts);
        Box::pin(self.walk_receipts()).await;
        self.begin(Part::Archive);
        if has_archive {
            Box::pin(self.walk_runs()).await;
            self.begin(Part::OlderSnapshots);
            Box::pin(self.walk_older_snapshots()).await;
            self.begin(Part::Pins);
            self.check_retained();
        } else {
            let reason = self.trouble_of_archive();
            for part in [Part::Archive, Part::OlderSnapshots, Part::Pins] {
                self.leave_out(part, reason.clone());
            }
        }
        self.check_counts();
        if self.options.lists_unreached {
            self.begin(Part::Unreached);
            Box::pin(self.list_unreached(has_archive)).await;
            self.begin(Part::Requests);
            Box::pin(self.walk_requests()).await;
        }
        self.name_pins();
        self.close();
    }

    fn key_of(&self, key: &ObjectKey) -> String {
        self.head.history.object_key(key)
    }

    fn fetches(&self) -> usize {
        self.options.fetches_max
    }

    /// Whether a part was looked at to its end.
    fn is_done(&self, part: Part) -> bool {
        self.parts.get(&part) == Some(&PartState::Done)
    }

    fn begin(&mut self, part: Part) {
        self.part = part;
        let state = match self.store.ended() {
            Some(ended) => PartState::LeftOut(Reason::Ended(ended)),
            None => PartState::Done,
        };
        self.parts.insert(part, state);
        let doing = format!("{}: {}", self.head.history, part.word());
        self.store.progress().set_doing(doing);
    }

    /// Part of what is being done now is left out.
    fn leave_gap(&mut self, reason: Reason) {
        if self.is_done(self.part) {
            self.parts.insert(self.part, PartState::Partly(reason));
        }
    }

    fn leave_out(&mut self, part: Part, reason: Reason) {
        self.parts.insert(part, PartState::LeftOut(reason));
    }

    fn trouble_of_newest(&self) -> Reason {
        self.gap_or(Reason::Trouble { key: self.key_of(&self.head.snapshot.object.key) })
    }

    fn trouble_of_archive(&self) -> Reason {
        let object = self.head.archive.as_ref().map(|it| &it.object.key);
        let key = object.map_or_else(|| self.head.history.head_key(), |it| self.key_of(it));
        self.gap_or(Reason::Trouble { key })
    }

    /// Where the budget is spent, that is the reason for everything.
    fn gap_or(&self, reason: Reason) -> Reason {
        self.store.ended().map_or(reason, Reason::Ended)
    }

    /// A budget that ended it says so in every part that it cut short.
    fn close(&mut self) {
        let Some(ended) = self.store.ended() else { return };
        let asked = [
            (Part::Rebuild, self.options.rebuilds),
            (Part::Unreached, self.options.lists_unreached),
            (Part::Requests, self.options.lists_unreached),
        ];
        for (part, is_asked) in asked {
            let is_open = self.parts.get(&part) == Some(&PartState::LeftOut(Reason::NotAsked));
            if is_asked && is_open {
                self.leave_out(part, Reason::Ended(ended));
            }
        }
    }

    fn into_report(self) -> Report {
        let head = &self.head;
        let basis = Basis {
            head: Arc::clone(head),
            archive: Arc::clone(&self.archive),
            snapshots: self.snapshots,
            sound_runs: self.sound_runs,
            newest_reached: self.newest_reached,
        };
        let (findings, counts) = self.found.into_parts();
        Report {
            history: head.history.clone(),
            head: Some((head.history_id, head.revision, head.state_version)),
            findings,
            counts,
            sound: self.sound.tally,
            chained: self.chain.links(),
            receipts_compared: self.covered.compared(),
            unreached: self.unreached,
            requests: self.requests,
            parts: self.parts,
            restarts: self.restarts,
            basis: Some(basis),
        }
    }
}

fn loader(store: &Arc<Metered>, history: &HistoryName, options: Options) -> Loader {
    let store: Arc<dyn Store> = Arc::<Metered>::clone(store);
    let options = LoadOptions { fetches_max: options.fetches_max.min(RUNS_AHEAD) };
    Loader::new(store, history.clone(), ChunkCache::new(CACHE_BYTES), options)
}
