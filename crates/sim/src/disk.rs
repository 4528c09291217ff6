//! The disk of a replica's process: it is slow or full at times, and between two
//! lives of the process its files stay, are lost, or are damaged.
//!
//! The files are real, below the system's folder for such, and the cache over
//! them is the real one, without its threads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_state::{DiskCache, DiskConduct};
use tempfile::TempDir;

use crate::dice::Dice;
use crate::trace::Trace;

/// What disks of a run are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskPlan {
    pub(crate) bytes_max: u64,
    /// What a read takes, usually.
    pub(crate) read_takes: Duration,
    /// Writes that fail, in thousandths.
    pub(crate) full: u64,
}

/// The disk of one process.
pub(crate) struct Disk {
    plan: DiskPlan,
    dice: Dice,
    /// `None` where the system has no room: then there is no cache.
    folder: Option<TempDir>,
    n_lives: u64,
}

/// What became of the files between two lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Damaged,
}

#[derive(Debug)]
struct Conduct {
    plan: DiskPlan,
    dice: Dice,
    n_refused: AtomicU64,
}

impl DiskConduct for Conduct {
    fn read_takes(&self) -> Duration {
        self.dice.long_tailed(self.plan.read_takes)
    }

    fn before_write(&self, _size_bytes: u64) -> io::Result<()> {
        if self.dice.per_mille(self.plan.full) {
            self.n_refused.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk {
    pub(crate) fn new(plan: DiskPlan, seed: u64, process: usize) -> Self {
        let dice = Dice::new(seed, &format!("disk {process}"));
        Self { plan, dice, folder: TempDir::new().ok(), n_lives: 0 }
    }

    /// The cache of the next life. The one before may not be over yet: it has a
    /// folder of its own, and what it leaves behind is copied.
    pub(crate) fn next_life(&mut self, trace: &Trace, process: usize) -> Option<DiskCache> {
        let folder = self.folder.as_ref()?;
        let before = folder.path().join(self.n_lives.to_string());
        self.n_lives += 1;
        let dir = folder.path().join(self.n_lives.to_string());
        if 1 < self.n_lives {
            let fate = self.dice.pick(&[Fate::Kept, Fate::Kept, Fate::Lost, Fate::Damaged]);
            trace.event(format_args!("process {process}: its disk is {fate:?}"));
            if fate != Fate::Lost {
                self.carry_over(&before, &dir, fate);
            }
        }
        let (plan, dice) = (self.plan, self.dice.clone());
        let conduct = Conduct { plan, dice, n_refused: AtomicU64::new(0) };
        DiskCache::open_at_once(&dir, plan.bytes_max, Arc::new(conduct)).ok()
    }

    /// Copies objects in the order of their names: the order of use is not kept,
    /// as after a crash.
    fn carry_over(&self, from: &Path, to: &Path, fate: Fate) {
        for path in files_below(from) {
            let Ok(mut bytes) = fs::read(&path) else { continue };
            if fate == Fate::Damaged && self.dice.percent(50) {
                self.damage(&mut bytes);
            }
            let Ok(relative) = path.strip_prefix(from) else { continue };
            let path = to.join(relative);
            let written = path.parent().map_or(Ok(()), fs::create_dir_all);
            drop(written.and_then(|()| fs::write(&path, &bytes)));
        }
    }

    fn damage(&self, bytes: &mut Vec<u8>) {
        let at = self.dice.index(bytes.len().max(1));
        match self.dice.below(3) {
            0 => bytes.truncate(at),
            1 => bytes.fill(0),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.dice.below(8);
                }
            }
        }
    }
}

/// Files in folders of two digits: the objects of a cache.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|it| it.path()).collect()
    };
    let is_folder = |it: &PathBuf| it.file_name().is_some_and(|it| it.len() == 2);
    let folders = entries(dir).into_iter().filter(is_folder);
    let mut files: Vec<_> = folders.flat_map(|it| entries(&it)).collect();
    files.sort();
    files
}
