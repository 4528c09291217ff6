//! What each decorator does to calls, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_store::{
    Applied, Call, Entropy, Fault, Faults, Gate, HeadRead, HeadWrite, Latency, Layers,
    LayersConfig, Memory, Meter, NoAnswerKind, Outcome, PutError, ReadError, Retry, RetryBudget,
    RetryBudgetConfig, RetryConfig, Rule, Store, TimedOut, Timeout, TimeoutConfig,
};
use tokio::time::Instant;

const HEAD: &str = "h/head.json";

fn faults() -> Faults {
    Faults::new(Arc::new(Memory::new()))
}

fn retry(faults: &Faults) -> Retry {
    Retry::new(faults.store(), RetryConfig::default(), Entropy::from_seed(1))
}

async fn create(store: &dyn Store) -> Tag {
    match store.create_head(HEAD, Bytes::from_static(b"1")).await {
        HeadWrite::Replaced { tag } => tag,
        other => panic!("{other:?}"),
    }
}

fn no_answer(answer: HeadWrite) -> NoAnswerKind {
    match answer {
        HeadWrite::NoAnswer(it) => it.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_pauses_is_not_seen() {
    let faults = faults();
    let store = retry(&faults);
    store.put("a", Bytes::from_static(b"x")).await.unwrap();
    faults.add(Rule::new(Fault::LoseCall).on(Call::Get).times(5));
    faults.add(Rule::new(Fault::Throttled(None)).on(Call::Delete).times(5));

    assert_eq!(store.get("a").await.unwrap(), "x");
    store.delete("a").await.unwrap();

    assert_eq!(faults.calls(Call::Get), 6);
    assert!(matches!(store.get("a").await, Err(ReadError::Missing { .. })));
    assert_eq!(faults.calls(Call::Get), 7, "missing is an answer, and is not repeated");
}

#[tokio::test(start_paused = true)]
async fn repeats_end() {
    let faults = faults();
    let store = retry(&faults);
    faults.set_outage(true);

    assert!(matches!(store.get("a").await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(store.read_head(HEAD, None).await, Err(ReadError::Unavailable { .. })));

    assert_eq!(faults.calls(Call::Get), 12);
    assert_eq!(faults.calls(Call::ReadHead), 3);
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_answer_was_lost_is_found_by_its_repeat() {
    let faults = faults();
    let store = retry(&faults);
    faults.on_next(Call::Put, Fault::LoseReply);

    store.put("a", Bytes::from_static(b"x")).await.unwrap();

    assert_eq!(faults.calls(Call::Put), 2);
    let other = store.put("a", Bytes::from_static(b"y")).await;
    assert!(matches!(other, Err(PutError::Occupied { .. })), "{other:?}");
    assert_eq!(faults.calls(Call::Put), 3, "an occupied key is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_head_write_is_never_repeated() {
    let faults = faults();
    let store = retry(&faults);
    faults.on_next(Call::CreateHead, Fault::LoseCall);
    assert_eq!(no_answer(store.create_head(HEAD, Bytes::new()).await), NoAnswerKind::Other);
    let tag = create(&store).await;
    for fault in [Fault::Conflict, Fault::Throttled(None), Fault::LoseCall] {
        faults.on_next(Call::ReplaceHead, fault);
        no_answer(store.replace_head(HEAD, &tag, Bytes::new()).await);
    }

    assert_eq!(faults.calls(Call::CreateHead), 2);
    assert_eq!(faults.calls(Call::ReplaceHead), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_names_a_time_is_not_asked_earlier() {
    let faults = faults();
    let store = retry(&faults);
    let began = Instant::now();
    faults.on_next(Call::List, Fault::Throttled(Some(Duration::from_secs(7))));

    store.list("", None, 1).await.unwrap();

    assert!(Duration::from_secs(7) <= began.elapsed());
    faults.on_next(Call::List, Fault::Throttled(Some(Duration::from_secs(60))));
    store.list("", None, 1).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60), "past the total, it fails at once");
}

#[tokio::test(start_paused = true)]
async fn a_head_write_that_is_cut_off_has_no_answer() {
    let faults = faults();
    let store = Timeout::new(faults.store(), TimeoutConfig::default());
    let tag = create(&store).await;
    let gate = Gate::new();
    faults.on_next(Call::ReplaceHead, Fault::HoldReply(gate));
    faults.on_next(Call::Get, Fault::Hang);

    let sending = store.replace_head(HEAD, &tag, Bytes::from_static(b"2"));
    let answer = tokio::time::timeout(Duration::from_secs(3600), sending).await.unwrap();

    assert_eq!(no_answer(answer), NoAnswerKind::Other);
    let HeadRead::Found { bytes, .. } = store.read_head(HEAD, Some(&tag)).await.unwrap() else {
        panic!("the replacement was applied before its answer was held");
    };
    assert_eq!(bytes, "2");
    match store.get("a").await {
        Err(ReadError::Unavailable { cause, .. }) => assert!(cause.is::<TimedOut>()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_meter_counts_by_call_and_outcome() {
    let faults = faults();
    let meter = Arc::new(Meter::new(faults.store()));
    let tag = create(&*meter).await;
    let before = meter.read();
    meter.read_head(HEAD, Some(&tag)).await.unwrap();
    meter.read_head(HEAD, None).await.unwrap();
    meter.put("a", Bytes::from_static(b"four")).await.unwrap();
    meter.put("a", Bytes::from_static(b"no")).await.unwrap_err();
    meter.get("a").await.unwrap();
    meter.get("b").await.unwrap_err();
    faults.on_next(Call::ReplaceHead, Fault::LoseCall);
    meter.replace_head(HEAD, &tag, Bytes::from_static(b"12")).await;
    meter.replace_head(HEAD, &Tag::new("stale"), Bytes::from_static(b"12")).await;
    meter.replace_head("none/head.json", &tag, Bytes::from_static(b"12")).await;

    let now = meter.read().since(&before);

    assert_eq!(now.count(Call::ReadHead, Outcome::Unchanged), 1);
    assert_eq!(now.count(Call::ReadHead, Outcome::Done), 1);
    assert_eq!(now.count(Call::Put, Outcome::Occupied), 1);
    assert_eq!(now.count(Call::Get, Outcome::Missing), 1);
    assert_eq!(now.count(Call::ReplaceHead, Outcome::NoAnswer), 1);
    assert_eq!(now.count(Call::ReplaceHead, Outcome::Mismatch), 1);
    assert_eq!(now.count(Call::ReplaceHead, Outcome::Gone), 1);
    assert_eq!((now.calls(Call::Get), now.calls(Call::CreateHead), now.total()), (2, 0, 9));
    assert_eq!((now.bytes_up(), now.bytes_down()), (12, 5));
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_counted_and_repeated() {
    let faults = faults();
    let Layers { store, meter } =
        Layers::around(faults.store(), LayersConfig::default(), Entropy::from_seed(1));
    let tag = create(&*store).await;
    faults.on_next(Call::ReadHead, Fault::Hang);
    faults.on_next(Call::ReplaceHead, Fault::Hang);

    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
    let sending = store.replace_head(HEAD, &tag, Bytes::from_static(b"2"));
    no_answer(tokio::time::timeout(Duration::from_secs(3600), sending).await.unwrap());

    let now = meter.read();
    assert_eq!(now.count(Call::ReadHead, Outcome::Abandoned), 1);
    assert_eq!(now.count(Call::ReadHead, Outcome::Unchanged), 1);
    assert_eq!(now.count(Call::ReplaceHead, Outcome::Abandoned), 1);
    assert_eq!(now.calls(Call::ReplaceHead), 1);
}

#[tokio::test(start_paused = true)]
async fn latency_lies_on_both_sides_of_the_call() {
    let (read, write) = (Duration::from_millis(20), Duration::from_millis(60));
    let memory = Memory::new();
    let store = Latency::new(Arc::new(memory.clone()), read, write);
    let began = Instant::now();

    let writing = tokio::spawn(async move {
        store.put("a", Bytes::new()).await.unwrap();
        store.get("a").await.unwrap();
    });
    tokio::time::sleep(Duration::from_millis(31)).await;

    memory.get("a").await.expect("it is there before its writer knows");
    writing.await.unwrap();
    assert_eq!(began.elapsed(), read + write);
}

#[tokio::test]
async fn faults_act_at_the_call_that_the_script_names() {
    let faults = faults();
    let store = faults.store();
    faults.on_nth(Call::Get, 2, Fault::Denied);
    faults.on_every(Call::Put, 3, Fault::LoseCall);
    let pages = faults.add(Rule::new(Fault::Missing).on(Call::Get).key_has("pages/"));
    store.put("k", Bytes::from_static(b"x")).await.unwrap();
    store.put("pages/1", Bytes::from_static(b"x")).await.unwrap();

    store.get("k").await.unwrap();
    assert!(matches!(store.get("k").await, Err(ReadError::Denied { .. })));
    assert!(matches!(store.get("pages/1").await, Err(ReadError::Missing { .. })));
    assert!(faults.remove(pages));
    store.get("pages/1").await.unwrap();
    let mut failed = Vec::new();
    for n in 3..=9 {
        if store.put("k", Bytes::from_static(b"x")).await.is_err() {
            failed.push(n);
        }
    }

    assert_eq!(failed, [3, 6, 9]);
    assert_eq!((faults.calls(Call::Put), faults.fired()), (9, 5));
    assert_eq!(faults.log()[1], (Call::Put, "pages/1".to_owned()));
}

#[tokio::test]
async fn a_write_can_be_applied_after_its_answer_was_given_up() {
    let faults = faults();
    let store = faults.store();
    let tag = create(&*store).await;
    faults.on_next(Call::ReplaceHead, Fault::ApplyLate);

    no_answer(store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await);

    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
    let applied = faults.apply_late().await;
    assert!(matches!(applied[..], [Applied::Head(HeadWrite::Replaced { .. })]), "{applied:?}");
    assert_ne!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
}

#[tokio::test]
async fn a_repeated_replacement_reports_its_own_success_as_a_mismatch() {
    let faults = faults();
    let store = faults.store();
    let tag = create(&*store).await;
    faults.on_next(Call::ReplaceHead, Fault::Repeat);

    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;

    assert!(matches!(answer, HeadWrite::Mismatch), "{answer:?}");
}

#[tokio::test]
async fn a_missing_head_is_gone_to_a_replacement_and_nothing_to_a_creation() {
    let faults = faults();
    let store = faults.store();
    let tag = create(&*store).await;
    faults.while_set(Call::ReplaceHead, Fault::Missing);
    faults.while_set(Call::CreateHead, Fault::Missing);

    let replaced = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;
    let created = store.create_head("new/head.json", Bytes::new()).await;

    assert!(matches!(replaced, HeadWrite::Gone), "{replaced:?}");
    assert_eq!(no_answer(created), NoAnswerKind::Other);
    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
}

#[tokio::test]
async fn a_held_call_waits_for_its_gate() {
    let faults = faults();
    let gate = Gate::new();
    faults.while_set(Call::Put, Fault::Hold(gate.clone()));
    let store = faults.store();
    let put = tokio::spawn(async move { store.put("a", Bytes::new()).await });
    gate.arrived(1).await;
    assert!(faults.behind().get("a").await.is_err());

    gate.open();

    put.await.unwrap().unwrap();
    faults.behind().get("a").await.unwrap();
}

#[tokio::test]
async fn bytes_are_spoiled_on_the_way_and_not_in_the_bucket() {
    let faults = faults();
    let store = faults.store();
    store.put("a", Bytes::from_static(b"abcd")).await.unwrap();
    faults.on_next(Call::Get, Fault::Corrupt);
    faults.on_next(Call::Get, Fault::Truncated);

    assert_eq!(store.get("a").await.unwrap(), "abbd");
    assert_eq!(store.get("a").await.unwrap(), "ab");
    assert_eq!(store.get("a").await.unwrap(), "abcd");
}

#[tokio::test]
async fn the_bucket_goes_away_after_a_chosen_number_of_calls() {
    let faults = faults();
    let store = faults.store();
    faults.after(2, Fault::LoseCall);

    store.list("", None, 1).await.unwrap();
    store.put("a", Bytes::new()).await.unwrap();
    store.get("a").await.unwrap_err();
    store.get("a").await.unwrap_err();
    faults.clear();
    store.get("a").await.unwrap();
}

#[tokio::test]
async fn a_share_of_calls_fails_the_same_way_for_the_same_seed() {
    let run = async |seed| {
        let faults = faults();
        let rule = Rule::new(Fault::LoseCall).on(Call::List).percent(20, Entropy::from_seed(seed));
        faults.add(rule);
        let store = faults.store();
        let mut failed = Vec::new();
        for n in 0..200 {
            if store.list("", None, 1).await.is_err() {
                failed.push(n);
            }
        }
        failed
    };
    let failed = run(1).await;
    assert!((20..60).contains(&failed.len()), "{}", failed.len());
    assert_eq!(failed, run(1).await);
}

/// Replaces the head of each key without an answer, and says how long each has
/// to rest.
async fn unanswered(store: &dyn Store, n_heads: usize) -> Vec<Duration> {
    let tag = Tag::new("\"none\"");
    let mut pauses = Vec::new();
    for n in 0..n_heads {
        let key = format!("h{n}/head.json");
        no_answer(store.replace_head(&key, &tag, Bytes::new()).await);
        pauses.push(store.replacement_pause(&key));
    }
    pauses
}

#[tokio::test(start_paused = true)]
async fn replacements_after_one_without_an_answer_draw_on_the_budget() {
    let faults = faults();
    let budget = RetryBudgetConfig { percent: 0, per_second: 5, saved_max: 10 };
    let budget = Arc::new(RetryBudget::new(budget));
    let config = RetryConfig::default();
    let store = Retry::within(faults.store(), config, Entropy::from_seed(1), Arc::clone(&budget));
    faults.add(Rule::new(Fault::LoseReply).on(Call::ReplaceHead).times(15));

    let pauses = unanswered(&store, 15).await;

    assert!(pauses[..10].iter().all(Duration::is_zero), "{pauses:?}");
    let later: Vec<_> = pauses[10..].iter().map(Duration::as_millis).collect();
    assert_eq!(later, [200, 400, 600, 800, 1_000], "heads take turns, as all repeats do");
    // Its repeat has an answer, and the next one is no repeat.
    let tag = create(&store).await;
    faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    no_answer(store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await);
    assert!(!store.replacement_pause(HEAD).is_zero());
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"3")).await;
    assert!(matches!(answer, HeadWrite::Mismatch), "{answer:?}");
    assert!(store.replacement_pause(HEAD).is_zero());
}
