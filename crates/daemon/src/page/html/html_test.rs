use super::*;
use crate::overview::{
    HeadOverview, Incident, IncidentKind, NoticeSubscriber, PinOverview, ReplicaHistory,
    ReplicaOverview, WriterHistory, WriterLink, WriterOverview,
};
use crate::page::status::{
    CheckStatus, ProcessStatus, Readiness, StoreCalls, StoreStatus, WindowStatus,
};

/// What a text looks like that wants to be more than one. Names cannot have
/// these characters; the page does not rely on that.
const EVIL: &str = "<script>alert('x')</script>\"><img src=x onerror=\"y\">&amp;";

pub(crate) fn files() -> Files {
    Files {
        style: "assets/s.css".into(),
        script: "assets/p.js".into(),
        icon: "assets/i.svg".into(),
    }
}

fn head(text: &str) -> HeadOverview {
    HeadOverview {
        history_id: text.into(),
        revision: 1_057,
        state_version: 1_042,
        operation_count: 2_000,
        lifecycle: text.into(),
        is_exclusive: true,
        writer_epoch: 3,
        publisher: text.into(),
        size_bytes: 600 << 10,
        snapshot_version: 1_000,
        tail_versions: 42,
        tail_bytes: 9_100,
        tail_changes: 40,
        tail_changes_inline: 39,
        tail_segments: 1,
        receipt_coverage_from: 7,
        receipt_pages: 2,
        receipt_pages_bytes: 4_096,
        sweep_from: 900,
        swept_to: 800,
        retention_versions: 10_000,
        retention_age_ms: 3_600_000,
        retained_from: 12,
        archive_bytes: Some(77),
        pins: vec![PinOverview {
            name: text.into(),
            version: 12,
            expires_at_ms: None,
            child: Some(text.into()),
        }],
        base: Some(text.into()),
    }
}

fn incident(text: &str) -> Incident {
    Incident {
        age_ms: 9_000,
        history: text.into(),
        operation_id: text.into(),
        kind: IncidentKind::InDoubt,
        detail: text.into(),
    }
}

/// Everything there is, and the same text wherever there can be one.
fn full(text: &str) -> Status {
    let writer = WriterOverview {
        publisher_id: text.into(),
        histories_open: 1,
        histories_max: 1_000,
        head_bytes_soft: 64 << 10,
        head_bytes_hard: 1 << 20,
        histories: vec![WriterHistory {
            name: text.into(),
            head: Some(head(text)),
            receipts: 55,
            queue_operations: 12,
            queue_operations_max: 100,
        }],
        conflicts: vec![incident(text)],
        doubts: vec![incident(text)],
        subscribers: vec![NoticeSubscriber {
            peer: Some(text.into()),
            connected_ms: 1,
            seen_ms: 1,
            histories: 9,
            histories_first: vec![text.into()],
            notices: 4,
        }],
        subscribers_open: 101,
        ..WriterOverview::default()
    };
    let replica = ReplicaOverview {
        histories: vec![ReplicaHistory {
            name: text.into(),
            head: Some(head(text)),
            proof_age_ms: Some(1),
            behind_revisions: 2,
            trouble: Some(text.into()),
            watchers: 1,
            tail_memory_bytes: 1,
        }],
        writers: vec![WriterLink {
            address: text.into(),
            is_listening: false,
            notices: 1,
            notice_age_ms: None,
        }],
        ..ReplicaOverview::default()
    };
    Status {
        format: Status::FORMAT,
        process: ProcessStatus {
            name: text.into(),
            version: text.into(),
            uptime_ms: 1,
            store: text.into(),
        },
        readiness: Readiness {
            is_ready: false,
            is_draining: false,
            checks: vec![CheckStatus {
                name: text.into(),
                is_needed: true,
                trouble: Some(text.into()),
            }],
        },
        writer: Some(writer),
        replica: Some(replica),
        store: StoreStatus {
            calls: vec![StoreCalls { call: text.into(), outcome: text.into(), count: 1 }],
            failures: 1,
            ..StoreStatus::default()
        },
        window: WindowStatus {
            prefix: text.into(),
            after: text.into(),
            limit: 50,
            next: Some(text.into()),
        },
        samples: vec![Sample { latency_p99_us: Some(7), ..Sample::default() }],
    }
}

/// Nothing there is.
fn empty() -> Status {
    Status {
        writer: Some(WriterOverview::default()),
        replica: Some(ReplicaOverview::default()),
        samples: Vec::new(),
        store: StoreStatus::default(),
        window: WindowStatus { limit: 50, ..WindowStatus::default() },
        readiness: Readiness { is_ready: true, is_draining: false, checks: Vec::new() },
        ..full("x")
    }
}

