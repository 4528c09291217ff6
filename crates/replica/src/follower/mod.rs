//! One history, followed.
//!
//! A [`Follower`] is what requests hold: it answers from what is known, or asks
//! the [`driver`], the task that runs the freshness checks. The task lives as
//! long as somebody holds the follower, so dropping a history never disturbs a
//! request that uses it.

mod catch_up;
mod driver;
mod hydration;
mod older;
mod pace;
mod pushed;
mod waiters;
mod watched;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::{Revision, StateVersion};
use headwater_daemon::trace::Origin;
use headwater_state::{HydrationRate, Loader, Seen};
use headwater_store::{Entropy, planted};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::catch_up::CheckFailure;
use self::driver::{Ask, Checks, Driver, Want};
use self::hydration::Hydration;
pub(crate) use self::older::Missing;
use self::pace::Pace;
use self::pushed::Pushed;
pub use self::pushed::PushedHead;
pub(crate) use self::watched::Watched;
use crate::config::ReplicaConfig;
use crate::consistency::Consistency;
use crate::failure::{NO_ANSWER, RETRY_AFTER, ReadFailure};
use crate::figures::{Figures, Moment};
use crate::local::{Local, Pinned, Proved, State};
use crate::metrics::ReplicaMetrics;
use crate::recent::Recent;
use crate::scans::Scans;
use crate::times::Times;
use crate::watch::{Budget, Feed};
use headwater_state::{Memory, MemoryPart};

/// Requests on their way to the driver. Past it they wait to be let in.
const ASKS_MAX: usize = 1_024;

/// How long a read that waits for a version leaves the store alone between two
/// checks, where neither polling nor a writer brings the version sooner.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(200);

/// Who keeps followers.
pub(crate) trait Owner: Send + Sync + 'static {
    /// The history is open.
    fn opened(&self, shared: &Arc<Shared>);
    /// The local state is a newer one.
    fn advanced(&self, shared: &Arc<Shared>);
    /// The follower is not to be handed out again.
    fn ended(&self, shared: &Arc<Shared>);
}

/// What requests and the driver of one history share.
#[derive(Debug)]
pub(crate) struct Shared {
    loader: Loader,
    state: Watched<State>,
    recent: Mutex<Recent>,
    scans: Mutex<Scans>,
    /// How far this and all other histories were followed.
    seen: Seen,
    /// When the versions of the tail were decided.
    times: Mutex<Times>,
    /// What watchers share.
    feed: Arc<Feed>,
    /// What the tail takes.
    memory: MemoryPart,
    /// The revision that a writer has told of last.
    noticed: AtomicU64,
    /// Whether it has ended because the store denies what a writer told: the
    /// history is there, and is opened anew.
    is_given_up: AtomicBool,
    /// Heads that writers have published since, as they told.
    pushed: Mutex<Pushed>,
    /// The newest revision that a writer has told of, in whatever way, and
    /// since when there is one that is not followed.
    told: AtomicU64,
    told_at: Moment,
    figures: Arc<Figures>,
    /// Wakes the driver after a notice.
    kick: Notify,
    /// Old versions are made one at a time: each takes the whole tail.
    older: Semaphore,
}

/// A followed history, as requests hold it. Dropping the last one ends the
/// task.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    asks: mpsc::Sender<Ask>,
}

/// Why a view was not pinned.
#[derive(Clone, Debug)]
pub(crate) enum PinError {
    /// This follower has ended. Look the history up again.
    Ended,
    /// As `Ended`; the name belongs to this history now.
    Replaced {
        /// Its id.
        found: HistoryId,
    },
    /// The answer.
    Failure(ReadFailure),
}

/// What every follower of a replica is made with.
#[derive(Clone, Debug)]
pub(crate) struct FollowerOptions {
    pub(crate) config: Arc<ReplicaConfig>,
    pub(crate) entropy: Entropy,
    pub(crate) stop: CancellationToken,
    pub(crate) seen: Seen,
    /// How fast the disk is filled, if it is.
    pub(crate) hydration: Option<HydrationRate>,
    pub(crate) memory: Memory,
    pub(crate) watch_budget: Budget,
    pub(crate) metrics: Arc<ReplicaMetrics>,
    pub(crate) figures: Arc<Figures>,
}

