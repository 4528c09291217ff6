//! What was found out, as values.

use std::time::Duration;

use super::{Race, RaceKind};

/// One question to a bucket. The words are for programs and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckId {
    /// The bucket is there and answers.
    Reachable,
    /// Objects can be written.
    PutAllowed,
    /// Objects can be read.
    GetAllowed,
    /// Objects can be listed.
    ListAllowed,
    /// Objects can be deleted.
    DeleteAllowed,
    /// A write of a head is answered with a tag that can be compared.
    Tag,
    /// A second creation fails its condition.
    CreateOnce,
    /// A replacement under the tag that the bucket gave succeeds.
    OwnTag,
    /// A replacement under an older tag fails its condition.
    StaleTag,
    /// A conditional read tells whether the head changed.
    ConditionalRead,
    /// Heads, by the contract suite.
    Heads,
    /// Objects that are written once, by the contract suite.
    Objects,
    /// An object that goes in parts is written once.
    LargeObjects,
    /// A listing knows what was written before it.
    ListIsCurrent,
    /// Listings, by the contract suite.
    Listings,
    /// Of creations at once, one succeeds.
    CreateRace,
    /// Of replacements at once, one succeeds.
    ReplaceRace,
    /// Versions that are kept are deleted again.
    Versioning,
    /// No rule deletes what histories name.
    Lifecycle,
    /// The store's clock agrees with that of this machine.
    Clock,
}

impl CheckId {
    /// The word for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reachable => "reachable",
            Self::PutAllowed => "put-allowed",
            Self::GetAllowed => "get-allowed",
            Self::ListAllowed => "list-allowed",
            Self::DeleteAllowed => "delete-allowed",
            Self::Tag => "tag",
            Self::CreateOnce => "create-once",
            Self::OwnTag => "own-tag",
            Self::StaleTag => "stale-tag",
            Self::ConditionalRead => "conditional-read",
            Self::Heads => "heads",
            Self::Objects => "objects",
            Self::LargeObjects => "large-objects",
            Self::ListIsCurrent => "list-is-current",
            Self::Listings => "listings",
            Self::CreateRace => "create-race",
            Self::ReplaceRace => "replace-race",
            Self::Versioning => "versioning",
            Self::Lifecycle => "lifecycle",
            Self::Clock => "clock",
        }
    }

    /// The rule, in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Reachable => "the bucket answers",
            Self::PutAllowed => "objects can be written",
            Self::GetAllowed => "objects can be read",
            Self::ListAllowed => "objects can be listed",
            Self::DeleteAllowed => "objects can be deleted",
            Self::Tag => "a write is answered with a tag that can be compared",
            Self::CreateOnce => "a second If-None-Match: * is answered with 412",
            Self::OwnTag => "If-Match with the current tag replaces",
            Self::StaleTag => "If-Match with an older tag is answered with 412",
            Self::ConditionalRead => "If-None-Match on a read tells what changed",
            Self::Heads => "heads keep the contract",
            Self::Objects => "objects keep the contract",
            Self::LargeObjects => "an object that goes in parts is written once",
            Self::ListIsCurrent => "a listing knows what was written before it",
            Self::Listings => "listings keep the contract",
            Self::CreateRace => "of many creations at once, one succeeds",
            Self::ReplaceRace => "of many replacements at once, one succeeds",
            Self::Versioning => "no noncurrent versions pile up",
            Self::Lifecycle => "no lifecycle rule takes objects away",
            Self::Clock => "clocks agree",
        }
    }
}

/// The answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// As it has to be.
    Holds,
    /// Could not be asked, or had no answer.
    Open,
    /// Safe, and worth knowing.
    Warns,
    /// The bucket must not hold heads like this.
    Broken,
}

impl Verdict {
    /// The word for people and programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Open => "open",
            Self::Warns => "warns",
            Self::Broken => "broken",
        }
    }
}

/// One question with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which question.
    pub id: CheckId,
    /// Its answer.
    pub verdict: Verdict,
    /// What was seen; may be empty where it holds.
    pub detail: String,
}

/// What a process is allowed to do, as the protocol needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Write objects and heads.
    Put,
    /// Read them.
    Get,
    /// List them.
    List,
    /// Delete them.
    Delete,
}

impl Permission {
    /// Its name on S3. Other clouds have other words for the same.
    pub const fn s3_action(self) -> &'static str {
        match self {
            Self::Put => "s3:PutObject",
            Self::Get => "s3:GetObject",
            Self::List => "s3:ListBucket",
            Self::Delete => "s3:DeleteObject",
        }
    }
}

/// Where tags come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagSource {
    /// Equal bytes have equal tags, whenever they are written. No two heads
    /// have equal bytes (PROTOCOL 3).
    Content,
    /// Each write has its own.
    Unique,
}

