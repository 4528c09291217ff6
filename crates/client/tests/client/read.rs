//! Reads: balancing, sessions, scans, names.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use headwater_client::{Consistency, KeyRange, ReadError, ScanOptions, Token};
use headwater_proto::reason;
use headwater_proto::v1::consistency::Level;
use tokio::time::Instant;
use tonic::Code;

use crate::fake::{Deployment, HISTORY, HISTORY_ID, address, refusal};

/// What is no age of a proof.
pub(crate) const NO_AGES: [Option<prost_types::Duration>; 3] = [
    None,
    Some(prost_types::Duration { seconds: -1, nanos: 0 }),
    Some(prost_types::Duration { seconds: 0, nanos: 1_000_000_000 }),
];

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_say_how_old_its_proof_is_is_not_taken_for_fresh() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    for age in NO_AGES {
        deployment.shared().proof_ages.push_back(age);

        let error = session.get("k", Consistency::Any).await.unwrap_err();

        assert!(error.to_string().contains("how old its proof is"), "{age:?}: {error}");
    }
    let read = session.get("k", Consistency::Any).await.unwrap();
    assert_eq!(read.stamp.proof_age, Duration::ZERO);
}

fn filled(deployment: &Deployment) {
    let mut shared = deployment.shared();
    for i in 0..25 {
        shared.model.put(&format!("k{i:02}"), &i.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn reads_go_round_the_live_replicas() {
    let deployment = Deployment::of(3);
    let session = deployment.client().session(HISTORY);

    for _ in 0..6 {
        session.get("k", Consistency::Any).await.unwrap();
    }

    let mut servers = deployment.read_servers();
    assert_ne!(servers[0], servers[1]);
    servers.sort();
    assert_eq!(servers, [1, 1, 2, 2, 3, 3].map(address));
}

#[tokio::test(start_paused = true)]
async fn a_failing_replica_is_put_aside_and_comes_back() {
    let deployment = Deployment::of(2);
    let session = deployment.client().session(HISTORY);
    deployment.network.take_down(address(1));

    for _ in 0..10 {
        session.get("k", Consistency::Any).await.unwrap();
    }
    assert_eq!(deployment.read_servers(), [address(2); 10]);
    assert_eq!(deployment.network.dials(address(1)), 1);

    deployment.start(1);
    tokio::time::sleep(Duration::from_secs(20)).await;
    for _ in 0..2 {
        session.get("k", Consistency::Any).await.unwrap();
    }
    assert!(deployment.read_servers()[10..].contains(&address(1)));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_answers_nothing_holds_up_one_read_and_not_its_share_of_all() {
    let deployment = Deployment::of(3);
    let session = deployment.client().session(HISTORY);
    for _ in 0..3 {
        session.get("k", Consistency::Any).await.unwrap();
    }
    // As of a pod that ends: refusals first, and then nothing any more.
    deployment.network.take_down(address(1));
    let refused = (0..60).map(|_| session.get("k", Consistency::Any));
    futures::future::try_join_all(refused).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    futures::future::try_join_all((0..60).map(|_| session.get("k", Consistency::Any)))
        .await
        .unwrap();
    deployment.network.swallow(address(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut waits = Vec::new();
    for round in 0..4 {
        let reads = (0..60).map(|_| async {
            let began = Instant::now();
            session.get("k", Consistency::Any).await.unwrap();
            began.elapsed()
        });
        let took = futures::future::join_all(reads).await;
        let slow: Vec<_> = took.into_iter().filter(|it| !it.is_zero()).collect();
        assert!(slow.len() <= 1, "round {round}: {slow:?}");
        waits.extend(slow);
        // It is put aside no more.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    // The first one waits for a connection for a while and goes on. Nobody waits
    // for as long as connections may take.
    let (while_ms, longest) = (Duration::from_millis(500), Duration::from_secs(3));
    assert!(while_ms <= waits[0] && waits[0] < while_ms * 2, "{waits:?}");
    assert!(waits.iter().all(|it| *it < longest), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_connection_is_used_once_it_has_one() {
    let deployment = Deployment::of(2);
    let session = deployment.client().session(HISTORY);
    let reads = (0..20).map(|_| session.get("k", Consistency::Any));
    futures::future::try_join_all(reads).await.unwrap();
    let servers = deployment.read_servers();
    for n in [1, 2] {
        assert!(servers.contains(&address(n)), "{servers:?}");
    }
    deployment.network.cut(address(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    for _ in 0..4 {
        session.get("k", Consistency::Any).await.unwrap();
    }
    let later = &deployment.read_servers()[servers.len()..];
    assert_eq!(later.iter().filter(|it| **it == address(1)).count(), 2, "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_resolved_again_after_a_failure() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    session.get("k", Consistency::Any).await.unwrap();
    session.get("k", Consistency::Any).await.unwrap();
    assert_eq!(deployment.network.resolutions(), 1);

    deployment.network.take_down(address(1));
    deployment.network.name("servers", [address(9)]);
    deployment.start(9);
    session.get("k", Consistency::Any).await.unwrap();

    assert_eq!(deployment.read_servers().last(), Some(&address(9)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_resolver_holds_nobody_back_while_a_server_is_known() {
    let deployment = Deployment::of(2);
    let session = deployment.client().session(HISTORY);
    session.get("k", Consistency::Any).await.unwrap();
    deployment.network.silence_the_resolver();
    deployment.network.take_down(address(1));
    tokio::time::sleep(Duration::from_secs(5)).await;

    for _ in 0..50 {
        session.get("k", Consistency::Any).await.unwrap();
    }

    assert!(deployment.network.resolutions() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_query_without_an_answer_is_not_the_last_one() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.network.lose_queries(2);

    session.get("k", Consistency::Any).await.unwrap();

    assert_eq!(deployment.network.resolutions(), 3);
}

#[tokio::test(start_paused = true)]
async fn where_all_servers_have_failed_they_are_tried_while_the_resolver_is_silent() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    session.get("k", Consistency::Any).await.unwrap();
    deployment.network.silence_the_resolver();
    deployment.network.take_down(address(1));
    let reading = tokio::spawn(async move { session.get("k", Consistency::Any).await });
    tokio::time::sleep(Duration::from_secs(3)).await;

    deployment.start(1);

    reading.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unproved_read_moves_to_another_replica() {
    let deployment = Deployment::of(2);
    let session = deployment.client().session(HISTORY);
    let retry_after = Some(Duration::from_millis(1));
    deployment.refuse_reads([refusal(
        reason::FRESHNESS_UNVERIFIED,
        Code::Unavailable,
        retry_after,
    )]);

    session.get("k", Consistency::Strong).await.unwrap();

    let servers = deployment.read_servers();
    assert_eq!(servers.len(), 2);
    assert_ne!(servers[0], servers[1]);
}

#[tokio::test(start_paused = true)]
async fn a_session_reads_what_it_wrote_and_hands_it_on() {
    let deployment = Deployment::of(1);
    let client = deployment.client();
    let session = client.session(HISTORY);
    let _outcome = session.submit(client.operation().put("k", "v")).await.unwrap();
    let token = session.token().unwrap();
    assert_eq!(token.to_string(), format!("{HISTORY_ID}@1"));

    let elsewhere = client.session_from(HISTORY, token.to_string().parse::<Token>().unwrap());
    let read = elsewhere.get("k", Consistency::Session).await.unwrap();

    assert_eq!(read.value.unwrap().value, "v");
    let asked = deployment.shared().reads[0].1.clone();
    assert_eq!(asked.consistency.unwrap().level, Some(Level::AtLeastVersion(1)));
    assert_eq!(asked.history_id, HISTORY_ID);
}

#[tokio::test(start_paused = true)]
async fn a_moment_has_a_version_and_its_time() {
    let deployment = Deployment::of(1);
    filled(&deployment);
    let session = deployment.client().session(HISTORY);
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);

    let read = session.version_at(at(7), Consistency::Strong).await.unwrap();
    assert_eq!((read.value.version, read.value.decided_at), (7, Some(at(7))));
    let read = session.version_at(at(0), Consistency::Strong).await.unwrap();
    assert_eq!((read.value.version, read.value.decided_at), (0, None));
    assert_eq!(read.stamp.state_version, 25);
}

#[tokio::test(start_paused = true)]
async fn versions_seen_never_fall() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    filled(&deployment);
    session.get("k", Consistency::Strong).await.unwrap();

    session.get("k", Consistency::Exact(3)).await.unwrap();

    assert_eq!(session.token().unwrap().state_version, 25);
    let other = Token { history_id: "f".repeat(32).parse().unwrap(), state_version: 99 };
    assert!(session.observe(other).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_batch_answers_in_the_order_of_its_keys() {
    let deployment = Deployment::of(1);
    filled(&deployment);
    let session = deployment.client().session(HISTORY);
    let keys = ["k07", "none", "k01"].map(Bytes::from);

    let read = session.batch_get(keys, Consistency::Strong).await.unwrap();

    let values: Vec<_> = read.value.into_iter().map(|it| it.map(|it| it.value)).collect();
    assert_eq!(values, [Some("7".into()), None, Some("1".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_scan_is_of_one_version_whatever_is_written_meanwhile() {
    let deployment = Deployment::of(3);
    filled(&deployment);
    let session = deployment.client().session(HISTORY);
    for reverse in [false, true] {
        let options = ScanOptions { page_size: 10, reverse, ..ScanOptions::default() };
        let mut scan = session.scan(options);
        let before = scan.next_page().await.unwrap().unwrap();
        deployment.shared().model.put("k20", "changed");

        let mut keys: Vec<_> = before.value.into_iter().map(|it| it.key).collect();
        while let Some(page) = scan.next_page().await.unwrap() {
            assert_eq!(page.stamp.state_version, before.stamp.state_version);
            keys.extend(page.value.into_iter().map(|it| it.key));
        }

        let mut expected: Vec<_> = (0..25).map(|i| format!("k{i:02}")).collect();
        if reverse {
            expected.reverse();
        }
        assert_eq!(keys, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_whose_version_is_gone_ends_and_never_begins_again() {
    let deployment = Deployment::of(2);
    filled(&deployment);
    let session = deployment.client().session(HISTORY);
    let options = ScanOptions { page_size: 10, ..ScanOptions::from(KeyRange::all()) };
    let mut entries = Box::pin(session.scan(options).into_stream());
    for _ in 0..10 {
        entries.next().await.unwrap().unwrap();
    }
    deployment.refuse_reads([refusal(reason::VERSION_RETIRED, Code::OutOfRange, None)]);

    let next = entries.next().await.unwrap();

    assert!(matches!(next, Err(ReadError::VersionRetired(_))), "{next:?}");
    assert!(entries.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_version_is_an_error() {
    let deployment = Deployment::of(1);
    filled(&deployment);
    let session = deployment.client().session(HISTORY);
    let mut scan = session.scan(ScanOptions { page_size: 10, ..ScanOptions::default() });
    scan.next_page().await.unwrap();
    deployment.shared().model.put("k99", "new");
    deployment.shared().forgets_scans = true;

    assert!(scan.next_page().await.is_err());
}
