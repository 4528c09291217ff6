//! Transactions: what they depend on, and what they do about conflicts.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use headwater_client::{Consistency, KeyRange, ReadError, Session, TxnError, TxnOptions};
use headwater_proto::v1::precondition::Kind;
use headwater_proto::v1::submit_response::Outcome as WireOutcome;
use headwater_proto::{reason, v1};
use tonic::Code;

use crate::fake::{Deployment, HISTORY, HISTORY_ID, Model, Step, refusal};

fn number(value: Option<Bytes>) -> u64 {
    value.map_or(0, |it| std::str::from_utf8(&it).unwrap().parse().unwrap())
}

async fn increment(session: &Session) -> Result<u64, TxnError<ReadError>> {
    let committed = session
        .transact(TxnOptions::default(), async |txn| {
            let next = number(txn.get("n").await?) + 1;
            txn.put("n", next.to_string());
            Ok::<_, ReadError>(next)
        })
        .await?;
    assert!(committed.accepted.is_some());
    Ok(committed.value)
}

fn overtaking(n: u64) -> Step {
    Step::After(Box::new(move |model: &mut Model| {
        let next = number(model.value("n")) + n;
        model.put("n", &next.to_string());
    }))
}

#[tokio::test(start_paused = true)]
async fn a_conflict_decides_again_on_the_newer_version() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([overtaking(10), overtaking(100)]);

    assert_eq!(increment(&session).await.unwrap(), 111);

    let sent = deployment.submissions();
    let ids: BTreeSet<_> = sent.iter().map(|it| it.operation_id.clone()).collect();
    assert_eq!((sent.len(), ids.len()), (3, 3));
    assert_eq!(deployment.shared().model.value("n").unwrap(), "111");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_keeps_the_id_and_applies_once() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::ServeAndLose]);

    assert_eq!(increment(&session).await.unwrap(), 1);

    let sent = deployment.submissions();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
    assert_eq!(deployment.shared().model.value("n").unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn callers_in_parallel_lose_no_increment() {
    let deployment = Deployment::of(1);
    let client = deployment.client();
    let options = TxnOptions { attempts_max: 1_000, ..TxnOptions::default() };
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let session = client.session(HISTORY);
            // A transaction runs on any task: its future is Send.
            tokio::spawn(async move {
                for _ in 0..5 {
                    session
                        .transact(options, async |txn| {
                            let next = number(txn.get("n").await?) + 1;
                            txn.put("n", next.to_string());
                            Ok::<_, ReadError>(())
                        })
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }

    assert_eq!(deployment.shared().model.value("n").unwrap(), "40");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script((0..100).map(|_| overtaking(1)));

    let error = increment(&session).await.unwrap_err();

    assert!(matches!(error, TxnError::Conflicts { attempts: 16, last: Some(_) }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn all_reads_are_of_the_version_of_the_first() {
    let deployment = Deployment::of(3);
    let session = deployment.client().session(HISTORY);
    deployment.shared().model.put("a", "1");
    deployment.shared().model.put("b", "1");
    let shared = Arc::clone(&deployment.shared);

    let committed = session
        .transact(TxnOptions::default(), async |txn| {
            let a = txn.get("a").await?;
            shared.lock().unwrap().model.put("b", "2");
            let b = txn.get("b").await?;
            let scanned = txn.scan(KeyRange::prefix("b"), 10).await?;
            assert_eq!(scanned[0].value, "1");
            Ok::<_, ReadError>((a, b))
        })
        .await
        .unwrap();

    assert_eq!(committed.value, (Some("1".into()), Some("1".into())));
    assert_eq!(committed.read_version, Some(2));
    // It wrote nothing, so it submitted nothing.
    assert!(committed.accepted.is_none());
    assert!(deployment.submissions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_what_it_depends_on() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    for key in ["r1", "r2", "r3", "r4", "x"] {
        deployment.shared().model.put(key, "0");
    }

    session
        .transact(TxnOptions::default(), async |txn| {
            txn.get("x").await?;
            txn.put("own", "1");
            // An own write is read back without depending on anything.
            assert_eq!(txn.get("own").await?.unwrap(), "1");
            txn.scan(KeyRange::prefix("r"), 2).await?;
            txn.scan_reverse(KeyRange::prefix("r"), 1).await?;
            Ok::<_, ReadError>(())
        })
        .await
        .unwrap();

    let sent = deployment.submissions().remove(0);
    let mut keys = Vec::new();
    let mut ranges = Vec::new();
    for precondition in sent.preconditions {
        match precondition.kind.unwrap() {
            Kind::KeyUnchangedSince(it) => keys.push((it.key, it.version)),
            Kind::RangeUnchangedSince(it) => {
                let range = it.range.unwrap();
                ranges.push((range.start, range.end, it.version));
            }
            other @ (Kind::KeyExists(_)
            | Kind::KeyAbsent(_)
            | Kind::KeyAtVersion(_)
            | Kind::ValueEquals(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!(keys, [("x".into(), 5)]);
    assert_eq!(ranges, [("r".into(), "r2\0".into(), 5), ("r4".into(), "s".into(), 5)]);
}

#[tokio::test(start_paused = true)]
async fn a_scan_cut_by_its_limit_at_a_longest_key_commits() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let longest = "k".repeat(1_024);
    deployment.shared().model.put(&longest, "1");
    deployment.shared().model.put("z", "2");

    let committed = session
        .transact(TxnOptions::default(), async |txn| {
            let first = txn.scan(KeyRange::all(), 1).await?;
            txn.put("z", "3");
            Ok::<_, ReadError>(first.len())
        })
        .await
        .unwrap();

    assert_eq!(committed.value, 1);
    let accepted = committed.accepted.unwrap();
    assert_eq!(accepted.state_version, 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_appears_in_a_scanned_range_is_a_conflict() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let appear = |model: &mut Model| model.put("task/1", "new");
    deployment.script([Step::After(Box::new(appear))]);

    let committed = session
        .transact(TxnOptions::default(), async |txn| {
            let tasks = txn.scan(KeyRange::prefix("task/"), 100).await?;
            txn.put("count", tasks.len().to_string());
            Ok::<_, ReadError>(tasks.len())
        })
        .await
        .unwrap();

    assert_eq!(committed.value, 1);
}

#[tokio::test(start_paused = true)]
async fn a_scan_sees_own_writes_and_pages_past_own_deletions() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    for i in 0..6 {
        deployment.shared().model.put(&format!("k{i}"), "stored");
    }

    session
        .transact(TxnOptions::default(), async |txn| {
            txn.delete_range(KeyRange::new("k0", "k4"));
            txn.put("k2", "own");
            let keys = |entries: Vec<headwater_client::Entry>| -> Vec<Bytes> {
                entries.into_iter().map(|it| it.key).collect()
            };
            let first = keys(txn.scan(KeyRange::prefix("k"), 2).await?);
            assert_eq!(first, ["k2", "k4"]);
            let last = keys(txn.scan_reverse(KeyRange::prefix("k"), 3).await?);
            assert_eq!(last, ["k5", "k4", "k2"]);
            Err::<(), _>(ReadError::ReadSetFull { max: 0 })
        })
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_version_that_goes_away_under_an_attempt_is_another_attempt() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let mut attempts = 0;

    let committed = session
        .transact(TxnOptions::default(), async |txn| {
            attempts += 1;
            txn.get("a").await?;
            if attempts == 1 {
                deployment.refuse_reads([refusal(reason::VERSION_RETIRED, Code::OutOfRange, None)]);
            }
            txn.get("b").await?;
            Ok::<_, ReadError>(())
        })
        .await;

    committed.unwrap();
    assert_eq!(attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn giving_up_submits_nothing() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let options = TxnOptions { consistency: Consistency::Session, ..TxnOptions::default() };

    let outcome = session
        .transact(options, async |txn| {
            txn.put("k", "v");
            Err::<(), _>("no")
        })
        .await;

    assert!(matches!(outcome, Err(TxnError::Abandoned("no"))));
    assert!(deployment.submissions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_may_pass_ends_it_while_a_lost_attempt_may_yet_apply() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let conflict = v1::Conflict {
        kind: v1::conflict::Kind::Overflow.into(),
        mutation: Some(0),
        ..v1::Conflict::default()
    };
    let rejected = v1::Rejected { at_version: 0, conflicts: vec![conflict] };
    let outcome = Some(WireOutcome::Rejected(rejected));
    let history_id = HISTORY_ID.to_owned();
    deployment.script([Step::Lose, Step::Say(v1::SubmitResponse { history_id, outcome })]);

    let outcome = session
        .transact(TxnOptions::default(), async |txn| {
            txn.put("k", "v");
            Ok::<_, ReadError>(())
        })
        .await;

    assert!(matches!(outcome, Err(TxnError::MayYetApply(_))), "{outcome:?}");
    assert_eq!(deployment.submissions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_for_good_is_another_attempt_even_after_a_lost_one() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::Lose, overtaking(1)]);

    assert_eq!(increment(&session).await.unwrap(), 2);

    assert_eq!(deployment.submissions().len(), 3);
}
