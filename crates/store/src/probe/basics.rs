//! The conditions themselves, one request at a time: what every commit rests
//! on.

use bytes::Bytes;
use headwater_core::id::Tag;
use object_store::Error;

use super::report::{CheckId, Permission, Report, TagForm, TagKind, TagSource, Verdict};
use super::told;
use crate::{HeadRead, HeadWrite, NoAnswer, NoAnswerKind, Store, TimedOut};

/// Asks them on new heads below `prefix`.
pub(super) async fn check(one: &dyn Store, other: &dyn Store, prefix: &str, report: &mut Report) {
    let key = format!("{prefix}/head.json");
    let Some(first) = created(one, &key, report).await else { return };
    report.tag = Some(TagKind { source: None, form: form(&first) });
    report.add(CheckId::Tag, Verdict::Holds, shown(&first));
    create_once(other, &key, report).await;
    let Some(second) = own_tag(other, &key, &first, report).await else { return };
    stale_tag(one, &key, &first, &second, report).await;
    conditional_read(one, &key, &first, report).await;
    let source = source(one, prefix).await;
    report.tag = Some(TagKind { source, form: form(&first) });
}

fn form(tag: &Tag) -> TagForm {
    match (tag.version(), tag.e_tag()) {
        (Some(_), _) => TagForm::Version,
        (None, Some(it)) if it.ends_with('"') => TagForm::Quoted,
        (None, _) => TagForm::Unquoted,
    }
}

fn shown(tag: &Tag) -> String {
    match (tag.e_tag(), tag.version()) {
        (Some(e_tag), Some(version)) => format!("{e_tag}, version {version}"),
        (Some(it), None) | (None, Some(it)) => it.to_owned(),
        (None, None) => String::new(),
    }
}

/// What an answer without proof means for a rule.
fn unproven(no_answer: &NoAnswer) -> (Verdict, String) {
    let verdict = if is_wrong(no_answer) { Verdict::Broken } else { Verdict::Open };
    (verdict, told(no_answer))
}

/// Whether it is an answer that a store gives every time: a success without a
/// tag that can be compared, a status that is for reads, a refusal. The others
/// tell nothing: the store asks for less, is in trouble, or is out of reach.
pub(super) fn is_wrong(no_answer: &NoAnswer) -> bool {
    match no_answer.kind {
        NoAnswerKind::Throttled | NoAnswerKind::Conflict => false,
        NoAnswerKind::Denied => true,
        NoAnswerKind::Other => match no_answer.cause.downcast_ref::<Error>() {
            Some(error) => matches!(error, Error::NotModified { .. }),
            None => !no_answer.cause.is::<TimedOut>(),
        },
    }
}

async fn created(store: &dyn Store, key: &str, report: &mut Report) -> Option<Tag> {
    match store.create_head(key, Bytes::from_static(b"first")).await {
        HeadWrite::Replaced { tag } => return Some(tag),
        HeadWrite::Mismatch | HeadWrite::Gone => {
            report.add(CheckId::Tag, Verdict::Broken, "a head could not be created: 412");
        }
        HeadWrite::NoAnswer(it) => {
            let (verdict, detail) = unproven(&it);
            let is_denied = it.kind == NoAnswerKind::Denied;
            if is_denied && !report.is_denied(Permission::Put) {
                report.denied.push(Permission::Put);
            }
            let missing = if is_denied { "s3:PutObject is missing: " } else { "" };
            report.add(CheckId::Tag, verdict, format!("{missing}{detail}"));
        }
    }
    None
}

async fn create_once(store: &dyn Store, key: &str, report: &mut Report) {
    let (verdict, detail) = match store.create_head(key, Bytes::from_static(b"again")).await {
        HeadWrite::Mismatch => (Verdict::Holds, String::new()),
        HeadWrite::Replaced { .. } => (
            Verdict::Broken,
            "If-None-Match is ignored: a head that exists was overwritten".to_owned(),
        ),
        HeadWrite::Gone => (Verdict::Broken, "404 in answer to a creation".to_owned()),
        HeadWrite::NoAnswer(it) => unproven(&it),
    };
    report.add(CheckId::CreateOnce, verdict, detail);
}

