//! Why a command failed: what happened, whether it may have been applied, and
//! what to do next.

use std::io;

use headwater_client::{
    AddressError, Determinacy, Failure, HistoryError, HistoryId, ReadError, Reason, SubmitError,
};
use headwater_proto::reason;
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::issue::Sent;

/// A command that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    /// What happened.
    message: String,
    /// What to do next, where something can be done.
    advice: Option<String>,
    /// For what changes something: whether it may have been applied.
    determinacy: Option<Determinacy>,
    /// What the server said.
    failure: Option<Box<Failure>>,
    /// The operation that it is about.
    sent: Option<Box<Sent>>,
    /// The id of the history that was to be made.
    created: Option<HistoryId>,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            advice: None,
            determinacy: None,
            failure: None,
            sent: None,
            created: None,
        }
    }

    /// The command or its input breaks a rule.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// What the system said about a file.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        // Another path than the one that was meant.
        let is_usage = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory
        );
        let exit = if is_usage { Exit::Usage } else { Exit::Unexpected };
        Self::new(exit, format!("cannot {what} {}: {error}", path.display()))
    }

    /// Standard output does not take more. A closed pipe is how a reader says
    /// that it has enough.
    pub(crate) fn from_stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, String::new());
        }
        Self::new(Exit::Unexpected, format!("cannot write to standard output: {error}"))
    }

    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Says where in the input it happened.
    #[must_use]
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// A history that was to be created with this id, and may have been: with
    /// the same id the command can be repeated.
    #[must_use]
    pub(crate) fn creating(mut self, id: &HistoryId) -> Self {
        if self.determinacy == Some(Determinacy::MaybeApplied) {
            self.created = Some(id.clone());
            self.advice = Some(format!(
                "run the same command again with --history-id {id}: it finds what was created, or \
                 creates it"
            ));
        }
        self
    }

    /// A submission without an outcome.
    pub(crate) fn submission(error: &SubmitError, sent: Sent) -> Self {
        let determinacy = error.determinacy();
        let (exit, failure) = match error {
            SubmitError::InDoubt(it) => (Exit::InDoubt, &it.last),
            SubmitError::Expired(it) => (Exit::Unavailable, &**it),
            SubmitError::Fenced(it) => (Exit::Rejected, &**it),
            SubmitError::Invalid(it) | SubmitError::IdReused(it) => (Exit::Usage, &**it),
            SubmitError::HistoryMissing(it) => (Exit::NotFound, &**it),
            SubmitError::Refused(it) => (exit_of(it), &**it),
        };
        let advice = match error {
            SubmitError::InDoubt(_) => Some(format!(
                "run the same command again with {}: it finds out what happened, and applies \
                 nothing twice",
                sent.options()
            )),
            SubmitError::Expired(_) => {
                Some(format!("run the same command again, with or without {}", sent.options()))
            }
            SubmitError::IdReused(_) => {
                Some("choose another --operation-id, or send what the id belongs to".to_owned())
            }
            SubmitError::Fenced(_) => {
                Some("another owner took over; stop, or take over with raise-epoch".to_owned())
            }
            SubmitError::Invalid(_) | SubmitError::HistoryMissing(_) | SubmitError::Refused(_) => {
                advice_of(failure)
            }
        };
        Self {
            exit,
            message: error.to_string(),
            advice,
            determinacy: Some(determinacy),
            failure: Some(Box::new(failure.clone())),
            sent: Some(Box::new(sent)),
            created: None,
        }
    }

    /// As [`Self::to_json`] and the exit code have it.
    fn of_failure(exit: Exit, message: String, failure: &Failure) -> Self {
        let advice = advice_of(failure);
        Self { advice, failure: Some(Box::new(failure.clone())), ..Self::new(exit, message) }
    }

    pub(crate) fn to_text(&self) -> String {
        if self.message.is_empty() {
            return String::new();
        }
        let mut text = format!("error: {}", self.message);
        match self.determinacy {
            Some(Determinacy::NotApplied) => text += "\napplied: no",
            Some(Determinacy::MaybeApplied) => text += "\napplied: maybe",
            None => {}
        }
        // What breaks a rule breaks it every time.
        if let Some(sent) = self.sent.as_ref().filter(|_| self.exit != Exit::Usage) {
            text = text + "\noperation: " + &sent.options();
        }
        if let Some(advice) = &self.advice {
            text = text + "\nto do: " + advice;
        }
        text
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("kind".to_owned(), self.exit.word().into());
        error.insert("exitCode".to_owned(), self.exit.code().into());
        error.insert("message".to_owned(), self.message.clone().into());
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                error.insert(name.to_owned(), value);
            }
        };
        put("advice", self.advice.clone().map(Value::from));
        put("determinacy", self.determinacy.map(|it| determinacy_word(it).into()));
        if let Some(failure) = &self.failure {
            put("reason", Some(failure.reason.as_str().into()));
            put("objectKey", failure.object_key.as_deref().map(Value::from));
            put("oldestVersion", failure.oldest_version.map(Value::from));
            put("newestVersion", failure.newest_version.map(Value::from));
            put("writerEpoch", failure.writer_epoch.map(Value::from));
            let fields =
                failure.fields.iter().map(|(field, rule)| json!({ "field": field, "rule": rule }));
            put(
                "fields",
                Some(fields.collect::<Vec<_>>().into()).filter(|_| !failure.fields.is_empty()),
            );
        }
        if let Some(id) = &self.created {
            error.insert("historyId".to_owned(), id.as_str().into());
        }
        if let Some(sent) = &self.sent {
            sent.put(&mut error);
        }
        json!({ "error": error })
    }
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match &error {
            ReadError::HistoryMissing(it)
            | ReadError::VersionRetired(it)
            | ReadError::VersionAhead(it) => Self::of_failure(Exit::NotFound, message, it),
            ReadError::Invalid(it) => Self::of_failure(Exit::Usage, message, it),
            ReadError::Expired(it) => Self::of_failure(Exit::Unavailable, message, it),
            ReadError::Refused(it) => Self::of_failure(exit_of(it), message, it),
            ReadError::ReadSetFull { .. } => Self::usage(message),
        }
    }
}

