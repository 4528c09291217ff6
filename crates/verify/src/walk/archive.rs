//! The archive: older changes, and the chain and receipts through them.

use std::sync::Arc;

use futures::StreamExt as _;
use headwater_core::head::RunRef;
use headwater_core::version::StateVersion;
use headwater_state::LoadedChange;

use super::Walk;
use crate::finding::Role;
use crate::trouble::Trouble;

impl Walk<'_> {
    /// Reads the archive; whether it is at hand.
    pub(super) async fn read_archive(&mut self) -> bool {
        let Some(named) = self.head.archive.clone() else { return true };
        let key = self.key_of(&named.object.key);
        match self.loader.archive(&self.head).await {
            Ok(archive) => {
                self.archive = Arc::clone(&archive);
                let newest = self.head.snapshot.version;
                let is_past = archive.runs.last().is_some_and(|it| newest < it.run.to)
                    || archive.snapshots.last().is_some_and(|it| newest <= it.snapshot.version);
                if is_past {
                    let what = "it holds versions of the tail".to_owned();
                    self.blame(Role::Archive, &key, None, Trouble::Damaged(what));
                    return false;
                }
                self.sound.add(&key, named.object.size_bytes);
                true
            }
            Err(error) => {
                self.blame_load(Role::Archive, &key, None, &error);
                false
            }
        }
    }

    /// Every archived change, oldest first: its place in the chain, and what a
    /// page of receipts says of it.
    pub(super) async fn walk_runs(&mut self) {
        self.point_at_older_snapshots().await;
        let archive = Arc::clone(&self.archive);
        let mut times = archive.runs.iter().map(|it| (it.decided_from_ms, it.decided_to_ms));
        let mut runs = self.read_runs(archive.runs.iter().map(|it| it.run.clone()).collect());
        while let Some((run, key, changes)) = runs.next().await {
            let said = times.next();
            match changes {
                Ok(changes) => {
                    if said.is_some_and(|it| it != decided(&changes)) {
                        // Retention goes by these.
                        let what = "the archive has other times for it than its changes".into();
                        self.blame(Role::Run, &key, Some(versions(&run)), Trouble::Damaged(what));
                        continue;
                    }
                    self.sound.add(&key, run.object.size_bytes);
                    self.sound_runs.insert(run.from);
                    for it in changes {
                        let linked = self.chain.step(it.version, it.hash);
                        self.note_broken(linked);
                        self.compare_receipts(it.version, &it.change);
                    }
                }
                Err(error) => {
                    self.blame_load(Role::Run, &key, Some(versions(&run)), &error);
                }
            }
        }
    }

    /// What older snapshots say of the chain. Those that cannot be read are
    /// found when their parts are walked.
    async fn point_at_older_snapshots(&mut self) {
        let archive = Arc::clone(&self.archive);
        for it in &archive.snapshots {
            let version = it.snapshot.version;
            let opened = self.loader.open_archived(&self.head, &archive, version).await;
            if let Ok(Some(view)) = opened {
                let key = self.key_of(&it.snapshot.object.key);
                let said = self.chain.point(version, view.chain_hash(), &key);
                self.note_broken(said);
            }
        }
    }
}

fn versions(run: &RunRef) -> (StateVersion, StateVersion) {
    (run.from, run.to)
}

fn decided(changes: &[LoadedChange]) -> (u64, u64) {
    let times = changes.iter().map(|it| it.change.decided_at_ms);
    times.fold((u64::MAX, 0), |(low, high), it| (low.min(it), high.max(it)))
}