impl Follower {
    /// A follower and its task, which is to be spawned.
    pub(crate) fn new(
        loader: Loader,
        options: FollowerOptions,
        owner: Arc<dyn Owner>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let FollowerOptions {
            config,
            entropy,
            stop,
            seen,
            hydration,
            memory,
            watch_budget,
            metrics,
            figures,
        } = options;
        let recent = Recent::new(config.recent_versions_max, config.recent_bytes_max);
        let shared = Arc::new(Shared {
            loader,
            state: Watched::default(),
            recent: Mutex::new(recent),
            scans: Mutex::new(Scans::new(config.scans_max, config.scan())),
            seen,
            times: Mutex::default(),
            feed: Arc::new(Feed::new(config.feed_limits(), watch_budget)),
            memory: memory.part(),
            noticed: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
            pushed: Mutex::default(),
            told: AtomicU64::new(0),
            told_at: Moment::default(),
            figures,
            kick: Notify::new(),
            older: Semaphore::new(1),
        });
        let (asks, taken) = mpsc::channel(ASKS_MAX);
        let driver = Driver {
            shared: Arc::clone(&shared),
            owner,
            asks: taken,
            stop,
            entropy,
            waiting_max: config.waiting_max,
            poll: config.poll(),
            pace: Pace::new(config.checks_in_flight_max),
            checks: Checks::default(),
            hydration: Hydration::new(hydration, Arc::clone(&metrics)),
            metrics,
        };
        (Self { shared, asks }, driver.run())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A view as fresh as asked for.
    ///
    /// Cancel safe: a request that goes away leaves nothing behind, and the
    /// check that it waited for goes on for others.
    pub(crate) async fn pin(
        &self,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        match consistency {
            Consistency::Strong => self.pin_fresh(deadline).await,
            Consistency::AtLeast(version) => self.pin_at_least(version, deadline).await,
            Consistency::Exact(version) => self.pin_exact(version, deadline).await,
            Consistency::MaxStaleness(age) => self.pin_younger(age, deadline).await,
            Consistency::Any => self.pin_any(deadline).await,
        }
    }

    /// A view that a check proved which began after this call.
    pub(crate) async fn pin_fresh(&self, deadline: Instant) -> Result<Pinned, PinError> {
        self.ask(Want::Fresh, deadline).await
    }

    /// Whatever is at hand; opens the history if it is not.
    pub(crate) async fn pin_any(&self, deadline: Instant) -> Result<Pinned, PinError> {
        match self.shared.proved() {
            Some(proved) => Ok(proved.pin()),
            None => self.ask(Want::Open, deadline).await,
        }
    }

    async fn pin_younger(&self, age: Duration, deadline: Instant) -> Result<Pinned, PinError> {
        // The clock may have begun later than that: then any check will do.
        let Some(moment) = Instant::now().checked_sub(age) else {
            return self.pin_any(deadline).await;
        };
        match self.shared.proved() {
            Some(proved) if moment <= proved.began => Ok(proved.pin()),
            Some(_) | None => self.ask(Want::Since(moment), deadline).await,
        }
    }

    async fn pin_at_least(
        &self,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        // Most reads of one's own writes end here: a version that is at hand
        // needs no proof.
        let is_late = |it: &Proved| version <= it.version() || planted!(AtLeastUnwaited);
        if let Some(proved) = self.shared.proved().filter(is_late) {
            return Ok(proved.pin());
        }
        let states = &self.shared.state;
        let mut newest = None;
        loop {
            // Another request's check may bring the version first. The answer
            // to this one says more than the end of the follower does.
            let checked = tokio::select! {
                biased;
                checked = self.pin_fresh(deadline) => checked,
                reached = reach(states, version) => return reached,
            };
            match checked {
                Ok(pinned) if version <= pinned.version() => return Ok(pinned),
                Ok(pinned) => newest = Some(pinned.version()),
                Err(PinError::Failure(ReadFailure::FreshnessUnverified { .. }))
                    if newest.is_some() => {}
                Err(error) => return Err(error),
            }
            let again = deadline.min(Instant::now() + CATCH_UP_PAUSE);
            tokio::select! {
                biased;
                reached = reach(states, version) => return reached,
                () = sleep_until(again) => {}
            }
            // A check that began after the request arrived has said that the
            // version did not exist then.
            if let Some(newest) = newest.filter(|_| deadline <= Instant::now()) {
                let oldest = self.shared.oldest().unwrap_or(newest);
                let failure = ReadFailure::VersionAhead { wanted: version, oldest, newest };
                return Err(PinError::Failure(failure));
            }
        }
    }

    async fn pin_exact(
        &self,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let mut pinned = self.pin_any(deadline).await?;
        if pinned.version() < version {
            pinned = self.pin_fresh(deadline).await?;
        }
        let newest = pinned.version();
        if newest < version {
            let oldest = self.shared.oldest().unwrap_or(newest);
            let failure = ReadFailure::VersionAhead { wanted: version, oldest, newest };
            return Err(PinError::Failure(failure));
        }
        if newest == version {
            return Ok(pinned);
        }
        match self.shared.kept(version) {
            Some(view) => Ok(pinned.with_view(view)),
            None => self.pin_older(pinned, version, deadline).await,
        }
    }

    /// Asks the driver, and waits until the deadline.
    async fn ask(&self, want: Want, deadline: Instant) -> Result<Pinned, PinError> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            let ask = Ask { want, origin: Origin::current(), reply };
            self.asks.send(ask).await.map_err(|_| PinError::Ended)?;
            match answer.await {
                Ok(Ok(pinned)) => Ok(pinned),
                Ok(Err(failure)) => Err(pin_error(failure)),
                Err(_) => Err(PinError::Ended),
            }
        };
        match timeout_at(deadline, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(PinError::Failure(self.too_late(want))),
        }
    }

    /// What the deadline has to say.
    fn too_late(&self, want: Want) -> ReadFailure {
        let trouble = self.shared.state.borrow().trouble;
        let detail = trouble.unwrap_or("the object store did not answer by the deadline").into();
        match want {
            Want::Open => ReadFailure::StoreUnavailable { detail, retry_after: RETRY_AFTER },
            Want::Since(_) | Want::Fresh => {
                ReadFailure::FreshnessUnverified { detail, retry_after: RETRY_AFTER }
            }
        }
    }
}

