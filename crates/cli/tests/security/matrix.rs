//! Every method of the contract, called by everybody.

use std::collections::BTreeMap;

use headwater_daemon::auth::Role;
use headwater_daemon::auth::methods::{METHODS, Need};
use headwater_daemon::auth::token::NewToken;
use headwater_proto::v1;
use headwater_proto::v1::forward_service_client::ForwardServiceClient;
use headwater_proto::v1::history_service_client::HistoryServiceClient;
use headwater_proto::v1::process_service_client::ProcessServiceClient;
use headwater_proto::v1::read_service_client::ReadServiceClient;
use headwater_proto::v1::retention_service_client::RetentionServiceClient;
use headwater_proto::v1::submit_stream_response::Result as Told;
use headwater_proto::v1::watch_service_client::WatchServiceClient;
use headwater_proto::v1::write_service_client::WriteServiceClient;
use prost::Message as _;
use tokio_stream::StreamExt as _;
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::fixture::{Files, Server, Setup, row, token};

type Shown = Option<String>;

#[expect(clippy::too_many_lines, reason = "a row for each method")]
/// Calls `path` about `history`; `Ok` where it was let in, whatever came of it.
async fn call(channel: Channel, path: &str, history: &str, shown: &Shown) -> Result<(), Status> {
    let bearer = shown.clone();
    let show = move |mut request: Request<()>| {
        if let Some(text) = &bearer {
            let value = MetadataValue::try_from(format!("Bearer {text}")).unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        Ok::<_, Status>(request)
    };
    let line = InterceptedService::new(channel, show);
    let name = history.to_owned();
    let outcome = match path.trim_start_matches("/headwater.v1.") {
        "ReadService/Get" => {
            let request = v1::GetRequest { history: name, key: "k".into(), ..Default::default() };
            ReadServiceClient::new(line).get(request).await.map(drop)
        }
        "ReadService/BatchGet" => {
            let keys = vec!["k".into()];
            let request = v1::BatchGetRequest { history: name, keys, ..Default::default() };
            ReadServiceClient::new(line).batch_get(request).await.map(drop)
        }
        "ReadService/Scan" => {
            let request = v1::ScanRequest { history: name, ..Default::default() };
            ReadServiceClient::new(line).scan(request).await.map(drop)
        }
        "ReadService/GetHead" => {
            let request = v1::GetHeadRequest { history: name, ..Default::default() };
            ReadServiceClient::new(line).get_head(request).await.map(drop)
        }
        "ReadService/ListChanges" => {
            let request = v1::ListChangesRequest { history: name, ..Default::default() };
            ReadServiceClient::new(line).list_changes(request).await.map(drop)
        }
        "ReadService/VersionAt" => {
            let request = v1::VersionAtRequest { history: name, ..Default::default() };
            ReadServiceClient::new(line).version_at(request).await.map(drop)
        }
        "WatchService/Watch" => {
            let request = v1::WatchRequest { history: name, ..Default::default() };
            first(WatchServiceClient::new(line).watch(request).await).await.map(drop)
        }
        "WriteService/SubscribeHeads" => {
            let request = v1::SubscribeHeadsRequest { histories: vec![name] };
            let sent = tokio_stream::iter([request]);
            first(WriteServiceClient::new(line).subscribe_heads(sent).await).await.map(drop)
        }
        "WriteService/Submit" => {
            WriteServiceClient::new(line).submit(submission(name)).await.map(drop)
        }
        "WriteService/SubmitStream" => {
            let sent = tokio_stream::iter([submission(name)]);
            let told = first(WriteServiceClient::new(line).submit_stream(sent).await).await?;
            match told.and_then(|it| it.result) {
                Some(Told::ErrorStatus(bytes)) => {
                    let status = tonic_types::Status::decode(bytes).unwrap();
                    Err(Status::new(Code::from_i32(status.code), status.message))
                }
                Some(Told::Response(_)) | None => Ok(()),
            }
        }
        "WriteService/GetOperation" => {
            let operation_id = "op".to_owned();
            let request =
                v1::GetOperationRequest { history: name, operation_id, ..Default::default() };
            WriteServiceClient::new(line).get_operation(request).await.map(drop)
        }
        "HistoryService/GetHistory" => {
            let request = v1::GetHistoryRequest { name };
            HistoryServiceClient::new(line).get_history(request).await.map(drop)
        }
        "HistoryService/ListHistories" => {
            let request = v1::ListHistoriesRequest { name_prefix: name, ..Default::default() };
            HistoryServiceClient::new(line).list_histories(request).await.map(drop)
        }
        "HistoryService/RaiseWriterEpoch" => {
            let request = v1::RaiseWriterEpochRequest { name, ..Default::default() };
            HistoryServiceClient::new(line).raise_writer_epoch(request).await.map(drop)
        }
        "HistoryService/CreateHistory" => {
            let request = v1::CreateHistoryRequest { name, ..Default::default() };
            HistoryServiceClient::new(line).create_history(request).await.map(drop)
        }
        "HistoryService/DeleteHistory" => {
            // Of an id that it has not: the history stays.
            let confirm_history_id = "0".repeat(32);
            let request = v1::DeleteHistoryRequest { name, confirm_history_id };
            HistoryServiceClient::new(line).delete_history(request).await.map(drop)
        }
        "RetentionService/PinVersion" => {
            let pin = "p".to_owned();
            let request = v1::PinVersionRequest { name, pin, ..Default::default() };
            RetentionServiceClient::new(line).pin_version(request).await.map(drop)
        }
        "RetentionService/UnpinVersion" => {
            let pin = "p".to_owned();
            let request = v1::UnpinVersionRequest { name, pin, ..Default::default() };
            RetentionServiceClient::new(line).unpin_version(request).await.map(drop)
        }
        "RetentionService/SetRetention" => {
            let retention = Some(v1::Retention { versions: 100, age_ms: 0 });
            let request = v1::SetRetentionRequest { name, retention };
            RetentionServiceClient::new(line).set_retention(request).await.map(drop)
        }
        "RetentionService/RestoreVersion" => {
            let operation_id = "restore".to_owned();
            let request = v1::RestoreVersionRequest { name, operation_id, ..Default::default() };
            RetentionServiceClient::new(line).restore_version(request).await.map(drop)
        }
        "RetentionService/ForkHistory" => {
            let request = v1::ForkHistoryRequest {
                source: name.clone(),
                name: format!("{name}-fork"),
                history_id: "1".repeat(32),
                version: None,
            };
            RetentionServiceClient::new(line).fork_history(request).await.map(drop)
        }
        "ForwardService/Forward" => {
            let request = v1::ForwardRequest { history: name, ..Default::default() };
            ForwardServiceClient::new(line).forward(request).await.map(drop)
        }
        "ProcessService/GetStoreUsage" => {
            let request = v1::GetStoreUsageRequest {};
            ProcessServiceClient::new(line).get_store_usage(request).await.map(drop)
        }
        other => panic!("{other} is not called here: add it"),
    };
    match outcome {
        Err(status) if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) => {
            Err(status)
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn submission(history: String) -> v1::SubmitRequest {
    let put = v1::Put { key: "k".into(), value: "v".into() };
    let mutation = v1::Mutation { kind: Some(v1::mutation::Kind::Put(put)) };
    v1::SubmitRequest {
        history,
        operation_id: "op".to_owned(),
        mutations: vec![mutation],
        ..Default::default()
    }
}

/// The first message of a stream; none that comes in a moment is as good as one
/// that was let in.
async fn first<T>(
    opened: Result<tonic::Response<Streaming<T>>, Status>,
) -> Result<Option<T>, Status> {
    let mut messages = opened?.into_inner();
    let moment = std::time::Duration::from_millis(300);
    match tokio::time::timeout(moment, messages.next()).await {
        Ok(Some(message)) => message.map(Some),
        Ok(None) | Err(_) => Ok(None),
    }
}

/// What the method needs for the history of the request.
fn needed(path: &str, role: Role) -> Role {
    // The new history is made below the same prefix.
    if path.ends_with("/ForkHistory") { Role::Admin } else { role }
}

#[tokio::test]
async fn every_method_refuses_who_has_not_the_role_on_the_prefix() {
    let files = Files::new();
    let mut tokens: BTreeMap<(&str, Role), NewToken> = BTreeMap::new();
    let mut rights = String::new();
    for prefix in ["app-", "other-", ""] {
        for role in Role::ALL {
            let token = token();
            rights += &row(&token, &format!("{role}-{prefix}"), role, prefix);
            tokens.insert((prefix, role), token);
        }
    }
    let expired = token();
    rights += &row(&expired, "expired", Role::Admin, "")
        .replace("grants", "expires = 2020-01-01T00:00:00Z\ngrants");
    files.write("rights.toml", &rights);
    let server = Server::start(&files, Setup { has_rights: true, ..Setup::default() }).await;
    let uri = format!("http://{}", server.address);
    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
    let shown = |prefix, role| Some(tokens[&(prefix, role)].text.clone());
    let create = "/headwater.v1.HistoryService/CreateHistory";
    call(channel.clone(), create, "app-1", &shown("", Role::Admin)).await.unwrap();

    let mut checked = 0;
    for method in METHODS {
        let Need::Role(role) = method.need else { continue };
        let path = method.path;
        let needed = needed(path, role);
        let refused = |history: &'static str, shown: Shown, code: Code| {
            let channel = channel.clone();
            async move {
                let refused = call(channel, path, history, &shown).await;
                let refused = refused.expect_err(&format!("{path} {history}"));
                assert_eq!(refused.code(), code, "{path} {history}");
                refused.message().to_owned()
            }
        };
        refused("app-1", None, Code::Unauthenticated).await;
        refused("app-1", Some(token().text), Code::Unauthenticated).await;
        refused("app-1", Some("nonsense".to_owned()), Code::Unauthenticated).await;
        refused("app-1", Some(expired.text.clone()), Code::Unauthenticated).await;
        for less in Role::ALL.into_iter().filter(|it| *it < needed) {
            refused("app-1", shown("", less), Code::PermissionDenied).await;
        }
        // Whatever may be done elsewhere; and it is not told what is there. A
        // subscription goes on without what it may not read.
        let elsewhere = || shown("other-", Role::Admin);
        if path.ends_with("/SubscribeHeads") {
            call(channel.clone(), path, "app-1", &elsewhere()).await.unwrap();
        } else {
            let there = refused("app-1", elsewhere(), Code::PermissionDenied).await;
            let not = refused("app-none", elsewhere(), Code::PermissionDenied).await;
            assert_eq!(there, not, "{path}");
        }
        // The process is every history's.
        let is_of_process = path.contains("ProcessService");
        let prefix = if is_of_process { "" } else { "app-" };
        if is_of_process {
            refused("app-1", shown("app-", Role::Admin), Code::PermissionDenied).await;
        }
        for enough in Role::ALL.into_iter().filter(|it| needed <= *it) {
            let allowed = call(channel.clone(), path, "app-1", &shown(prefix, enough)).await;
            allowed.unwrap_or_else(|it| panic!("{path} with {enough}: {it}"));
        }
        checked += 1;
    }
    assert_eq!(checked, 23);

    // For the source the fork needs less than for what is made.
    let fork = "/headwater.v1.RetentionService/ForkHistory";
    let refused = call(channel.clone(), fork, "app-1", &shown("app-", Role::Maintain)).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    drop(channel);
    server.end().await;
}
