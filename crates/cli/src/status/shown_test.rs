use headwater_daemon::overview::NoticeSubscriber;
use serde_json::json;

use super::*;

/// As a process says it.
fn status() -> Status {
    let head = json!({
        "historyId": "5f0c", "revision": 1_057, "stateVersion": 1_042, "operationCount": 9,
        "lifecycle": "live", "isExclusive": false, "writerEpoch": 0, "publisher": "w",
        "sizeBytes": 22_323, "snapshotVersion": 1_000, "tailVersions": 42, "tailBytes": 9_100,
        "tailChanges": 42, "tailChangesInline": 42, "tailSegments": 0, "receiptCoverageFrom": 1,
        "receiptPages": 0, "receiptPagesBytes": 0, "sweepFrom": 0, "sweptTo": 0,
        "retentionVersions": 10, "retentionAgeMs": 0, "retainedFrom": 0, "archiveBytes": null,
        "pins": [], "base": null,
    });
    let cache = json!({ "sizeBytes": 0, "sizeBytesMax": 64 << 20, "hits": 3, "misses": 1 });
    let incident = json!({
        "ageMs": 9_000, "history": "orders", "operationId": "op\u{1b}[31m", "kind": "inDoubt",
        "detail": "a publication was not answered",
    });
    let whole = json!({
        "format": 1,
        "process": { "name": "serve", "version": "0.1.0", "uptimeMs": 11_520_000, "store": "memory:" },
        "readiness": { "isReady": false, "isDraining": false, "checks": [
            { "name": "draining", "isNeeded": true, "trouble": null },
            { "name": "lag", "isNeeded": false, "trouble": "9 s behind" },
            { "name": "store", "isNeeded": true, "trouble": "no answer" },
        ] },
        "writer": {
            "publisherId": "w", "historiesOpen": 2, "historiesMax": 1_000,
            "histories": [
                { "name": "orders", "head": head, "receipts": 9, "queueOperations": 4, "queueOperationsMax": 9 },
                { "name": "unread/one", "head": null, "receipts": 0, "queueOperations": 0, "queueOperationsMax": 9 },
            ],
            "headBytesSoft": 1, "headBytesHard": 2, "commits": 1, "operationsAccepted": 10_756,
            "operationsRepeated": 1, "operationsRejected": 17, "operationsUnknown": 0,
            "operationsInDoubt": 1, "operationsFailed": 0, "conflicts": [], "doubts": [incident],
            "subscribers": [], "subscribersOpen": 0, "chunkCache": cache,
        },
        "replica": {
            "historiesOpen": 1, "historiesMax": 9,
            "histories": [{
                "name": "orders", "head": head, "proofAgeMs": 2_000, "behindRevisions": 1,
                "trouble": "no way", "watchers": 0, "tailMemoryBytes": 1,
            }],
            "reads": 1, "readsFailed": 0, "watchersOpen": 1, "watchersMax": 9, "tailsBytes": 0,
            "tailsBytesMax": 1, "chunkCache": cache, "diskCache": null,
            "writers": [{ "address": "w:1", "isListening": false, "notices": 2, "noticeAgeMs": 61_000 }],
        },
        "store": { "puts": 3_343, "gets": 2, "deletes": 0, "bytesUp": 1_024, "bytesDown": 0, "failures": 5, "calls": [] },
        "window": { "prefix": "", "after": "", "limit": 2, "next": "unread/one" },
        "samples": [{
            "atMs": 1, "commits": 51, "operations": 187, "latencyP50Us": 24_500,
            "latencyP99Us": null, "reads": 7, "readsFailed": 0, "lagP50Us": 900,
            "lagMaxUs": 1_200_000, "storeCalls": 120, "storeFailures": 1,
        }],
        "somethingNewer": true,
    });
    serde_json::from_value(whole).unwrap()
}

#[test]
fn a_status_is_a_page_of_text() {
    let expected = "\
headwater serve 0.1.0, up 3 h 12 min: not ready
checks    draining ok, lag not needed: 9 s behind, store NOT READY: no answer
writer    w: 2 of 1,000 histories open
          51 commits/s, 187 operations/s, p50 24.5 ms, p99 –
          10,756 accepted, 1 repeated, 17 rejected, 0 not applied, 1 in doubt, 0 unknown
          chunks in memory: 0 B of 64 MiB, 75 % found
replica   1 of 9 histories open, 1 watch
          7 reads/s, 0 failed/s, lag p50 900 µs, longest 1.2 s
          chunks in memory: 0 B of 64 MiB, 75 % found; on disk: none
          writer w:1: NOT CONNECTED, 2 notices, last 1 min ago
store     memory:
          120 calls/s, 1 failed/s; 3,343 PUT and LIST, 2 GET, 0 DELETE, 5 failed
          1 KiB sent, 0 B received

HISTORY     VERSION  REVISION  TAIL             HEAD  WAITING  PROVEN
orders        1,042     1,057  42, 8.8 KiB  21.7 KiB        4  2 s ago, 1 behind, NO PROOF: no way
unread/one        –         –  –                   –        0  –
and more: --after unread/one

WITHOUT AN OUTCOME
9 s ago  in doubt  op\\x1b[31m  orders  a publication was not answered";
    assert_eq!(text(&status()), expected);
}

#[test]
fn whoever_listens_is_listed() {
    let mut status = status();
    status.writer.as_mut().unwrap().subscribers = vec![NoticeSubscriber {
        peer: Some("10.0.0.7:4000".into()),
        connected_ms: 9_000,
        seen_ms: 1_000,
        histories: 1,
        histories_first: vec!["orders".into()],
        notices: 2_014,
    }];
    let expected = "\nREPLICA        FOLLOWS    NOTICES  SEEN\n\
                    10.0.0.7:4000  1 history    2,014  1 s ago\n";
    assert!(text(&status).contains(expected), "{}", text(&status));
}
