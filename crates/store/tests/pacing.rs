//! What a bucket in trouble is asked, and what a slow read costs, in virtual
//! time.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_store::{
    Call, Crowded, Entropy, Fault, Faults, HeadWrite, Hedge, HedgeConfig, Latency, Layers,
    LayersConfig, Limited, Memory, Outcome, Pace, PaceConfig, Pools, ReadError, Rule, Store,
    TimedOut, Timeout, TimeoutConfig,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);

fn layers(faults: &Faults) -> Layers {
    Layers::around(faults.store(), LayersConfig::default(), Entropy::from_seed(1))
}

#[tokio::test(start_paused = true)]
async fn a_dead_bucket_is_asked_little_more_than_callers_ask() {
    let faults = Faults::new(Arc::new(Latency::new(Arc::new(Memory::new()), MS * 10, MS * 20)));
    let Layers { store, meter } = layers(&faults);
    faults.set_outage(true);
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..300 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let mut n_calls = 0;
            while began.elapsed() < Duration::from_secs(60) {
                // Folders of their own, so that no pace of a prefix helps.
                let key = format!("{caller}/chunks/x");
                store.get_sized(&key, 100).await.unwrap_err();
                n_calls += 1;
            }
            n_calls
        });
    }
    let n_calls: u64 = callers.join_all().await.iter().sum();

    let asked = meter.read().total();
    // 40 for each hundred, five a second, and what was saved.
    let allowed = n_calls + n_calls * 2 / 5 + 5 * 100 + 100;
    assert!(asked <= allowed, "{asked} for {n_calls}");
    assert!(300 < n_calls, "{n_calls}");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_everybody_is_served_again() {
    let faults = Faults::new(Arc::new(Latency::new(Arc::new(Memory::new()), MS * 10, MS * 20)));
    let Layers { store, .. } = layers(&faults);
    store.put("h/chunks/x", Bytes::from_static(b"x")).await.unwrap();
    faults.set_outage(true);
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.get_sized("h/chunks/x", 1).await });
    }
    sleep(Duration::from_secs(3)).await;
    faults.set_outage(false);
    let began = Instant::now();
    for answer in callers.join_all().await {
        assert_eq!(answer.unwrap(), "x", "who had time left waited");
    }
    assert!(began.elapsed() < Duration::from_secs(27));

    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    for _ in 0..100 {
        store.get_sized("h/chunks/x", 1).await.unwrap();
    }
    assert!(began.elapsed() <= MS * 1_000 + MS * 100, "{:?}", began.elapsed());
}

