//! What a world consists of: who asks what, and how much may go wrong.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::decide::{Ask, LookUp};
use headwater_core::head::{HeadLimits, HistoryRef, Retention};
use headwater_core::id::{HistoryId, HistoryName, OperationId, PinName};
use headwater_core::operation::{Issue, Key, Mutation, Operation, Precondition, Request};
use headwater_core::publish::{Control, NewPin, Settings};
use headwater_core::receipt::Window;
use headwater_core::version::StateVersion;

/// A world to explore.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Setup {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// How many writer processes there are.
    pub writers: usize,
    /// Who asks what.
    pub scripts: Vec<Script>,
    /// Versions whose receipts are kept.
    pub window: u64,
    /// Operations in one batch at most.
    pub batch_max: usize,
    /// Batches in a pipeline at most.
    pub ahead_max: usize,
    /// Whether changes stay in the head until they are folded.
    pub is_inline: bool,
    /// Whether those that do not stay are in the head while they are uploaded.
    pub do_travel: bool,
    /// Largest head, in bytes, that takes operations.
    pub head_bytes_max: usize,
    /// Whether uploads end at another moment than they are carried out.
    pub has_slow_uploads: bool,
    /// Whether looking facts up takes time.
    pub has_slow_facts: bool,
    /// Whether operations carry epochs.
    pub is_exclusive: bool,
    /// What may go wrong, and how often.
    pub limits: Limits,
    /// What has to happen in some state, or the world shows little.
    pub goals: &'static [Goal],
    /// A fault of the model's own drivers.
    pub fault: Option<DriverFault>,
    /// Of how many states one is run to its end; 0 is none.
    pub finish_every: u64,
}

/// Something that a world is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// Every operation is in the history, and every client is done.
    AllAccepted,
    /// Somebody is in doubt, or cannot be told any more.
    Doubt,
    /// Somebody is told that nothing was applied.
    NotApplied,
    /// A sweep deletes something.
    Swept,
    /// A pin that expired is gone.
    PinExpired,
    /// A fork has what it needs.
    Forked,
}

impl Goal {
    /// The goal in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllAccepted => "everything is accepted",
            Self::Doubt => "somebody is in doubt",
            Self::NotApplied => "somebody is told that nothing was applied",
            Self::Swept => "something is swept",
            Self::PinExpired => "a pin that expired is gone",
            Self::Forked => "a fork has what it needs",
        }
    }
}

/// How often something may happen on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A head is replaced and the answer is lost.
    pub lost_answers: u8,
    /// A head is replaced, the network repeats the request, and the answer is
    /// that of the second copy.
    pub echoes: u8,
    /// A replacement is lost on its way.
    pub lost_requests: u8,
    /// A replacement without an answer is carried out later, or never.
    pub late: u8,
    /// A replacement is carried out, answered, and carried out once more later.
    pub repeated: u8,
    /// The store asks to be left alone, where it gives no other answer to a
    /// replacement.
    pub rests: u8,
    /// A reply takes its time.
    pub slow: u8,
    /// A read or an upload fails.
    pub failures: u8,
    /// A process dies and another one starts.
    pub crashes: u8,
    /// A caller's time is up.
    pub expiries: u8,
    /// A segment is made.
    pub folds: u8,
    /// A snapshot is made.
    pub compactions: u8,
    /// An archive is made that keeps less.
    pub releases: u8,
    /// So much time passes that pins which expire are over.
    pub hours: u8,
    /// A fork reads the head after its version was pinned.
    pub forks: u8,
    /// A sweep is run.
    pub sweeps: u8,
    /// Strong reads of the replica.
    pub reads: u8,
}

/// What one client asks.
#[derive(Clone, Debug)]
pub struct Script {
    /// What, but for what is fixed when it is first asked.
    pub ask: Scripted,
    /// The writer that is asked first.
    pub home: usize,
    /// How often it is asked again at most.
    pub retries: u8,
    /// Whether it is asked again before there is an answer.
    pub is_impatient: bool,
    /// It is first asked when this other script has its answer.
    pub after: Option<usize>,
}

/// The question of a script.
#[derive(Clone, Debug)]
pub enum Scripted {
    /// An operation.
    Submit {
        /// Its id.
        id: OperationId,
        /// What it asks for.
        request: Arc<Request>,
        /// Who keeps the issue version.
        issued: Issued,
        /// The epoch that it carries.
        epoch: u64,
    },
    /// A question about the operation of another script.
    LookUp {
        /// The script.
        of: usize,
    },
    /// A change of the head.
    Control(Control),
}

/// Who keeps the issue version of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// The client, which saw no version yet.
    AtZero,
    /// The client, which saw the newest version there was.
    AtNewest,
    /// The client, which names a version that is to come.
    Ahead,
    /// The service.
    ByService,
}

