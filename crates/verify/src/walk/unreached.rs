//! What lies below the history's prefix, and nothing leads to.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_core::archive::Archive;
use headwater_core::id::HistoryName;
use headwater_core::keys::{self, ObjectKey, ObjectKind};
use headwater_core::sweep::{Judgement, Sweep};
use headwater_store::{Listed, ReadError, Store as _};

use super::Walk;
use crate::finding::{Finding, Kind, Role};
use crate::report::{Reason, Tally};
use crate::trouble::Trouble;

/// Objects listed by one call.
const LIST_PAGE: usize = 1_000;

/// By what unreached objects are judged.
struct Judges {
    sweep: Sweep,
    archive: Arc<Archive>,
    released: BTreeSet<ObjectKey>,
}

impl Walk<'_> {
    pub(super) async fn list_unreached(&mut self, has_archive: bool) {
        if !has_archive {
            // Nothing could be told from what the archive names.
            let reason = self.trouble_of_archive();
            return self.leave_out(self.part, reason);
        }
        let archive = Arc::clone(&self.archive);
        // What the snapshots lead to is not told to it: that is known to be in
        // use already, and never gets there.
        let sweep = Sweep::of(&self.head, &archive, true);
        let released = archive.released.iter().cloned().collect();
        let judges = Judges { sweep, archive, released };
        for kind in ObjectKind::ALL {
            self.list_kind(kind, &judges).await;
        }
        self.list_strangers().await;
    }

    async fn list_kind(&mut self, kind: ObjectKind, judges: &Judges) {
        let folder = self.head.history.folder(kind);
        let mut after: Option<String> = None;
        loop {
            let listed = match self.store.list(&folder, after.as_deref(), LIST_PAGE).await {
                Ok(listed) => listed,
                Err(error) => return self.blame_listing(&folder, &error),
            };
            let is_end = listed.len() < LIST_PAGE;
            after = listed.last().map(|it| it.key.clone());
            for it in listed {
                self.judge(kind, &it, judges);
            }
            if is_end {
                return;
            }
        }
    }

    pub(super) fn blame_listing(&mut self, folder: &str, error: &ReadError) {
        self.blame(Role::Unreached, folder, None, Trouble::of_read(error));
    }

    fn judge(&mut self, kind: ObjectKind, listed: &Listed, judges: &Judges) {
        let below = listed.key.strip_prefix(self.head.history.as_str());
        let below = below.and_then(|it| it.strip_prefix('/')).unwrap_or_default();
        let Ok(key) = ObjectKey::parse(below) else {
            self.unreached.foreign.add(listed.size_bytes);
            return self.unreached(Kind::Foreign, listed);
        };
        let is_used = self.sound.has(&listed.key) || self.found.is_bad(&listed.key);
        if is_used || judges.sweep.judge(&key) == Judgement::Reached {
            return;
        }
        if !self.is_judged(kind) {
            let key = self.unread.clone().unwrap_or_default();
            self.leave_gap(Reason::Trouble { key });
            return self.unreached.unjudged.add(listed.size_bytes);
        }
        if judges.released.contains(&key) {
            self.unreached.released.add(listed.size_bytes);
            return self.unreached(Kind::Released, listed);
        }
        debug_assert!(judges.archive.history_id == self.head.history_id, "one history");
        let (tally, kind): (&mut Tally, Kind) = match judges.sweep.judge(&key) {
            Judgement::Young => (&mut self.unreached.young, Kind::Young),
            Judgement::Unreached | Judgement::Released => {
                (&mut self.unreached.garbage, Kind::Garbage)
            }
            Judgement::Reached => return,
        };
        tally.add(listed.size_bytes);
        self.unreached(kind, listed);
    }

    pub(super) fn unreached(&mut self, kind: Kind, listed: &Listed) {
        let what = format!("{} bytes", listed.size_bytes);
        self.found.add(Finding::new(kind, Role::Unreached, listed.key.clone(), what));
    }

    /// Objects and folders that the layout does not know, unless they are
    /// histories whose names go on from this one's.
    async fn list_strangers(&mut self) {
        let prefix = format!("{}/", self.head.history);
        let folder = match self.store.list_folder(&prefix).await {
            Ok(folder) => folder,
            Err(error) => return self.blame_listing(&prefix, &error),
        };
        let head_key = self.head.history.head_key();
        for listed in folder.objects.iter().filter(|it| it.key != head_key) {
            self.unreached.foreign.add(listed.size_bytes);
            self.unreached(Kind::Foreign, listed);
        }
        let is_known = |it: &&String| {
            let part = it.strip_prefix(&*prefix).unwrap_or_default().trim_end_matches('/');
            keys::RESERVED_PARTS.contains(&part)
        };
        for below in folder.folders.iter().filter(|it| !is_known(it)) {
            let listed = match self.store.list(below, None, LIST_PAGE).await {
                Ok(listed) => listed,
                Err(error) => return self.blame_listing(below, &error),
            };
            let is_name = HistoryName::parse(below.trim_end_matches('/')).is_ok();
            let has_head = listed.iter().any(|it| it.key.ends_with("/head.json"));
            // A history of more objects than that is taken for one.
            if is_name && (has_head || LIST_PAGE <= listed.len()) {
                continue;
            }
            for it in &listed {
                self.unreached.foreign.add(it.size_bytes);
                self.unreached(Kind::Foreign, it);
            }
        }
    }
}
