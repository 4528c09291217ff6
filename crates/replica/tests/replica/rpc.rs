//! `headwater.v1.ReadService` through a socket: answers, and errors as the
//! contract says them.

use std::time::Duration;

use headwater_daemon::serve::{Listening, Services};
use headwater_proto::v1::consistency::{Any, Level};
use headwater_proto::v1::read_service_client::ReadServiceClient;
use headwater_proto::v1::resolved_mutation::Kind;
use headwater_proto::v1::watch_service_client::WatchServiceClient;
use headwater_proto::v1::{
    BatchGetRequest, Consistency, GetHeadRequest, GetRequest, ListChangesRequest, ReadStamp,
};
use headwater_proto::{limits, reason};
use headwater_replica::ReplicaConfig;
use headwater_store::{Call, Fault, Rule};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::bucket::{Rig, quiet};

/// A rig whose replica is served.
pub(crate) struct Served {
    pub(crate) rig: Rig,
    pub(crate) client: ReadServiceClient<Channel>,
    pub(crate) watches: WatchServiceClient<Channel>,
    /// Cancelled, the server drains.
    pub(crate) stop: CancellationToken,
}

impl Served {
    pub(crate) async fn new(config: ReplicaConfig) -> Self {
        let rig = Rig::new(config).await;
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listening.local_address();
        let stop = CancellationToken::new();
        let services = Services::new()
            .with(rig.replica.service())
            .with(rig.replica.watch_service(stop.clone()));
        tokio::spawn(listening.serve(services, stop.clone(), Duration::from_secs(5)));
        let client = ReadServiceClient::connect(format!("http://{address}")).await.unwrap();
        let client = client.max_decoding_message_size(limits::MESSAGE_BYTES_MAX);
        let watches = WatchServiceClient::connect(format!("http://{address}")).await.unwrap();
        Self { rig, client, watches, stop }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the field has it")]
pub(crate) fn at(level: Level) -> Option<Consistency> {
    Some(Consistency { level: Some(level) })
}

pub(crate) fn any() -> Option<Consistency> {
    at(Level::Any(Any {}))
}

/// The reason of an error, which also has to say that nothing was applied.
pub(crate) fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().expect("an ErrorInfo");
    assert_eq!(info.domain, reason::DOMAIN);
    assert_eq!(info.metadata[reason::DETERMINACY], reason::NOT_APPLIED);
    info.reason
}

/// The fields that a refusal names.
pub(crate) fn fields(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(reason(status), reason::FIELD_INVALID);
    let details = status.get_details_bad_request().expect("a BadRequest");
    details.field_violations.into_iter().map(|it| it.field).collect()
}

pub(crate) fn metadata(status: &Status, key: &str) -> String {
    status.get_details_error_info().unwrap().metadata[key].clone()
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        history: "h".into(),
        consistency: None,
        key: key.to_owned().into(),
        history_id: String::new(),
    }
}

#[tokio::test]
async fn get_answers_with_a_stamp_and_an_absent_key_is_an_answer() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("k", "v").await;

    let answer = served.client.get(get("k")).await.unwrap().into_inner();

    let entry = answer.entry.unwrap();
    assert_eq!(
        (entry.key.as_ref(), entry.value.as_ref(), entry.version),
        (&b"k"[..], &b"v"[..], 1)
    );
    let ReadStamp { history_id, state_version, revision, proof_age } = answer.stamp.unwrap();
    assert_eq!(history_id, served.rig.writer.head.history_id.to_string());
    assert_eq!((state_version, revision), (1, 2));
    assert!(proof_age.unwrap().seconds < 20);
    let answer = served.client.get(get("none")).await.unwrap().into_inner();
    assert_eq!(answer.entry, None);
}

#[tokio::test]
async fn batch_get_keeps_the_order_of_its_keys() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("a", "1").await;
    served.rig.writer.put("b", "2").await;
    let keys = ["b", "none", "a", "b"].map(|it| it.to_owned().into()).to_vec();
    let request = BatchGetRequest { history: "h".into(), keys, ..BatchGetRequest::default() };

    let answer = served.client.batch_get(request).await.unwrap().into_inner();

    let values: Vec<_> =
        answer.found.into_iter().map(|it| it.entry.map(|it| it.value.to_vec())).collect();
    assert_eq!(values, [Some(b"2".to_vec()), None, Some(b"1".to_vec()), Some(b"2".to_vec())]);
}

