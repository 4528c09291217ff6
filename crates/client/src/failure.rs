//! What a failed call says about itself.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use headwater_proto::reason;
use prost::Message;
use tonic::{Code, ConnectError, Status};
use tonic_types::StatusExt;

/// Whether the operation may have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Determinacy {
    /// Nothing was changed, and nothing will be.
    NotApplied,
    /// It may have been applied, or may be applied yet. The same operation id,
    /// sent again or looked up, finds out.
    MaybeApplied,
}

/// Why a call failed, as the server names it: see
/// [`headwater_proto::reason`](headwater_proto::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A field of the request breaks a documented rule.
    FieldInvalid,
    /// The operation id belongs to another request.
    OperationIdReused,
    /// There is no such history, or not the one that the session has seen.
    HistoryMissing,
    /// There is a history of this name already.
    HistoryExists,
    /// There is a pin of this name already, on another version.
    PinExists,
    /// There is no pin of this name.
    PinMissing,
    /// The history has as many pins as it can have.
    PinsFull,
    /// A forked history still needs this one.
    HistoryNeeded,
    /// Other writers kept winning the head.
    HeadContended,
    /// The writer has enough waiting operations.
    QueueFull,
    /// The head has reached its limit.
    HeadTooLarge,
    /// The server takes no more calls of this caller, or of all together.
    TooManyRequests,
    /// The message is longer than servers take.
    MessageTooLarge,
    /// The object store does not answer the server.
    StoreUnavailable,
    /// The server drains.
    ShuttingDown,
    /// A publication got no answer.
    PublicationInDoubt,
    /// The replica could not prove its view to be fresh.
    FreshnessUnverified,
    /// The deadline passed before anything was published.
    Expired,
    /// The version is no longer at hand.
    VersionRetired,
    /// The version does not exist yet.
    VersionAhead,
    /// A watch was ended because this side did not read.
    WatcherSlow,
    /// Another owner has taken over.
    Fenced,
    /// A newer build wrote the stored data.
    FormatTooNew,
    /// Stored data is missing or altered.
    StoredDataBad,
    /// No identity was proved.
    Unauthenticated,
    /// The identity may not do this.
    PermissionDenied,
    /// The call itself failed: no address, no connection, no answer in time, an
    /// answer that is not from Headwater or breaks the contract.
    Transport,
    /// The server named a reason that this build does not know.
    Unrecognized,
}

impl Reason {
    /// The reason as the wire says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FieldInvalid => reason::FIELD_INVALID,
            Self::OperationIdReused => reason::OPERATION_ID_REUSED,
            Self::HistoryMissing => reason::HISTORY_MISSING,
            Self::HistoryExists => reason::HISTORY_EXISTS,
            Self::PinExists => reason::PIN_EXISTS,
            Self::PinMissing => reason::PIN_MISSING,
            Self::PinsFull => reason::PINS_FULL,
            Self::HistoryNeeded => reason::HISTORY_NEEDED,
            Self::HeadContended => reason::HEAD_CONTENDED,
            Self::QueueFull => reason::QUEUE_FULL,
            Self::HeadTooLarge => reason::HEAD_TOO_LARGE,
            Self::TooManyRequests => reason::TOO_MANY_REQUESTS,
            Self::MessageTooLarge => reason::MESSAGE_TOO_LARGE,
            Self::StoreUnavailable => reason::STORE_UNAVAILABLE,
            Self::ShuttingDown => reason::SHUTTING_DOWN,
            Self::PublicationInDoubt => reason::PUBLICATION_IN_DOUBT,
            Self::FreshnessUnverified => reason::FRESHNESS_UNVERIFIED,
            Self::Expired => reason::EXPIRED,
            Self::VersionRetired => reason::VERSION_RETIRED,
            Self::VersionAhead => reason::VERSION_AHEAD,
            Self::WatcherSlow => reason::WATCHER_SLOW,
            Self::Fenced => reason::FENCED,
            Self::FormatTooNew => reason::FORMAT_TOO_NEW,
            Self::StoredDataBad => reason::STORED_DATA_BAD,
            Self::Unauthenticated => reason::UNAUTHENTICATED,
            Self::PermissionDenied => reason::PERMISSION_DENIED,
            Self::Transport => "TRANSPORT",
            Self::Unrecognized => "UNRECOGNIZED",
        }
    }

    #[rustfmt::skip]
    fn parse(text: &str) -> Self {
        match text {
            reason::FIELD_INVALID => Self::FieldInvalid,
            reason::OPERATION_ID_REUSED => Self::OperationIdReused,
            reason::HISTORY_MISSING => Self::HistoryMissing,
            reason::HISTORY_EXISTS => Self::HistoryExists,
            reason::PIN_EXISTS => Self::PinExists,
            reason::PIN_MISSING => Self::PinMissing,
            reason::PINS_FULL => Self::PinsFull,
            reason::HISTORY_NEEDED => Self::HistoryNeeded,
            reason::HEAD_CONTENDED => Self::HeadContended,
            reason::QUEUE_FULL => Self::QueueFull,
            reason::HEAD_TOO_LARGE => Self::HeadTooLarge,
            reason::TOO_MANY_REQUESTS => Self::TooManyRequests,
            reason::MESSAGE_TOO_LARGE => Self::MessageTooLarge,
            reason::STORE_UNAVAILABLE => Self::StoreUnavailable,
            reason::SHUTTING_DOWN => Self::ShuttingDown,
            reason::PUBLICATION_IN_DOUBT => Self::PublicationInDoubt,
            reason::FRESHNESS_UNVERIFIED => Self::FreshnessUnverified,
            reason::EXPIRED => Self::Expired,
            reason::VERSION_RETIRED => Self::VersionRetired,
            reason::VERSION_AHEAD => Self::VersionAhead,
            reason::WATCHER_SLOW => Self::WatcherSlow,
            reason::FENCED => Self::Fenced,
            reason::FORMAT_TOO_NEW => Self::FormatTooNew,
            reason::STORED_DATA_BAD => Self::StoredDataBad,
            reason::UNAUTHENTICATED => Self::Unauthenticated,
            reason::PERMISSION_DENIED => Self::PermissionDenied,
            _ => Self::Unrecognized,
        }
    }
}