/// What a tag looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagForm {
    /// In quotes, as HTTP has it (RFC 9110, 8.8.3).
    Quoted,
    /// Without quotes.
    Unquoted,
    /// Compared by a generation or version, not by the tag.
    Version,
}

/// The bucket's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagKind {
    /// Where they come from; `None` where it could not be asked.
    pub source: Option<TagSource>,
    /// What they look like.
    pub form: TagForm,
}

/// How long one kind of call took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Which calls.
    pub call: &'static str,
    /// How many there were.
    pub n_samples: usize,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 in 100 took no longer; the slowest one where there are fewer.
    pub p99: Duration,
    /// Calls without an answer, which are in none of the others.
    pub n_failed: usize,
}

/// How often one head could be replaced, one replacement after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Replacements that succeeded.
    pub n_replaced: usize,
    /// How often the store asked for less (429, 503).
    pub n_throttled: usize,
    /// In which time.
    pub elapsed: Duration,
}

impl Rate {
    /// Replacements in a thousand seconds, for there are stores that allow
    /// less than one a second.
    pub fn per_1000_seconds(&self) -> u64 {
        let n_replaced = u128::try_from(self.n_replaced).unwrap_or(u128::MAX);
        let per = n_replaced.saturating_mul(1_000_000) / self.elapsed.as_millis().max(1);
        u64::try_from(per).unwrap_or(u64::MAX)
    }
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Everything that was asked holds.
    Fit,
    /// Safe, with something to look at.
    Warned,
    /// Not known: the bucket did not answer.
    Unanswered,
    /// Acknowledged writes would be lost, or nothing could be written.
    Unfit,
}

/// What was found out about a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Questions, in the order in which they were asked.
    pub checks: Vec<Check>,
    /// What is not allowed.
    pub denied: Vec<Permission>,
    /// The bucket's tags.
    pub tag: Option<TagKind>,
    /// Races that were run.
    pub races: Vec<Race>,
    /// Times, by kind of call.
    pub latencies: Vec<Latency>,
    /// Replacements of one head.
    pub replacements: Option<Rate>,
}

impl Report {
    /// The worst that was found.
    pub fn severity(&self) -> Severity {
        let of = |it: &Check| match (it.verdict, it.id) {
            (Verdict::Broken, _) => Severity::Unfit,
            (Verdict::Open, CheckId::Reachable) => Severity::Unanswered,
            // Who may use a bucket need not be allowed to see its settings.
            (Verdict::Open, CheckId::Versioning | CheckId::Lifecycle | CheckId::Clock) => {
                Severity::Fit
            }
            (Verdict::Warns | Verdict::Open, _) => Severity::Warned,
            (Verdict::Holds, _) => Severity::Fit,
        };
        self.checks.iter().map(of).max().unwrap_or(Severity::Unanswered)
    }

    /// Questions that were answered like this.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |it| it.verdict == verdict)
    }

    /// Puts another answer in the place of an earlier one.
    pub fn replace(&mut self, check: Check) {
        if let Some(earlier) = self.checks.iter_mut().find(|it| it.id == check.id) {
            *earlier = check;
        }
    }

    pub(super) fn is_broken(&self, id: CheckId) -> bool {
        self.with(Verdict::Broken).any(|it| it.id == id)
    }

    pub(super) fn is_denied(&self, permission: Permission) -> bool {
        self.denied.contains(&permission)
    }

    pub(super) fn add(&mut self, id: CheckId, verdict: Verdict, detail: impl Into<String>) {
        self.checks.push(Check { id, verdict, detail: detail.into() });
    }

    pub(super) fn holds(&mut self, id: CheckId) {
        self.add(id, Verdict::Holds, "");
    }

    pub(super) fn add_race(&mut self, race: Race) {
        let id = match race.kind {
            RaceKind::Create => CheckId::CreateRace,
            RaceKind::Replace => CheckId::ReplaceRace,
        };
        let (verdict, detail) = race.verdict();
        self.add(id, verdict, detail);
        self.races.push(race);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_answer_decides() {
        let mut report = Report::default();
        assert_eq!(report.severity(), Severity::Unanswered, "nothing was asked");
        report.holds(CheckId::Reachable);
        assert_eq!(report.severity(), Severity::Fit);
        report.add(CheckId::ListIsCurrent, Verdict::Warns, "late");
        assert_eq!(report.severity(), Severity::Warned);
        report.add(CheckId::StaleTag, Verdict::Broken, "replaced");
        assert_eq!(report.severity(), Severity::Unfit);
    }

    #[test]
    fn a_rate_below_one_a_second_is_not_zero() {
        let elapsed = Duration::from_secs(3);
        let rate = Rate { n_replaced: 2, n_throttled: 9, elapsed };
        assert_eq!(rate.per_1000_seconds(), 666);
    }
}