#[tokio::test]
async fn get_head_gives_the_bytes_as_stored() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("a", "1").await;
    let request = GetHeadRequest { history: "h".into(), ..GetHeadRequest::default() };

    let answer = served.client.get_head(request.clone()).await.unwrap().into_inner();

    let stored = headwater_core::format::head::encode(&served.rig.writer.head);
    assert_eq!(answer.head_json, stored);
    // An older view is at hand, its head is not.
    let old = GetHeadRequest { consistency: at(Level::ExactVersion(0)), ..request };
    let error = served.client.get_head(old).await.unwrap_err();
    assert_eq!(reason(&error), reason::VERSION_RETIRED);
}

#[tokio::test]
async fn list_changes_gives_pages_of_what_was_accepted() {
    let mut served = Served::new(quiet()).await;
    for i in 1..=5 {
        served.rig.writer.put("k", &i.to_string()).await;
    }
    let (mut from, mut seen) = (0, Vec::new());
    loop {
        let request = ListChangesRequest {
            history: "h".into(),
            from_version: from,
            page_size: 2,
            ..ListChangesRequest::default()
        };
        let answer = served.client.list_changes(request).await.unwrap().into_inner();
        assert_eq!(answer.oldest_version, 1);
        assert!(answer.changes.len() <= 2);
        for change in answer.changes {
            let operation = &change.operations[0];
            let Some(Kind::Put(put)) = &operation.mutations[0].kind else { panic!() };
            assert_eq!(operation.operation_id, format!("op-{}", change.version));
            assert_eq!(put.value, change.version.to_string());
            seen.push(change.version);
        }
        if answer.next_version == 0 {
            break;
        }
        from = answer.next_version;
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);

    let ask = |from_version| ListChangesRequest {
        history: "h".into(),
        from_version,
        ..ListChangesRequest::default()
    };
    // One past the newest is where a reader waits; further is ahead.
    assert!(served.client.list_changes(ask(6)).await.unwrap().into_inner().changes.is_empty());
    let error = served.client.list_changes(ask(7)).await.unwrap_err();
    assert_eq!(reason(&error), reason::VERSION_AHEAD);
    served.rig.writer.compact_and_sweep().await;
    let error = served.client.list_changes(ask(3)).await.unwrap_err();
    assert_eq!(reason(&error), reason::VERSION_RETIRED);
    assert_eq!(metadata(&error, reason::OLDEST_VERSION), "6");
}

#[tokio::test]
async fn the_callers_deadline_is_kept_when_the_store_is_away() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("k", "v").await;
    served.client.get(get("k")).await.unwrap();
    served.rig.faults.set_outage(true);

    // Of which 200 ms are kept for saying so.
    let mut request = Request::new(get("k"));
    request.set_timeout(Duration::from_secs(4));
    let error = served.client.get(request).await.unwrap_err();

    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(reason(&error), reason::FRESHNESS_UNVERIFIED);
    assert!(error.get_details_retry_info().is_some());
    let weak = GetRequest { consistency: any(), ..get("k") };
    let answer = served.client.get(weak).await.unwrap().into_inner();
    assert_eq!(answer.entry.unwrap().value, "v");
    assert!(Duration::ZERO < answer.stamp.unwrap().proof_age.unwrap().try_into().unwrap());
}

#[tokio::test]
async fn errors_are_said_as_the_contract_has_them() {
    let mut served = Served::new(quiet()).await;
    let key = served.rig.writer.put_staged("k", "v").await;

    let missing = GetRequest { history: "none".into(), ..get("k") };
    let error = served.client.get(missing).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::NotFound, reason::HISTORY_MISSING));

    let other = GetRequest { history_id: "0".repeat(32), ..get("k") };
    let error = served.client.get(other).await.unwrap_err();
    assert_eq!(reason(&error), reason::HISTORY_MISSING);

    let ahead = GetRequest { consistency: at(Level::ExactVersion(9)), ..get("k") };
    let error = served.client.get(ahead).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::OutOfRange, reason::VERSION_AHEAD));
    assert_eq!(metadata(&error, reason::NEWEST_VERSION), "1");

    let key2 = served.rig.writer.put_staged("k", "w").await;
    assert_ne!(key, key2);
    served.rig.faults.add(Rule::new(Fault::Corrupt).on(Call::Get).key_has(key2.clone()));
    let error = served.client.get(get("k")).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::DataLoss, reason::STORED_DATA_BAD));
    assert_eq!(metadata(&error, reason::OBJECT_KEY), key2);
}
