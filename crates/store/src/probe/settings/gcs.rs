//! What a bucket of Google Cloud Storage is set to.

use http::StatusCode;
use serde::Deserialize;

use super::{Settings, clock_check, kept_versions, soft_deletion, unasked};
use crate::probe::report::Verdict;
use crate::{AskError, Clock, GcsBucket, Said};

/// `Bucket` (JSON API, "Buckets"), as far as it is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    versioning: Versioning,
    lifecycle: Lifecycle,
    soft_delete_policy: SoftDelete,
}

const FIELDS: &str = "versioning,lifecycle,softDeletePolicy";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Versioning {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lifecycle {
    #[serde(rename = "rule")]
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SoftDelete {
    /// A number in a string, as the JSON API has those of 64 bits.
    retention_duration_seconds: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    action: Action,
    condition: Condition,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Action {
    #[serde(rename = "type")]
    kind: String,
}

/// All of it has to hold for the action ("Object Lifecycle Management").
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    age: Option<u64>,
    created_before: Option<String>,
    is_live: Option<bool>,
    num_newer_versions: Option<u64>,
    days_since_noncurrent_time: Option<u64>,
    noncurrent_time_before: Option<String>,
    days_since_custom_time: Option<u64>,
    custom_time_before: Option<String>,
    matches_prefix: Vec<String>,
    matches_suffix: Vec<String>,
    matches_storage_class: Vec<String>,
}

impl Condition {
    /// Whether it is about versions that are no longer current alone: a current
    /// one has no newer ones.
    fn is_of_noncurrent(&self) -> bool {
        self.is_live == Some(false)
            || self.num_newer_versions.is_some_and(|it| 0 < it)
            || self.days_since_noncurrent_time.is_some()
            || self.noncurrent_time_before.is_some()
    }

    /// Whether it is about objects with a custom time alone; ours have none.
    fn wants_custom_time(&self) -> bool {
        self.days_since_custom_time.is_some() || self.custom_time_before.is_some()
    }

    /// Whether some key below `root` may be one of its keys.
    fn concerns(&self, root: &str) -> bool {
        let is_below = |it: &String| root.starts_with(it.as_str()) || it.starts_with(root);
        let may_end = |it: &String| may_end_key(it);
        !self.wants_custom_time()
            && (self.matches_prefix.is_empty() || self.matches_prefix.iter().any(is_below))
            && (self.matches_suffix.is_empty() || self.matches_suffix.iter().any(may_end))
    }

    /// Whether all keys below `root` are its keys.
    fn covers(&self, root: &str) -> bool {
        let is_above = |it: &String| root.starts_with(it.as_str());
        !self.wants_custom_time()
            && (self.matches_prefix.is_empty() || self.matches_prefix.iter().any(is_above))
            && self.matches_suffix.is_empty()
            && self.matches_storage_class.is_empty()
    }

    fn when(&self) -> String {
        match (self.age, &self.created_before) {
            (Some(days), _) => format!("after {days} days"),
            (None, Some(date)) => format!("that were made before {date}"),
            (None, None) => "at once".to_owned(),
        }
    }
}

/// Whether a key of ours may end like this: heads by their name, all others by
/// digits of hashes (PROTOCOL 2).
fn may_end_key(suffix: &str) -> bool {
    let is_digits = suffix.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-' || it == b'/');
    is_digits || "/head.json".ends_with(suffix)
}

/// Asks the bucket.
pub(super) async fn ask(bucket: &GcsBucket, root: &str, clock: &Clock) -> Settings {
    let said = bucket.ask(FIELDS).await;
    let clock = clock_check(said.as_ref().ok(), clock);
    let (versioning, lifecycle) = match resource(said) {
        Ok(resource) => {
            let Resource { versioning, lifecycle, soft_delete_policy } = resource;
            let versions =
                versioning_check(&versioning, &soft_delete_policy, &lifecycle.rules, root);
            (versions, lifecycle_check(&lifecycle.rules, root))
        }
        Err(why) => ((Verdict::Open, why.clone()), (Verdict::Open, why)),
    };
    Settings { versioning, lifecycle, clock }
}

fn resource(said: Result<Said, AskError>) -> Result<Resource, String> {
    let said = said.map_err(|it| unasked(&it))?;
    if said.status != StatusCode::OK {
        let status = said.status;
        let needs = "storage.buckets.get is needed for that";
        return Err(format!("could not be asked: the store answered {status}; {needs}"));
    }
    serde_json::from_str(&said.body).map_err(|it| format!("the answer cannot be read: {it}"))
}

fn versioning_check(
    versioning: &Versioning,
    soft_delete: &SoftDelete,
    rules: &[Rule],
    root: &str,
) -> (Verdict, String) {
    let expires = |it: &Rule| {
        let condition = &it.condition;
        it.action.kind == "Delete" && condition.is_of_noncurrent() && condition.covers(root)
    };
    if versioning.enabled && !rules.iter().any(expires) {
        return kept_versions(Some(false));
    }
    let seconds = soft_delete.retention_duration_seconds.as_deref().unwrap_or("0");
    match seconds.parse::<u64>() {
        Ok(0) if versioning.enabled => kept_versions(Some(true)),
        Ok(0) => (Verdict::Holds, "no versions are kept".into()),
        Ok(seconds) => (Verdict::Warns, soft_deletion(&seconds.div_ceil(86_400).to_string())),
        Err(_) => (Verdict::Open, format!("soft deletion lasts for no number: {seconds}")),
    }
}

fn lifecycle_check(rules: &[Rule], root: &str) -> (Verdict, String) {
    let deletes = |it: &&Rule| {
        let condition = &it.condition;
        it.action.kind == "Delete" && !condition.is_of_noncurrent() && condition.concerns(root)
    };
    // Other actions harm nothing: objects of every class are read at once.
    let Some(rule) = rules.iter().find(deletes) else { return (Verdict::Holds, String::new()) };
    let detail = format!(
        "a rule deletes objects below `{}` {}: histories would lose what they name",
        rule.condition.matches_prefix.join("`, `"),
        rule.condition.when()
    );
    (Verdict::Broken, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Resource {
        let said = Said { status: StatusCode::OK, date: None, body: json.into() };
        resource(Ok(said)).unwrap()
    }

    fn rules(condition: &str) -> Vec<Rule> {
        let rule = format!(r#"{{"action":{{"type":"Delete"}},"condition":{condition}}}"#);
        read(&format!(r#"{{"lifecycle":{{"rule":[{rule}]}}}}"#)).lifecycle.rules
    }

    #[test]
    fn a_rule_that_deletes_histories_is_found_by_its_condition() {
        for condition in [
            r#"{"age":30}"#,
            r#"{"age":30,"isLive":true}"#,
            r#"{"createdBefore":"2026-01-01"}"#,
            r#"{"age":1,"matchesPrefix":["logs/","a/"]}"#,
            r#"{"age":1,"matchesPrefix":["a/b/c"]}"#,
            r#"{"age":1,"matchesSuffix":[".json"]}"#,
            r#"{"age":1,"matchesStorageClass":["STANDARD"]}"#,
        ] {
            assert_eq!(
                lifecycle_check(&rules(condition), "a/b/").0,
                Verdict::Broken,
                "{condition}"
            );
        }
        for condition in [
            r#"{"age":30,"isLive":false}"#,
            r#"{"numNewerVersions":3}"#,
            r#"{"daysSinceNoncurrentTime":7}"#,
            r#"{"daysSinceCustomTime":7}"#,
            r#"{"age":1,"matchesPrefix":["logs/"]}"#,
            r#"{"age":1,"matchesSuffix":[".log"]}"#,
        ] {
            assert_eq!(lifecycle_check(&rules(condition), "a/b/").0, Verdict::Holds, "{condition}");
        }
        let other = read(
            r#"{"lifecycle":{"rule":[{"action":{"type":"SetStorageClass","storageClass":"ARCHIVE"},
                "condition":{"age":1}},{"action":{"type":"AbortIncompleteMultipartUpload"},
                "condition":{"age":1}}]}}"#,
        );
        assert_eq!(lifecycle_check(&other.lifecycle.rules, "").0, Verdict::Holds);
    }

    #[test]
    fn what_is_kept_of_replaced_heads_is_said() {
        let check = |versioning: bool, seconds: &str, rules: &[Rule]| {
            let soft = SoftDelete { retention_duration_seconds: Some(seconds.into()) };
            versioning_check(&Versioning { enabled: versioning }, &soft, rules, "a/")
        };
        assert_eq!(check(false, "0", &[]).0, Verdict::Holds);
        let (verdict, detail) = check(false, "604800", &[]);
        assert_eq!((verdict, detail.contains("7 days")), (Verdict::Warns, true), "{detail}");
        assert_eq!(check(true, "0", &[]).0, Verdict::Warns);
        assert_eq!(check(true, "0", &rules(r#"{"numNewerVersions":1}"#)).0, Verdict::Holds);
        let narrow = rules(r#"{"numNewerVersions":1,"matchesPrefix":["a/b"]}"#);
        assert_eq!(check(true, "0", &narrow).0, Verdict::Warns);
        assert_eq!(check(true, "86400", &rules(r#"{"isLive":false,"age":1}"#)).0, Verdict::Warns);
    }

    #[test]
    fn who_may_not_ask_is_told_what_for() {
        let said = Said { status: StatusCode::FORBIDDEN, date: None, body: String::new() };
        let why = resource(Ok(said)).unwrap_err();
        assert!(why.contains("403") && why.contains("storage.buckets.get"), "{why}");
        assert!(!read("{}").versioning.enabled);
    }
}
