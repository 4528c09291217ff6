//! Clients: what they asked, what they were told, and whether it was true.

use headwater_core::decide::{Ask, LookUp};
use headwater_core::head::Head;
use headwater_core::operation::Operation;
use headwater_core::publish::{Answer, Determinacy, SubmitError, Ticket};
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;

use crate::bucket::Bucket;
use crate::promise::{Broken, Promise, ensure};
use crate::setup::{Sent, Setup};
use crate::world::World;

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Where the history was when it first asked.
    pub seen: StateVersion,
    /// Each time that it asked.
    pub attempts: Vec<Attempt>,
}

/// One time that a client asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The writer that it asked.
    pub writer: usize,
    /// Where the history was then.
    pub asked_at: StateVersion,
    /// What came of it.
    pub heard: Heard,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// The process died.
    Orphan,
    /// It is applied, at this version.
    Accepted(StateVersion),
    /// It may be applied.
    Maybe,
    /// This attempt did not apply it and never will.
    NotApplied,
    /// A look-up or a control has its answer.
    Told,
}

/// Attempts of one client at most; a ticket says which one it is.
const ATTEMPTS_MAX: usize = 16;

/// The ticket of an attempt.
pub fn ticket(client: usize, attempt: usize) -> Ticket {
    Ticket((client * ATTEMPTS_MAX + attempt) as u64)
}

fn place(ticket: Ticket) -> (usize, usize) {
    let number = usize::try_from(ticket.0).unwrap_or(usize::MAX);
    (number / ATTEMPTS_MAX, number % ATTEMPTS_MAX)
}

impl Client {
    /// The version that it was told of.
    pub fn acknowledged(&self) -> Option<StateVersion> {
        self.attempts.iter().find_map(|it| match it.heard {
            Heard::Accepted(version) => Some(version),
            Heard::Nothing | Heard::Orphan | Heard::Maybe | Heard::NotApplied | Heard::Told => None,
        })
    }

    /// Whether its last attempt has an answer, or never will have one.
    pub fn is_done(&self) -> bool {
        self.attempts.last().is_some_and(|it| it.heard != Heard::Nothing)
    }

    /// The process that it asked is dead.
    pub fn lose(&mut self, writer: usize) {
        for attempt in &mut self.attempts {
            if attempt.writer == writer && attempt.heard == Heard::Nothing {
                attempt.heard = Heard::Orphan;
            }
        }
    }

    /// The ticket that it waits for.
    pub fn open(&self, client: usize) -> impl Iterator<Item = (Ticket, &Attempt)> {
        let attempts = self.attempts.iter().enumerate();
        attempts
            .filter(|it| it.1.heard == Heard::Nothing)
            .map(move |(attempt, it)| (ticket(client, attempt), it))
    }
}

