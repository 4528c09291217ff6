//! A closed-loop load: callers that each wait for their answer.

use std::time::Duration;

use futures::future::join_all;
use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Runs before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// What a load gave.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Calls that ended in the time counted.
    pub(crate) calls: u64,
    /// Calls that failed in the time counted. They are in `calls` too.
    pub(crate) failures: u64,
    pub(crate) time: Duration,
    /// Microseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Measured {
    /// Calls per second.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 / self.time.as_secs_f64()
    }
}

/// Calls `call(caller, n)` from `callers` tasks for `time`. `on_warm` runs after
/// the warm-up, when counting begins.
pub(crate) async fn run<C, F>(
    callers: usize,
    time: Duration,
    call: C,
    on_warm: impl FnOnce(),
) -> Measured
where
    C: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
{
    let start = Instant::now();
    let (count_from, end) = (start + WARM_UP, start + WARM_UP + time);
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut latency = histogram();
                let (mut n, mut failures) = (0, 0);
                loop {
                    let began = Instant::now();
                    if end <= began {
                        return (latency, failures);
                    }
                    let is_done = call(caller, n).await;
                    n += 1;
                    if count_from <= began {
                        latency.saturating_record(micros(began.elapsed()));
                        failures += u64::from(!is_done);
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep_until(count_from).await;
    on_warm();
    let mut all = Measured { calls: 0, failures: 0, time, latency: histogram() };
    for task in join_all(tasks).await {
        let Ok((latency, failures)) = task else { continue };
        all.calls += latency.len();
        all.failures += failures;
        let _same_bounds = all.latency.add(latency);
    }
    all
}

#[expect(clippy::expect_used, reason = "the bounds are right")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3).expect("bounds of a histogram")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
