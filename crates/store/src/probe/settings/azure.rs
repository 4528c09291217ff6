//! What a storage account in Azure is set to, as far as keys for its data tell.

use http::StatusCode;
use serde::Deserialize;

use super::{Settings, clock_check, kept_versions, soft_deletion, unasked};
use crate::probe::report::Verdict;
use crate::probe::told;
use crate::{AskError, AzureContainer, Clock, ReadError, Said};

/// `StorageServiceProperties` (Blob service REST API, "Get Blob Service
/// Properties"), as far as it is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Properties {
    delete_retention_policy: Retention,
}

/// Soft deletion of blobs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Retention {
    enabled: bool,
    days: Option<u64>,
}

/// Asks the account; `head` is the key of a blob that was replaced.
pub(super) async fn ask(
    container: &AzureContainer,
    head: &str,
    root: &str,
    clock: &Clock,
) -> Settings {
    let said = container.ask().await;
    let clock = clock_check(said.as_ref().ok(), clock);
    let version = container.version_id(head).await;
    let versioning = versioning_check(version, properties(said));
    let detail = format!(
        "rules of a storage account are told by its management interface alone, which keys for \
         data do not reach: look there for one that deletes blobs below `{root}`, or archives them"
    );
    Settings { versioning, lifecycle: (Verdict::Open, detail), clock }
}

fn properties(said: Result<Said, AskError>) -> Result<Properties, String> {
    let said = said.map_err(|it| unasked(&it))?;
    if said.status != StatusCode::OK || !said.body.contains("<StorageServiceProperties") {
        return Err(format!("could not be asked: the store answered {}", said.status));
    }
    // A byte order mark comes first, which is no part of the document.
    let document = said.body.trim_start_matches('\u{feff}');
    quick_xml::de::from_str(document).map_err(|it| format!("the answer cannot be read: {it}"))
}

fn versioning_check(
    version: Result<Option<String>, ReadError>,
    properties: Result<Properties, String>,
) -> (Verdict, String) {
    match (version, properties) {
        // What deletes them is a rule, which cannot be asked for.
        (Ok(Some(_)), _) => kept_versions(None),
        (_, Ok(it)) if it.delete_retention_policy.enabled => {
            let days = it.delete_retention_policy.days.map(|it| it.to_string());
            (Verdict::Warns, soft_deletion(days.as_deref().unwrap_or("some")))
        }
        (Ok(None), Ok(_)) => (Verdict::Holds, "no versions are kept".into()),
        (Ok(None), Err(why)) => {
            (Verdict::Open, format!("no versions are kept; soft deletion {why}"))
        }
        (Err(error), _) => (Verdict::Open, told(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: StatusCode, body: &str) -> Result<Properties, String> {
        properties(Ok(Said { status, date: None, body: body.into() }))
    }

    const SOFT: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\
        <StorageServiceProperties><Logging><Version>1.0</Version></Logging>\
        <DeleteRetentionPolicy><Enabled>true</Enabled><Days>9</Days></DeleteRetentionPolicy>\
        <StaticWebsite><Enabled>false</Enabled></StaticWebsite></StorageServiceProperties>";

    #[test]
    fn what_is_kept_of_replaced_heads_is_said() {
        let soft = || read(StatusCode::OK, SOFT);
        let hard = || read(StatusCode::OK, &SOFT.replace("<Enabled>true", "<Enabled>false"));
        assert_eq!(versioning_check(Ok(None), hard()).0, Verdict::Holds);
        let (verdict, detail) = versioning_check(Ok(None), soft());
        assert_eq!((verdict, detail.contains("9 days")), (Verdict::Warns, true), "{detail}");
        assert_eq!(versioning_check(Ok(Some("v".into())), hard()).0, Verdict::Warns);
        let bare = read(StatusCode::OK, "<StorageServiceProperties/>");
        assert_eq!(versioning_check(Ok(None), bare).0, Verdict::Holds);
    }

    #[test]
    fn what_could_not_be_asked_is_open() {
        let denied = || read(StatusCode::FORBIDDEN, "<Error/>");
        assert!(denied().unwrap_err().contains("403"));
        assert_eq!(versioning_check(Ok(None), denied()).0, Verdict::Open);
        assert_eq!(versioning_check(Ok(Some("v".into())), denied()).0, Verdict::Warns);
        let listing = read(StatusCode::OK, "<EnumerationResults/>");
        assert!(listing.is_err(), "another document is no answer");
    }
}
