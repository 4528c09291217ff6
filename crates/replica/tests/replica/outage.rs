//! The store is away.

use std::time::Duration;

use headwater_replica::{Consistency, ReadFailure};
use headwater_store::{Call, Fault};
use tokio::time::{Instant, advance};

use crate::bucket::{Rig, deadline, key, quiet};

#[tokio::test(start_paused = true)]
async fn strong_reads_fail_by_the_deadline_and_weaker_ones_say_their_age() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.set_outage(true);
    advance(Duration::from_secs(10)).await;

    let until = Instant::now() + Duration::from_secs(3);
    let answer = rig.reader().pin(Consistency::Strong, until).await;
    assert!(matches!(answer, Err(ReadFailure::FreshnessUnverified { .. })), "{answer:?}");
    assert_eq!(Instant::now(), until);

    let bound = Consistency::MaxStaleness(Duration::from_secs(13));
    for weak in [Consistency::Any, bound] {
        let (entry, pinned) = rig.reader().get(&key("k"), weak, deadline()).await.unwrap();
        assert_eq!(entry.unwrap().value, "v");
        assert_eq!(pinned.proof_age(), Duration::from_secs(13));
    }
    let bound = Consistency::MaxStaleness(Duration::from_secs(12));
    let soon = Instant::now() + Duration::from_secs(1);
    let answer = rig.reader().pin(bound, soon).await;
    assert!(matches!(answer, Err(ReadFailure::FreshnessUnverified { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_strong_read_goes_on_once_the_store_is_back() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    rig.faults.set_outage(true);
    let reader = rig.reader();
    let read = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!read.is_finished());
    // Not a busy loop: pauses of up to half a second.
    assert!((10..60).contains(&rig.count(Call::ReadHead)), "{}", rig.count(Call::ReadHead));
    let back = Instant::now();
    rig.faults.set_outage(false);

    let pinned = read.await.unwrap().unwrap();

    assert_eq!(pinned.version().get(), 1);
    assert!(back.elapsed() <= Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_to_be_left_alone_is() {
    let rig = Rig::open(quiet()).await;
    let pause = Duration::from_secs(7);
    rig.faults.on_next(Call::ReadHead, Fault::Throttled(Some(pause)));
    let began = Instant::now();

    rig.reader().pin(Consistency::Strong, deadline()).await.unwrap();

    assert!(pause <= began.elapsed());
    assert_eq!(rig.count(Call::ReadHead), 2);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_was_never_open_is_unavailable() {
    let rig = Rig::new(quiet()).await;
    rig.faults.set_outage(true);
    let soon = Instant::now() + Duration::from_secs(1);

    let any = rig.reader().pin(Consistency::Any, soon).await;
    assert!(matches!(any, Err(ReadFailure::StoreUnavailable { .. })), "{any:?}");

    rig.faults.set_outage(false);
    rig.reader().pin(Consistency::Any, deadline()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_at_once() {
    let rig = Rig::open(quiet()).await;
    rig.faults.while_set(Call::ReadHead, Fault::Denied);
    let began = Instant::now();

    let answer = rig.reader().pin(Consistency::Strong, deadline()).await;

    assert!(matches!(answer, Err(ReadFailure::Denied { .. })), "{answer:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_cannot_be_fetched_is_unavailable_and_a_slow_one_expires() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put("a", "1").await;
    rig.writer.compact().await;
    rig.reader().pin(Consistency::Strong, deadline()).await.unwrap();

    rig.faults.on_next(Call::Get, Fault::LoseCall);
    let answer = rig.read("a", Consistency::Any).await;
    assert!(matches!(answer, Err(ReadFailure::StoreUnavailable { .. })), "{answer:?}");

    rig.faults.on_next(Call::Get, Fault::Hang);
    let answer = rig.read("a", Consistency::Any).await;
    assert!(matches!(answer, Err(ReadFailure::Expired { .. })), "{answer:?}");

    assert_eq!(rig.read("a", Consistency::Any).await.unwrap().0, Some("1".into()));
}

/// What the scripted store says of itself, as a real one names its bucket.
fn is_of_the_store(failure: &ReadFailure) -> bool {
    failure.to_string().contains("a fault was ordered")
}

#[tokio::test(start_paused = true)]
async fn callers_are_not_told_what_the_store_said() {
    for fault in [Fault::Denied, Fault::LoseCall, Fault::Throttled(None)] {
        for is_open in [false, true] {
            let rig = if is_open { Rig::open(quiet()).await } else { Rig::new(quiet()).await };
            rig.faults.while_set(Call::ReadHead, fault.clone());
            let soon = Instant::now() + Duration::from_secs(5);

            let failure = rig.reader().pin(Consistency::Strong, soon).await.unwrap_err();

            assert!(!is_of_the_store(&failure), "{fault:?}: {failure}");
        }
    }
}