impl World {
    /// A client is told something.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn hear(&mut self, setup: &Setup, to: Ticket, answer: &Answer) -> Result<(), Broken> {
        let (client, attempt) = place(to);
        let sent = setup.sent(client, self.clients[client].seen);
        let asked_at = self.clients[client].attempts[attempt].asked_at;
        let heard = match (&sent, answer) {
            (Sent::Ask(Ask::Submit(it)), _) => {
                check_submitted(&self.bucket, setup, it, asked_at, answer)?
            }
            (Sent::Ask(Ask::LookUp(it)), _) => check_look_up(&self.bucket, it, asked_at, answer)?,
            (Sent::Control(_), answer) => {
                check_control(self.bucket.head(), answer)?;
                Heard::Told
            }
        };
        let place = &mut self.clients[client].attempts[attempt].heard;
        ensure(*place == Heard::Nothing, Promise::ReceiptsTrue, || format!("{to:?} told twice"))?;
        *place = heard;
        self.check_not_applied(setup)
    }

    /// Whatever is applied, somebody was told so, may be told so, or knows that
    /// it may be.
    ///
    /// # Errors
    ///
    /// [`Promise::NotApplied`], [`Promise::ReceiptsTrue`].
    pub fn check_not_applied(&self, setup: &Setup) -> Result<(), Broken> {
        for receipt in self.bucket.accepted() {
            let is_it = |index: &usize| {
                let operation = setup.scripts[*index].operation(SOME_ISSUE);
                operation.is_some_and(|it| {
                    it.id == receipt.operation_id && it.request_hash == receipt.request_hash
                })
            };
            let clients = (0..setup.scripts.len()).filter(is_it);
            let mut attempts = clients.flat_map(|it| &self.clients[it].attempts).peekable();
            ensure(attempts.peek().is_some(), Promise::ReceiptsTrue, || {
                format!("nobody asked for {}", receipt.operation_id)
            })?;
            ensure(attempts.any(|it| it.heard != Heard::NotApplied), Promise::NotApplied, || {
                format!("{} is applied at {}", receipt.operation_id, receipt.accepted_at)
            })?;
        }
        Ok(())
    }

    /// What was accepted after `since` is what its request says, where it is.
    ///
    /// # Errors
    ///
    /// [`Promise::ReceiptsTrue`], [`Promise::Fenced`].
    pub fn check_accepted(
        &self,
        setup: &Setup,
        since: StateVersion,
        epoch: u64,
    ) -> Result<(), Broken> {
        for (version, change) in self.bucket.changes_after(since) {
            let before = StateVersion::new(version.get() - 1);
            let mut state = (**self.bucket.state(before)).clone();
            for accepted in &change.operations {
                let mut operations = setup.scripts.iter().filter_map(|it| it.operation(SOME_ISSUE));
                let operation = operations
                    .find(|it| it.id == accepted.id && it.request_hash == accepted.request_hash);
                let expected =
                    operation.as_ref().and_then(|it| state.carry_out(version, &it.request));
                let is_it = expected
                    .as_ref()
                    .is_some_and(|it| it.0 == accepted.mutations && it.1 == accepted.results);
                ensure(is_it, Promise::ReceiptsTrue, || {
                    format!("{} was accepted as {accepted:?}, not as {expected:?}", accepted.id)
                })?;
                let is_owner =
                    !setup.is_exclusive || operation.is_some_and(|it| it.writer_epoch == epoch);
                ensure(is_owner, Promise::Fenced, || format!("{} under {epoch}", accepted.id))?;
                state.apply(version, accepted);
            }
        }
        Ok(())
    }
}

/// For where the issue version does not matter.
const SOME_ISSUE: headwater_core::operation::Issue =
    headwater_core::operation::Issue::ClientKept(StateVersion::ZERO);

fn check_submitted(
    bucket: &Bucket,
    setup: &Setup,
    operation: &Operation,
    asked_at: StateVersion,
    answer: &Answer,
) -> Result<Heard, Broken> {
    let found = bucket.find(&operation.id);
    let is_same = |it: &Receipt| it.request_hash == operation.request_hash;
    match answer {
        Answer::Accepted { receipt, .. } => {
            ensure(found.as_ref() == Some(receipt), Promise::Kept, || {
                format!("told {receipt:?}, the history has {found:?}")
            })?;
            ensure(is_same(receipt), Promise::ReceiptsTrue, || {
                format!("{} was asked for as something else", operation.id)
            })?;
            Ok(Heard::Accepted(receipt.accepted_at))
        }
        Answer::Rejected { at, .. } => {
            ensure(asked_at <= *at, Promise::NegativesTrue, || {
                format!("{} rejected by {at}, asked at {asked_at}", operation.id)
            })?;
            let is_known = found.is_some_and(|it| it.accepted_at <= asked_at);
            ensure(!is_known, Promise::NegativesTrue, || {
                format!("{} rejected although it was accepted", operation.id)
            })?;
            let is_true = is_rejected_since(bucket, asked_at, operation);
            ensure(is_true, Promise::NegativesTrue, || {
                format!("no state since {asked_at} rejects {}", operation.id)
            })?;
            Ok(Heard::NotApplied)
        }
        Answer::Unknown { earliest, coverage_from } => {
            let published = bucket.head().receipt_coverage_from;
            let is_told = earliest < coverage_from && *coverage_from <= published;
            ensure(is_told, Promise::NegativesTrue, || format!("{coverage_from} was predicted"))?;
            let is_there =
                found.is_some_and(|it| it.accepted_at <= asked_at && published <= it.accepted_at);
            ensure(!is_there, Promise::NegativesTrue, || {
                format!("{} is unknown, and there is a receipt", operation.id)
            })?;
            Ok(Heard::Maybe)
        }
        Answer::Failed(error) => check_error(bucket, setup, operation, asked_at, error),
        Answer::NotAccepted { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_)
        | Answer::Retired => unreachable!("not an answer to an operation"),
    }
}

