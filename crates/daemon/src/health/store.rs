//! Whether the store answers, as the check `store`.
//!
//! A process is not ready before its store has answered once. After that a store
//! that is down is shown, and decides nothing unless the operator says so: every
//! process would be taken away at once, weaker reads with them, and callers
//! would be told "no server" in place of the reason and the time to come again.
//!
//! What the process asks of its store anyway tells how it stands. Only where
//! nothing is asked, and nothing is known or the last word was bad, a request
//! is made for the purpose: an idle process whose store is well costs nothing.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::{Call, Meter, Outcome, Readings, Store as _};
use tokio::time::{sleep, timeout};

use super::{Check, For, Health};

/// How often it is looked at. A store that is back is seen within this time and
/// the one of a request.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for a request of ours.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Asked for by name, and never there: "missing" is an answer, and so is "no",
/// which a store says of what is missing to those that may not list.
const KEY: &str = "~ready/head.json";

/// The name of the check.
pub const STORE: &str = "store";

/// What decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Health")]
pub struct ReadyOptions {
    /// Not ready while the store does not answer, also after it has. Without
    /// it, a store that is down is listed, and calls say why they fail.
    #[arg(long, env = "HEADWATER_READY_NEEDS_STORE")]
    pub ready_needs_store: bool,
}

/// Keeps the check `store` up to date, until it is dropped.
pub async fn watch(health: Health, meter: Arc<Meter>, options: ReadyOptions) {
    let check = health.check(STORE, For::All);
    let mut before = Readings::default();
    let mut was_ready = false;
    loop {
        let now = meter.read();
        let tally = Tally::of(&before, &now);
        before = now;
        if 0 < tally.answered {
            check.ready();
        } else if 0 < tally.failed {
            check.not_ready("it does not answer");
        } else if !check.is_ready() {
            ask(&meter, &check).await;
            // What was asked here is no news next time.
            before = meter.read();
        }
        if !was_ready && check.is_ready() {
            was_ready = true;
            health.check(STORE, if options.ready_needs_store { For::All } else { For::Nobody });
        }
        sleep(INTERVAL).await;
    }
}

async fn ask(meter: &Meter, check: &Check) {
    match timeout(ANSWER_TIMEOUT, meter.read_head(KEY, None)).await {
        Ok(Err(error)) if error.is_transient() => check.not_ready("it does not answer"),
        Ok(Ok(_) | Err(_)) => check.ready(),
        Err(_) => check.not_ready("it does not answer in time"),
    }
}

/// Calls between two readings.
struct Tally {
    answered: u64,
    failed: u64,
}

impl Tally {
    fn of(before: &Readings, now: &Readings) -> Self {
        let count = |outcome: Outcome| -> u64 {
            let of_call = |call| now.count(call, outcome) - before.count(call, outcome);
            Call::ALL.iter().copied().map(of_call).sum()
        };
        let mut tally = Self { answered: 0, failed: 0 };
        for outcome in Outcome::ALL {
            match outcome {
                Outcome::NoAnswer | Outcome::Unavailable | Outcome::Abandoned => {
                    tally.failed += count(outcome);
                }
                Outcome::Done
                | Outcome::Unchanged
                | Outcome::Missing
                | Outcome::Mismatch
                | Outcome::Gone
                | Outcome::Occupied
                | Outcome::Denied => tally.answered += count(outcome),
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::{Faults, Memory};
    use tokio::time::advance;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    struct Watched {
        health: Health,
        meter: Arc<Meter>,
        faults: Faults,
        _task: AbortOnDropHandle<()>,
    }

    fn watched(ready_needs_store: bool) -> Watched {
        let health = Health::new();
        let faults = Faults::new(Arc::new(Memory::new()));
        let meter = Arc::new(Meter::new(faults.store()));
        let options = ReadyOptions { ready_needs_store };
        let task = tokio::spawn(watch(health.clone(), Arc::clone(&meter), options));
        Watched { health, meter, faults, _task: AbortOnDropHandle::new(task) }
    }

    impl Watched {
        fn store_is_well(&self) -> bool {
            let findings = self.health.findings();
            findings.iter().any(|it| it.name == STORE && it.trouble.is_none())
        }

        async fn use_store(&self) {
            drop(self.meter.read_head("h/head.json", None).await);
        }
    }

    /// Two seconds, in steps that timers see.
    async fn two_seconds() {
        for _ in 0..20 {
            advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_ready_once_its_store_has_answered() {
        let it = watched(false);
        it.faults.set_outage(true);
        two_seconds().await;
        assert!(!it.health.is_ready() && !it.store_is_well());

        it.faults.set_outage(false);
        two_seconds().await;

        assert!(it.health.is_ready() && it.store_is_well());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_process_asks_nothing_of_a_store_that_is_well() {
        let it = watched(false);
        two_seconds().await;
        let asked = it.meter.read().total();

        for _ in 0..60 {
            two_seconds().await;
        }

        assert_eq!((asked, it.meter.read().total()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_down_is_shown_and_decides_where_it_is_to() {
        for needs_store in [false, true] {
            let it = watched(needs_store);
            two_seconds().await;
            it.faults.set_outage(true);
            for _ in 0..30 {
                it.use_store().await;
                two_seconds().await;
            }
            assert!(!it.store_is_well());
            assert_eq!(it.health.is_ready(), !needs_store);

            it.faults.set_outage(false);
            two_seconds().await;

            assert!(it.health.is_ready() && it.store_is_well(), "within two seconds, unasked");
        }
    }
}
