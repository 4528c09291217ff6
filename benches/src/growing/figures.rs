//! What was measured, and whether it held.

use serde::Serialize;

/// One line.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) operations: u64,
    pub(super) callers: u64,
    pub(super) versions: u64,
    pub(super) revision: u64,
    pub(super) seconds: f64,
    /// One caller, before and after all others.
    pub(super) first_p50_ms: f64,
    pub(super) last_p50_ms: f64,
    /// One caller of a new history, in turns with the last ones.
    pub(super) young_p50_ms: f64,
    /// The first tenth of those that came in batches, and the last.
    pub(super) first_batched_p50_ms: f64,
    pub(super) last_batched_p50_ms: f64,
    pub(super) last_to_first: f64,
    pub(super) last_to_young: f64,
    pub(super) last_to_first_batched: f64,
    pub(super) failures: u64,
    /// Heads that were published, each of which was looked at.
    pub(super) heads: u64,
    pub(super) head_bytes_most: usize,
    /// Without the changes that only travel in a head while they are uploaded.
    pub(super) kept_bytes_most: usize,
    pub(super) objects_most: u64,
    pub(super) swept_objects: u64,
    pub(super) verdict: &'static str,
    /// What did not hold; empty where all did.
    pub(super) violations: Vec<String>,
}

/// What has to hold.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) head_bytes: usize,
    pub(super) kept_bytes: usize,
    pub(super) ratio: f64,
    pub(super) objects: u64,
    pub(super) swept_objects: u64,
    pub(super) bad_heads: Vec<String>,
}

impl Figures {
    /// Says what does not hold.
    pub(super) fn judge(&mut self, limits: &Limits) {
        self.last_to_first = self.last_p50_ms / self.first_p50_ms;
        self.last_to_young = self.last_p50_ms / self.young_p50_ms;
        self.last_to_first_batched = self.last_batched_p50_ms / self.first_batched_p50_ms;
        let ratio = |name: &str, ratio: f64| {
            // One that is no number does not hold either.
            let holds = ratio <= limits.ratio;
            (!holds).then(|| format!("{name} is {ratio:.2}, over {}", limits.ratio))
        };
        let most = |name: &str, found: u64, limit: u64| {
            (limit < found).then(|| format!("{name}: {found}, over {limit}"))
        };
        let found = [
            ratio("p50 at the end to that at the start", self.last_to_first),
            ratio("p50 to that of a new history", self.last_to_young),
            ratio("p50 of batches at the end to that at the start", self.last_to_first_batched),
            most("bytes of a head", self.head_bytes_most as u64, limits.head_bytes as u64),
            most("bytes that stay in it", self.kept_bytes_most as u64, limits.kept_bytes as u64),
            most("objects at a time", self.objects_most, limits.objects),
            most("objects after a sweep", self.swept_objects, limits.swept_objects),
            most("operations that were not accepted", self.failures, 0),
            (self.verdict != "clean").then(|| format!("verify says {}", self.verdict)),
        ];
        self.violations = found.into_iter().flatten().collect();
        self.violations.extend(limits.bad_heads.iter().cloned());
    }
}
