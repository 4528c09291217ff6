//! Whether this process is to be sent work, and why not.
//!
//! ```text
//! checks (named, by whoever knows) ─┬─▶ /readyz, /livez     (admin)
//! draining (the end, for good) ─────┴─▶ grpc.health.v1      (service)
//! ```
//!
//! A check says one thing about the process: `store`, `histories`. It is either
//! **needed**, and then the services that it is for are not ready without it, or
//! only **shown**, for whoever asks for the list.
//!
//! # Invariants
//!
//! - A check that nobody has reported yet is not ready: a process is not sent
//!   work because a report is late.
//! - Draining is for good. No report makes a draining process ready again.
//! - Nothing here touches the store, and nothing waits.

mod service;
pub(crate) mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

pub use self::service::HealthRpc;
pub use self::store::{ReadyOptions, STORE, watch as watch_store};

/// The state of one process. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
    /// Counts changes, for those who wait for the next one.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    checks: BTreeMap<&'static str, Entry>,
    services: Vec<&'static str>,
    is_draining: bool,
}

#[derive(Debug)]
struct Entry {
    for_whom: For,
    /// `Err` with the reason.
    outcome: Result<(), String>,
}

/// What a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// No service of this process is ready without it.
    All,
    /// These services are not ready without it. The names are those of gRPC:
    /// `headwater.v1.ReadService`.
    Services(&'static [&'static str]),
    /// It is listed, and decides nothing.
    Nobody,
}

/// Reports one check. Clones report the same one.
#[derive(Clone, Debug)]
pub struct Check {
    name: &'static str,
    health: Health,
}

/// How one check stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// Whether the process is not ready without it.
    pub is_needed: bool,
    /// Why it is not ready; `None` where it is.
    pub trouble: Option<String>,
}

impl Finding {
    /// Whether it stands in the way of the process.
    pub fn is_in_the_way(&self) -> bool {
        self.is_needed && self.trouble.is_some()
    }
}

/// The check that is ready once the process serves.
pub const STARTING: &str = "starting";

/// The name under which draining is listed.
pub const DRAINING: &str = "draining";

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// Without checks, which is ready.
    pub fn new() -> Self {
        Self { state: Arc::default(), changes: watch::Sender::new(0) }
    }

    /// Adds a check, or finds the one of this name. A new one is not ready yet.
    pub fn check(&self, name: &'static str, for_whom: For) -> Check {
        self.change(|state| {
            let starting = || Entry { for_whom, outcome: Err("not known yet".to_owned()) };
            state.checks.entry(name).or_insert_with(starting).for_whom = for_whom;
        });
        Check { name, health: self.clone() }
    }

    /// Says which services this process serves.
    pub fn serves(&self, services: impl IntoIterator<Item = &'static str>) {
        self.change(|state| state.services.extend(services));
    }

    /// From here on the process is ready for nothing more.
    pub fn drain(&self) {
        self.change(|state| state.is_draining = true);
    }

    /// Whether [`Health::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.read(|state| state.is_draining)
    }

    /// Whether the whole process is ready.
    pub fn is_ready(&self) -> bool {
        self.readiness("").unwrap_or(false)
    }

    /// Whether one service is ready; the empty name stands for the process.
    /// `None` where this process does not serve it.
    pub fn readiness(&self, service: &str) -> Option<bool> {
        self.read(|state| state.readiness(service))
    }

    /// Every check and [`DRAINING`], in the order of names.
    pub fn findings(&self) -> Vec<Finding> {
        self.read(|state| {
            let checks = state.checks.iter().map(|(name, entry)| Finding {
                name,
                is_needed: entry.for_whom != For::Nobody,
                trouble: entry.outcome.as_ref().err().cloned(),
            });
            let trouble = state.is_draining.then(|| "the process is ending".to_owned());
            let draining = Finding { name: DRAINING, is_needed: true, trouble };
            let mut findings: Vec<_> = checks.chain([draining]).collect();
            findings.sort_by_key(|it| it.name);
            findings
        })
    }

    /// Sees every change from now on; several at once may look like one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl State {
    fn readiness(&self, service: &str) -> Option<bool> {
        let is_whole = service.is_empty();
        if !is_whole && !self.services.contains(&service) {
            return None;
        }
        let concerns = |entry: &Entry| match entry.for_whom {
            For::All => true,
            For::Services(names) => is_whole || names.contains(&service),
            For::Nobody => false,
        };
        let is_kept = self.checks.values().any(|it| concerns(it) && it.outcome.is_err());
        Some(!self.is_draining && !is_kept)
    }
}

impl Check {
    /// All is well with it.
    pub fn ready(&self) {
        self.report(Ok(()));
    }

    /// It is not, and why: for people, without secrets.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.report(Err(reason.into()));
    }

    /// Whether the last report was [`Check::ready`].
    pub fn is_ready(&self) -> bool {
        self.health.read(|it| it.checks.get(self.name).is_some_and(|it| it.outcome.is_ok()))
    }

    fn report(&self, outcome: Result<(), String>) {
        let is_new = |it: &Entry| it.outcome != outcome;
        if !self.health.read(|state| state.checks.get(self.name).is_some_and(is_new)) {
            return;
        }
        match &outcome {
            Ok(()) => tracing::info!(check = self.name, "ready"),
            Err(reason) => tracing::warn!(check = self.name, reason, "not ready"),
        }
        self.health.change(|state| {
            if let Some(entry) = state.checks.get_mut(self.name) {
                entry.outcome = outcome;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: &str = "headwater.v1.ReadService";
    const WRITES: &str = "headwater.v1.WriteService";

    #[test]
    fn a_check_that_nobody_has_reported_is_not_ready() {
        let health = Health::new();
        assert!(health.is_ready(), "nothing is missing");

        let check = health.check("store", For::All);
        assert!(!health.is_ready());
        check.ready();

        assert!(health.is_ready() && check.is_ready());
    }

    #[test]
    fn a_check_decides_for_its_services_and_for_the_process() {
        let health = Health::new();
        health.serves([READS, WRITES]);
        let check = health.check("probe", For::Services(&[WRITES]));
        check.not_ready("it loses writes");

        assert_eq!(health.readiness(READS), Some(true));
        assert_eq!(health.readiness(WRITES), Some(false));
        assert_eq!(health.readiness(""), Some(false));
        assert_eq!(health.readiness("other.Service"), None);
    }

    #[test]
    fn what_is_only_shown_decides_nothing() {
        let health = Health::new();
        health.check("lag", For::Nobody).not_ready("9 s behind");

        assert!(health.is_ready());
        let findings = health.findings();
        let lag = findings.iter().find(|it| it.name == "lag").unwrap();
        assert_eq!((lag.name, lag.is_in_the_way()), ("lag", false));
        assert_eq!(lag.trouble.as_deref(), Some("9 s behind"));
    }

    #[test]
    fn draining_is_for_good() {
        let health = Health::new();
        let check = health.check("store", For::All);
        health.drain();
        check.ready();

        assert!(!health.is_ready() && health.is_draining());
        assert!(health.findings().iter().any(|it| it.name == DRAINING && it.is_in_the_way()));
    }

    #[test]
    fn a_change_is_seen_and_a_repeated_report_is_none() {
        let health = Health::new();
        let check = health.check("store", For::All);
        check.ready();
        let changes = health.changes();

        check.ready();
        assert!(!changes.has_changed().unwrap());
        check.not_ready("gone");

        assert!(changes.has_changed().unwrap());
    }
}
