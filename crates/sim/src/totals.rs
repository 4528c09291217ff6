//! Many runs in numbers.

use std::fmt;
use std::time::Duration;

use crate::run::Report;
use crate::truth::Tally;

/// What a number of runs came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Seeds of runs in which something was wrong.
    pub failed: Vec<u64>,
    /// Operations and reads of clients.
    pub operations: u64,
    /// Runs in which a process died.
    pub with_death: u64,
    /// Runs in which a reply was lost.
    pub with_lost_reply: u64,
    /// Runs in which the sweep boundary was raised and objects were deleted.
    pub with_sweep: u64,
    /// Runs with all three.
    pub with_all: u64,
    reads: u64,
    handed: u64,
    attempts: u64,
    rejected: u64,
    unknown: u64,
    in_doubt: u64,
    deaths: u64,
    disk: (u64, u64, u64),
    lost_replies: u64,
    cut_off: u64,
    throttled: u64,
    events: u64,
    took: Duration,
    tally: Tally,
}

impl Totals {
    /// What the buckets took.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        let has_sweep = 0 < report.tally.sweeps && 0 < report.tally.deleted;
        let (has_death, has_loss) = (0 < report.deaths, 0 < report.lost_replies);
        self.seeds += 1;
        if !report.violations.is_empty() {
            self.failed.push(report.seed);
        }
        self.with_death += u64::from(has_death);
        self.with_lost_reply += u64::from(has_loss);
        self.with_sweep += u64::from(has_sweep);
        self.with_all += u64::from(has_death && has_loss && has_sweep);
        self.operations += report.operations;
        self.reads += report.reads;
        self.handed += report.handed;
        self.attempts += report.attempts;
        self.rejected += report.rejected;
        self.unknown += report.unknown;
        self.in_doubt += report.in_doubt;
        self.deaths += report.deaths;
        self.disk.0 += report.disk.0;
        self.disk.1 += report.disk.1;
        self.disk.2 += report.disk.2;
        self.lost_replies += report.lost_replies;
        self.cut_off += report.cut_off;
        self.throttled += report.throttled;
        self.events += report.events;
        self.took += report.took;
        self.tally.add(&report.tally);
    }
}

impl Report {
    /// The same without the deaths that a story begins with.
    #[must_use]
    pub(crate) fn without_deaths(self, n: u64) -> Self {
        Self { deaths: self.deaths.saturating_sub(n), ..self }
    }

    /// The run in a few lines.
    pub fn summary(&self) -> String {
        let mut totals = Totals::default();
        totals.add(self);
        totals.to_string()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { heads, versions, accepted, snapshots, segments, sweeps, deleted, .. } =
            self.tally;
        let Tally { watched, pins, forks, restores, epochs, .. } = self.tally;
        let Self { seeds, operations, reads, attempts, rejected, unknown, in_doubt, .. } = self;
        writeln!(f, "{seeds} seeds, {} of them failed: {:?}", self.failed.len(), self.failed)?;
        writeln!(
            f,
            "{operations} operations of clients ({reads} reads); {attempts} submissions, of which \
             {accepted} were accepted in {versions} versions by {heads} heads, {rejected} \
             rejected, {unknown} unknown, {in_doubt} in doubt"
        )?;
        writeln!(
            f,
            "{snapshots} snapshots, {segments} segments, {sweeps} sweeps, {deleted} objects \
             deleted"
        )?;
        writeln!(
            f,
            "{watched} versions told by watches, {pins} pins, {forks} forks, {restores} restores, \
             {epochs} epochs raised, {} operations handed from writer to writer",
            self.handed
        )?;
        writeln!(
            f,
            "{} deaths, {} lost replies, {} messages cut off, {} calls throttled",
            self.deaths, self.lost_replies, self.cut_off, self.throttled
        )?;
        let (hits, damaged, failures) = self.disk;
        writeln!(
            f,
            "{hits} objects read from disks, {damaged} found damaged, {failures} writes failed"
        )?;
        writeln!(
            f,
            "seeds with a death {}, with a lost reply {}, with a sweep {}, with all three {}",
            self.with_death, self.with_lost_reply, self.with_sweep, self.with_all
        )?;
        let (events, took) = (self.events, self.took.as_secs());
        write!(f, "{events} events in {took} s of simulated time")
    }
}