fn check_control(head: &Head, answer: &Answer) -> Result<(), Broken> {
    match answer {
        Answer::WriterEpochRaised { writer_epoch } => {
            let now = head.writer_epoch;
            ensure(*writer_epoch <= now, Promise::Fenced, || {
                format!("told of epoch {writer_epoch}, it is {now}")
            })
        }
        Answer::Pinned(pin) => {
            // Whatever its time; it goes with a head that comes after this one.
            let is_there = head.pins.contains(pin) || pin.expires_at_ms.is_some();
            ensure(is_there, Promise::Kept, || format!("{pin:?} is not there"))
        }
        Answer::RetentionSet(_) | Answer::Failed(_) => Ok(()),
        Answer::Accepted { .. }
        | Answer::Rejected { .. }
        | Answer::Unknown { .. }
        | Answer::NotAccepted { .. }
        | Answer::Unpinned
        | Answer::Retired => unreachable!("no world asks for this"),
    }
}

fn check_error(
    bucket: &Bucket,
    setup: &Setup,
    operation: &Operation,
    asked_at: StateVersion,
    error: &SubmitError,
) -> Result<Heard, Broken> {
    match error {
        SubmitError::Fenced { writer_epoch } => {
            let is_true = *writer_epoch <= bucket.head().writer_epoch
                && *writer_epoch != operation.writer_epoch;
            ensure(is_true, Promise::NegativesTrue, || format!("fenced by {writer_epoch}"))?;
        }
        SubmitError::IssuedAhead { state_version } => {
            let is_true =
                asked_at <= *state_version && *state_version < operation.issue.issued_from();
            ensure(is_true, Promise::NegativesTrue, || format!("ahead of {state_version}"))?;
        }
        SubmitError::IdReused => {
            let mut others = setup.scripts.iter().filter_map(|it| it.operation(SOME_ISSUE));
            let is_true =
                others.any(|it| it.id == operation.id && it.request_hash != operation.request_hash);
            ensure(is_true, Promise::NegativesTrue, || format!("{} is new", operation.id))?;
        }
        SubmitError::HistoryMissing
        | SubmitError::OtherHistory { .. }
        | SubmitError::NotExclusive
        | SubmitError::PinExists { .. }
        | SubmitError::PinMissing
        | SubmitError::PinsFull
        | SubmitError::VersionRetired { .. }
        | SubmitError::VersionAhead { .. }
        | SubmitError::NeededByFork { .. }
        | SubmitError::HeadTooLarge
        | SubmitError::Expired
        | SubmitError::Contended
        | SubmitError::StoreUnavailable
        | SubmitError::StoreDenied
        | SubmitError::StoredDataBad { .. }
        | SubmitError::FormatTooNew { .. }
        | SubmitError::InDoubt => (),
    }
    Ok(match error.determinacy() {
        Determinacy::NotApplied => Heard::NotApplied,
        Determinacy::MaybeApplied => Heard::Maybe,
    })
}

fn check_look_up(
    bucket: &Bucket,
    look_up: &LookUp,
    asked_at: StateVersion,
    answer: &Answer,
) -> Result<Heard, Broken> {
    let found = bucket.find(&look_up.id);
    match answer {
        Answer::Accepted { receipt, .. } => {
            ensure(found.as_ref() == Some(receipt), Promise::Kept, || {
                format!("told {receipt:?}, the history has {found:?}")
            })?;
        }
        Answer::NotAccepted { through } => {
            let is_seen = asked_at <= *through && *through <= bucket.version();
            let is_missed = found.is_some_and(|it| it.accepted_at <= *through);
            ensure(is_seen && !is_missed, Promise::NegativesTrue, || {
                format!("{} was not accepted through {through}", look_up.id)
            })?;
        }
        Answer::Unknown { coverage_from, .. } => {
            let is_published = *coverage_from <= bucket.head().receipt_coverage_from;
            ensure(is_published, Promise::NegativesTrue, || format!("{coverage_from} predicted"))?;
        }
        Answer::Failed(_) => (),
        Answer::Rejected { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_)
        | Answer::Retired => unreachable!("not an answer to a look-up"),
    }
    Ok(Heard::Told)
}

/// Whether some state from `since` on, places inside versions included, does
/// not allow the operation.
fn is_rejected_since(bucket: &Bucket, since: StateVersion, operation: &Operation) -> bool {
    let mut state = (**bucket.state(since)).clone();
    let mut last = since;
    for (version, change) in bucket.changes_after(since) {
        for accepted in &change.operations {
            if state.carry_out(version, &operation.request).is_none() {
                return true;
            }
            state.apply(version, accepted);
        }
        last = version;
    }
    state.carry_out(last.next(), &operation.request).is_none()
}
