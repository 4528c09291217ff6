//! How the bucket behaves at every request: as S3 does, or as some server that
//! was met in the wild does.
//!
//! In here: what can be ordered. Not in here: faults at single requests
//! ([`Faults`](crate::Faults)), which come on top.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::op::Op;

/// A conduct. The default is S3's: conditions hold under any race, a tag is the
/// MD5 of the bytes, everything is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Which conditions of a PUT are honoured, and when.
    pub conditions: Conditions,
    /// Whether conditions of a GET are looked at.
    pub conditional_reads: ConditionalReads,
    /// Whether a GET looks at its range.
    pub ranges: Ranges,
    /// Whether the last step of an upload in parts looks at its condition.
    pub completion: Completion,
    /// What a failed condition of a PUT is answered with.
    pub refusal: Refusal,
    /// What tags look like.
    pub tags: Tags,
    /// Which form of a tag If-Match of a PUT is compared with.
    pub compared: Compared,
    /// How long a listing does not know of what was written or deleted.
    pub listing_delay: Duration,
    /// How often one object may be written.
    pub limit: Option<WriteLimit>,
    /// What is refused with 403. Without [`Op::List`], what does not exist is
    /// refused as well, as S3 does it: a 404 would tell who may not list.
    pub denied: BTreeSet<Op>,
    /// The access key id that this is denied to; `None`: to everybody.
    pub denied_key: Option<String>,
    /// How far the clock of the `Date` header is ahead, in seconds.
    pub clock_ahead_s: i64,
    /// Whether the bucket says that it keeps versions. It keeps none.
    pub versioning: Versioning,
    /// The rules that the bucket says it has. None of them acts.
    pub lifecycle: Vec<LifecycleRule>,
    /// For how long the bucket says that it keeps what was deleted. Of GCS; it
    /// keeps nothing.
    pub soft_delete_days: u32,
}

/// Which conditions of a PUT are honoured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// All, compared and written in one step.
    #[default]
    Honoured,
    /// If-Match is not looked at; If-None-Match is.
    IfMatchIgnored,
    /// Neither is looked at, as by Garage 2.5 and s3rver 3.7.
    Ignored,
    /// If-None-Match is looked at, and this long afterwards the object is
    /// written: two creates at once both succeed.
    CreatesRace(Duration),
    /// Either is looked at, and this long afterwards the object is written, as
    /// by s3s-fs 0.14. Only a race shows it.
    Race(Duration),
}

impl Conditions {
    /// How long after the comparison the object is written; `None` is at once.
    pub(crate) fn gap(self, is_create: bool) -> Option<Duration> {
        match self {
            Self::CreatesRace(gap) if is_create => Some(gap),
            Self::Race(gap) => Some(gap),
            Self::Honoured | Self::IfMatchIgnored | Self::Ignored | Self::CreatesRace(_) => None,
        }
    }
}

/// Whether conditions of a GET are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConditionalReads {
    /// 304 where the object is the one that the caller has.
    #[default]
    Honoured,
    /// The object, always, as by s3s-fs 0.14.
    Ignored,
}

/// Whether a GET looks at its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// 206 with that part of the object.
    #[default]
    Honoured,
    /// 200 with all of it, which HTTP allows (RFC 9110, 14.2).
    Ignored,
}

/// Whether the last step of an upload in parts looks at its condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// As a PUT does.
    #[default]
    Conditioned,
    /// It writes whatever is there, as in Ceph 16.
    Unconditioned,
}

/// What a failed condition of a PUT is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// 412.
    #[default]
    PreconditionFailed,
    /// 304, which is for reads.
    NotModified,
}

/// What tags look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// MD5 of the bytes: equal bytes have equal tags, whenever they are written.
    #[default]
    ContentHash,
    /// Another one with each write, whatever the bytes are.
    Unique,
    /// `W/"<md5>"`, which If-Match never matches (RFC 9110, 13.1.1).
    Weak,
}

/// Which form of a tag If-Match of a PUT is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compared {
    /// Either.
    #[default]
    Both,
    /// With its quotes. Without them it never matches.
    Quoted,
    /// Without its quotes. With them it never matches, as in Ceph 16. A request
    /// that has the right form is taken without a look at its signature.
    Unquoted,
}

