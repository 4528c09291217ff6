//! A place where requests wait until a test lets them go.

use tokio::sync::watch;

/// Holds requests until it is opened, and tells when they are there. Clones are
/// the same gate.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_open: bool,
    n_arrived: u64,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Lets go all requests that wait, and those that come.
    pub fn open(&self) {
        self.0.send_modify(|it| it.is_open = true);
    }

    /// Waits until `n` requests have come to the gate since it was made.
    pub async fn arrived(&self, n: u64) {
        self.until(|it| n <= it.n_arrived).await;
    }

    /// Comes to the gate, and waits until it is open.
    pub(crate) async fn pass(&self) {
        self.0.send_modify(|it| it.n_arrived += 1);
        self.until(|it| it.is_open).await;
    }

    async fn until(&self, is_met: impl Fn(&State) -> bool) {
        let mut states = self.0.subscribe();
        let waited = states.wait_for(|it| is_met(it)).await;
        // Only a gone sender is an error, and `self` is one.
        debug_assert!(waited.is_ok(), "a gate outlives those who wait at it");
    }
}