/// Waits until the version is there, or never will be.
async fn reach(states: &Watched<State>, version: StateVersion) -> Result<Pinned, PinError> {
    let reached = states.wait_for(|it| {
        let reached = it.proved.as_ref().filter(|it| version <= it.version());
        match reached {
            Some(proved) => Some(Ok(proved.pin())),
            None => it.is_ended.then_some(Err(PinError::Ended)),
        }
    });
    reached.await
}

fn pin_error(failure: CheckFailure) -> PinError {
    match failure {
        CheckFailure::Gone { detail } => {
            PinError::Failure(ReadFailure::HistoryMissing { detail: detail.into() })
        }
        CheckFailure::Replaced { found } => PinError::Replaced { found },
        CheckFailure::Refused(failure) | CheckFailure::Contradicts(failure) => {
            PinError::Failure(failure)
        }
        // The driver tries again and answers nobody with it.
        CheckFailure::Unavailable { .. } => {
            let (detail, retry_after) = (NO_ANSWER.to_owned(), RETRY_AFTER);
            PinError::Failure(ReadFailure::FreshnessUnverified { detail, retry_after })
        }
    }
}

impl Shared {
    pub(crate) fn history(&self) -> &HistoryName {
        self.loader.history()
    }

    pub(crate) fn loader(&self) -> &Loader {
        &self.loader
    }

    /// How long ago the last check began that proved the view current.
    pub(crate) fn proof_age(&self) -> Option<Duration> {
        self.state.borrow().proved.as_ref().map(|it| it.began.elapsed())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.borrow().proved.is_some()
    }

