//! Requests that break a rule of the contract are refused, field by field.

use std::sync::Arc;

use headwater_core::operation::Key;
use headwater_proto::v1::consistency::Level;
use headwater_proto::v1::{BatchGetRequest, GetRequest, KeyRange, ListChangesRequest, ScanRequest};
use headwater_replica::{ReplicaConfig, start};
use headwater_store::{Entropy, Memory};

use crate::bucket::quiet;
use crate::rpc::{Served, at, fields};

fn get() -> GetRequest {
    GetRequest { history: "h".into(), key: "k".into(), ..GetRequest::default() }
}

fn scan() -> ScanRequest {
    ScanRequest { history: "h".into(), ..ScanRequest::default() }
}

#[tokio::test]
async fn names_ids_and_keys_are_checked() {
    let mut served = Served::new(quiet()).await;
    for history in ["", "..", "a//b", "a/../b", "ä", "head.json", &"a".repeat(257)] {
        let request = GetRequest { history: history.into(), ..get() };
        let error = served.client.get(request).await.unwrap_err();
        assert_eq!(fields(&error), ["history"], "{history:?}");
    }
    for id in ["1", "0123456789ABCDEF0123456789ABCDEF"] {
        let request = GetRequest { history_id: id.into(), ..get() };
        assert_eq!(fields(&served.client.get(request).await.unwrap_err()), ["history_id"]);
    }
    for key in [Vec::new(), vec![0; Key::LEN_BYTES_MAX + 1]] {
        let request = GetRequest { key: key.into(), ..get() };
        assert_eq!(fields(&served.client.get(request).await.unwrap_err()), ["key"]);
    }
    let request = GetRequest { key: vec![0; Key::LEN_BYTES_MAX].into(), ..get() };
    served.client.get(request).await.unwrap();
}

#[tokio::test]
async fn a_setting_out_of_its_range_is_refused_at_start() {
    for (idle_ms, text) in [(0, "`idle_ms` is 0"), (u64::MAX, "`idle_ms` is 18446744073709551615")]
    {
        let config = ReplicaConfig { idle_ms, ..quiet() };
        let store = Arc::new(Memory::new());

        let error = start(store, config, Entropy::from_seed(1)).unwrap_err();

        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_named_at_once() {
    let mut served = Served::new(quiet()).await;
    let negative = prost_types::Duration { seconds: -1, nanos: 0 };
    let request = GetRequest {
        history: String::new(),
        history_id: "x".into(),
        key: Vec::new().into(),
        consistency: at(Level::MaxStaleness(negative)),
    };

    let error = served.client.get(request).await.unwrap_err();

    assert_eq!(fields(&error), ["history", "history_id", "consistency.max_staleness", "key"]);
}

#[tokio::test]
async fn a_batch_has_one_to_1024_keys_and_an_answer_under_4_mib() {
    let mut served = Served::new(quiet()).await;
    let batch = |count: usize| BatchGetRequest {
        history: "h".into(),
        keys: vec!["k".into(); count],
        ..BatchGetRequest::default()
    };
    for count in [0, 1_025] {
        let error = served.client.batch_get(batch(count)).await.unwrap_err();
        assert_eq!(fields(&error), ["keys"]);
    }
    assert_eq!(
        served.client.batch_get(batch(1_024)).await.unwrap().into_inner().found.len(),
        1_024
    );

    let mut request = batch(3);
    request.keys[1] = Vec::new().into();
    assert_eq!(fields(&served.client.batch_get(request).await.unwrap_err()), ["keys[1]"]);

    // Four entries of 1 MiB pass the limit by their keys.
    served.rig.writer.put_staged("k", &"v".repeat(1 << 20)).await;
    served.client.batch_get(batch(3)).await.unwrap();
    assert_eq!(fields(&served.client.batch_get(batch(4)).await.unwrap_err()), ["keys"]);
}

#[tokio::test]
async fn ranges_and_page_sizes_are_checked() {
    let mut served = Served::new(quiet()).await;
    let range = |start: &'static str, end: &'static str| {
        Some(KeyRange { start: start.into(), end: end.into() })
    };
    for bad in [range("b", "a"), range("a", "a")] {
        let request = ScanRequest { range: bad, ..scan() };
        assert_eq!(fields(&served.client.scan(request).await.unwrap_err()), ["range"]);
    }
    served.client.scan(ScanRequest { range: range("b", ""), ..scan() }).await.unwrap();

    let request = ScanRequest { page_size: 10_001, ..scan() };
    assert_eq!(fields(&served.client.scan(request).await.unwrap_err()), ["page_size"]);
    served.client.scan(ScanRequest { page_size: 10_000, ..scan() }).await.unwrap();
    let request = ListChangesRequest {
        history: "h".into(),
        page_size: 1_001,
        ..ListChangesRequest::default()
    };
    assert_eq!(fields(&served.client.list_changes(request).await.unwrap_err()), ["page_size"]);
}

#[tokio::test]
async fn a_page_of_a_scan_ends_before_2_mib() {
    let mut served = Served::new(quiet()).await;
    for i in 0..5 {
        served.rig.writer.put_staged(&format!("k{i}"), &"v".repeat(900 << 10)).await;
    }
    let page = served.client.scan(scan()).await.unwrap().into_inner();
    assert_eq!(page.entries.len(), 2);
    assert!(!page.next_page_token.is_empty());
    let keys_only = ScanRequest { keys_only: true, ..scan() };
    let page = served.client.scan(keys_only).await.unwrap().into_inner();
    assert_eq!(page.entries.len(), 5);
    assert!(page.entries.iter().all(|it| it.value.is_empty()));
}