/// Reads one object 10,000 times from a store of which one read in a hundred
/// takes half a second. The times, sorted, and what the store was asked.
async fn long_tail(per_mille_max: u32) -> (Vec<Duration>, u64) {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    memory.put("h/chunks/x", Bytes::from_static(b"x")).await.unwrap();
    let faults = Faults::new(Arc::new(Latency::new(memory, MS * 10, MS * 20)));
    let slow = Rule::new(Fault::Delay(MS * 500)).on(Call::Get);
    faults.add(slow.percent(1, Entropy::from_seed(5)));
    let config = HedgeConfig { per_mille_max, ..HedgeConfig::default() };
    let store = Hedge::new(faults.store(), config);
    let mut times = Vec::new();
    for _ in 0..10_000 {
        let began = Instant::now();
        assert_eq!(store.get_sized("h/chunks/x", 1).await.unwrap(), "x");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    (times, faults.calls(Call::Get))
}

#[tokio::test(start_paused = true)]
async fn slow_reads_are_tried_twice_and_one_in_a_hundred_at_most() {
    let (without, n_asked) = long_tail(0).await;
    assert_eq!(n_asked, 10_000);
    let (with, n_asked) = long_tail(10).await;

    assert!(n_asked <= 10_100, "{n_asked}");
    let slow = |times: &[Duration]| times.iter().filter(|it| MS * 100 < **it).count();
    assert!(70 < slow(&without), "{}", slow(&without));
    assert!(slow(&with) * 4 < slow(&without), "{} and {}", slow(&with), slow(&without));
    assert!(with[9_950] < MS * 100 && MS * 500 < without[9_950]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_slow_as_a_whole_is_not_asked_twice_as_much() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    memory.put("h/chunks/x", Bytes::from_static(b"x")).await.unwrap();
    let faults = Faults::new(memory);
    let store = Hedge::new(faults.store(), HedgeConfig::default());
    faults.add(Rule::new(Fault::Delay(MS * 10)).times(500));
    faults.add(Rule::new(Fault::Delay(MS * 900)));
    for _ in 0..1_500 {
        store.get_sized("h/chunks/x", 1).await.unwrap();
    }
    let n_asked = faults.calls(Call::Get);
    assert!((1_501..=1_515).contains(&n_asked), "{n_asked}");
}

#[tokio::test(start_paused = true)]
async fn heads_writes_and_large_objects_are_never_sent_twice() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    memory.put("h/chunks/x", Bytes::from_static(b"x")).await.unwrap();
    let HeadWrite::Replaced { tag } = memory.create_head("h/head.json", Bytes::new()).await else {
        panic!("there was no head");
    };
    let faults = Faults::new(memory);
    let store = Hedge::new(faults.store(), HedgeConfig::default());
    for _ in 0..1_000 {
        store.get_sized("h/chunks/x", 1).await.unwrap();
    }
    let n_read = faults.calls(Call::Get);
    faults.add(Rule::new(Fault::Delay(MS * 5_000)));

    store.get_sized("h/chunks/x", 2 << 20).await.unwrap();
    store.get("h/chunks/x").await.unwrap();
    store.put("h/chunks/y", Bytes::new()).await.unwrap();
    store.read_head("h/head.json", None).await.unwrap();
    let answer = store.replace_head("h/head.json", &tag, Bytes::from_static(b"2")).await;
    store.delete("h/chunks/y").await.unwrap();

    assert!(matches!(answer, HeadWrite::Replaced { .. }));
    assert_eq!(faults.calls(Call::Get), n_read + 2);
    for call in [Call::Put, Call::ReadHead, Call::ReplaceHead, Call::Delete] {
        assert_eq!(faults.calls(call), 1, "{call:?}");
    }
    store.get_sized("h/chunks/x", 1).await.unwrap();
    assert_eq!(faults.calls(Call::Get), n_read + 4, "as a small object would be");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_never_held_back_and_the_pause_says_what_it_should_wait() {
    let limited = Limited::new(Arc::new(Memory::new()), Duration::from_secs(1));
    let store = Pace::new(Arc::new(limited), PaceConfig::default());
    let key = "h/head.json";
    let HeadWrite::Replaced { mut tag } = store.create_head(key, Bytes::new()).await else {
        panic!("there was no head");
    };
    let mut n_refused = 0;
    for n in 0..40 {
        sleep(store.replacement_pause(key).max(MS * 20)).await;
        let began = Instant::now();
        let bytes = Bytes::from(format!("{n}"));
        match store.replace_head(key, &tag, bytes).await {
            HeadWrite::Replaced { tag: next } => tag = next,
            HeadWrite::NoAnswer(_) => n_refused += 1,
            HeadWrite::Mismatch | HeadWrite::Gone => panic!("nobody else writes"),
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert!(n_refused <= 14, "{n_refused}");
    assert_eq!(store.replacement_pause("other/head.json"), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_prefix_in_trouble_holds_back_its_own_calls_and_no_others() {
    let faults = Faults::new(Arc::new(Memory::new()));
    let store = Arc::new(Pace::new(faults.store(), PaceConfig::default()));
    faults.add(Rule::new(Fault::Throttled(None)).key_has("bad/"));
    store.get("bad/chunks/x").await.unwrap_err();

    let began = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..1_000 {
        let store = Arc::clone(&store);
        calls.spawn(async move { store.get("bad/chunks/x").await });
    }
    let crowded = calls.join_all().await.into_iter().filter(
        |it| matches!(it, Err(ReadError::Unavailable { cause, .. }) if cause.is::<Crowded>()),
    );
    assert!(500 < crowded.count(), "20 seconds of calls wait, not more");
    assert_eq!(began.elapsed().as_secs(), 20, "they went one by one");
    assert!(faults.calls(Call::Get) < 450, "{}", faults.calls(Call::Get));

    let began = Instant::now();
    for n in 0..1_000 {
        store.put(&format!("good/chunks/{n}"), Bytes::new()).await.unwrap();
        store.put(&format!("other/chunks/{n}"), Bytes::new()).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn time_limits_grow_with_size() {
    let faults = Faults::new(Arc::new(Memory::new()));
    let store = Timeout::new(faults.store(), TimeoutConfig::default());
    faults.add(Rule::new(Fault::Hang));
    let limit = |answer: Result<Bytes, ReadError>| match answer {
        Err(ReadError::Unavailable { cause, .. }) => cause.downcast::<TimedOut>().unwrap().limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(store.get_sized("a", 1_000).await), Duration::from_secs(5));
    assert_eq!(limit(store.get_sized("a", 64 << 20).await), Duration::from_secs(69));
    assert_eq!(limit(store.get("a").await), Duration::from_secs(60));
    let began = Instant::now();
    store.put("a", Bytes::from(vec![0; 2 << 20])).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn heads_and_bulk_go_their_own_ways() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let (heads, bulk) = (Faults::new(Arc::clone(&memory)), Faults::new(memory));
    let store = Pools::new(heads.store(), bulk.store());
    let tag = Tag::new("\"none\"".to_owned());

    store.create_head("h/head.json", Bytes::new()).await;
    store.replace_head("h/head.json", &tag, Bytes::new()).await;
    store.read_head("h/head.json", None).await.unwrap();
    store.put("h/chunks/x", Bytes::new()).await.unwrap();
    store.get("h/chunks/x").await.unwrap();
    store.list("h/", None, 10).await.unwrap();
    store.list_folder("h/").await.unwrap();
    store.delete("h/chunks/x").await.unwrap();

    for call in Call::ALL {
        let is_head = matches!(call, Call::ReadHead | Call::CreateHead | Call::ReplaceHead);
        let expected = if is_head { (1, 0) } else { (0, 1) };
        assert_eq!((heads.calls(call), bulk.calls(call)), expected, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_counted_below_repeats_and_second_tries() {
    let faults = Faults::new(Arc::new(Latency::new(Arc::new(Memory::new()), MS * 10, MS * 20)));
    let Layers { store, meter } = layers(&faults);
    store.put("h/chunks/x", Bytes::from_static(b"x")).await.unwrap();
    for _ in 0..200 {
        store.get_sized("h/chunks/x", 1).await.unwrap();
    }
    faults.on_next(Call::Get, Fault::Hang);
    store.get_sized("h/chunks/x", 1).await.unwrap();
    faults.on_next(Call::Get, Fault::Throttled(None));
    store.get_sized("h/chunks/x", 1).await.unwrap();

    let readings = meter.read();
    assert_eq!(readings.count(Call::Get, Outcome::Abandoned), 1, "the first of a pair");
    assert_eq!(readings.count(Call::Get, Outcome::Unavailable), 1);
    assert_eq!(readings.count(Call::Get, Outcome::Done), 202);
}
