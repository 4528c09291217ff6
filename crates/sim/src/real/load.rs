//! What clients send, through the client library.

use std::sync::Arc;
use std::time::Duration;

use headwater_client::{
    Consistency, Determinacy, IssueVersion, KeyRange, Operation, OperationId, Outcome, Session,
    SubmitError,
};
use headwater_core::operation::{self as core, Issue, Mutation, Precondition};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::log::{Ended, Log, ReadBack, Sent};
use crate::dice::Dice;
use crate::plan::Mix;
use crate::requests::{self, Knowing};
use crate::truth::Row;

/// Submissions of one operation, each with a deadline and attempts of its own.
const SUBMISSIONS_MAX: u32 = 12;

pub(super) struct Loader {
    pub(super) index: usize,
    pub(super) dice: Dice,
    pub(super) session: Session,
    pub(super) log: Arc<Log>,
}

fn mix() -> Mix {
    Mix {
        conditions: 30,
        deletions: 8,
        service_kept: 15,
        large_values: 4,
        keys: 200,
        ..Mix::plain()
    }
}

impl Loader {
    /// Sends one thing after the other until the time is up.
    pub(super) async fn run(self, until: Instant) {
        let mix = mix();
        let mut n = 0_u64;
        while Instant::now() < until {
            sleep(self.dice.ms(0, 20)).await;
            if self.dice.percent(35) {
                self.read(&mix).await;
                continue;
            }
            n += 1;
            let seen = self.session.token().map_or(0, |it| it.state_version);
            let knowing = Knowing { seen, read_at: seen, epoch: 0 };
            let id = format!("c{}-{n}", self.index);
            if let Some(drawn) = requests::draw_operation(&self.dice, &mix, &id, knowing) {
                self.submit(&drawn).await;
            }
        }
    }

    /// Reads at even distances, which `every` says; what falls behind is made up
    /// for.
    pub(super) async fn read_every(self, every: Duration, until: Instant) {
        let mix = mix();
        let mut due = interval(every);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while due.tick().await < until {
            self.read(&mix).await;
        }
    }

    async fn submit(&self, drawn: &core::Operation) {
        let Some(operation) = to_client(drawn) else { return };
        let begun = self.log.now();
        let mut was_open = false;
        let mut ended = Ended::Open;
        for _ in 0..SUBMISSIONS_MAX {
            match self.session.submit(operation.clone()).await {
                Ok(Outcome::Accepted(it)) => {
                    let sums = it.sums.iter().map(|it| it.1).collect();
                    let place = (it.state_version, it.position);
                    ended = Ended::Accepted { place, sums };
                    break;
                }
                Ok(Outcome::Rejected(it)) => {
                    let is_final = !it.may_yet_apply && !was_open;
                    ended = Ended::Rejected { at: it.at_version, is_final };
                    break;
                }
                Ok(Outcome::Unknown(_)) => {
                    ended = Ended::Unknown;
                    break;
                }
                Err(error) => {
                    self.log.failed(|| format!("{} got {error}", drawn.id));
                    was_open |= error.determinacy() == Determinacy::MaybeApplied;
                    ended = if was_open { Ended::Open } else { Ended::NotApplied };
                    if is_wrong(&error) {
                        self.log.violation(format!("{} is told: {error}", drawn.id));
                        break;
                    }
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        let (operation, answered) = (drawn.clone(), self.log.now());
        self.log.sent(Sent { operation, begun, answered, ended });
    }

    async fn read(&self, mix: &Mix) {
        let key = requests::draw_key(&self.dice, mix);
        let is_strong = self.dice.percent(60);
        let consistency = if is_strong { Consistency::Strong } else { Consistency::Session };
        let at_least = self.session.token().map_or(0, |it| it.state_version);
        let sent = self.log.now();
        let read = match self.session.get(key.as_bytes().clone(), consistency).await {
            Ok(read) => read,
            // What is out of reach is not answered, which is no fault of itself.
            Err(error) => return self.log.failed(|| format!("a read got {error}")),
        };
        let value = read.value.map(|it| (it.value, it.version));
        let (version, answered) = (read.stamp.state_version, self.log.now());
        self.log.read(ReadBack { key, sent, answered, version, at_least, value, is_strong });
    }
}

/// What nothing in a run brings about.
fn is_wrong(error: &SubmitError) -> bool {
    match error {
        SubmitError::HistoryMissing(_)
        | SubmitError::Invalid(_)
        | SubmitError::IdReused(_)
        | SubmitError::Fenced(_) => true,
        SubmitError::Expired(_) | SubmitError::InDoubt(_) => false,
        SubmitError::Refused(failure) => {
            use headwater_client::Reason;
            matches!(failure.reason, Reason::StoredDataBad | Reason::FormatTooNew)
        }
    }
}

/// The same in the words of the client library.
fn to_client(drawn: &core::Operation) -> Option<Operation> {
    let issue = match drawn.issue {
        Issue::ClientKept(version) => IssueVersion::At(version.get()),
        Issue::ServiceKept { .. } => IssueVersion::ServiceKept,
    };
    let id = OperationId::new(drawn.id.as_str()).ok()?;
    let bytes = |key: &core::Key| key.as_bytes().clone();
    let mut operation = Operation::new(id, issue);
    for it in drawn.request.preconditions() {
        operation = match it {
            Precondition::KeyExists(key) => operation.require_exists(bytes(key)),
            Precondition::KeyAbsent(key) => operation.require_absent(bytes(key)),
            Precondition::KeyAtVersion(key, at) => operation.require_version(bytes(key), at.get()),
            Precondition::KeyUnchangedSince(key, since) => {
                operation.require_unchanged(bytes(key), since.get())
            }
            Precondition::RangeUnchangedSince(of, since) => {
                operation.require_range_unchanged(range(of), since.get())
            }
            Precondition::ValueEquals(key, value) => {
                operation.require_value(bytes(key), value.clone())
            }
            Precondition::ValueHashEquals(key, hash) => {
                operation.require_value_hash(bytes(key), *hash.as_bytes())
            }
        };
    }
    for it in drawn.request.mutations() {
        operation = match it {
            Mutation::Put(key, value) => operation.put(bytes(key), value.clone()),
            Mutation::Delete(key) => operation.delete(bytes(key)),
            Mutation::DeleteRange(of) => operation.delete_range(range(of)),
            Mutation::Add(key, delta) => operation.add(bytes(key), *delta),
        };
    }
    Some(operation)
}

fn range(of: &core::KeyRange) -> KeyRange {
    match of.end() {
        Some(end) => KeyRange::new(of.start().clone(), end.clone()),
        None => KeyRange::starting_at(of.start().clone()),
    }
}

/// Every entry, strongly, once all is calm.
pub(super) async fn last_look(session: &Session, log: &Log) {
    let mut scan = session.scan(KeyRange::all());
    let mut rows: Vec<Row> = Vec::new();
    loop {
        match scan.next_page().await {
            Ok(Some(page)) => {
                rows.extend(page.value.into_iter().map(|it| (it.key, it.value, it.version)));
            }
            Ok(None) => return log.everything(scan.version().unwrap_or(0), rows),
            Err(error) => return log.violation(format!("the state is not served: {error}")),
        }
    }
}