/// One failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The server's reason, or [`Reason::Transport`].
    pub reason: Reason,
    /// The gRPC code.
    pub code: Code,
    /// For people; no program should read it.
    pub message: Box<str>,
    /// Whether this call may have changed something.
    pub determinacy: Determinacy,
    /// How long the server asked to be left alone. Present where the same call
    /// may succeed later.
    pub retry_after: Option<Duration>,
    /// Fields of the request that break a rule, each with the rule.
    pub fields: Box<[(String, String)]>,
    /// For [`Reason::VersionRetired`] and [`Reason::VersionAhead`]: the oldest
    /// version at hand.
    pub oldest_version: Option<u64>,
    /// For the same: the newest version.
    pub newest_version: Option<u64>,
    /// For [`Reason::Fenced`]: the history's current writer epoch.
    pub writer_epoch: Option<u64>,
    /// For bad stored data: the key of the object, below the root of the store.
    pub object_key: Option<Box<str>>,
}

impl Failure {
    pub(crate) fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|it| it.domain == reason::DOMAIN);
        let text = |key| info.and_then(|it| it.metadata.get(key));
        let number = |key| text(key).and_then(|it| it.parse().ok());
        let determinacy = match text(reason::DETERMINACY).map(String::as_str) {
            Some(reason::NOT_APPLIED) => Determinacy::NotApplied,
            None if was_never_sent(status) => Determinacy::NotApplied,
            Some(_) | None => Determinacy::MaybeApplied,
        };
        Self {
            reason: info.map_or(Reason::Transport, |it| Reason::parse(&it.reason)),
            code: status.code(),
            message: status.message().into(),
            determinacy,
            retry_after: details.retry_info().and_then(|it| it.retry_delay),
            fields: details.bad_request().map_or_else(Box::default, |it| {
                let pair =
                    |it: &tonic_types::FieldViolation| (it.field.clone(), it.description.clone());
                it.field_violations.iter().map(pair).collect()
            }),
            oldest_version: number(reason::OLDEST_VERSION),
            newest_version: number(reason::NEWEST_VERSION),
            writer_epoch: number(reason::WRITER_EPOCH),
            object_key: text(reason::OBJECT_KEY).map(|it| it.as_str().into()),
        }
    }

    /// Reads the `google.rpc.Status` of one operation in a stream.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match tonic_types::Status::decode(bytes) {
            Ok(read) => Self::from_status(&Status::with_details(
                Code::from_i32(read.code),
                read.message,
                bytes.to_vec().into(),
            )),
            Err(_) => Self::malformed("an error status does not decode"),
        }
    }

    /// No attempt was made, or none left this process.
    pub(crate) fn not_sent(message: impl Into<Box<str>>) -> Self {
        Self::transport(Code::Unavailable, message, Determinacy::NotApplied)
    }

    /// No answer came in time.
    pub(crate) fn unanswered() -> Self {
        let message = "no answer in time";
        Self::transport(Code::DeadlineExceeded, message, Determinacy::MaybeApplied)
    }

    /// An answer breaks the contract.
    pub(crate) fn malformed(message: impl Into<Box<str>>) -> Self {
        Self::transport(Code::DataLoss, message, Determinacy::MaybeApplied)
    }

    /// The request breaks a rule that this side knows.
    pub(crate) fn invalid(field: &str, rule: impl Into<String>) -> Self {
        let rule = rule.into();
        Self {
            reason: Reason::FieldInvalid,
            fields: Box::new([(field.to_owned(), rule.clone())]),
            ..Self::transport(
                Code::InvalidArgument,
                format!("{field}: {rule}"),
                Determinacy::NotApplied,
            )
        }
    }

    /// An answer came from another history than the session's.
    pub(crate) fn other_history(message: impl Into<Box<str>>) -> Self {
        Self {
            reason: Reason::HistoryMissing,
            ..Self::transport(Code::NotFound, message, Determinacy::NotApplied)
        }
    }

    fn transport(code: Code, message: impl Into<Box<str>>, determinacy: Determinacy) -> Self {
        Self {
            reason: Reason::Transport,
            code,
            message: message.into(),
            determinacy,
            retry_after: None,
            fields: Box::default(),
            oldest_version: None,
            newest_version: None,
            writer_epoch: None,
            object_key: None,
        }
    }

    /// The rules that the request breaks, each with its field; the message where
    /// the server names none.
    pub(crate) fn rules(&self) -> String {
        if self.fields.is_empty() {
            return self.to_string();
        }
        let rules = self.fields.iter().map(|(field, rule)| format!("{field}: {rule}"));
        rules.collect::<Vec<_>>().join("; ")
    }

    /// How a call ended of which some attempt is in doubt, where this is the last
    /// one. Its message speaks of itself only, and may say that nothing was
    /// published, which is not true of the call: the reason is told instead.
    pub(crate) fn as_last_of_doubt(&self) -> String {
        if self.determinacy == Determinacy::MaybeApplied {
            return self.to_string();
        }
        let how = if self.reason == Reason::Transport {
            self.to_string()
        } else if self.fields.is_empty() {
            self.reason.as_str().to_owned()
        } else {
            format!("{} ({})", self.reason.as_str(), self.rules())
        };
        format!("an attempt got no answer, and the last one failed with {how}")
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_worth_repeating(&self) -> bool {
        match self.reason {
            Reason::HeadContended
            | Reason::QueueFull
            | Reason::HeadTooLarge
            | Reason::TooManyRequests
            | Reason::StoreUnavailable
            | Reason::ShuttingDown
            | Reason::PublicationInDoubt
            | Reason::FreshnessUnverified
            | Reason::WatcherSlow
            | Reason::Expired => true,
            Reason::Transport => self.retry_after.is_some() || is_passing(self.code),
            // A caller whose rights have changed, or whose token has been
            // replaced, is asked to show what it has now.
            Reason::Unauthenticated | Reason::Unrecognized => self.retry_after.is_some(),
            Reason::FieldInvalid
            | Reason::MessageTooLarge
            | Reason::OperationIdReused
            | Reason::HistoryMissing
            | Reason::HistoryExists
            | Reason::PinExists
            | Reason::PinMissing
            | Reason::PinsFull
            | Reason::HistoryNeeded
            | Reason::VersionRetired
            | Reason::VersionAhead
            | Reason::Fenced
            | Reason::FormatTooNew
            | Reason::StoredDataBad
            | Reason::PermissionDenied => false,
        }
    }

    /// Whether the server, and not the request or the store, is what failed: it
    /// is put aside for a while.
    pub(crate) fn is_the_peers(&self) -> bool {
        match self.reason {
            Reason::ShuttingDown => true,
            Reason::Transport => is_passing(self.code),
            Reason::FieldInvalid
            | Reason::OperationIdReused
            | Reason::HistoryMissing
            | Reason::HistoryExists
            | Reason::PinExists
            | Reason::PinMissing
            | Reason::PinsFull
            | Reason::HistoryNeeded
            | Reason::HeadContended
            | Reason::QueueFull
            | Reason::HeadTooLarge
            | Reason::TooManyRequests
            | Reason::MessageTooLarge
            | Reason::StoreUnavailable
            | Reason::PublicationInDoubt
            | Reason::FreshnessUnverified
            | Reason::Expired
            | Reason::VersionRetired
            | Reason::VersionAhead
            | Reason::WatcherSlow
            | Reason::Fenced
            | Reason::FormatTooNew
            | Reason::StoredDataBad
            | Reason::Unauthenticated
            | Reason::PermissionDenied
            | Reason::Unrecognized => false,
        }
    }

    /// Whether another server may do better at once: this one cannot reach the
    /// store, or cannot be reached. Contention and doubt are of the history, and
    /// the server that has them knows most.
    pub(crate) fn is_reason_to_move(&self) -> bool {
        let is_cut_off =
            matches!(self.reason, Reason::StoreUnavailable | Reason::FreshnessUnverified);
        is_cut_off || self.is_the_peers()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason == Reason::Transport {
            write!(f, "{:?}: {}", self.code, self.message)
        } else {
            f.write_str(&self.message)
        }
    }
}

