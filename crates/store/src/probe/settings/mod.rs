//! What a bucket is set to, as far as it says so: versions that are kept, rules
//! that delete, and its clock.
//!
//! ```text
//!          versions, rules                        clock
//! S3       GetBucketVersioning, ...Lifecycle...   Date
//! GCS      Buckets: get, soft deletion too        Date
//! Azure    versions of a blob, soft deletion;     Date
//!          rules: not by keys for data
//! ```
//!
//! # Invariant
//!
//! - What could not be asked is open, and says why: who may use a bucket need
//!   not be allowed to see its settings.

mod azure;
mod gcs;
mod s3;

use std::time::UNIX_EPOCH;

use super::report::{CheckId, Report, Verdict};
use super::told;
use crate::{
    AskError, AzureContainer, AzureOptions, Clock, GcsBucket, GcsOptions, OpenError, S3Bucket,
    S3Options, Said,
};

/// Further apart, signatures are refused (15 minutes on S3 and Azure) or soon
/// will be.
const CLOCK_APART_MAX_S: u64 = 60;

/// A bucket that can be asked, and what all keys of the store begin with: empty,
/// or ends with `/`.
pub(super) struct Asked {
    bucket: Bucket,
    root: String,
}

enum Bucket {
    S3(S3Bucket),
    Gcs(GcsBucket),
    Azure(AzureContainer),
}

/// The answers, as the report has them.
struct Settings {
    versioning: (Verdict, String),
    lifecycle: (Verdict, String),
    clock: (Verdict, String),
}

impl Asked {
    /// The bucket of `url`; `None` where the store has no settings.
    pub(super) fn open(url: &str) -> Result<Option<Self>, OpenError> {
        let (bucket, prefix) = if url.starts_with("s3://") {
            let options = S3Options::parse(url)?;
            (Bucket::S3(S3Bucket::open(&options)?), options.prefix)
        } else if url.starts_with("gs://") {
            let options = GcsOptions::parse(url)?;
            (Bucket::Gcs(GcsBucket::open(&options)?), options.prefix)
        } else if url.starts_with("az://") {
            let options = AzureOptions::parse(url)?;
            (Bucket::Azure(AzureContainer::open(&options)?), options.prefix)
        } else {
            return Ok(None);
        };
        Ok(Some(Self::new(bucket, &prefix)))
    }

    /// A bucket of Google Cloud Storage that is open already.
    pub(super) fn gcs(bucket: GcsBucket, prefix: &str) -> Self {
        Self::new(Bucket::Gcs(bucket), prefix)
    }

    /// A container of Azure that is open already.
    pub(super) fn azure(container: AzureContainer, prefix: &str) -> Self {
        Self::new(Bucket::Azure(container), prefix)
    }

    fn new(bucket: Bucket, prefix: &str) -> Self {
        let root = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { bucket, root }
    }

    /// Asks it; `head` is the key of a head that was replaced.
    pub(super) async fn check(&self, head: &str, clock: &Clock, report: &mut Report) {
        let Settings { versioning, lifecycle, clock } = match &self.bucket {
            Bucket::S3(bucket) => s3::ask(bucket, &self.root, clock).await,
            Bucket::Gcs(bucket) => gcs::ask(bucket, &self.root, clock).await,
            Bucket::Azure(container) => azure::ask(container, head, &self.root, clock).await,
        };
        for (id, (verdict, detail)) in [
            (CheckId::Clock, clock),
            (CheckId::Versioning, versioning),
            (CheckId::Lifecycle, lifecycle),
        ] {
            report.add(id, verdict, detail);
        }
    }
}

fn unasked(error: &AskError) -> String {
    format!("could not be asked: {}", told(error))
}

/// What is said of versions that are kept, by whether something deletes them.
fn kept_versions(is_deleted: Option<bool>) -> (Verdict, String) {
    match is_deleted {
        Some(true) => {
            (Verdict::Holds, "versions are kept, and a rule deletes noncurrent ones".into())
        }
        Some(false) => {
            let detail = "versions are kept, and no rule deletes noncurrent ones: every \
                          replacement of a head leaves one for ever";
            (Verdict::Warns, detail.into())
        }
        None => {
            let detail = "versions are kept; whether a rule deletes noncurrent ones could not be \
                          asked";
            (Verdict::Warns, detail.into())
        }
    }
}

/// What soft deletion costs: a replaced head is a deleted one.
fn soft_deletion(days: &str) -> String {
    format!(
        "soft deletion keeps every replaced head and every deleted object for {days} days, and \
         they are paid for"
    )
}

fn clock_check(said: Option<&Said>, clock: &Clock) -> (Verdict, String) {
    let date = said.and_then(|it| it.date.as_deref());
    let date = date.and_then(|it| httpdate::parse_http_date(it).ok());
    let Some(date) = date.and_then(|it| it.duration_since(UNIX_EPOCH).ok()) else {
        return (Verdict::Open, "the store says no time".into());
    };
    // The header has whole seconds.
    let (theirs, ours) = (date.as_secs(), clock.now_ms() / 1000);
    let apart = theirs.abs_diff(ours);
    let side = if theirs < ours { "behind" } else { "ahead of" };
    let detail = format!("the store's clock is {apart} s {side} this one");
    if apart <= CLOCK_APART_MAX_S {
        return (Verdict::Holds, detail);
    }
    (Verdict::Warns, format!("{detail}: signatures are refused when clocks are too far apart"))
}
