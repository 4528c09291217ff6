//! The short form, for the start of a writer: the conditions, and a few races.
//! About a hundred requests, within a second on a healthy bucket.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::access::{note, of};
use super::race::{self, RaceKind};
use super::report::{Check, CheckId, Permission, Report, Severity, Verdict};
use super::scratch::Tracked;
use super::{basics, patient, scratch_prefix};
use crate::{Entropy, Store, Timeout, TimeoutConfig};

/// Smaller than [`super::ProbeConfig`]: enough to find what loses every third
/// write, and not what loses one in a thousand.
const SIZE: race::Size = race::Size { n_racers: 16, n_rounds: 3 };

/// How often a bucket that does not answer is asked.
const ATTEMPTS_MAX: usize = 3;

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a bucket is not to hold heads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It breaks rules.
    #[error("the store is not safe: {}", .0.join("; "))]
    Broken(Vec<String>),
    /// It could not be asked.
    #[error("the store could not be asked whether it is safe: {}", .0.join("; "))]
    Unanswered(Vec<String>),
}

/// Asks a bucket, below a scratch prefix, whether it keeps the conditions that
/// acknowledged writes rest on. Cleans up.
///
/// # Errors
///
/// [`Unfit`] says which rules it breaks, or why it is not known.
pub async fn check_at_start(store: &Arc<dyn Store>, entropy: &Entropy) -> Result<Report, Unfit> {
    let mut n_attempts = 1;
    loop {
        match check_once(store, entropy).await {
            Err(Unfit::Unanswered(_)) if n_attempts < ATTEMPTS_MAX => sleep(PAUSE).await,
            found => return found,
        }
        n_attempts += 1;
    }
}

async fn check_once(store: &Arc<dyn Store>, entropy: &Entropy) -> Result<Report, Unfit> {
    let tracked = Tracked::default();
    let bounded = Arc::new(Timeout::new(Arc::clone(store), TimeoutConfig::default()));
    let raw = tracked.around(bounded);
    let prefix = scratch_prefix(entropy);
    let mut report = Report::default();
    let patient = patient::Patient::around(&raw);
    basics::check(&*patient, &*patient, &format!("{prefix}/basics"), &mut report).await;
    if report.severity() < Severity::Unanswered {
        let list = raw.list(&format!("{prefix}/"), None, 1).await;
        note(&mut report, Permission::List, of(list), Verdict::Warns);
        for kind in RaceKind::ALL {
            let prefix = format!("{prefix}/race");
            let place = race::Place { stores: [&raw, &raw], prefix: &prefix, entropy };
            report.add_race(race::run(kind, place, SIZE).await);
        }
    }
    let delete = raw.delete(&format!("{prefix}/basics/head.json")).await;
    note(&mut report, Permission::Delete, of(delete), Verdict::Warns);
    let left = tracked.clean(&raw, &format!("{prefix}/")).await;
    if let Some(reason) = left.reason {
        tracing::warn!(prefix, n_left = left.n_left, reason, "probes of the store stay in it");
    }
    judge(report)
}

fn judge(report: Report) -> Result<Report, Unfit> {
    let in_words = |it: &Check| format!("{}: {}", it.id.rule(), it.detail);
    let broken: Vec<String> = report.with(Verdict::Broken).map(in_words).collect();
    if !broken.is_empty() {
        return Err(Unfit::Broken(broken));
    }
    // A question without an answer may have the wrong one. A permission is
    // said, and is no question of safety.
    let is_about_safety =
        |it: &&Check| !matches!(it.id, CheckId::ListAllowed | CheckId::DeleteAllowed);
    let open: Vec<String> =
        report.with(Verdict::Open).filter(is_about_safety).map(in_words).collect();
    if !open.is_empty() {
        return Err(Unfit::Unanswered(open));
    }
    Ok(report)
}
