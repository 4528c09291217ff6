//! Scans over pages.

use std::sync::Arc;

use headwater_proto::reason;
use headwater_proto::v1::{KeyRange, ScanRequest};
use headwater_replica::{ReplicaConfig, start};
use headwater_store::{Call, Entropy, Fault, Rule};

use crate::bucket::{TestWriter, quiet};
use crate::rpc::{Served, any, fields, reason};

fn scan(page_size: u32) -> ScanRequest {
    ScanRequest { history: "h".into(), page_size, ..ScanRequest::default() }
}

/// Reads all pages, and calls `between` after each.
async fn pages(
    served: &mut Served,
    mut request: ScanRequest,
    mut between: impl AsyncFnMut(&mut TestWriter, usize),
) -> Vec<(String, String)> {
    let (mut read, mut versions, mut n_pages) = (Vec::new(), Vec::new(), 0);
    loop {
        let page = served.client.scan(request.clone()).await.unwrap().into_inner();
        versions.push(page.stamp.unwrap().state_version);
        let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
        read.extend(page.entries.iter().map(|it| (text(&it.key), text(&it.value))));
        n_pages += 1;
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
        between(&mut served.rig.writer, n_pages).await;
    }
    assert!(versions.iter().all(|it| *it == versions[0]), "{versions:?}");
    read
}

/// 20 keys, of which some are in a snapshot, some in the tail, some in both.
async fn filled(config: ReplicaConfig) -> (Served, Vec<(String, String)>) {
    let mut served = Served::new(config).await;
    for i in 0..15 {
        served.rig.writer.put(&format!("k{i:02}"), "old").await;
    }
    served.rig.writer.compact_and_sweep().await;
    for i in 10..20 {
        served.rig.writer.put(&format!("k{i:02}"), "new").await;
    }
    let value = |i| if i < 10 { "old" } else { "new" };
    let all = (0..20).map(|i| (format!("k{i:02}"), value(i).to_owned())).collect();
    (served, all)
}

#[tokio::test]
async fn pages_are_of_one_version_while_commits_go_on() {
    for reverse in [false, true] {
        let (mut served, mut all) = filled(quiet()).await;
        if reverse {
            all.reverse();
        }
        let request = ScanRequest { reverse, ..scan(3) };

        let read = pages(&mut served, request, async |writer, n| {
            writer.put(&format!("k{n:02}"), "late").await;
            writer.put(&format!("k{:02}x", 2 * n), "late").await;
        })
        .await;

        assert_eq!(read, all, "reverse: {reverse}");
    }
}

#[tokio::test]
async fn a_scan_goes_on_over_a_compaction_of_its_version_or_begins_again() {
    let (mut served, all) = filled(quiet()).await;
    let read = pages(&mut served, scan(3), async |writer, n| {
        if n == 2 {
            writer.compact_and_sweep().await;
        }
    })
    .await;
    assert_eq!(read, all);
}

#[tokio::test]
async fn ranges_have_an_inclusive_start_and_an_exclusive_end() {
    let (mut served, all) = filled(quiet()).await;
    let range = Some(KeyRange { start: "k05".into(), end: "k12".into() });
    let request = ScanRequest { range, ..scan(2) };
    let read = pages(&mut served, request, async |_, _| ()).await;
    assert_eq!(read, all[5..12]);
}

#[tokio::test]
async fn a_token_from_elsewhere_is_refused() {
    let (mut served, _) = filled(quiet()).await;
    let mut other = TestWriter::create(served.rig.faults.behind(), "other", 5).await;
    other.put("k", "v").await;
    let page = served.client.scan(scan(3)).await.unwrap().into_inner();
    let token = page.next_page_token;
    let with = |token: &[u8]| ScanRequest { page_token: token.to_vec().into(), ..scan(3) };
    served.client.scan(with(&token)).await.unwrap();

    let range = Some(KeyRange { start: "k".into(), end: bytes::Bytes::new() });
    let mut tampered = token.to_vec();
    tampered[40] ^= 1;
    let foreign = [
        with(b"nonsense"),
        with(&tampered),
        with(&token[..token.len() - 1]),
        ScanRequest { reverse: true, ..with(&token) },
        ScanRequest { keys_only: true, ..with(&token) },
        ScanRequest { range, ..with(&token) },
        ScanRequest { history: "other".into(), ..with(&token) },
        ScanRequest { history_id: "0".repeat(32), ..with(&token) },
    ];
    for request in foreign {
        let error = served.client.scan(request.clone()).await.unwrap_err();
        assert_eq!(fields(&error), ["page_token"], "{request:?}");
    }
}

