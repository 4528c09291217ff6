//! More is asked than a store lets through: what is answered is answered in
//! time, and a queue full of callers whose time is up does not keep the others
//! from being served.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::publish::{Answer, SubmitError};
use headwater_store::Latency;
use headwater_writer::WriterConfig;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use crate::fixture::{NAME, Op, World};

const WRITE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_millis(500);

/// Operations that arrive in a second, and how long that goes on.
const PER_SECOND: u64 = 100;
const LASTS: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_queue_longer_than_its_callers_wait_is_still_served_at_full_rate() {
    let config = WriterConfig {
        batch_operations_max: 1,
        batches_ahead_max: 1,
        operation_timeout_ms: u64::try_from(PATIENCE.as_millis()).unwrap(),
        ..WriterConfig::default()
    };
    let world = World::empty();
    world.host().create(NAME).await;
    let host =
        Arc::new(world.host_behind(config, |it| Arc::new(Latency::new(it, Duration::ZERO, WRITE))));
    host.accept(Op::new("warm").add("n", 1)).await;

    let mut calls = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(1_000 / PER_SECOND));
    let began = Instant::now();
    for n in 0.. {
        if LASTS <= began.elapsed() {
            break;
        }
        ticks.tick().await;
        let host = Arc::clone(&host);
        calls.spawn(async move {
            let asked = Instant::now();
            let answer = host.submit(Op::new(format!("o{n}")).add("n", 1)).await;
            (answer, asked.elapsed())
        });
    }
    let (mut accepted, mut expired, mut in_doubt) = (0_u64, 0_u64, 0_u64);
    while let Some(call) = calls.join_next().await {
        let (answer, took) = call.unwrap();
        assert!(took <= PATIENCE + Duration::from_millis(2), "{answer:?} after {took:?}");
        match answer {
            Answer::Accepted { .. } => accepted += 1,
            Answer::Failed(SubmitError::Expired) => expired += 1,
            Answer::Failed(SubmitError::InDoubt) => in_doubt += 1,
            other => panic!("{other:?}"),
        }
    }

    let could = u64::try_from(LASTS.as_millis() / WRITE.as_millis()).unwrap();
    let counts = format!("{accepted} accepted, {expired} expired, {in_doubt} in doubt, of {could}");
    assert!(could * 8 / 10 <= accepted, "{counts}");
    assert!(in_doubt <= could / 20, "{counts}");
    assert_eq!(world.head().await.operation_count, accepted + in_doubt + 1, "{counts}");
}