impl From<HistoryError> for Failed {
    fn from(error: HistoryError) -> Self {
        let message = error.to_string();
        let determinacy = error.determinacy();
        let failed = match &error {
            HistoryError::Missing(it) => Self::of_failure(Exit::NotFound, message, it),
            HistoryError::Exists(it) | HistoryError::Fenced(it) => {
                Self::of_failure(Exit::Rejected, message, it)
            }
            HistoryError::Invalid(it) => Self::of_failure(Exit::Usage, message, it),
            HistoryError::Expired { last, .. } => {
                let exit = match determinacy {
                    Determinacy::MaybeApplied => Exit::InDoubt,
                    Determinacy::NotApplied => Exit::Unavailable,
                };
                Self::of_failure(exit, message, last).advise("run the same command again")
            }
            HistoryError::Refused(it) => Self::of_failure(exit_of(it), message, it),
        };
        Self { determinacy: Some(determinacy), ..failed }
    }
}

impl From<AddressError> for Failed {
    fn from(error: AddressError) -> Self {
        Self::usage(error.to_string())
    }
}

/// The exit code for a refusal that is not one of the named cases.
fn exit_of(failure: &Failure) -> Exit {
    match failure.reason {
        Reason::FieldInvalid | Reason::OperationIdReused | Reason::MessageTooLarge => Exit::Usage,
        Reason::HistoryMissing
        | Reason::PinMissing
        | Reason::VersionRetired
        | Reason::VersionAhead => Exit::NotFound,
        Reason::HistoryExists
        | Reason::PinExists
        | Reason::PinsFull
        | Reason::HistoryNeeded
        | Reason::Fenced => Exit::Rejected,
        Reason::HeadContended
        | Reason::QueueFull
        | Reason::HeadTooLarge
        | Reason::TooManyRequests
        | Reason::StoreUnavailable
        | Reason::ShuttingDown
        | Reason::FreshnessUnverified
        | Reason::WatcherSlow
        | Reason::Expired => Exit::Unavailable,
        Reason::PublicationInDoubt => Exit::InDoubt,
        Reason::StoredDataBad | Reason::FormatTooNew => Exit::BadData,
        Reason::Transport
        | Reason::Unauthenticated
        | Reason::PermissionDenied
        | Reason::Unrecognized => Exit::Unexpected,
    }
}

/// What to do about a refusal, where the reason alone tells.
fn advice_of(failure: &Failure) -> Option<String> {
    let advice = match failure.reason {
        Reason::HistoryMissing => "see `headwater list`, or `headwater create`",
        Reason::PinExists => "choose another name, or take that pin away first",
        Reason::PinMissing => "see `headwater pins`",
        Reason::PinsFull => "take a pin away that is not needed: see `headwater pins`",
        Reason::HistoryNeeded => "delete the fork first, or wait until it needs it no longer",
        Reason::HistoryExists => "choose another name, or use the history that is there",
        Reason::HeadContended
        | Reason::QueueFull
        | Reason::HeadTooLarge
        | Reason::TooManyRequests
        | Reason::StoreUnavailable
        | Reason::ShuttingDown
        | Reason::WatcherSlow
        | Reason::Expired
        | Reason::PublicationInDoubt => "run the same command again, later",
        Reason::FreshnessUnverified => {
            "run it again, or accept an older answer with --any or --max-staleness-ms"
        }
        Reason::VersionRetired => "ask for a newer version",
        Reason::VersionAhead => "ask for a version that exists",
        Reason::StoredDataBad => "an operator has to look at the object that is named",
        Reason::FormatTooNew => "use a newer build",
        Reason::Unauthenticated => "name a file with a token that the server knows: --token-file",
        Reason::PermissionDenied => "ask for a token with that role on that history",
        Reason::Transport => "is `headwater serve` running? --writer and --replica say where",
        Reason::FieldInvalid
        | Reason::OperationIdReused
        | Reason::MessageTooLarge
        | Reason::Fenced
        | Reason::Unrecognized => return None,
    };
    Some(advice.to_owned())
}

fn determinacy_word(determinacy: Determinacy) -> &'static str {
    match determinacy {
        Determinacy::NotApplied => reason::NOT_APPLIED,
        Determinacy::MaybeApplied => reason::MAYBE_APPLIED,
    }
}