#[tokio::test]
async fn a_token_of_a_history_that_was_created_again_is_refused() {
    let (mut served, _) = filled(quiet()).await;
    let token = served.client.scan(scan(3)).await.unwrap().into_inner().next_page_token;
    let store = served.rig.faults.behind();
    store.delete("h/head.json").await.unwrap();
    served.rig.writer = TestWriter::create(store, "h", 2).await;
    // Until somebody looks, the scan goes on in the old one.
    served.client.scan(scan(1)).await.unwrap();

    let error = served.client.scan(ScanRequest { page_token: token, ..scan(3) }).await.unwrap_err();

    assert_eq!(fields(&error), ["page_token"]);
}

#[tokio::test]
async fn another_replica_goes_on_where_the_tail_reaches_and_says_so_where_not() {
    let (mut served, all) = filled(quiet()).await;
    let page = served.client.scan(scan(3)).await.unwrap().into_inner();
    served.rig.writer.put("k19", "late").await;
    let go_on = ScanRequest { page_token: page.next_page_token, ..scan(100) };
    let restart = |served: &mut Served| {
        let store = Arc::new(served.rig.faults.clone());
        let fresh = start(store, quiet(), Entropy::from_seed(9)).unwrap();
        std::mem::replace(&mut served.rig.replica, fresh)
    };

    // Its tail has the version.
    let first = restart(&mut served);
    let rpc = served.rig.replica.service();
    let read = scan_with(&rpc, go_on.clone()).await.unwrap();
    assert_eq!(read, all[3..]);

    // This one's has not.
    served.rig.writer.compact_and_sweep().await;
    let second = restart(&mut served);
    let rpc = served.rig.replica.service();
    let error = scan_with(&rpc, go_on).await.unwrap_err();
    assert_eq!(reason(&error), reason::VERSION_RETIRED);
    first.shutdown().await;
    second.shutdown().await;
}

/// One page from a service without a socket.
async fn scan_with<S>(
    service: &S,
    request: ScanRequest,
) -> Result<Vec<(String, String)>, tonic::Status>
where
    S: tonic::server::NamedService + Clone + Send + Sync + 'static,
    S: tonic::codegen::Service<
            tonic::codegen::http::Request<tonic::body::Body>,
            Response = tonic::codegen::http::Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        >,
    S::Future: Send + 'static,
{
    let mut client =
        headwater_proto::v1::read_service_client::ReadServiceClient::new(service.clone());
    let page = client.scan(request).await?.into_inner();
    let text = |it: &[u8]| String::from_utf8(it.to_vec()).unwrap();
    Ok(page.entries.iter().map(|it| (text(&it.key), text(&it.value))).collect())
}

#[tokio::test(start_paused = true)]
async fn a_scans_version_is_kept_for_a_while_after_its_last_page() {
    use headwater_core::operation::KeyRange;
    use headwater_replica::{Consistency, ReadFailure};
    use headwater_state::Scan;
    use std::time::Duration;

    use crate::bucket::{Rig, deadline};

    let mut rig = Rig::new(ReplicaConfig { recent_versions_max: 1, ..quiet() }).await;
    for i in 0..4 {
        rig.writer.put(&format!("k{i}"), "v").await;
    }
    let mut scan = Scan {
        range: KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: 1,
        bytes_max: 1 << 20,
    };
    let reader = rig.reader();
    let (page, pinned) = reader.scan(&scan, Consistency::Strong, deadline()).await.unwrap();
    // The tail moves on, and a snapshot takes its place.
    rig.writer.put("k9", "late").await;
    rig.writer.compact_and_sweep().await;
    rig.read("k9", Consistency::Strong).await.unwrap();
    let exact = Consistency::Exact(pinned.version());
    scan.after = page.next;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(59)).await;
        let (page, again) = reader.scan(&scan, exact, deadline()).await.unwrap();
        assert_eq!(again.version(), pinned.version());
        scan.after = page.next;
    }
    tokio::time::sleep(Duration::from_secs(61)).await;

    let answer = reader.scan(&scan, exact, deadline()).await;

    assert!(matches!(answer, Err(ReadFailure::VersionRetired { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_chunk_that_is_damaged_is_named_by_the_page_that_needs_it() {
    let (mut served, _) = filled(quiet()).await;
    let chunk = served.rig.writer.chunk_keys().await.remove(0);
    served.rig.faults.add(Rule::new(Fault::Truncated).on(Call::Get).key_has(chunk));
    let request = ScanRequest { consistency: any(), ..scan(3) };

    let error = served.client.scan(request).await.unwrap_err();

    assert_eq!(reason(&error), reason::STORED_DATA_BAD);
}