    /// A writer has published this head. Has it looked for, if it is news.
    pub(crate) fn notice(&self, id: HistoryId, revision: Revision) {
        let Some(local) = self.local() else { return };
        // Another history under the name: whatever its revision, a check is
        // what tells which of the two is right.
        let is_other = local.head.history_id != id;
        let revision = if is_other { local.head.revision.next() } else { revision };
        if local.head.revision < revision {
            self.tell_of(revision);
            self.noticed.store(revision.get(), Ordering::Relaxed);
            self.kick.notify_one();
        }
    }

    /// Why there is nothing more to be had from this follower, which has ended.
    pub(crate) fn end(&self, meanwhile: &str) -> ReadFailure {
        if self.is_given_up.load(Ordering::Relaxed) {
            let detail = "what a writer told is not what the store has; ask again".into();
            return ReadFailure::FreshnessUnverified { detail, retry_after: RETRY_AFTER };
        }
        let detail = format!("{} was deleted while it was {meanwhile}", self.history());
        ReadFailure::HistoryMissing { detail }
    }

    /// A writer has published this head. As a notice of it, where it does not
    /// follow the local one.
    pub(crate) fn push(&self, id: HistoryId, revision: Revision, head: PushedHead) {
        let Some(local) = self.local() else { return };
        if local.head.history_id != id || !Pushed::takes(&head) {
            return self.notice(id, revision);
        }
        if local.head.revision < revision {
            self.tell_of(revision);
            lock(&self.pushed).add(revision, head);
            self.kick.notify_one();
        }
    }

    /// For those who look: there is a head that is not followed yet.
    fn tell_of(&self, revision: Revision) {
        self.figures.noticed(&self.told_at);
        self.told.fetch_max(revision.get(), Ordering::Relaxed);
    }

    /// The newest revision that a writer has told of; 0 for none.
    pub(crate) fn told_revision(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// What the follower has come to.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// What the tail takes in memory, for the limit over all histories.
    pub(crate) fn memory(&self) -> &MemoryPart {
        &self.memory
    }

    /// Whether the next page of a scan may be on its way.
    pub(crate) fn has_scans(&self) -> bool {
        lock(&self.scans).is_any(Instant::now())
    }

    /// Keeps a version for the next page of a scan.
    pub(crate) fn keep_for_scan(&self, pinned: &Pinned) {
        lock(&self.scans).keep(pinned.view().clone());
    }

    /// The oldest version that is at hand, or can be made.
    pub(crate) fn oldest(&self) -> Option<StateVersion> {
        let kept = self.local()?.head.retained_from();
        Some(self.recent().oldest().map_or(kept, |it| it.min(kept)))
    }

    pub(crate) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// When the versions of a tail were decided, up to the one that is pinned,
    /// if that is known.
    pub(crate) fn tail_times(&self, pinned: &Pinned) -> Option<Vec<(StateVersion, u64)>> {
        lock(&self.times).between(pinned.head().tail_from(), pinned.version())
    }

    /// The newest version that is followed.
    pub(crate) fn newest(&self) -> Option<StateVersion> {
        self.state.borrow().proved.as_ref().map(Proved::version)
    }

    /// The state at a version, if there is a view of it.
    pub(crate) fn at_hand(&self, version: StateVersion) -> Option<Pinned> {
        let pinned = self.proved()?.pin();
        if pinned.version() == version {
            return Some(pinned);
        }
        Some(pinned.with_view(self.kept(version)?))
    }

    /// The newest view that is at hand, however old its proof.
    pub(crate) fn newest_view(&self) -> Option<headwater_state::View> {
        self.proved().map(|it| it.local.view.clone())
    }

    fn kept(&self, version: StateVersion) -> Option<headwater_state::View> {
        let recent = self.recent().find(version);
        recent.or_else(|| lock(&self.scans).find(version))
    }

    fn forget_expired(&self, now: Instant) {
        lock(&self.scans).forget_expired(now);
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        lock(&self.recent)
    }

    fn proved(&self) -> Option<Proved> {
        self.state.borrow().proved.clone()
    }

    fn local(&self) -> Option<Arc<Local>> {
        self.state.borrow().proved.as_ref().map(|it| Arc::clone(&it.local))
    }
}

/// No holder of these locks leaves anything half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("history", self.shared.history()).finish_non_exhaustive()
    }
}
