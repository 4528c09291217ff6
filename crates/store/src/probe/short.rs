//! The short form, for the start of a writer: the conditions, and a few races.
//! About a hundred requests, within a second on a healthy bucket.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::race::{self, RaceKind};
use super::report::{Report, Severity, Verdict};
use super::scratch::Tracked;
use super::{basics, patient, scratch_prefix};
use crate::{Entropy, Store};

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
    let raw = tracked.around(Arc::clone(store));
    let prefix = scratch_prefix(entropy);
    let mut report = Report::default();
    let patient = patient::Patient::around(&raw);
    basics::check(&*patient, &*patient, &format!("{prefix}/basics"), &mut report).await;
    if report.severity() < Severity::Unanswered {
        for kind in RaceKind::ALL {
            let prefix = format!("{prefix}/race");
            let place = race::Place { stores: [&raw, &raw], prefix: &prefix, entropy };
            report.add_race(race::run(kind, place, SIZE).await);
        }
    }
    let left = tracked.clean(&raw, &format!("{prefix}/")).await;
    if let Some(reason) = left.reason {
        tracing::warn!(prefix, n_left = left.n_left, reason, "probes of the store stay in it");
    }
    judge(report)
}

fn judge(report: Report) -> Result<Report, Unfit> {
    let told = |verdict| -> Vec<String> {
        let told = report.with(verdict).map(|it| format!("{}: {}", it.id.rule(), it.detail));
        told.collect()
    };
    let broken = told(Verdict::Broken);
    if !broken.is_empty() {
        return Err(Unfit::Broken(broken));
    }
    // A question without an answer may have the wrong one.
    let open = told(Verdict::Open);
    if !open.is_empty() {
        return Err(Unfit::Unanswered(open));
    }
    Ok(report)
}
