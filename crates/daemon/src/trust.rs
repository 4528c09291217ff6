//! Whether a process may write to its store: asked once, at its start.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::probe::{Unfit, Verdict, check_at_start};
use headwater_store::{Entropy, Meter, Store};

use tokio::time::Instant;

use crate::health::Check;
use crate::options::OpenStore;

/// How much a writer trusts its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct TrustOptions {
    /// Do not ask the store at start whether it keeps conditional writes. For
    /// one that was found safe by `headwater doctor`.
    #[arg(long, env = "HEADWATER_TRUST_STORE")]
    pub trust_store: bool,
    /// Longest time to go on asking a store that does not answer, in seconds,
    /// before the process ends. It is not ready meanwhile. 0: asked once.
    #[arg(long, default_value_t = 0, env = "HEADWATER_TRUST_WAIT_SECONDS_MAX")]
    pub trust_wait_seconds_max: u64,
}

/// Between two askings.
const PAUSE: Duration = Duration::from_secs(1);
/// As long as anybody waits for a store: beyond it clocks cannot count.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A store that is not to be written to.
#[derive(Debug, thiserror::Error)]
#[error("{0}. `headwater doctor URL` asks it in full; --trust-store starts without asking")]
pub struct Untrusted(pub Unfit);

impl TrustOptions {
    /// As [`TrustOptions::check`], again and again while the store does not
    /// answer, for the time that is allowed. `check` is told how it stands.
    ///
    /// # Errors
    ///
    /// The last [`Untrusted`].
    pub(crate) async fn wait(
        &self,
        opened: &OpenStore,
        entropy: &Entropy,
        check: &Check,
    ) -> Result<(), Untrusted> {
        let wait = Duration::from_secs(self.trust_wait_seconds_max).min(WAIT_MAX);
        let until = Instant::now() + wait;
        loop {
            match self.check(opened, entropy).await {
                Ok(()) => {
                    check.ready();
                    return Ok(());
                }
                Err(Untrusted(Unfit::Unanswered(error))) if Instant::now() < until => {
                    check.not_ready(format!("it could not be asked: {}", error.join("; ")));
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks the store in short, below a scratch prefix: about a hundred
    /// requests, which the store's meter counts. What is not allowed, and what
    /// costs more than it should, is logged by name.
    ///
    /// A local directory and a store in memory are not asked: their conduct is
    /// that of this build, which its tests hold.
    ///
    /// # Errors
    ///
    /// [`Untrusted`] when it loses writes, and when it does not answer: a store
    /// that could not be asked may be one of those that lose writes.
    pub async fn check(&self, opened: &OpenStore, entropy: &Entropy) -> Result<(), Untrusted> {
        if self.trust_store || !opened.is_remote {
            return Ok(());
        }
        // Below what paces and repeats: races are to reach the store as such.
        let bucket: Arc<dyn Store> = Arc::<Meter>::clone(&opened.meter);
        let report = check_at_start(&bucket, entropy).await.map_err(Untrusted)?;
        // Missing permissions are among these, by their names.
        for check in report.with(Verdict::Warns) {
            tracing::warn!(
                check = check.id.as_str(),
                detail = check.detail,
                "the store is safe, and this is worth knowing"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::{Fault, Faults, Memory, Rule};
    use tokio::time::advance;

    use super::*;
    use crate::health::{For, Health};

    fn opened(faults: &Faults) -> OpenStore {
        let meter = Arc::new(Meter::new(faults.store()));
        let store: Arc<dyn Store> = Arc::<Meter>::clone(&meter);
        OpenStore { store, meter, is_remote: true }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_out_of_reach_is_waited_for_as_long_as_it_may_be() {
        let faults = Faults::new(Arc::new(Memory::new()));
        faults.add(Rule::new(Fault::Throttled(None)));
        let (opened, entropy) = (opened(&faults), Entropy::from_seed(1));
        let check = Health::new().check("store-trusted", For::All);
        let wait = |trust_wait_seconds_max| TrustOptions {
            trust_wait_seconds_max,
            ..TrustOptions::default()
        };

        let once = wait(0).wait(&opened, &entropy, &check).await;
        assert!(matches!(once, Err(Untrusted(Unfit::Unanswered(_)))), "{once:?}");
        let long = wait(3_600);
        let waiting = long.wait(&opened, &entropy, &check);
        let mut waiting = std::pin::pin!(waiting);
        let passing = async {
            for _ in 0..60 {
                advance(PAUSE).await;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("it does not end"),
            () = passing => assert!(!check.is_ready()),
        }
        faults.clear();

        assert!(waiting.await.is_ok() && check.is_ready());
    }
}