fn shown(status: &Status) -> String {
    page(status, &files()).into_string()
}

#[test]
fn every_text_is_escaped_wherever_it_comes_from() {
    let shown = shown(&full(EVIL));
    let escaped = "&lt;script&gt;alert";
    assert!(25 < shown.matches(escaped).count(), "{}", shown.matches(escaped).count());
    assert!(!shown.contains("<script>alert"), "a tag of a text is a tag of the page");
    assert!(!shown.contains("<img src=x"), "an attribute is left");
    assert!(!shown.contains("onerror=\"y\""), "an attribute is left by its quote");
    // The only ampersand that a link may have is one between two pairs.
    assert!(shown.contains("&amp;amp;"), "an entity of a text is an entity of the page");
}

#[test]
fn a_name_in_a_link_cannot_be_anything_but_a_value() {
    let mut status = full("x");
    status.window.next = Some("a&limit=9 b#c".into());
    assert!(shown(&status).contains("after=a%26limit%3D9+b%23c&amp;limit=50"));
}

#[test]
fn nothing_is_inline_and_nothing_is_from_elsewhere() {
    for status in [full("x"), empty()] {
        let shown = shown(&status);
        assert!(!shown.contains("style="), "inline styles are not applied");
        assert!(!shown.contains("<style"), "inline styles are not applied");
        assert!(!shown.contains("javascript:"));
        assert_eq!(shown.matches("<script").count(), 1);
        assert!(shown.contains("<script src=\"assets/p.js\" defer></script>"));
        for attribute in [" onclick", " onload", " onerror", " oninput"] {
            assert!(!shown.contains(attribute), "inline scripts are not run: {attribute}");
        }
        assert!(!shown.contains("//"), "every address is relative: {shown}");
        assert!(!shown.contains("method=\"post\"") && !shown.contains("<button"), "read only");
    }
}

#[test]
fn the_page_says_what_is_not_there() {
    let shown = shown(&empty());
    for said in [
        "No history is open.",
        "No second has passed yet.",
        "Nothing was accepted in the last five minutes.",
        "No notice of a new head came",
        "No replica of another process listens.",
        "No conflict so far.",
        "Nothing was asked of it yet.",
        "none is set up",
    ] {
        assert!(shown.contains(said), "{said}");
    }
    assert!(!shown.contains("Without an outcome"), "what did not happen takes no room");
}

#[test]
fn a_history_is_one_line_for_writer_and_replica_together() {
    let shown = shown(&full("datasets/events"));
    assert_eq!(shown.matches("<details").count(), 1);
    for said in ["1,042", "1,057", "42 <small>8.8 KiB</small>", "600 KiB", ">2 behind<"] {
        assert!(shown.contains(said), "{said}");
    }
}

#[test]
fn a_large_head_and_a_lost_proof_stand_out() {
    let shown = shown(&full("h"));
    assert!(shown.contains("<svg class=\"bar much\""), "58 % of the hard limit is much");
    assert!(shown.contains("<span class=\"mark bad\" title=\"h\">no proof</span>"));
}

#[test]
fn a_writer_alone_and_a_replica_alone_have_their_parts_and_not_the_others() {
    let writer = Status { replica: None, ..full("w") };
    let replica = Status { writer: None, ..full("r") };
    let (writer, replica) = (shown(&writer), shown(&replica));
    assert!(writer.contains("Commit latency") && !writer.contains("Follow lag"));
    assert!(replica.contains("Follow lag") && !replica.contains("Commit latency"));
    assert!(writer.contains("id=\"store-calls\"") && replica.contains("id=\"store-calls\""));
    assert!(replica.contains("not connected") && !replica.contains("id=\"conflicts\""));
}

#[test]
fn the_title_says_the_state() {
    let mut status = full("x");
    assert!(shown(&status).contains("<title>Not ready · Headwater</title>"));
    status.readiness.is_ready = true;
    assert!(shown(&status).contains("<title>Ready · Headwater</title>"));
    status.readiness.is_draining = true;
    assert!(shown(&status).contains("<title>Draining · Headwater</title>"));
}

#[test]
fn what_is_renewed_has_a_name_of_its_own() {
    let shown = shown(&full("x"));
    let mut ids: Vec<_> = shown
        .split('<')
        .filter(|it| it.contains("data-live"))
        .map(|it| it.split("id=\"").nth(1).unwrap().split('"').next().unwrap())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    assert!(10 <= all, "{all}");
}