/// Codes that a broken connection, a proxy or a server's end of time leaves
/// behind, where no server of Headwater had a say.
fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
    )
}

/// Whether the call failed before a byte of it was sent. Only a connection that
/// was never made proves that.
fn was_never_sent(status: &Status) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn every_reason_of_the_contract_is_known() {
        for text in reason::ALL {
            assert_ne!(Reason::parse(text), Reason::Unrecognized, "{text}");
            assert_eq!(Reason::parse(text).as_str(), text);
        }
    }

    #[test]
    fn a_status_without_determinacy_is_maybe_applied() {
        for status in [Status::unavailable("?"), Status::invalid_argument("?")] {
            assert_eq!(Failure::from_status(&status).determinacy, Determinacy::MaybeApplied);
        }
        let info = ErrorDetails::with_error_info(
            "QUEUE_FULL",
            reason::DOMAIN,
            [(String::new(), String::new())],
        );
        let status = Status::with_error_details(Code::ResourceExhausted, "full", info);
        let failure = Failure::from_status(&status);
        assert_eq!(failure.reason, Reason::QueueFull);
        assert_eq!(failure.determinacy, Determinacy::MaybeApplied);
    }

    #[test]
    fn rules_are_told_without_the_servers_words_around_them() {
        let invalid = |fields: &[(&str, &str)]| Failure {
            message: "invalid request: n: r; m: s".into(),
            fields: fields.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect(),
            ..Failure::invalid("n", "r")
        };

        assert_eq!(invalid(&[("n", "r"), ("m", "s")]).rules(), "n: r; m: s");
        assert_eq!(invalid(&[]).rules(), "invalid request: n: r; m: s");
    }

    #[test]
    fn the_last_of_a_call_in_doubt_does_not_speak_for_the_call() {
        let refused =
            Failure { reason: Reason::Expired, ..Failure::not_sent("nothing was published") };
        let told = refused.as_last_of_doubt();
        assert_eq!(told, "an attempt got no answer, and the last one failed with EXPIRED");
        let told = Failure::invalid("n", "r").as_last_of_doubt();
        assert!(told.ends_with("failed with FIELD_INVALID (n: r)"), "{told}");
        assert_eq!(Failure::unanswered().as_last_of_doubt(), "DeadlineExceeded: no answer in time");
    }

    #[test]
    fn another_systems_reasons_are_not_ours() {
        let determinacy = (reason::DETERMINACY.to_owned(), reason::NOT_APPLIED.to_owned());
        let info = ErrorDetails::with_error_info("QUEUE_FULL", "example.com", [determinacy]);
        let status = Status::with_error_details(Code::Unavailable, "full", info);

        let failure = Failure::from_status(&status);

        assert_eq!(failure.reason, Reason::Transport);
        assert_eq!(failure.determinacy, Determinacy::MaybeApplied);
    }
}