/// A fault in what the model does around core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverFault {
    /// The candidate is deleted when its publication got no answer.
    CandidateDeleted,
    /// An upload is reported as done before it is.
    StagedEarly,
    /// A record that was there before is overwritten.
    RecordOverwritten,
    /// A strong read joins a check that is under way.
    CheckShared,
    /// A strong read is served from the old view when the check failed.
    CheckFailureServed,
    /// The sweep deletes before the boundary is raised.
    SweptBeforeRaised,
    /// The sweep deletes by the head that it began with, and not by the one that
    /// it read after the boundary was raised.
    SweptByFirstHead,
    /// The sweep deletes what is staged at the boundary too.
    SweptAtBoundary,
    /// The sweep does not know what a snapshot reaches.
    ChunksSwept,
}

impl DriverFault {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::CandidateDeleted,
        Self::StagedEarly,
        Self::RecordOverwritten,
        Self::CheckShared,
        Self::CheckFailureServed,
        Self::SweptBeforeRaised,
        Self::SweptByFirstHead,
        Self::SweptAtBoundary,
        Self::ChunksSwept,
    ];
}

/// When pins that expire do, in milliseconds since 1970; it is 0 before time
/// passes, and later than that afterwards.
pub const HOUR_MS: u64 = 3_600_000;

/// A key of the state.
///
/// # Panics
///
/// When `text` is none.
pub fn key(text: &str) -> Key {
    let Ok(key) = Key::new(Bytes::copy_from_slice(text.as_bytes())) else {
        panic!("{text:?} is not a key")
    };
    key
}

/// A script whose client asks for `mutations` under `id`, once, at `home`.
///
/// # Panics
///
/// When the parts are not those of an operation.
pub fn submit(
    id: &str,
    home: usize,
    preconditions: Vec<Precondition>,
    mutations: Vec<Mutation>,
) -> Script {
    let (Ok(id), Ok(request)) = (OperationId::parse(id), Request::new(preconditions, mutations))
    else {
        panic!("{id:?} is not an operation")
    };
    let request = Arc::new(request);
    let ask = Scripted::Submit { id, request, issued: Issued::AtZero, epoch: 0 };
    Script { ask, home, retries: 0, is_impatient: false, after: None }
}

/// A script that adds 1 to the key `n`.
pub fn add(id: &str, home: usize) -> Script {
    submit(id, home, Vec::new(), vec![Mutation::Add(key("n"), 1)])
}

/// A script that creates the key `at`, if it is not there.
pub fn create(id: &str, home: usize, at: &str) -> Script {
    submit(id, home, vec![Precondition::KeyAbsent(key(at))], vec![put(at)])
}

/// A mutation that gives the key `at` a value.
pub fn put(at: &str) -> Mutation {
    Mutation::Put(key(at), Bytes::from_static(b"v"))
}

/// A script that overwrites the key `at`, if it is there.
pub fn update(id: &str, home: usize, at: &str) -> Script {
    let put = Mutation::Put(key(at), Bytes::from_static(b"w"));
    submit(id, home, vec![Precondition::KeyExists(key(at))], vec![put])
}

/// A script that deletes the key `at`, if it is there.
pub fn remove(id: &str, home: usize, at: &str) -> Script {
    submit(id, home, vec![Precondition::KeyExists(key(at))], vec![Mutation::Delete(key(at))])
}

/// A script about another one.
pub fn look_up(of: usize, home: usize) -> Script {
    Script { ask: Scripted::LookUp { of }, home, retries: 0, is_impatient: false, after: None }
}

/// A script that raises the epoch.
pub fn raise(home: usize) -> Script {
    control(Control::RaiseWriterEpoch { expected: None }, home)
}

/// A script that pins a version.
///
/// # Panics
///
/// When `name` is none.
pub fn pin(name: &str, version: u64, home: usize) -> Script {
    let Ok(name) = PinName::parse(name) else { panic!("{name:?} is not a name") };
    let version = Some(StateVersion::new(version));
    let pin = NewPin { name, version, expires_at_ms: None, child: None };
    control(Control::Pin(pin), home)
}

/// A script that pins a version until some time has passed.
pub fn pin_for_an_hour(name: &str, version: u64, home: usize) -> Script {
    let mut script = pin(name, version, home);
    if let Scripted::Control(Control::Pin(new)) = &mut script.ask {
        new.expires_at_ms = Some(HOUR_MS);
    }
    script
}

/// A script that pins the newest version for a history which is forked from it.
///
/// # Panics
///
/// When `name` is none.
pub fn pin_for_a_fork(name: &str, home: usize) -> Script {
    let mut script = pin(name, 0, home);
    let Ok(history) = HistoryName::parse("fork") else { panic!("a plain word") };
    let history_id = HistoryId::from_bytes([2; 16]);
    if let Scripted::Control(Control::Pin(new)) = &mut script.ask {
        new.version = None;
        new.child = Some(HistoryRef { history, history_id });
    }
    script
}

