//! The task that follows one history.
//!
//! ```text
//! requests --Ask--> Driver --check (numbered)--> store
//!    ^                |  304: proved
//!    |                |  200: catch up, one head at a time, then proved
//!    +---- Pinned ----+  failed: again, after a pause, while somebody waits
//!                     |
//!         writers ----+  what they have published: caught up with, not proved
//! ```
//!
//! # Invariants
//!
//! - A request that wants a fresh check is served by a check that began after
//!   the driver got the request. It never shares one that is under way.
//! - The local head only ever moves forward, whatever order checks end in.
//! - Everything is bounded: checks under way with the heads that they found,
//!   requests that wait, requests that are on their way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use futures::stream::FuturesUnordered;
use headwater_core::follow::Position;
use headwater_core::version::Revision;
use headwater_daemon::trace::{Origin, ROOT_TARGET};
use headwater_store::{Entropy, HeadRead, ReadError, planted};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::catch_up::{CaughtUp, Found, GONE, Verdict, catch_up, failure_of_store};
use super::hydration::Hydration;
use super::pace::Pace;
use super::waiters::{Reply, Waiter, Waiters};
use super::{CheckFailure, Owner, Shared, lock};
use crate::failure::NO_ANSWER;
use crate::local::{Local, Pinned, Proved, State};
use crate::metrics::{CheckEnd, ReplicaMetrics};

/// Requests taken in at a time.
const ASKS_AT_ONCE: usize = 256;

/// What a request wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// The history open, however old the view.
    Open,
    /// A check that began at this moment or later.
    Since(Instant),
    /// A check that has not begun yet.
    Fresh,
}

/// A request to the driver.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) want: Want,
    /// The span that it was asked from, if that is traced.
    pub(super) origin: Option<Origin>,
    pub(super) reply: Reply,
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: Arc<dyn Owner>,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) stop: CancellationToken,
    pub(super) entropy: Entropy,
    pub(super) waiting_max: usize,
    pub(super) poll: Option<Duration>,
    pub(super) pace: Pace,
    pub(super) checks: Checks,
    pub(super) hydration: Hydration,
    pub(super) metrics: Arc<ReplicaMetrics>,
}

/// Checks from their beginning to their end, which includes following what they
/// found.
#[derive(Default)]
pub(super) struct Checks {
    waiters: Waiters,
    /// Number of the last one that began.
    n_begun: u64,
    /// When each began that has not ended, and the span of it.
    live: BTreeMap<u64, (Instant, Span)>,
    reads: FuturesUnordered<BoxFuture<'static, Read>>,
    /// Found, to be followed after the one that is being followed.
    found: VecDeque<(u64, Found)>,
    following: Option<BoxFuture<'static, Followed>>,
    /// The newest head that a check has shown to be the store's. The local one
    /// may be newer, where a writer has told of it.
    checked: Option<Revision>,
    /// A check with a higher number began after the local head was read and
    /// followed: it cannot have read an older one.
    local_read_at: u64,
    /// The notice that the last check has taken up.
    noticed: u64,
}

/// The end of the conditional read of a check.
struct Read {
    number: u64,
    took: Duration,
    /// What was asked about: the local head of the moment.
    asked: Option<Arc<Local>>,
    /// How far the history was followed before, where it is being opened.
    seen: Option<Position>,
    answer: Result<HeadRead, ReadError>,
}

/// The end of following what a check found, or what a writer told.
struct Followed {
    source: Source,
    took: Duration,
    verdict: Result<Verdict, CheckFailure>,
}

/// Where a head came from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// From the store, by the check with this number.
    Check(u64),
    /// From the writer that published it, with this revision.
    Writer(Revision),
}

/// Nothing comes after it.
struct Ended;

impl Driver {
    pub(super) async fn run(mut self) {
        let mut asks = Vec::with_capacity(ASKS_AT_ONCE);
        while self.step(&mut asks).await.is_ok() {}
        // The order matters: a request that finds the channel closed looks the
        // history up again, and must not find this follower.
        self.owner.ended(&self.shared);
        self.shared.state.send_modify(|it| it.is_ended = true);
        self.shared.feed.tell_end();
        tracing::debug!(history = %self.shared.history(), "no longer followed");
    }