/// How often one object may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimit {
    /// The least time between two writes of a key that succeed.
    pub interval: Duration,
    /// What a write that comes sooner is answered with: 429 on GCS, 503 on S3.
    pub status: u16,
    /// `Retry-After` of that answer, in seconds.
    pub retry_after_s: Option<u64>,
}

impl WriteLimit {
    /// One write a second and object, as on GCS.
    pub const ONE_A_SECOND: Self =
        Self { interval: Duration::from_secs(1), status: 429, retry_after_s: None };
}

/// Whether the bucket says that it keeps versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// It never did.
    #[default]
    Never,
    /// It does.
    Enabled,
    /// It did.
    Suspended,
}

/// A lifecycle rule, as the bucket says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    /// Its name.
    pub id: String,
    /// Keys that it is about begin with this.
    pub prefix: String,
    /// Days after which current objects are deleted.
    pub expire_days: Option<i32>,
    /// Days after which versions that are no longer current are deleted.
    pub noncurrent_days: Option<i32>,
}

/// A name that [`Conduct::with`] does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown conduct `{name}`: there are {}", Conduct::NAMES.join(", "))]
pub struct UnknownConduct {
    /// The name.
    pub name: String,
}

impl Conduct {
    /// Whether `op` is denied to who signs with this key.
    pub(crate) fn denies(&self, op: Op, key_id: Option<&str>) -> bool {
        let is_meant = self.denied_key.as_deref().is_none_or(|it| Some(it) == key_id);
        is_meant && self.denied.contains(&op)
    }
}

/// The time between comparison and writing where a name orders a race.
const GAP: Duration = Duration::from_millis(20);

/// The delay of listings where a name orders one.
const LISTING_DELAY: Duration = Duration::from_secs(2);

impl Conduct {
    /// What [`Conduct::with`] knows.
    pub const NAMES: [&'static str; 20] = [
        "if-match-ignored",
        "conditions-ignored",
        "creates-race",
        "race",
        "reads-ignore-conditions",
        "ranges-ignored",
        "parts-ignore-conditions",
        "not-modified",
        "unique-tags",
        "weak-tags",
        "quoted-tags",
        "unquoted-tags",
        "late-listing",
        "one-a-second",
        "slow-down",
        "no-put",
        "no-get",
        "no-delete",
        "no-list",
        "versioned",
    ];

    /// Adds what `name` stands for: for command lines.
    ///
    /// # Errors
    ///
    /// [`UnknownConduct`] lists the names.
    pub fn with(mut self, name: &str) -> Result<Self, UnknownConduct> {
        match name {
            "if-match-ignored" => self.conditions = Conditions::IfMatchIgnored,
            "conditions-ignored" => self.conditions = Conditions::Ignored,
            "creates-race" => self.conditions = Conditions::CreatesRace(GAP),
            "race" => self.conditions = Conditions::Race(GAP),
            "reads-ignore-conditions" => self.conditional_reads = ConditionalReads::Ignored,
            "ranges-ignored" => self.ranges = Ranges::Ignored,
            "parts-ignore-conditions" => self.completion = Completion::Unconditioned,
            "not-modified" => self.refusal = Refusal::NotModified,
            "unique-tags" => self.tags = Tags::Unique,
            "weak-tags" => self.tags = Tags::Weak,
            "quoted-tags" => self.compared = Compared::Quoted,
            "unquoted-tags" => self.compared = Compared::Unquoted,
            "late-listing" => self.listing_delay = LISTING_DELAY,
            "one-a-second" => self.limit = Some(WriteLimit::ONE_A_SECOND),
            "slow-down" => {
                self.limit = Some(WriteLimit { status: 503, ..WriteLimit::ONE_A_SECOND });
            }
            "no-put" => drop(self.denied.insert(Op::Put)),
            "no-get" => self.denied.extend([Op::Get, Op::Head]),
            "no-delete" => drop(self.denied.insert(Op::Delete)),
            "no-list" => drop(self.denied.insert(Op::List)),
            "versioned" => self.versioning = Versioning::Enabled,
            _ => return Err(UnknownConduct { name: name.into() }),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_orders_something_and_others_are_refused() {
        let plain = Conduct::default();
        for name in Conduct::NAMES {
            assert_ne!(plain.clone().with(name).unwrap(), plain, "{name}");
        }
        let error = plain.with("polite").unwrap_err();
        assert!(error.to_string().contains("polite") && error.to_string().contains("race"));
    }
}
