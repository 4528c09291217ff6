//! The decorators in the order that works.

use std::sync::Arc;

use crate::{
    Entropy, Hedge, HedgeConfig, Meter, Pace, PaceConfig, Retry, RetryBudget, RetryBudgetConfig,
    RetryConfig, Store, Timeout, TimeoutConfig,
};

/// What a process puts around its adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayersConfig {
    /// Repeats of reads and of immutable objects.
    pub retry: RetryConfig,
    /// How many repeats the process makes, whatever each call may.
    pub budget: RetryBudgetConfig,
    /// Second tries of slow reads of immutable objects.
    pub hedge: HedgeConfig,
    /// What is known of the store's limits.
    pub pace: PaceConfig,
    /// The bound of each attempt.
    pub timeout: TimeoutConfig,
}

/// A store ready for use, and the meter inside it.
#[derive(Clone, Debug)]
pub struct Layers {
    /// Repeats, over second tries, over the pace, over time limits, over
    /// counting, over the adapter: a limit bounds one attempt and not the wait
    /// before it, and every attempt is counted.
    pub store: Arc<dyn Store>,
    /// Counts what reaches the adapter.
    pub meter: Arc<Meter>,
}

impl Layers {
    /// Puts the decorators around `adapter`.
    pub fn around(adapter: Arc<dyn Store>, config: LayersConfig, entropy: Entropy) -> Self {
        let meter = Arc::new(Meter::new(adapter));
        let counted: Arc<dyn Store> = Arc::<Meter>::clone(&meter);
        let bounded = Arc::new(Timeout::new(counted, config.timeout));
        let paced = Arc::new(Pace::new(bounded, config.pace));
        let hedged = Arc::new(Hedge::new(paced, config.hedge));
        let budget = Arc::new(RetryBudget::new(config.budget));
        let store = Arc::new(Retry::within(hedged, config.retry, entropy, budget));
        Self { store, meter }
    }
}