/// A script that keeps so many versions.
pub fn retain(versions: u64, home: usize) -> Script {
    control(Control::SetRetention(Retention { versions, age_ms: 0 }), home)
}

fn control(control: Control, home: usize) -> Script {
    Script { ask: Scripted::Control(control), home, retries: 0, is_impatient: false, after: None }
}

impl Script {
    /// The same, asked again up to `retries` times, at any writer.
    #[must_use]
    pub fn again(self, retries: u8) -> Self {
        Self { retries, ..self }
    }

    /// The same, asked again before there is an answer, too.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self { is_impatient: true, ..self }
    }

    /// The same with more mutations.
    ///
    /// # Panics
    ///
    /// When they are too many.
    #[must_use]
    pub fn and(mut self, more: &[Mutation]) -> Self {
        if let Scripted::Submit { request, .. } = &mut self.ask {
            let mutations = [request.mutations(), more].concat();
            match Request::new(request.preconditions().to_vec(), mutations) {
                Ok(longer) => *request = Arc::new(longer),
                Err(error) => panic!("{error}"),
            }
        }
        self
    }

    /// The same, first asked when `script` has its answer.
    #[must_use]
    pub fn after(self, script: usize) -> Self {
        Self { after: Some(script), ..self }
    }

    /// The same with another issue version.
    #[must_use]
    pub fn issued(mut self, by: Issued) -> Self {
        if let Scripted::Submit { issued, .. } = &mut self.ask {
            *issued = by;
        }
        self
    }

    /// The same under an epoch.
    #[must_use]
    pub fn under(mut self, writer_epoch: u64) -> Self {
        if let Scripted::Submit { epoch, .. } = &mut self.ask {
            *epoch = writer_epoch;
        }
        self
    }

    /// The operation, if the script submits one that was issued at `issue`.
    pub fn operation(&self, issue: Issue) -> Option<Operation> {
        let Scripted::Submit { id, request, epoch, .. } = &self.ask else { return None };
        Some(Operation {
            id: id.clone(),
            request: Arc::clone(request),
            request_hash: request.hash(),
            issue,
            writer_epoch: *epoch,
            history_id: None,
            ends_version: false,
        })
    }

    /// The id of the operation that it submits.
    pub fn id(&self) -> Option<&OperationId> {
        match &self.ask {
            Scripted::Submit { id, .. } => Some(id),
            Scripted::LookUp { .. } | Scripted::Control(_) => None,
        }
    }
}

/// What a script sends.
#[derive(Clone, Debug)]
pub enum Sent {
    /// A question.
    Ask(Ask),
    /// A change of the head.
    Control(Control),
}

impl Setup {
    /// What script `index` sends, if it was first asked when the history was at
    /// `seen`.
    pub fn sent(&self, index: usize, seen: StateVersion) -> Sent {
        match &self.scripts[index].ask {
            Scripted::Submit { issued, .. } => {
                let issue = match issued {
                    Issued::AtZero => Issue::ClientKept(StateVersion::ZERO),
                    Issued::AtNewest => Issue::ClientKept(seen),
                    Issued::Ahead => Issue::ClientKept(seen.next()),
                    Issued::ByService => {
                        Issue::ServiceKept { issued_from: StateVersion::ZERO, is_durable: false }
                    }
                };
                let operation = self.scripts[index].operation(issue);
                Sent::Ask(operation.map_or_else(|| unreachable!("it submits"), Ask::Submit))
            }
            Scripted::LookUp { of } => {
                let Some(id) = self.scripts[*of].id() else { unreachable!("a look-up is of one") };
                let id = id.clone();
                let issued_from = StateVersion::ZERO;
                Sent::Ask(Ask::LookUp(LookUp { id, issued_from, history_id: None }))
            }
            Scripted::Control(control) => Sent::Control(control.clone()),
        }
    }

    /// The settings of writer `writer`.
    pub fn settings(&self, writer: usize) -> Settings {
        Settings {
            publisher_id: format!("w{writer}"),
            address: None,
            batch_operations_max: self.batch_max,
            batch_bytes_max: 1 << 16,
            inline_bytes_max: if self.is_inline { 1 << 12 } else { 0 },
            beside_bytes_max: if self.do_travel { 1 << 12 } else { 0 },
            batches_ahead_max: self.ahead_max,
            window: Window { versions_max: self.window, bytes_max: 1 << 20 },
            head: HeadLimits { soft_bytes: 1 << 16, hard_bytes: self.head_bytes_max },
        }
    }
}