    async fn step(&mut self, asks: &mut Vec<Ask>) -> Result<(), Ended> {
        let wake = self.begin_checks();
        let has_room = self.checks.waiters.len() < self.waiting_max;
        let is_reading = !self.checks.reads.is_empty();
        let following = OptionFuture::from(self.checks.following.as_mut());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Ended),
            Some(followed) = following => self.followed(followed),
            Some(read) = self.checks.reads.next(), if is_reading => self.read(read),
            () = self.shared.kick.notified() => {
                self.follow_next();
                Ok(())
            }
            () = until(wake) => Ok(()),
            () = self.hydration.go_on() => Ok(()),
            taken = self.asks.recv_many(asks, ASKS_AT_ONCE), if has_room => {
                if taken == 0 {
                    // Nobody holds the follower, and nobody can come.
                    return Err(Ended);
                }
                for ask in asks.drain(..) {
                    self.admit(ask);
                }
                Ok(())
            }
        }
    }

    /// Serves a request at once, or puts it to those who wait.
    fn admit(&mut self, Ask { want, origin, reply }: Ask) {
        let proved = self.shared.state.borrow().proved.clone();
        let live = &self.checks.live;
        let next = self.checks.n_begun + 1;
        let (is_enough, ticket) = match want {
            Want::Open => (proved.is_some(), live.keys().next().copied()),
            Want::Since(moment) => {
                let is_enough = proved.as_ref().is_some_and(|it| moment <= it.began);
                (is_enough, live.iter().find(|(_, (began, _))| moment <= *began).map(|it| *it.0))
            }
            Want::Fresh if planted!(CheckShared) => (false, live.keys().next().copied()),
            Want::Fresh if planted!(NoticeTrusted) => {
                let noticed = self.shared.noticed.load(Ordering::Relaxed);
                let is_noticed = |it: &Proved| it.local.head.revision.get() == noticed;
                (proved.as_ref().is_some_and(is_noticed), None)
            }
            Want::Fresh => (false, None),
        };
        match proved.filter(|_| is_enough) {
            Some(proved) => drop(reply.send(Ok(proved.pin()))),
            None => self.checks.waiters.add(ticket.unwrap_or(next), Waiter { origin, reply }),
        }
    }

    /// Begins a check if one is wanted and may begin. Returns when to look
    /// again.
    fn begin_checks(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.pace.is_failing() {
            self.checks.waiters.forget_gone();
        }
        let last_live = self.checks.live.last_key_value().map_or(0, |(number, _)| *number);
        let is_noticed = self.shared.is_behind_notice(self.checks.noticed);
        let is_wanted = self.checks.waiters.want_after(last_live) || is_noticed;
        let is_open = self.shared.state.borrow().proved.is_some();
        let poll_at = self.poll.filter(|_| is_open).and_then(|it| self.pace.due_after(it));
        let wanted_at = if is_wanted { Some(now) } else { poll_at };
        let begin_at = wanted_at?.max(self.pace.earliest(self.checks.live.len(), now)?);
        if now < begin_at {
            return Some(begin_at);
        }
        self.begin_check(now);
        self.poll.filter(|_| is_open).map(|it| now + it)
    }

    fn begin_check(&mut self, now: Instant) {
        self.checks.n_begun += 1;
        let number = self.checks.n_begun;
        let span = self.span_of_check(number);
        self.checks.live.insert(number, (now, span.clone()));
        self.checks.noticed = self.shared.noticed.load(Ordering::Relaxed);
        self.pace.began(now);
        self.shared.forget_expired(now);
        let store = Arc::clone(self.shared.loader.store());
        let key = self.shared.history().head_key();
        let asked = self.shared.local();
        // Looked up before the head is read: what another follower of the name
        // sees after that accuses nobody.
        let seen = match &asked {
            Some(_) => None,
            None => self.shared.seen.position(self.shared.history()),
        };
        let read = async move {
            let answer = store.read_head(&key, asked.as_ref().map(|it| &it.tag)).await;
            Read { number, took: now.elapsed(), asked, seen, answer }
        };
        self.checks.reads.push(read.instrument(span).boxed());
    }

    /// The span of a check; a disabled one where nobody who waits for it is
    /// traced. It is below the first of them, and has a link to each.
    fn span_of_check(&self, number: u64) -> Span {
        let Some(origin) = self.checks.waiters.first_origin(number) else { return Span::none() };
        let span = tracing::info_span!(
            target: ROOT_TARGET,
            parent: None,
            "check",
            otel.name = "freshness_check",
            headwater.history = %self.shared.history(),
            headwater.check.reads = Empty,
        );
        origin.adopt(&span);
        span
    }

    fn read(&mut self, read: Read) -> Result<(), Ended> {
        let Read { number, took, asked, seen, answer } = read;
        let local = self.shared.local();
        match answer {
            Ok(answer) => {
                self.pace.answered(took);
                let is_moved = matches!(&answer, HeadRead::Found { tag, .. }
                    if local.as_ref().is_none_or(|it| it.tag != *tag));
                self.metrics.checks.record(
                    match &answer {
                        HeadRead::Missing => CheckEnd::Refused,
                        HeadRead::Unchanged | HeadRead::Found { .. } if !is_moved => {
                            CheckEnd::Unchanged
                        }
                        HeadRead::Unchanged | HeadRead::Found { .. } => CheckEnd::Moved,
                    },
                    took,
                );
                match answer {
                    // The head that was asked about was current after the check
                    // began. The local one may be a later one by now, of which
                    // the store has said nothing.
                    HeadRead::Unchanged => self.proved(number, asked.or(local)),
                    HeadRead::Found { tag, .. }
                        if local.as_ref().is_some_and(|it| it.tag == tag) =>
                    {
                        self.proved(number, local);
                    }
                    HeadRead::Found { bytes, tag } => {
                        self.checks.found.push_back((number, Found { bytes, tag, seen }));
                        self.follow_next();
                    }
                    HeadRead::Missing => return self.refused(number, &GONE),
                }
                Ok(())
            }
            Err(error) => {
                let end =
                    if error.is_transient() { CheckEnd::Unavailable } else { CheckEnd::Refused };
                self.metrics.checks.record(end, took);
                self.refused(number, &failure_of_store(&Arc::new(error)))
            }
        }
    }

    /// Follows what was found first. One at a time: each begins where the one
    /// before has come to. What a writer told comes last: what the store said
    /// may be newer, and is waited for.
    fn follow_next(&mut self) {
        if self.checks.following.is_some() {
            return;
        }
        let local = self.shared.local();
        let views_max = self.shared.recent().versions_max();
        let mut loader = self.shared.loader.clone();
        let (source, found) = if let Some((number, found)) = self.checks.found.pop_front() {
            (Source::Check(number), found)
        } else {
            let Some(newest) = local.as_ref().and_then(|it| self.shared.take_pushed(it)) else {
                return;
            };
            loader = loader.with_changes(newest.entries);
            let found = Found { bytes: newest.head, tag: newest.tag, seen: None };
            (Source::Writer(newest.revision), found)
        };
        let may_be_overtaken = match source {
            Source::Check(number) => number <= self.checks.local_read_at,
            Source::Writer(_) => true,
        };
        let began = Instant::now();
        let span = match source {
            Source::Check(number) => self.checks.live.get(&number).map(|(_, it)| it.clone()),
            Source::Writer(_) => None,
        };
        let span = span.unwrap_or_else(Span::none);
        let following = async move {
            let verdict = catch_up(loader, local, found, may_be_overtaken, views_max).await;
            Followed { source, took: began.elapsed(), verdict }
        };
        self.checks.following = Some(following.instrument(span).boxed());
    }

    fn followed(&mut self, followed: Followed) -> Result<(), Ended> {
        let Followed { source, took, verdict } = followed;
        self.checks.following = None;
        let outcome = match (source, verdict) {
            (Source::Check(number), Ok(Verdict::Overtaken)) => {
                if self.is_ahead_of_checks() {
                    // What it read was current, and is not at hand any more:
                    // those who wait get the next check.
                    self.checks.live.remove(&number);
                } else {
                    self.proved(number, self.shared.local());
                }
                Ok(())
            }
            (Source::Check(number), Ok(Verdict::CaughtUp(caught_up))) => {
                self.checks.local_read_at = self.checks.n_begun;
                self.advance(Some(number), caught_up, took);
                let number = if planted!(LaterCheckServed) { self.checks.n_begun } else { number };
                self.proved(number, self.shared.local());
                Ok(())
            }
            (Source::Check(number), Err(failure)) => self.refused(number, &failure),
            (Source::Writer(_), Ok(Verdict::Overtaken)) => Ok(()),
            // Visible, and no proof: that is between the store and this process.
            (Source::Writer(_), Ok(Verdict::CaughtUp(caught_up))) => {
                // Checks that have begun may have read the head before it.
                self.checks.local_read_at = self.checks.n_begun;
                self.advance(None, caught_up, took);
                Ok(())
            }
            (Source::Writer(revision), Err(failure)) => {
                let history = self.shared.history();
                tracing::debug!(%history, ?failure, "a head that a writer told of is asked for");
                self.shared.noticed.store(revision.get(), Ordering::Relaxed);
                Ok(())
            }
        };
        self.follow_next();
        outcome
    }

    fn advance(&mut self, number: Option<u64>, caught_up: CaughtUp, took: Duration) {
        let is_open = self.shared.local().is_some();
        self.metrics.followed(if is_open { &caught_up.changes } else { &[] }, took);
        let CaughtUp { local, on_the_way, changes } = caught_up;
        let last_change_bytes = changes.last().map_or(0, |it| it.bytes.len() as u64);
        let version = local.view.version();
        tracing::debug!(history = %self.shared.history(), %version, ?number, "caught up");
        {
            let mut recent = self.shared.recent();
            for (view, size_bytes) in on_the_way {
                recent.push(view, size_bytes);
            }
            recent.push(local.view.clone(), last_change_bytes);
        }
        let began = number.and_then(|it| self.checks.live.get(&it)).map(|(it, _)| *it);
        lock(&self.shared.times).push(&changes, &local.head);
        // Before anybody can see that there is something to look for.
        self.shared.feed.push(&changes);
        let local = Arc::new(local);
        let mut is_first = false;
        self.shared.state.send_modify(|it| {
            is_first = it.proved.is_none();
            // What a writer told proves nothing: the last proof stays.
            let began = it.proved.as_ref().map(|it| it.began).max(began);
            let began = began.unwrap_or_else(Instant::now);
            it.proved = Some(Proved { local, began });
        });
        self.shared.followed();
        self.shared.feed.tell(version);
        if let Some(local) = self.shared.local() {
            self.shared.memory().set(local.view.overlay_bytes());
            self.hydration.follow(self.shared.loader(), &local.view);
        }
        self.owner.advanced(&self.shared);
        if is_first {
            self.owner.opened(&self.shared);
        }
    }

    /// `head` was current after check `number` began: those who wait for it get
    /// its view.
    fn proved(&mut self, number: u64, head: Option<Arc<Local>>) {
        let Some((mut began, span)) = self.checks.live.remove(&number) else { return };
        if planted!(AgeFromEnd) {
            began = Instant::now();
        }
        self.shared.state.send_modify(|it: &mut State| {
            it.trouble = None;
            // The local head is this one or goes on from it.
            if let Some(proved) = &mut it.proved {
                proved.began = proved.began.max(began);
            }
        });
        let Some(head) = head else { return };
        self.checks.checked = self.checks.checked.max(Some(head.head.revision));
        self.shared.seen.note(self.shared.history(), head.position());
        let pinned = Pinned::new(head, began);
        let mut n_reads = 0;
        for waiter in self.checks.waiters.take(number) {
            n_reads += 1;
            if let Some(origin) = waiter.origin.filter(|_| !span.is_disabled()) {
                origin.link(&span);
            }
            // Who went away wants no answer.
            drop(waiter.reply.send(Ok(pinned.clone())));
        }
        self.metrics.sharing.record(n_reads, &[]);
        span.record("headwater.check.reads", n_reads);
    }

    /// Check `number` proved nothing.
    fn refused(&mut self, number: u64, failure: &CheckFailure) -> Result<(), Ended> {
        self.checks.live.remove(&number);
        let is_open = self.shared.local().is_some();
        let history = self.shared.history();
        let is_end = match failure {
            CheckFailure::Unavailable { detail, retry_after } => {
                // Once for each time that the store goes away; checks repeat.
                if self.shared.state.borrow().trouble.is_none() {
                    tracing::warn!(%history, detail, "a freshness check got no answer");
                } else {
                    tracing::debug!(%history, detail, "a freshness check got no answer");
                }
                self.pace.failed(*retry_after, Instant::now(), &self.entropy);
                if planted!(CheckFailureServed)
                    && let Some(proved) = self.shared.proved()
                {
                    for waiter in self.checks.waiters.take(number) {
                        drop(waiter.reply.send(Ok(proved.pin())));
                    }
                }
                // Callers are told this; the causes name the bucket.
                let trouble = Some(NO_ANSWER);
                self.shared.state.send_modify(|it| it.trouble = trouble);
                self.shared.not_followed();
                // Those who wait go on waiting; there will be another check.
                self.checks.waiters.forget_gone();
                let is_abandoned = !is_open && self.checks.waiters.len() == 0;
                return if is_abandoned && self.asks.is_empty() { Err(Ended) } else { Ok(()) };
            }
            // A writer told of a head that the store does not go on from, or
            // never had: begun anew, from what the store has.
            CheckFailure::Contradicts(error) if self.is_ahead_of_checks() => {
                tracing::error!(%history, %error, "a writer told of a head that the store denies");
                self.shared.is_given_up.store(true, Ordering::Relaxed);
                self.owner.ended(&self.shared);
                return Err(Ended);
            }
            CheckFailure::Refused(error) | CheckFailure::Contradicts(error) => {
                tracing::warn!(%history, %error, "the head is not served");
                !is_open
            }
            CheckFailure::Gone { detail } => {
                tracing::info!(%history, detail, "the history is gone");
                true
            }
            CheckFailure::Replaced { found } => {
                tracing::info!(%history, %found, "another history has taken the name");
                true
            }
        };
        if is_end {
            self.owner.ended(&self.shared);
        }
        for waiter in self.checks.waiters.take(number) {
            drop(waiter.reply.send(Err(failure.clone())));
        }
        if is_end { Err(Ended) } else { Ok(()) }
    }
}

impl Driver {
    /// Whether the local head is one that only a writer has told of.
    fn is_ahead_of_checks(&self) -> bool {
        self.shared.local().is_some_and(|it| self.checks.checked < Some(it.head.revision))
    }
}

impl Shared {
    /// For those who look: a newer head is served.
    fn followed(&self) {
        let followed = self.local().map_or(0, |it| it.head.revision.get());
        self.figures.followed(&self.told_at, self.told_revision() <= followed);
    }

    /// For those who look: a check got no answer.
    fn not_followed(&self) {
        self.figures.not_followed(&self.told_at);
    }

    /// Whether a writer has told of a head that is not followed yet, since the
    /// notice that was taken up last. Told twice is told once: a wrong notice
    /// costs one check.
    fn is_behind_notice(&self, taken_up: u64) -> bool {
        let noticed = self.noticed.load(Ordering::Relaxed);
        noticed != taken_up && self.local().is_some_and(|it| it.head.revision.get() < noticed)
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
