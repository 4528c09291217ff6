//! The decorators in the order that works.

use std::sync::Arc;

use crate::{Entropy, Meter, Retry, RetryConfig, Store, Timeout, TimeoutConfig};

/// What a process puts around its adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayersConfig {
    /// Repeats of reads and of immutable objects.
    pub retry: RetryConfig,
    /// The bound of each attempt.
    pub timeout: TimeoutConfig,
}

/// A store ready for use, and the meter inside it.
#[derive(Clone, Debug)]
pub struct Layers {
    /// Repeats, over time limits, over counting, over the adapter: a limit
    /// bounds one attempt, and every attempt is counted.
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
        Self { store: Arc::new(Retry::new(bounded, config.retry, entropy)), meter }
    }
}