/// Replaces the head under the tag that the store gave last.
async fn own_tag(store: &dyn Store, key: &str, first: &Tag, report: &mut Report) -> Option<Tag> {
    // A creation that was wrongly taken moved the tag.
    let current = match store.read_head(key, None).await {
        Ok(HeadRead::Found { tag, .. }) => tag,
        Ok(HeadRead::Missing | HeadRead::Unchanged) | Err(_) => first.clone(),
    };
    let (verdict, detail) =
        match store.replace_head(key, &current, Bytes::from_static(b"second")).await {
            HeadWrite::Replaced { tag } => {
                report.holds(CheckId::OwnTag);
                return Some(tag);
            }
            HeadWrite::Mismatch => (
                Verdict::Broken,
                format!(
                    "If-Match with {} is refused though the head has that tag: the store may \
                     compare another form of it",
                    shown(&current)
                ),
            ),
            HeadWrite::Gone => (Verdict::Broken, "404 for a head that exists".to_owned()),
            HeadWrite::NoAnswer(it) => unproven(&it),
        };
    report.add(CheckId::OwnTag, verdict, detail);
    None
}

async fn stale_tag(store: &dyn Store, key: &str, stale: &Tag, current: &Tag, report: &mut Report) {
    let answer = store.replace_head(key, stale, Bytes::from_static(b"stale")).await;
    let (verdict, detail) = match answer {
        HeadWrite::Mismatch => (Verdict::Holds, String::new()),
        HeadWrite::Replaced { .. } => (
            Verdict::Broken,
            "If-Match is ignored: a head was overwritten under a stale tag, and what was \
             acknowledged in between is lost"
                .to_owned(),
        ),
        HeadWrite::Gone => (Verdict::Broken, "404 for a head that exists".to_owned()),
        HeadWrite::NoAnswer(it) => match unproven(&it) {
            (Verdict::Broken, why) => (Verdict::Broken, format!("not 412: {why}")),
            open => open,
        },
    };
    report.add(CheckId::StaleTag, verdict, detail);
    if verdict == Verdict::Holds
        && let Ok(HeadRead::Found { bytes, tag }) = store.read_head(key, None).await
        && (bytes != "second" || tag != *current)
    {
        let detail = "412, and the head was replaced all the same".to_owned();
        report.add(CheckId::StaleTag, Verdict::Broken, detail);
    }
}

async fn conditional_read(store: &dyn Store, key: &str, stale: &Tag, report: &mut Report) {
    let Ok(HeadRead::Found { tag, .. }) = store.read_head(key, None).await else {
        return report.add(CheckId::ConditionalRead, Verdict::Open, "the head cannot be read");
    };
    let n_in_vain = store.reads_in_vain();
    let same = store.read_head(key, Some(&tag)).await;
    let is_in_vain = n_in_vain < store.reads_in_vain();
    let changed = store.read_head(key, Some(stale)).await;
    let (verdict, detail) = match (same, changed) {
        // Right, for the adapter compares the tag itself; so nothing is lost but
        // money and time.
        (Ok(HeadRead::Unchanged), Ok(HeadRead::Found { .. })) if is_in_vain => (
            Verdict::Warns,
            "If-None-Match is ignored on reads: each read of an unchanged head brings all of its \
             bytes, where 304 would do. That is right, and costs traffic with each freshness check"
                .to_owned(),
        ),
        (Ok(HeadRead::Unchanged), Ok(HeadRead::Found { .. })) => (Verdict::Holds, String::new()),
        (Err(error), _) | (_, Err(error)) => (Verdict::Open, told(&error)),
        (same, changed) => {
            let detail = format!("under the current tag {same:?}, under an older one {changed:?}");
            (Verdict::Broken, detail)
        }
    };
    report.add(CheckId::ConditionalRead, verdict, detail);
}

/// Whether equal bytes of two objects have one tag.
async fn source(store: &dyn Store, prefix: &str) -> Option<TagSource> {
    let mut tags = Vec::new();
    for name in ["a", "b"] {
        let key = format!("{prefix}/{name}/head.json");
        match store.create_head(&key, Bytes::from_static(b"equal bytes")).await {
            HeadWrite::Replaced { tag } => tags.push(tag),
            HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_) => return None,
        }
    }
    Some(if tags[0] == tags[1] { TagSource::Content } else { TagSource::Unique })
}
