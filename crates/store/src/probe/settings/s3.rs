//! What a bucket in S3 is set to.

use http::StatusCode;
use serde::Deserialize;

use super::{Settings, clock_check, kept_versions, unasked};
use crate::probe::report::Verdict;
use crate::{AskError, Clock, S3Bucket, Said};

/// `VersioningConfiguration` (S3's API reference, `GetBucketVersioning`).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Versioning {
    status: Option<String>,
}

/// `LifecycleConfiguration` (`GetBucketLifecycleConfiguration`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lifecycle {
    #[serde(rename = "Rule")]
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Rule {
    #[serde(rename = "ID")]
    id: Option<String>,
    status: Option<String>,
    /// The older place of the prefix.
    prefix: Option<String>,
    filter: Option<Filter>,
    expiration: Option<Expiration>,
    #[serde(rename = "Transition")]
    transitions: Vec<Transition>,
    noncurrent_version_expiration: Option<Expiration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Filter {
    prefix: Option<String>,
    tag: Option<Empty>,
    and: Option<And>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct And {
    prefix: Option<String>,
    #[serde(rename = "Tag")]
    tags: Vec<Empty>,
}

#[derive(Debug, Default, Deserialize)]
struct Empty {}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Expiration {
    days: Option<u64>,
    date: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Transition {
    storage_class: Option<String>,
}

impl Rule {
    fn is_enabled(&self) -> bool {
        self.status.as_deref() == Some("Enabled")
    }

    /// The keys that it is about begin with this.
    fn prefix(&self) -> &str {
        let filter = self.filter.as_ref();
        let in_filter = filter.and_then(|it| it.prefix.as_deref());
        let in_and = filter.and_then(|it| it.and.as_ref()).and_then(|it| it.prefix.as_deref());
        in_filter.or(in_and).or(self.prefix.as_deref()).unwrap_or_default()
    }

    /// Whether it is about tagged objects alone; ours have no tags.
    fn wants_tags(&self) -> bool {
        self.filter.as_ref().is_some_and(|it| {
            it.tag.is_some() || it.and.as_ref().is_some_and(|and| !and.tags.is_empty())
        })
    }

    /// Whether some key below `root` is one of its keys.
    fn concerns(&self, root: &str) -> bool {
        let prefix = self.prefix();
        let overlaps = root.starts_with(prefix) || prefix.starts_with(root);
        self.is_enabled() && !self.wants_tags() && overlaps
    }

    /// Whether all keys below `root` are its keys.
    fn covers(&self, root: &str) -> bool {
        self.is_enabled() && !self.wants_tags() && root.starts_with(self.prefix())
    }

    fn name(&self) -> &str {
        self.id.as_deref().unwrap_or("without a name")
    }
}

impl Expiration {
    /// Whether it is about objects, and not about markers of deletion alone.
    fn deletes(&self) -> bool {
        self.days.is_some() || self.date.is_some()
    }

    fn when(&self) -> String {
        match (self.days, &self.date) {
            (Some(days), _) => format!("after {days} days"),
            (None, Some(date)) => format!("on {date}"),
            (None, None) => String::new(),
        }
    }
}

/// Asks the bucket; `root` is what all keys of the store begin with.
pub(super) async fn ask(bucket: &S3Bucket, root: &str, clock: &Clock) -> Settings {
    let versioning = bucket.ask("versioning").await;
    let clock = clock_check(versioning.as_ref().ok(), clock);
    let lifecycle = bucket.ask("lifecycle").await.map(no_rules_are_rules);
    let versioning = document(versioning, "<VersioningConfiguration");
    let rules = document::<Lifecycle>(lifecycle, "<LifecycleConfiguration").map(|it| it.rules);
    let versioning = versioning_check(versioning, rules.as_deref(), root);
    Settings { versioning, lifecycle: lifecycle_check(rules, root), clock }
}

/// A bucket without rules says that it has no configuration.
fn no_rules_are_rules(said: Said) -> Said {
    if said.status == StatusCode::NOT_FOUND && said.body.contains("NoSuchLifecycleConfiguration") {
        let body = "<LifecycleConfiguration></LifecycleConfiguration>".into();
        return Said { status: StatusCode::OK, body, ..said };
    }
    said
}

/// The document, or why there is none.
fn document<T: for<'de> Deserialize<'de>>(
    said: Result<Said, AskError>,
    start: &str,
) -> Result<T, String> {
    let said = said.map_err(|it| unasked(&it))?;
    if said.status != StatusCode::OK || !said.body.contains(start) {
        return Err(format!(
            "could not be asked: the store answered {} with something else",
            said.status
        ));
    }
    quick_xml::de::from_str(&said.body).map_err(|it| format!("the answer cannot be read: {it}"))
}

fn versioning_check(
    versioning: Result<Versioning, String>,
    rules: Result<&[Rule], &String>,
    root: &str,
) -> (Verdict, String) {
    let status = match versioning {
        Ok(it) => it.status.unwrap_or_default(),
        Err(why) => return (Verdict::Open, why),
    };
    if status != "Enabled" {
        return (Verdict::Holds, "no versions are kept".into());
    }
    let expires = |it: &Rule| it.noncurrent_version_expiration.is_some() && it.covers(root);
    kept_versions(rules.ok().map(|it| it.iter().any(expires)))
}

fn lifecycle_check(rules: Result<Vec<Rule>, String>, root: &str) -> (Verdict, String) {
    let rules = match rules {
        Ok(rules) => rules,
        Err(why) => return (Verdict::Open, why),
    };
    for rule in rules.iter().filter(|it| it.concerns(root)) {
        if let Some(expiration) = rule.expiration.as_ref().filter(|it| it.deletes()) {
            let detail = format!(
                "the rule `{}` deletes objects below `{}` {}: histories would lose what they name",
                rule.name(),
                rule.prefix(),
                expiration.when()
            );
            return (Verdict::Broken, detail);
        }
        // What has to be restored before it is read (S3's storage classes).
        let is_archive = |it: &&Transition| {
            matches!(it.storage_class.as_deref(), Some("GLACIER" | "DEEP_ARCHIVE"))
        };
        if let Some(transition) = rule.transitions.iter().find(is_archive) {
            let detail = format!(
                "the rule `{}` moves objects to {}, where they cannot be read at once",
                rule.name(),
                transition.storage_class.as_deref().unwrap_or_default()
            );
            return (Verdict::Broken, detail);
        }
    }
    (Verdict::Holds, String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(xml: &str) -> Vec<Rule> {
        let said = Said {
            status: StatusCode::OK,
            date: None,
            body: format!(
                "<?xml version=\"1.0\"?><LifecycleConfiguration>{xml}</LifecycleConfiguration>"
            ),
        };
        document::<Lifecycle>(Ok(said), "<LifecycleConfiguration").unwrap().rules
    }

    fn rule(filter: &str, action: &str) -> String {
        format!("<Rule><ID>r</ID>{filter}<Status>Enabled</Status>{action}</Rule>")
    }

    const EXPIRES: &str = "<Expiration><Days>30</Days></Expiration>";
    const NONCURRENT: &str = "<NoncurrentVersionExpiration><NoncurrentDays>7</NoncurrentDays></NoncurrentVersionExpiration>";

    #[test]
    fn a_rule_that_deletes_histories_is_found_by_its_prefix() {
        let verdict = |filter: &str, action: &str, root: &str| {
            lifecycle_check(Ok(rules(&rule(filter, action))), root).0
        };
        for filter in [
            "",
            "<Prefix></Prefix>",
            "<Prefix>a/</Prefix>",
            "<Filter><Prefix>a/</Prefix></Filter>",
            "<Filter><Prefix>a/b/c</Prefix></Filter>",
            "<Filter><And><Prefix>a/</Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>",
        ] {
            assert_eq!(verdict(filter, EXPIRES, "a/b/"), Verdict::Broken, "{filter}");
        }
        for filter in [
            "<Filter><Prefix>logs/</Prefix></Filter>",
            "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>",
            "<Filter><And><Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>",
        ] {
            assert_eq!(verdict(filter, EXPIRES, "a/b/"), Verdict::Holds, "{filter}");
        }
        let disabled = rule("", EXPIRES).replace("Enabled", "Disabled");
        assert_eq!(lifecycle_check(Ok(rules(&disabled)), "a/").0, Verdict::Holds);
        for harmless in [
            NONCURRENT,
            "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
            "<Transition><Days>3</Days><StorageClass>STANDARD_IA</StorageClass></Transition>",
            "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
        ] {
            assert_eq!(verdict("", harmless, "a/b/"), Verdict::Holds, "{harmless}");
        }
        let archived =
            "<Transition><Days>3</Days><StorageClass>GLACIER</StorageClass></Transition>";
        assert_eq!(verdict("", archived, "a/b/"), Verdict::Broken);
    }

    #[test]
    fn versions_need_a_rule_that_covers_the_root() {
        let enabled = || Ok(Versioning { status: Some("Enabled".into()) });
        let verdict = |rules: &[Rule]| versioning_check(enabled(), Ok(rules), "a/b/").0;
        assert_eq!(verdict(&[]), Verdict::Warns);
        assert_eq!(verdict(&rules(&rule("", EXPIRES))), Verdict::Warns);
        assert_eq!(verdict(&rules(&rule("", NONCURRENT))), Verdict::Holds);
        let narrower = rules(&rule("<Filter><Prefix>a/b/c</Prefix></Filter>", NONCURRENT));
        assert_eq!(verdict(&narrower), Verdict::Warns);
        let why = "could not be asked".to_owned();
        assert_eq!(versioning_check(enabled(), Err(&why), "").0, Verdict::Warns);
        assert_eq!(versioning_check(Err(why), Ok(&[]), "").0, Verdict::Open);
        assert_eq!(versioning_check(Ok(Versioning::default()), Ok(&[]), "").0, Verdict::Holds);
    }

    #[test]
    fn what_is_no_such_document_is_not_asked() {
        let said = |status, body: &str| Ok(Said { status, date: None, body: body.into() });
        let read = |said| document::<Versioning>(said, "<VersioningConfiguration");
        assert!(read(said(StatusCode::FORBIDDEN, "<Error/>")).unwrap_err().contains("403"));
        // A server that does not know the question lists the bucket.
        assert!(read(said(StatusCode::OK, "<ListBucketResult/>")).is_err());
        assert!(read(said(StatusCode::OK, "<VersioningConfiguration/>")).is_ok());
    }
}
